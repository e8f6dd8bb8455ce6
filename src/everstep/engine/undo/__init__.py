"""Undoing what a run did. Read `stack` first: what is undone, in which order, and how far that has come.

May import the rest of the engine but what is above the fold of one flow: `state` knows it, and not the
other way round.
"""
