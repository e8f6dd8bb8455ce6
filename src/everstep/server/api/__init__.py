"""Handlers for programs: runs, waits, events, breakers, what is kept, the service itself; a module each.

Read `runs` first. May import what `server` may, and of its rooms `access`.
"""
