"""Runs that nodes of other runs start, with `ctx.start`. Read `orders` first, which is what a record says of
a start; `admitting` makes the run of one, once; `starts` sees to it for one drive; `results` is for who waits
for their end, `cancelling` for when their starter is cancelled, `family` drives them beside it. May import
what `runtime` may, and of its rooms `drive.timed`, `guards`, `outage` and `waits`.
"""
