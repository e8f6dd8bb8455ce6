"""A repository whose runs people can read without everstep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import httpx2

from everstep.ports.system import Clock
from everstep.stores.objects import names, readable
from everstep.stores.objects.github.address import GithubAddress
from everstep.stores.objects.github.bucket import GithubBucket
from everstep.stores.objects.github.scribe import GithubScribe


class ReadableRepository(GithubBucket):
    """A repository that also keeps each checkpoint as JSON, some time after the object that counts."""

    def __init__(
        self, address: GithubAddress, clock: Clock, *, transport: httpx2.BaseTransport | None = None
    ) -> None:
        super().__init__(address, clock, transport=transport)
        self.scribe = GithubScribe(self)

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

    def tell_of(self, heads: Mapping[str, int]) -> int:
        """Write the files, soon, of those of these runs whose newest checkpoint no file tells of."""
        told: dict[str, int] = {}
        for name in self.names(readable.FOLDER):
            if readable.is_checkpoint(name):
                folder = name.rpartition("/")[0]
                told[folder] = max(told.get(folder, 0), readable.sequence_in(name))
        behind = [r for r, head in heads.items() if told.get(readable.folder_of(r)[:-1], 0) < head]
        for run_id in behind:
            self.scribe.note_change(names.log_prefix(run_id))
        return len(behind)

    def close(self) -> None:
        self.scribe.flush()
        super().close()
