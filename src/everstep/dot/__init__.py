"""Pipelines written as DOT digraphs: text to a graph with positions, and back. Knows nothing of flows."""
