"""Where calls of 0.1 are now. They work until 0.3, and say so.

Apart from the hosts because both need it, and because it goes as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any
from warnings import warn

_GROUPS: Mapping[str, tuple[str, ...]] = {
    "debug": ("bisect", "diff", "recall", "replay"),
    "fleet": ("breakers", "counts", "reset_breaker", "workers"),
    "retention": ("clean_up", "erase", "gc", "pin", "removals", "removed", "unpin"),
    "storage": ("doctor", "drain", "rekey", "spool", "spooled", "verify"),
    "transfer": ("checkpoint_as", "copy", "export", "import_", "write_run_folder"),
    "versions": ("compat", "migrate"),
    "waiting": ("fire", "reissue", "revoke", "settle"),
}
MOVED_CALLS: Mapping[str, str] = {
    call: f"{group}.{call}" for group, calls in _GROUPS.items() for call in calls
}
"""What was an attribute of a host in 0.1, and where it is now."""


def moved_call(host: object, name: str) -> Any:
    """Return what a host had under this name in 0.1, with a warning that names its place."""
    place = MOVED_CALLS.get(name)
    if place is None:
        raise AttributeError(f"{type(host).__name__!r} object has no attribute {name!r}")
    message = f"host.{name} is host.{place} now; the old name works until everstep 0.3."
    warn(message, DeprecationWarning, stacklevel=3)
    return attrgetter(place)(host)
