"""Commands about the past of runs."""
