"""Execution of a graph: loops, scheduler, threads, kept results, calls to hosts."""
