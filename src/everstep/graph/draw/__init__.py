"""A flow as a picture: DOT, Mermaid and SVG.

Read `drawing` first. May import what `graph` may, and of its rooms `author`, `check` and `compile`.
"""
