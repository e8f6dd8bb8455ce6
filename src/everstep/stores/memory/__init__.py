"""`memory:` keeps runs in this process: for tests, for trying things out, and as the base of a toy store.

It is the store of `stores.objects`; `store` has only where things lie.
"""

from everstep.stores.memory.store import MemoryBucket, MemoryData, MemoryLogs, MemoryStore

__all__ = ["MemoryBucket", "MemoryData", "MemoryLogs", "MemoryStore"]
