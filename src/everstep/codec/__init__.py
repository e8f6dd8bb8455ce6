"""Values and records as bytes, and back."""
