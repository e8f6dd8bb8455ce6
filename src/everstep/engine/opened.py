"""A visit to an inner flow that is under way."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everstep.engine.scope import Scope


class Opened:
    """One visit to an inner flow under way, and how far its items are. A flow that is no map has one item."""

    __slots__ = (
        "base",
        "count",
        "done",
        "failed",
        "given",
        "is_map",
        "next",
        "reads",
        "scopes",
        "started_at",
        "task",
        "visit",
    )

    def __init__(
        self, base: str, visit: int, reads: dict[str, int], items: int | None, started_at: datetime | None
    ) -> None:
        self.base = base
        """The path of the visit, such as `rag@2`."""
        self.visit = visit
        self.reads = reads
        self.is_map = items is not None
        self.count = 1 if items is None else items
        self.scopes: dict[int, Scope] = {}
        """The items that are open."""
        self.done: set[int] = set()
        self.failed: set[int] = set()
        """Items whose failure is tolerated."""
        self.next = 0
        """No item before this one is still to be opened."""
        self.started_at = started_at
        self.task: int | None = None
        """The queued task that the visit answers."""
        self.given: tuple[str, ...] = ()
        """The inputs that the task brings."""

    def prefix_of(self, item: int) -> str:
        """Return what the paths inside an item begin with."""
        return f"{self.base}#{item}/" if self.is_map else f"{self.base}/"

    @property
    def is_settled(self) -> bool:
        return len(self.done) + len(self.failed) == self.count

    def next_item(self) -> int | None:
        """Return an item that is neither open nor settled, the first in order."""
        while self.next < self.count:
            item = self.next
            self.next += 1
            if item not in self.scopes and item not in self.done and item not in self.failed:
                return item
        return None
