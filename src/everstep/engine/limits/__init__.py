"""Limits of keys.

Read `rates` first, then `keys` for claims of runs and `permits` for calls. May import what `engine` may.
"""
