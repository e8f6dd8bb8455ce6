"""`everstep demo`: a run that is killed and goes on. Read `flow`, an example, then `command`.

May import what `cli` may, and of its rooms `args` and `view`.
"""
