"""Commands about the past of runs, and about changed flows.

Read `fork` first. May import what `cli` may, and of its rooms `args`, `view` and `commands.runs`.
"""
