"""Commands about the past of runs, and about changed flows."""
