"""Guards."""
