"""Commands about what runs wait for.

Read `waits` first. May import what `cli` may, and of its rooms `args` and `view`.
"""
