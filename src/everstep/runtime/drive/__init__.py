"""The life of a step. Read from top to bottom: `loop` picks what is ready, `prepare` gathers its
arguments, `invoke` calls it, `finish` makes values and a record of what it returned, `chain_writer` buffers
and puts it, `committer` brings it to the store. `context` is what they all work with.

Beside them: `parallel` and `node_threads` for calls that run at once, `subflows` and `apply` for flows
inside the run, `values`, `channel` and `streams` for what nodes read and write, `midway` and `units` for what
they say and call before they end, `rest` for its sleep, and `flushing` for when to write. May import what
`runtime` may, and of its rooms `drive.children`, `drive.timed`, `drive.undo`, `guards`, `live`, `metrics`,
`operations`, `outage`, `drive.units`, `tracing`, `waits` and `workers`.
"""
