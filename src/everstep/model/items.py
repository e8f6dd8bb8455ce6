"""What stands in the place of an item that failed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

OMITTED = "everstep.omitted"
"""In the metadata of a dataclass field: stored only if it is not the default. Older values stay equal so."""


@dataclass(frozen=True)
class ItemError:
    """Why an item of a map has no value: collected in the item's place."""

    index: int
    type: str
    message: str
    input: Any = field(default=None, compare=False, repr=False, metadata={OMITTED: True})
    """What the item was called with: its element of the list, or a dict where a map goes over several.

    None for what could not be kept, or is larger than 64 KiB."""
