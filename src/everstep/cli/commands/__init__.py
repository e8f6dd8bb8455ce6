"""The commands, in groups."""
