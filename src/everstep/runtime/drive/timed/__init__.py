"""When a run begins, and by when it is to have ended. Read `times` first: what people say, and what the
admission keeps of it.

`keeping` is what a drive asks whether the time has come. May import what `runtime` may, and of its rooms
`outage` and `waits`.
"""
