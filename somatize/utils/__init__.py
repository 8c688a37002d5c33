"""What every package may use: interrupt-safe waiting, lazy names, warnings, and the formatting of durations, sizes and counts."""
