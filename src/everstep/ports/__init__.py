"""What the runtime needs from the outside, as protocols."""
