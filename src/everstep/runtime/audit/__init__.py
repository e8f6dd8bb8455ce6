"""The audit log while something is done. Read `acting`.

What writes for a named act hands its row to the store with the write. May import what `runtime` may, and of
its rooms `waits`.
"""
