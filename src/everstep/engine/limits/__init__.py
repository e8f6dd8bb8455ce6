"""Limits of keys: how many at once, and how many in a while. Read `rates` first, then `keys` for claims.

May import `errors` and `model`, and no other room of the engine.
"""
