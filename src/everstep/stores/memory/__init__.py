"""`memory:` keeps runs in this process: for tests, for trying things out, and as the base of a toy store.

Begin with `store`. `runs` has the records of one run, `waits` what runs wait for, `retention` what removes
them.
"""

from everstep.stores.memory.store import MemoryData, MemoryStore

__all__ = ["MemoryData", "MemoryStore"]
