"""One store for places that keep named bytes: folders, buckets, repositories. `memory:` is one, too.

Read `bucket` first (what such a place must do), then `drafts` (every rule of a run's log) and `store`.
`names` says what lies where, `lines` appends to logs, and `logs` keeps them; `readable` and `scribe` write
checkpoints as JSON for people. May import what `stores` may, and of its rooms `objects.marks`.
"""
