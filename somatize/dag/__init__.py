"""What is declared: nodes, pieces, the topology of a graph, its plan and its slices."""
