"""The declaration of a graph: nodes, pieces, topology, plan and slices."""
