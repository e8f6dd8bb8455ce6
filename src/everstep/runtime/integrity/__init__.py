"""Whether what is kept is what was written. Read `verify`, then `run_check`, which walks one run with
`chain_check`, `keyframe_check` and `artifact_check`. `findings` are what can be wrong; `fallback` goes on
before it.

May import what `runtime` may, and of its rooms `drive`, `outage`, `travel` and `waits`.
"""
