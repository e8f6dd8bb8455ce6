"""What becomes of runs under way when a flow changes, and of stores: `from everstep import migrate`."""

from __future__ import annotations

from collections.abc import Callable

from everstep import registry
from everstep.graph.author.migrations import (
    Migration,
    accept,
    add_value,
    drop_node,
    rename_node,
    rename_value,
    skip,
    upcast,
)
from everstep.ports.upgrades import StoreUpgrade

__all__ = [
    "Migration",
    "accept",
    "add_value",
    "drop_node",
    "rename_node",
    "rename_value",
    "skip",
    "upcast",
    "upgrade_store",
]


def upgrade_store(
    url: str, *, dry_run: bool = False, on_progress: Callable[[str], object] | None = None
) -> StoreUpgrade:
    """Bring the tables of a store up to date, beside clients at work, and say what was done.

    The first client of a newer everstep does what it needs by itself; this also does what may come later,
    such as indexes on large tables. It may be cut off and called again. With `dry_run` nothing is written,
    and it says how long others would have to wait. `on_progress` is told in words how far it has come.
    """
    return registry.upgrade_of(url, dry_run=dry_run, say=on_progress or (lambda _: None))
