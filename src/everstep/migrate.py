"""What runs under way do when their flow has changed: `from everstep import migrate`."""

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

__all__ = [
    "Migration",
    "accept",
    "add_value",
    "drop_node",
    "rename_node",
    "rename_value",
    "skip",
    "upcast",
]
