"""What stands in the place of an item that failed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ItemError:
    """Why an item of a map has no value: collected in the item's place."""

    index: int
    type: str
    message: str
