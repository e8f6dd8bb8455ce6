"""Commands for those who operate workers and services."""
