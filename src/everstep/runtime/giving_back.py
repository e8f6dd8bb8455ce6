"""Values that were left out of a bundle, given back by whoever has them; digests say whether they are it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from everstep.codec.payload import HEADER, LEFT_OUT
from everstep.codec.records import read_checked, with_payloads
from everstep.codec.sealing import inline_writes
from everstep.codec.values import Values
from everstep.errors import BadRequest
from everstep.model.bundles import LeftOut
from everstep.model.records import ArtifactRef
from everstep.ports.restoring import WholeRun
from everstep.ports.store import StoredRecord


class GivenBack(NamedTuple):
    """Runs with the values that were given, and what is missing still."""

    runs: list[WholeRun]
    blobs: list[tuple[ArtifactRef, bytes]]
    missing: tuple[LeftOut, ...]


class _Filling:
    def __init__(self, values: Values, given: Mapping[str, Any]) -> None:
        self._payloads: dict[bytes, bytes] = {}
        self._names: dict[bytes, str] = {}
        for name, value in given.items():
            data = values.encode(value, name)
            digest = hashlib.sha256(data).digest()
            self._payloads[digest], self._names[digest] = HEADER + data, name
        self.used: set[str] = set()
        self.missing: set[tuple[str, str]] = set()

    def of(self, digest: bytes, run_id: str, name: str) -> bytes | None:
        """Return the bytes of a value, if it was given."""
        payload = self._payloads.get(digest)
        if payload is None:
            self.missing.add((run_id, name))
        else:
            self.used.add(self._names[digest])
        return payload

    def record(self, run_id: str, stored: StoredRecord) -> StoredRecord:
        if stored.is_stub or LEFT_OUT not in stored.body:
            return stored
        opened = read_checked(stored.body)
        payloads = list(opened.payloads)
        for k, write in enumerate(inline_writes(opened.record)):
            if payloads[k] == LEFT_OUT:
                payloads[k] = self.of(write.digest, run_id, write.name) or LEFT_OUT
        return msgspec.structs.replace(stored, body=with_payloads(stored.body, payloads))


def give_back(
    values: Values,
    runs: Sequence[WholeRun],
    absent: Sequence[tuple[ArtifactRef, str]],
    left_out: Sequence[LeftOut],
    given: Mapping[str, Any],
) -> GivenBack:
    """Put values that are given into the places where they were left out."""
    if not given:
        return GivenBack(list(runs), [], tuple(left_out))
    names = {one.name for one in left_out if one.what == "value"}
    for name in given:
        if name not in names:
            raise BadRequest(f"value {name!r} was not left out.", fix=f"Left out were: {sorted(names)}.")
    filling = _Filling(values, given)
    back = [
        msgspec.structs.replace(run, records=tuple(filling.record(run.row.run_id, r) for r in run.records))
        for run in runs
    ]
    blobs = []
    for ref, name in absent:
        payload = filling.of(bytes.fromhex(ref.checksum), "", name)
        if payload is not None:
            blobs.append((ref, payload))
    for name in given:
        if name not in filling.used:
            raise BadRequest(
                f"the value given for {name!r} is not the one that was left out.",
                fix="Give exactly the value that the run had.",
            )
    missing = {name for _, name in filling.missing}
    still = tuple(one for one in left_out if one.what != "value" or one.name in missing)
    return GivenBack(back, blobs, still)
