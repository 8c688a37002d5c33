"""What runs a graph: loops, scheduler, threads, kept results, calls to hosts."""
