"""Decisions without side effects: the same state and event always give the same answer.

Read `scope` first, which is what is known of a flow under way; `fold` changes it with each recorded step, and
`readiness` says which node may start. `state` is a whole run, `decide` makes step records, `flush` says when
to write them, `keyframe` is the state as a record holds it. `leases`, `claims`, `settling` and `trimming` are
what every store asks. Pure, so thousands of crashes are simulated in seconds. May import errors, model and
graph.
"""
