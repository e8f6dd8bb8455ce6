"""The past and the future of a run. Nothing here drives one.

`fork` from a checkpoint, `replay` a step, `recall` values, `bisect` two runs; `explain` what a resume would
do, `migrate` to a changed flow. Read `fork` first. May import what `runtime` may, and of its rooms `drive`,
`drive.units`, `guards`, `operations`, `outage` and `waits`.
"""
