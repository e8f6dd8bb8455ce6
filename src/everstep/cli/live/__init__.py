"""A run while it goes on: a live tree on a terminal, plain lines on a pipe. Read `progress` first.

May import what `cli` may, and of its rooms `args` and `view`.
"""
