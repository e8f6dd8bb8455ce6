"""Undoing runs. Read `stack` first: what is undone, in which order, and how far that has come.

`state` knows it, and not the
other way round. May import what `engine` may.
"""
