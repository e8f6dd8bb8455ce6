"""Handlers for programs: runs, waits, events, breakers, what is kept, and the service itself."""
