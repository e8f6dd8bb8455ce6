"""What an object may be called, so that no place takes a name for something else."""

from __future__ import annotations

import re

from everstep.errors import StoreError

_NAME = re.compile(r"[A-Za-z0-9_~=-][A-Za-z0-9._~=-]*(?:/[A-Za-z0-9_~=-][A-Za-z0-9._~=-]*)*")
LONGEST_PART = 240
"""Folders allow 255 bytes, and some need a few for themselves."""


def checked(name: str) -> str:
    """Return a name as it is; `StoreError` if it is none, so that it can lead nowhere else."""
    if not _NAME.fullmatch(name) or max(map(len, name.split("/"))) > LONGEST_PART:
        raise StoreError(f"{name!r} is no name of an object.", fix="Use parts of letters, digits and ._~=-")
    return name


def check_prefix(prefix: str) -> None:
    """Raise `StoreError` for what no name begins with."""
    above, _, leaf = prefix.rpartition("/")
    if above:
        checked(above)
    if leaf:
        checked(leaf)
