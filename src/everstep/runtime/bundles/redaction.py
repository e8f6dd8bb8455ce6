"""What an export leaves out: found by name first, then by digest wherever the same value is kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from everstep.codec.payload import HEADER, LEFT_OUT
from everstep.codec.records import read_checked, with_payloads
from everstep.codec.sealing import Kept, inline_writes
from everstep.codec.values import Values
from everstep.errors import BadRequest
from everstep.model.bundles import LeaveOut, LeftOut
from everstep.model.commits import Labels
from everstep.model.records import ATTRIBUTE, ArtifactRef, StepRecord, Written
from everstep.model.waits import SignalRow, WaitRow, WaitStatus
from everstep.ports.restoring import WholeRun
from everstep.ports.store import StoredRecord
from everstep.runtime.bundles.read_run import Checked


class Leaving:
    """What stays behind of the runs of one bundle. It is shown every record before any is written."""

    def __init__(self, policy: LeaveOut) -> None:
        self._policy = policy
        self._digests: set[bytes] = set()
        self._visits: set[tuple[str, str, int]] = set()
        self._unsent: set[str] = set()
        """Waits that a signal has settled which stays behind."""
        self._kept: set[LeftOut] = set()

    @property
    def looks_at_values(self) -> bool:
        """True if values may stay behind, so that all records must be shown first."""
        return bool(self._policy.values)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Everything that stayed behind."""
        return tuple(sorted(self._kept))

    def look(self, run_id: str, page: Iterable[Checked]) -> None:
        """Note which values of these records are to stay behind."""
        for checked in page:
            if checked.opened is None:
                continue
            record = checked.opened.record
            for write in record.writes():
                if self._is_named(write):
                    self._digests.add(write.digest)
            self._visits |= {(run_id, s.path, s.visit) for s in record.steps if self._is_secret(s)}

    def _is_named(self, write: Written) -> bool:
        return self._policy.is_left_out(write.name) and (write.is_inline or write.artifact is not None)

    def _is_secret(self, step: StepRecord) -> bool:
        return any(self._policy.is_left_out(write.name) for write in step.writes)

    def stays(self, write: Written) -> bool:
        """True if the bytes of a value stay behind."""
        return write.digest in self._digests or (
            write.artifact is not None and bytes.fromhex(write.artifact.checksum) in self._digests
        )

    def record(self, run_id: str, checked: Checked, plain: Kept | None) -> StoredRecord:
        """Return a record without the values that stay behind; `plain` has other bytes for its own."""
        stored, opened = checked.stored, checked.opened
        if opened is None or (plain is None and not self._digests):
            return stored
        notes = opened.notes if plain is None else plain.notes
        kept = list(opened.payloads if plain is None else plain.payloads)
        for write in opened.record.writes():
            if self.stays(write) and (write.is_inline or write.artifact is not None):
                self._kept.add(LeftOut(run_id=run_id, what="value", name=write.name))
        for k, write in enumerate(inline_writes(opened.record)):
            if self.stays(write):
                kept[k] = LEFT_OUT
        if (kept, notes) == (opened.payloads, opened.notes):
            return stored
        return msgspec.structs.replace(stored, body=with_payloads(stored.body, kept, notes))

    def inbox(self, signals: Iterable[SignalRow], waits: Iterable[WaitRow], run_id: str) -> list[SignalRow]:
        """Return signals without those that stay behind; before the waits, which they may have settled.

        One stays if its name says so, or if its value is the answer of a wait and would stay with that. It
        may be sent again under its id. Of one that was taken nothing is left but that.
        """
        secret = {w.wait_id for w in waits if (w.run_id, w.path, w.visit) in self._visits}
        kept = []
        for signal in signals:
            stays = self._policy.is_left_out(signal.name) or signal.wait_id in secret
            if signal.value is None or not stays:
                kept.append(signal)
                continue
            self._kept.add(LeftOut(run_id=run_id, what="signal", name=signal.name))
            if signal.wait_id is not None:
                self._unsent.add(signal.wait_id)
        kept.sort(key=lambda signal: signal.number)
        # A store numbers signals without gaps, and counts on that.
        return [msgspec.structs.replace(signal, number=k) for k, signal in enumerate(kept, 1)]

    def labels(self, labels: Labels, run_id: str) -> Labels:
        """Return labels without those that stay behind; after the records, as attributes are values there."""
        names = {one.name for one in labels.tags} | {one.name for one in labels.attributes}
        stays = {name for name in names if self._policy.is_left_out(name)}
        stays |= {
            left.name.removeprefix(ATTRIBUTE) for left in self._kept if self._is_attribute(left, run_id)
        }
        for name in stays:
            self._kept.add(LeftOut(run_id=run_id, what="label", name=name))
        return Labels(
            tuple(one for one in labels.tags if one.name not in stays),
            tuple(one for one in labels.attributes if one.name not in stays),
            labels.undoing,
        )

    def _is_attribute(self, left: LeftOut, run_id: str) -> bool:
        return left.run_id == run_id and left.name.startswith(ATTRIBUTE)

    def wait(self, wait: WaitRow) -> WaitRow:
        """Return a wait without its token, and without an answer that became a value that stays behind."""
        changes: dict[str, object] = {}
        if self._policy.tokens and wait.token_hash is not None:
            changes |= {"token_hash": None}
            self._kept.add(LeftOut(run_id=wait.run_id, what="token", name=wait.wait_id))
        is_secret = (wait.run_id, wait.path, wait.visit) in self._visits or wait.wait_id in self._unsent
        if is_secret and wait.answer is not None:
            changes |= {"answer": None}
            if wait.status is WaitStatus.SETTLED:
                # Its run has not taken the answer in yet: it has to be given again.
                changes |= {"status": WaitStatus.OPEN, "settled_at": None, "settled_by": None}
            self._kept.add(LeftOut(run_id=wait.run_id, what="answer", name=wait.wait_id))
        return msgspec.structs.replace(wait, **changes) if changes else wait


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
        opened = read_checked(stored.body, stored.checkpoint_id)
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
