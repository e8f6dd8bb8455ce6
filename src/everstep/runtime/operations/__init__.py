"""Operating many runs. Nothing here drives one.

`find` lists runs, and leaves it to `everstep.engine.query` which of them are asked for. `acting` sees to it
that every act with a name has its row in the audit log. Read `find` first. May import what
`runtime` may, and of its rooms `waits`.
"""
