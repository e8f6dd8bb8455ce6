"""What is wrong, or odd, about a pipeline before it runs. Read `rules` first."""
