"""A computation declared as a graph, run, watched while it runs and read back afterwards, by the same dicts."""
