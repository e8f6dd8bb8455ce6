"""What a SQLite file keeps, and what it can lose. Apart, as only `doctor` asks."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw

from everstep.ports.health import Finding, Health, Level
from everstep.stores.sqlite.database import rows

_ROOM = 100 << 20
_NOWHERE = -1
"""A position that no run has."""
_SYNCED = {
    "FULL": "every commit is on disk before everstep hears of it: no crash or power cut loses a step.",
    "EXTRA": "every commit, and its folder, is on disk before everstep hears of it.",
}


def look_at(path: Path, synchronous: str) -> Health:
    """Say what the file keeps, by how it is synced, and whether there is room."""
    findings = [_about_syncs(synchronous)]
    free = shutil.disk_usage(path.parent).free
    if free < _ROOM:
        text = f"its disk has {free >> 20} MiB left."
        findings.append(Finding(Level.WARNING, text, "Free some space before runs stop."))
    files = (path, path.with_name(f"{path.name}-wal"))
    size = sum(file.stat().st_size for file in files if file.exists())
    version = apsw.sqlite_lib_version()
    return Health(server=f"SQLite {version}", findings=tuple(findings), size_bytes=size)


def _about_syncs(synchronous: str) -> Finding:
    if synchronous in _SYNCED:
        return Finding(Level.FINE, _SYNCED[synchronous])
    if synchronous == "NORMAL":
        text = (
            "commits are synced now and then (synchronous=normal): a power cut loses the last of them, and "
            "those steps run again. A crash of the program loses nothing."
        )
        return Finding(Level.WARNING, text, "Leave ?synchronous=normal away to keep every step.")
    text = "commits are never synced (synchronous=off): a power cut can damage the whole file."
    return Finding(Level.PROBLEM, text, "Leave ?synchronous=off away.")


def write_and_remove(db: apsw.Connection) -> None:
    """Commit a row that belongs to no run, removed again in the same commit."""
    with db:
        rows(db, "INSERT OR REPLACE INTO checkpoints VALUES (?, '', 0, x'')", (_NOWHERE,))
        rows(db, "DELETE FROM checkpoints WHERE position = ?", (_NOWHERE,))
