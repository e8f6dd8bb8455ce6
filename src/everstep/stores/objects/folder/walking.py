"""The names of the files below a folder, as objects are called. Apart from the bucket, as it only reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

from everstep.stores.objects.bucket import Listed

_AS_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def sorted_names(root: int, prefix: str, after: str) -> Iterator[str]:
    """Yield the names with a prefix that sort behind another, in the order of their bytes."""
    return _walk(root, _above(prefix), prefix, after)


def _above(prefix: str) -> str:
    """Return the folder that holds everything with a prefix, and that lies inside."""
    return prefix[: prefix.rfind("/") + 1]


def _walk(root: int, above: str, prefix: str, after: str) -> Iterator[str]:
    """A folder sorts as what is in it: with its slash."""
    for key in sorted(_keys(root, above)):
        path = above + key
        if key.endswith("/"):
            is_wanted = path.startswith(prefix) or prefix.startswith(path)
            if is_wanted and (path > after or after.startswith(path)):
                yield from _walk(root, path, prefix, after)
        elif path.startswith(prefix) and path > after:
            yield path


def _keys(root: int, above: str) -> list[str]:
    try:
        fd = os.open(above or ".", _AS_FOLDER, dir_fd=root)
    except (FileNotFoundError, NotADirectoryError):
        return []
    try:
        with os.scandir(fd) as entries:
            return [
                f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name
                for entry in entries
                if not entry.name.startswith(".")
            ]
    finally:
        os.close(fd)


def survey(root: int, prefix: str, leftover: datetime) -> Iterator[Listed]:
    """Yield names with sizes and times, and remove unfinished files that are older than `leftover`."""
    return _survey(root, _above(prefix), prefix, leftover)


def _survey(root: int, above: str, prefix: str, leftover: datetime) -> Iterator[Listed]:
    try:
        fd = os.open(above or ".", _AS_FOLDER, dir_fd=root)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        with os.scandir(fd) as entries:
            found = list(entries)
        for entry in found:
            path = above + entry.name
            if entry.is_dir(follow_symlinks=False):
                deeper = f"{path}/"
                is_wanted = deeper.startswith(prefix) or prefix.startswith(deeper)
                if is_wanted and not entry.name.startswith("."):
                    yield from _survey(root, deeper, prefix, leftover)
                continue
            with suppress(FileNotFoundError):
                status = os.stat(entry.name, dir_fd=fd, follow_symlinks=False)
                modified_at = datetime.fromtimestamp(status.st_mtime, UTC)
                if entry.name.startswith("."):
                    if entry.name.endswith(".tmp") and modified_at < leftover:
                        os.unlink(entry.name, dir_fd=fd)
                elif path.startswith(prefix):
                    yield Listed(path, status.st_size, modified_at)
    finally:
        os.close(fd)
