"""Commits that the store could not take, kept on this machine until it can."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from everstep.errors import StateCorrupted
from everstep.ports.store import Commit

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Commit)
_LENGTH = 8
SUFFIX = ".spool"


class Spool:
    """A folder with one file per run; what is in it is fsynced before anything counts as recorded."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, commit: Commit) -> None:
        """Keep a commit behind those of its run that are there already."""
        self._folder.mkdir(parents=True, exist_ok=True)
        body = _encoder.encode(commit)
        path = self._path(commit.run_id)
        is_new = not path.exists()
        with path.open("ab") as file:
            file.write(len(body).to_bytes(_LENGTH, "big") + body)
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            self._sync_folder()

    def of(self, run_id: str) -> list[Commit]:
        """Return the commits of a run, in order. One that was cut off while it was written never counted."""
        path = self._path(run_id)
        return list(_read(path)) if path.exists() else []

    def runs(self) -> list[str]:
        """Return the runs that have commits here."""
        if not self._folder.is_dir():
            return []
        return sorted(file.name.removesuffix(SUFFIX) for file in self._folder.glob(f"*{SUFFIX}"))

    def drop(self, run_id: str) -> None:
        """Forget the commits of a run: they are in the store."""
        self._path(run_id).unlink(missing_ok=True)
        self._sync_folder()

    def _path(self, run_id: str) -> Path:
        return self._folder / f"{run_id}{SUFFIX}"

    def _sync_folder(self) -> None:
        handle = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _read(path: Path) -> Iterator[Commit]:
    data = path.read_bytes()
    at = 0
    while len(data) - at >= _LENGTH:
        size = int.from_bytes(data[at : at + _LENGTH], "big")
        at += _LENGTH
        if len(data) - at < size:
            return
        try:
            yield _decoder.decode(data[at : at + size])
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise StateCorrupted(f"{path} cannot be read: {error}.") from error
        at += size
