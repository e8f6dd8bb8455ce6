"""Commands that start, show and end runs."""
