"""Queries: how people write them, and which runs they ask for.

Read `tree` first: a query is a tree of comparisons. `text` reads one, `judge` says whether a run is one that
it asks for, `labels` what becomes of tags and attributes. May import what `engine` may.
"""
