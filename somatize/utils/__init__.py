"""Helpers for every package: interrupt-safe waiting, lazy names, warnings, units of measure."""
