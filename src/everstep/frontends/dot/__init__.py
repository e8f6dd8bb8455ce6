"""The DOT language: text to a graph with positions, and back. Knows nothing of flows. Read `parser` first.

Nothing here recurses with the text, and whatever a small text could blow up is counted. Reading goes on
after a mistake to find the next; each part of the text knows its place, so a mistake inside an attribute is
shown there. May import what `frontends` may, and no other room of it.
"""
