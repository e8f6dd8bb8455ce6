"""everstep bench."""
