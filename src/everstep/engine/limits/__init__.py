"""Limits of keys: how many at once, and how many in a while.

Read `rates` first, then `keys` for claims of runs and `permits` for calls. May import what `engine` may.
"""
