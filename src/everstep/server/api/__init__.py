"""Handlers for programs: runs, waits, events, breakers, what is kept, the service itself; a module each."""
