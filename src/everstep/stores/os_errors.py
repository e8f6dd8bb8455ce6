"""What the errors of a file system mean to a store on it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from everstep.errors import StoreError, StoreNotWritable, StoreUnavailable

_FIXES = {
    errno.ENOSPC: "Free some space, then resume the run.",
    errno.EDQUOT: "The quota is used up: free some space or have it raised, then resume the run.",
    errno.EFBIG: "The file system takes no file of that size: keep large values elsewhere (blobs=...).",
    errno.EIO: "Check the disk and the system's log before anything else is written there.",
    errno.EROFS: "Mount it for writing; a disk that turned read-only by itself needs a check.",
    errno.EACCES: "Check who owns the folder, and its permissions.",
    errno.EPERM: "Check who owns the folder, and its permissions.",
    errno.ENOENT: "Check that it is mounted and was not removed.",
    errno.ENOTDIR: "Check that the path names a folder.",
    errno.ENOTCONN: "Check that it is mounted and its server can be reached.",
}
_PASSING = frozenset(
    (
        *(errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.ETIMEDOUT, errno.ESTALE, errno.ENOLCK),
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOTCONN, errno.ECONNRESET, errno.ECONNREFUSED),
        *(errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH),
    )
)
"""Trying again may help."""
_FOR_NOW = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""A retry helps once there is room, or it is mounted for writing."""


def explain(error: OSError, doing: str) -> StoreError:
    """Say plainly what failed, and what to do about it."""
    number = error.errno or 0
    kind = StoreUnavailable if number in _PASSING else StoreError
    if number in _FOR_NOW:
        kind = StoreNotWritable
    fix = _FIXES.get(number, "Try again." if number in _PASSING else "Check the folder and its disk.")
    return kind(f"cannot {doing}: {error.strerror or error}.", fix=fix)


@contextmanager
def plainly(doing: str) -> Iterator[None]:
    """Turn the system's errors into ours."""
    try:
        yield
    except OSError as error:
        raise explain(error, doing) from error
