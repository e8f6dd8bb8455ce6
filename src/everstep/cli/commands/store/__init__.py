"""Commands about what is kept."""
