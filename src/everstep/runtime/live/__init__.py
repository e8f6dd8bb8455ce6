"""What nodes emit, for other processes. Read `writer` first; `around` is what surrounds a node.

Loaded by runs of flows that ask for it, and by those who follow a run. May import what `runtime` may, and of
its rooms `drive`.
"""
