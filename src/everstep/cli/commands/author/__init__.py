"""Commands for those who write flows.

Read `validate` first. May import what `cli` may, and of its rooms `args` and `view`.
"""
