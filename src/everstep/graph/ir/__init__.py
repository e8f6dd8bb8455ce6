"""A flow as JSON: written without its functions, read with a registry that knows them.

Read `write` first. May import what `graph` may, and of its rooms `author`, `check` and `compile`.
"""
