"""Commands that start, show and end runs.

Read `run` first. May import what `cli` may, and of its rooms `args`, `view`, `live` and `commands.waits`.
"""
