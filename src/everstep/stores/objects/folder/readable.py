"""A folder whose runs people can read without everstep."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from everstep.stores.objects import names
from everstep.stores.objects.folder.bucket import Folder
from everstep.stores.objects.folder.fitness import CONTROL
from everstep.stores.objects.scribe import Scribe
from everstep.stores.objects.unwritten import Unwritten


class ReadableFolder(Folder):
    """A folder that also keeps each checkpoint as JSON, written shortly after the object that counts."""

    def __init__(self, path: Path, *, create: bool = True) -> None:
        super().__init__(path, create=create)
        self.scribe = Scribe(self, self.write_soon, Unwritten(self.path / CONTROL / "unwritten"))
        if create:
            self.scribe.catch_up()

    def _is_ours(self, name: str) -> bool:
        return names.is_ours(name)

    def create(self, name: str, data: bytes) -> bool:
        is_new = super().create(name, data)
        if is_new:
            self.scribe.created(name, data)
        return is_new

    def swap(self, name: str, data: bytes, tag: str) -> bool:
        is_new = super().swap(name, data, tag)
        if is_new:
            self.scribe.replaced(name)
        return is_new

    def delete(self, names_: Iterable[str]) -> None:
        gone = list(names_)
        super().delete(gone)
        self.scribe.removed(gone)

    def close(self) -> None:
        self.scribe.flush()
        super().close()
