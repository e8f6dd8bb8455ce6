"""Commands for those who operate workers and services.

Read `worker` first. May import what `cli` may, and of its rooms `args` and `view`.
"""
