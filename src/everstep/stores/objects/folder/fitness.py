"""Whether a folder can keep writers apart: tried out, because file systems promise more than they keep."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from everstep.ports.health import Finding, Health, Level
from everstep.stores.objects.folder.handles import FileHandle, Handles
from everstep.stores.objects.folder.mounts import Mount

CONTROL = ".everstep"
"""The folder for what is no object."""
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
UNNAMED: int = getattr(os, "O_TMPFILE", 0)
"""A file without a name, which is gone if the machine stops before it has one."""

_ROOM = 100 << 20
_INODES = 1000
_VOLATILE = {"tmpfs", "ramfs"}

NewName = Callable[[], str]
OpenLock = Callable[[str], int]


class Unfit(Exception):
    """Why runs cannot be kept in a folder."""


def examine(handles: Handles, mount: Mount, new_name: NewName, open_lock: OpenLock) -> bool:
    """Return whether files without a name can be linked; `Unfit` if links or locks do not work.

    An `OSError` says that the folder cannot be written at all.
    """
    if mount.objection:
        raise Unfit(mount.objection)
    control = handles.get(CONTROL)
    taken = new_name()
    fd = os.open(taken, NEW_FILE, 0o600, dir_fd=control.fd)
    try:
        _examine_names(control, taken, mount.kind)
        _examine_links(control, taken, new_name(), mount.kind)
        _examine_locks(open_lock, mount.kind)
        return _can_link_unnamed(control, new_name())
    finally:
        os.close(fd)
        with suppress(OSError):
            os.unlink(taken, dir_fd=control.fd)


def _examine_names(control: FileHandle, taken: str, kind: str) -> None:
    with suppress(FileNotFoundError):
        os.stat(taken.upper(), dir_fd=control.fd)
        raise Unfit(f"{kind} takes capital letters for small ones, so that two runs could have one name")


def _examine_links(control: FileHandle, taken: str, other: str, kind: str) -> None:
    try:
        os.link(taken, other, src_dir_fd=control.fd, dst_dir_fd=control.fd)
    except OSError as error:
        raise Unfit(f"{kind} has no hard links ({error.strerror})") from error
    try:
        os.link(taken, other, src_dir_fd=control.fd, dst_dir_fd=control.fd)
    except FileExistsError:
        return
    except OSError as error:
        raise Unfit(f"{kind} fails oddly where a name is taken ({error.strerror})") from error
    finally:
        with suppress(OSError):
            os.unlink(other, dir_fd=control.fd)
    raise Unfit(f"{kind} lets a name that is taken be taken again")


def _examine_locks(open_lock: OpenLock, kind: str) -> None:
    first = open_lock("probe")
    try:
        second = open_lock("probe")
        try:
            fcntl.flock(first, fcntl.LOCK_EX)
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        except OSError as error:
            raise Unfit(f"{kind} has no locks ({error.strerror})") from error
        finally:
            os.close(second)
    finally:
        os.close(first)
    raise Unfit(f"{kind} gives one lock to two")


def _can_link_unnamed(control: FileHandle, name: str) -> bool:
    if not UNNAMED:
        return False
    try:
        fd = os.open(".", os.O_WRONLY | UNNAMED | os.O_CLOEXEC, 0o600, dir_fd=control.fd)
    except OSError:
        return False
    try:
        os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=control.fd, follow_symlinks=True)
        os.unlink(name, dir_fd=control.fd)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def look_at(path: Path, mount: Mount, now: datetime | None, *, syncs_folders: bool) -> Health:
    """Say what a folder is on, what it promises, and whether there is room."""
    findings = [_about_syncs(mount, syncs_folders=syncs_folders)]
    room = os.statvfs(path)
    free, inodes = room.f_bavail * room.f_frsize, room.f_favail
    if free < _ROOM:
        text = f"its disk has {free >> 20} MiB left."
        findings.append(Finding(Level.WARNING, text, "Free some space before runs stop."))
    else:
        findings.append(Finding(Level.FINE, f"its disk has {free / (1 << 30):,.1f} GiB left for you."))
    if room.f_files and inodes < _INODES:
        text = f"its disk has room for {inodes} files more, and every checkpoint is one."
        findings.append(Finding(Level.WARNING, text, "Remove files, or old runs with everstep gc."))
    if mount.is_shared:
        text = f"it is shared over {mount.kind}: leases go by the clock of the file server."
        findings.append(Finding(Level.FINE, text))
    return Health(server=f"files on {mount.kind}", now=now, findings=tuple(findings))


def _about_syncs(mount: Mount, *, syncs_folders: bool) -> Finding:
    if mount.kind in _VOLATILE:
        text = f"{mount.kind} is kept in memory: when the machine stops, every run is gone."
        return Finding(Level.WARNING, text, "Use a folder on a disk.")
    if not syncs_folders:
        text = f"{mount.kind} cannot sync folders: what a power cut of the file server leaves is up to it."
        return Finding(Level.WARNING, text, "Use a local disk, NFS, or a database.")
    return Finding(Level.FINE, "every write is on disk before everstep hears of it, and so is its name.")
