"""`everstep bench`: what durable steps cost beside a raw store. Read `command` first.

May import what `cli` may, and of its rooms `args` and `view`.
"""
