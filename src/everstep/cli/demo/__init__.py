"""everstep demo."""
