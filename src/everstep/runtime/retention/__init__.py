"""Removing runs and artifacts. Read `collect` first: it applies the rules of every run.

`after_run` does so after each run, `erase` removes one for good, `sweep` removes artifacts that
`references` no longer finds, `trim` old checkpoints; `summaries` are what stays of a run. May import what
`runtime` may, and of its rooms `drive`, `operations` and `outage`.
"""
