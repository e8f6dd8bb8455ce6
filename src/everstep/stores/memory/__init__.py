"""`memory:` keeps runs in this process: for tests, for trying things out, and as the base of a toy store.

It is the store of `stores.objects`; `store` has only where things lie. Read `store` first. May import what
`stores` may, and of its rooms `objects`.
"""

from everstep.stores.memory.store import MemoryBucket, MemoryData, MemoryLogs, MemoryStore

__all__ = ["MemoryBucket", "MemoryData", "MemoryLogs", "MemoryStore"]
