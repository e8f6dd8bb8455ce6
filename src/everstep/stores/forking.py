"""Forks of a process: a thread that held a lock is not in the child, and nothing would release it there."""

from __future__ import annotations

import os
import threading
import weakref


def free_in_children(owner: object, *locks: str) -> None:
    """Give an object new locks under these names in every child that is forked."""
    known = weakref.ref(owner)

    def free() -> None:
        held = known()
        for name in locks if held is not None else ():
            setattr(held, name, threading.Lock())

    os.register_at_fork(after_in_child=free)
