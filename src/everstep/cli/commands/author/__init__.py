"""Commands for those who write flows."""
