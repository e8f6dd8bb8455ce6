"""Workers: processes that find runs that are due, and drive them. Read `worker` first.

`claim` gets the right to drive a run, `lease_renewal` keeps it, `reclaim` finds runs of dead owners,
`suspects` runs that kill their owners; `heartbeat` shows that a worker is alive, `backpressure` lets it
claim less; `built_in` knows flows that come with everstep. May import what `runtime` may, and of its rooms
`drive.children`, `operations.asking`, `operations.bulk`, `operations.schedules`, `outage`, `waits` and
`waits.notices`.
"""
