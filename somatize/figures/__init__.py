"""What every figure shares: plotly, the theme, notebook cells, and the drawing of a graph."""
