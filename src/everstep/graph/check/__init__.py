"""What is wrong, or odd, about a flow before it runs."""
