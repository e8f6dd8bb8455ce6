"""Durable calls inside a node: made once, recorded, and from then on replayed. Read `calls` first;
`kept_errors` is for those that fail. May import what `runtime` may, and of its rooms `drive.children`,
`outage` and `waits`.
"""
