"""Limits of keys: how many at once, and how many in a while.

Read `rates` first, then `keys` for claims. May import what `engine` may, and no other room of it.
"""
