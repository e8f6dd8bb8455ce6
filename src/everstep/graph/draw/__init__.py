"""A flow as a picture: DOT, Mermaid and SVG."""
