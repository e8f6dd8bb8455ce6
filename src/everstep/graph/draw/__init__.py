"""A flow as a picture."""
