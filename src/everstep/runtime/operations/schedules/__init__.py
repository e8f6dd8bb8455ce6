"""Runs that are started again and again by the clock: a schedule is a run of a flow that comes with everstep.

Read `flow` first; `calendar` says when, `spec` what is started and how, `deciding` which times are started,
skipped or missed, `declared` what flows say. May import what `runtime` may, of its rooms `drive.children`,
`operations.bulk` and `retention`; and the library that reads cron expressions.
"""
