"""What kind of file system a folder is on, and what is known of such file systems."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

_MOUNTS = Path("/proc/self/mountinfo")
_JOURNALS = Path("/proc/fs/jbd2")
_SHARED = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "vboxsf", "afs", "ceph", "lustre", "gpfs"),
    *("beegfs", "ocfs2", "gfs2", "orangefs", "prl_fs", "vmhgfs", "drvfs", "acfs"),
}
_LOCKS_ALONE = {"nolock", "nobrl", "localflock", "local_lock=all", "local_lock=flock"}
"""Options that make a lock count on one machine only."""
_NO_FOLDERS = {
    "sshfs",
    "s3fs",
    "rclone",
    "gcsfuse",
    "goofys",
    "blobfuse",
    "blobfuse2",
    "mountpoint-s3",
    "davfs",
}
"""File systems in user space that neither lock for others nor refuse to replace a name."""


class Mount(NamedTuple):
    """Where a folder lives."""

    kind: str
    """As the system calls it: `ext4`, `nfs4`, `fuse.sshfs`."""
    options: frozenset[str] = frozenset()
    source: str = ""
    """What is mounted: `/dev/sda1`."""

    @property
    def keeps_order(self) -> bool:
        """True if a sync of anything makes every new name last that came before it.

        That is how XFS works, and ext4 with its journal; what was made since the last sync need not be synced
        one by one then.
        """
        if self.kind == "ext4":
            return any(_JOURNALS.glob(f"{Path(self.source).name}-*"))
        return self.kind == "xfs"

    @property
    def is_shared(self) -> bool:
        """True if other machines may use it too, or its clock may be another."""
        return self.kind in _SHARED or self.kind.startswith("fuse")

    @property
    def objection(self) -> str:
        """Why runs cannot be kept there; empty if nothing is known against it."""
        if self.kind.removeprefix("fuse.") in _NO_FOLDERS:
            return f"{self.kind} cannot keep two writers apart"
        alone = sorted(self.options & _LOCKS_ALONE)
        if self.is_shared and alone:
            return f"it is mounted with {', '.join(alone)}, so that other machines do not see its locks"
        return ""


def mount_of(folder: Path) -> Mount:
    """Return where a folder lives; an unknown kind where the system does not say."""
    try:
        device = folder.stat().st_dev
        lines = _MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return Mount("unknown")
    return find_mount(lines, os.path.realpath(folder), device)


def find_mount(lines: list[str], folder: str, device: int) -> Mount:
    """Return the mount that holds a folder: the longest mount point above it, of those with its device."""
    best, found = -1, Mount("unknown")
    for line in lines:
        fields, _, rest = line.partition(" - ")
        parts, (kind, source, options) = fields.split(" "), (*rest.split(" "), "", "", "")[:3]
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), parts[4])
        is_above = folder == point or folder.startswith(point.rstrip("/") + "/")
        is_same = parts[2] == f"{os.major(device)}:{os.minor(device)}"
        weight = len(point) + (1 << 20) * is_same
        # A later line lies over an earlier one at the same point.
        if is_above and weight >= best:
            best, found = weight, Mount(kind, frozenset((*parts[5].split(","), *options.split(","))), source)
    return found
