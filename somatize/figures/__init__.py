"""Common parts of figures: plotly, the theme, notebook output, and the drawing of a graph."""
