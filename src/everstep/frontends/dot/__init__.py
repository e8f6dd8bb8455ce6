"""The DOT language: text to a graph with positions, and back. Knows nothing of flows. Read `parser` first."""
