"""Records whose payloads went through codecs.

An encrypted payload is bound to where it lies: the run whose record holds it, the step, and the value's name,
version and form. Put anywhere else, it does not open. What an error said is a payload too then, behind those
of the values, so that a header holds no word of it. Who did something and why are notes behind the payloads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from everstep.codec.chain import Codecs
from everstep.codec.payload import HEADER, LEFT_OUT, body_of
from everstep.codec.records import OpenRecord, check_values, seal
from everstep.errors import IncompatibleVersion, KeyUnavailable, StateCorrupted
from everstep.model.acts import Act
from everstep.model.records import CheckpointRecord, ErrorInfo, Written

STATE = "@state"
"""Stands for the step among the values of a keyframe."""

_encode = msgspec.msgpack.Encoder().encode
_texts = msgspec.msgpack.Decoder(tuple[str, str])
T = TypeVar("T", ErrorInfo, Act)


class Kept(NamedTuple):
    """What travels with the header of a record."""

    payloads: list[bytes]
    notes: list[bytes]


def seal_closed(
    codecs: Codecs, run_id: str, record: CheckpointRecord, base_digest: bytes, payloads: Sequence[bytes]
) -> tuple[bytes, bytes]:
    """Return the bytes of a record and its digest, its payloads as the codecs of a host store them."""
    if not codecs.is_active:
        return seal(record, base_digest, payloads)
    places = _places(record)
    closed = [codecs.close(p, run_id, place) for p, (_, place) in zip(payloads, places, strict=True)]
    notes: list[bytes] = []
    if codecs.encrypts:
        record, texts = _ERRORS.taken_out(record)
        closed += _ERRORS.closed(codecs, run_id, record, texts)
        record, said = _ACTS.taken_out(record)
        notes = _ACTS.closed(codecs, run_id, record, said)
    return seal(record, base_digest, closed, notes)


def open_record(opened: OpenRecord, run_id: str, where: str, codecs: Codecs) -> OpenRecord:
    """Return a record with its payloads as they were before codecs, each with the digest it must have."""
    for payload in opened.payloads:
        if payload[2:3] > b"\0":
            break
    else:
        if not codecs.requires_key and not opened.notes and not _has_sealed(opened.record):
            check_values(opened, where)
            return opened
    places = _places(opened.record)
    count = len(places)
    if len(opened.payloads) != count + _ERRORS.sealed(opened.record):
        raise StateCorrupted(f"{where} does not hold the values it names.")
    payloads = [
        codecs.open(payload, run_id, place, write.name, write.size)
        for payload, (write, place) in zip(opened.payloads, places, strict=False)
    ]
    if len(opened.notes) != _ACTS.sealed(opened.record):
        raise StateCorrupted(f"{where} does not hold who did what it tells of.")
    record = _ERRORS.put_back(codecs, run_id, opened.record, opened.payloads[count:], where)
    record = _ACTS.put_back(codecs, run_id, record, opened.notes, where)
    plain = OpenRecord(record, opened.digest, payloads)
    check_values(plain, where)
    return plain


def look_at(opened: OpenRecord, run_id: str, where: str, codecs: Codecs) -> OpenRecord:
    """Return a record as `open_record`, or as far as it can be read here.

    Values whose key is not at hand, or that a newer everstep wrote, stay as they are stored: only to read
    them is an error.
    """
    try:
        return open_record(opened, run_id, where, codecs)
    except (KeyUnavailable, IncompatibleVersion) as error:
        said = _why(error)

    def locked(info: ErrorInfo) -> ErrorInfo:
        return msgspec.structs.replace(info, message=said, sealed=b"") if info.sealed else info

    def unknown(act: Act) -> Act:
        return Act(said, "", act.how) if act.sealed else act

    places = _places(opened.record)
    if len(opened.payloads) < len(places):
        raise StateCorrupted(f"{where} does not hold the values it names.")
    stored = opened.payloads[: len(places)]
    payloads = [
        _seen(payload, run_id, write, place, where, codecs)
        for payload, (write, place) in zip(stored, places, strict=True)
    ]
    record = _acts_changed(_errors_changed(opened.record, locked), unknown)
    return OpenRecord(record, opened.digest, payloads)


def _why(error: KeyUnavailable | IncompatibleVersion) -> str:
    if isinstance(error, KeyUnavailable):
        return f"(encrypted with the key {error.details.get('key_id')!r})"
    return "(written by a newer everstep)"


def _seen(payload: bytes, run_id: str, write: Written, place: bytes, where: str, codecs: Codecs) -> bytes:
    """Return one payload without codecs and checked, or as it is stored if it cannot be read here."""
    try:
        plain = codecs.open(payload, run_id, place, write.name, write.size)
        if hashlib.sha256(body_of(plain, write.name)).digest() != write.digest:
            raise StateCorrupted(f"{where}: the bytes of value {write.name!r} were altered.")
        return plain
    except (KeyUnavailable, IncompatibleVersion):
        return payload


def closed_anew(opened: OpenRecord, run_id: str, where: str, codecs: Codecs) -> Kept | None:
    """Return the payloads and notes of a record encrypted with the active key; none if all of them are.

    They are checked before, so that nothing but what was written is ever encrypted again.
    """
    stored = opened.payloads
    if all(codecs.is_current(kept, where) for kept in (*stored, *opened.notes)):
        return None
    plain = open_record(opened, run_id, where, codecs)
    places = [place for _, place in _places(opened.record)]
    _, texts = _ERRORS.taken_out(plain.record)
    places += [_ERRORS.place(opened.record, k) for k in range(len(stored) - len(places))]
    both = zip([*plain.payloads, *texts], places, strict=False)
    closed = [
        payload if payload == LEFT_OUT else codecs.close(payload, run_id, place) for payload, place in both
    ]
    said = _ACTS.taken_out(plain.record)[1] if opened.notes else []
    return Kept(closed, _ACTS.closed(codecs, run_id, opened.record, said))


def without_codecs(opened: OpenRecord, run_id: str, where: str, codecs: Codecs) -> Kept:
    """Return the payloads of a record as they were before codecs, texts of errors too, and its notes."""
    plain = open_record(opened, run_id, where, codecs)
    payloads = [*plain.payloads, *_ERRORS.taken_out(plain.record)[1]][: len(opened.payloads)]
    return Kept(payloads, _ACTS.taken_out(plain.record)[1] if opened.notes else [])


def close_values(
    codecs: Codecs, run_id: str, step: str, writes: Sequence[Written], payloads: Sequence[bytes]
) -> list[bytes]:
    """Return the payloads of values that are kept apart from any record, as a store keeps them."""
    if not codecs.is_active:
        return list(payloads)
    inline = [w for w in writes if w.is_inline]
    return [codecs.close(p, run_id, _place(step, 0, w)) for w, p in zip(inline, payloads, strict=True)]


def open_values(
    codecs: Codecs, run_id: str, step: str, writes: Sequence[Written], payloads: Sequence[bytes]
) -> list[bytes]:
    """Return the payloads that `close_values` made as they were."""
    inline = [w for w in writes if w.is_inline]
    if len(inline) != len(payloads):
        raise StateCorrupted(f"{step} of run {run_id!r} does not hold the values it names.")
    return [
        codecs.open(p, run_id, _place(step, 0, w), w.name, w.size)
        for w, p in zip(inline, payloads, strict=True)
    ]


def _places(record: CheckpointRecord) -> list[tuple[Written, bytes]]:
    """Return every inline value of a record with what binds it to its place, in the order of the payloads."""
    found = [
        (w, _place(step.path, step.visit, w)) for step in record.steps for w in step.writes if w.is_inline
    ]
    if record.state is not None:
        found += [(w, _place(STATE, 0, w)) for w in record.state.values if w.is_inline]
    return found


def _place(path: str, visit: int, write: Written) -> bytes:
    return _encode((path, visit, write.name, write.version, write.form))


def inline_writes(record: CheckpointRecord) -> list[Written]:
    """Return the values whose bytes travel with a record, in the order of its payloads."""
    return [write for write, _ in _places(record)]


def _has_sealed(record: CheckpointRecord) -> bool:
    for step in record.steps:
        if step.error is not None and step.error.sealed:
            return True
    return (record.error is not None or record.state is not None) and bool(_ERRORS.sealed(record))


class _Aside(msgspec.Struct, Generic[T], frozen=True):
    """Texts that an encrypted record holds apart: in their places it names the digest of each."""

    name: str
    found: Callable[[CheckpointRecord], Iterator[T]]
    changed: Callable[[CheckpointRecord, Callable[[T], T]], CheckpointRecord]
    """Goes over them in the order of `found`."""
    texts: Callable[[T], tuple[str, str]]
    without: Callable[[T, bytes], T]
    """Puts a digest in the place of the texts."""
    whole: Callable[[T, str, str], T]
    was_altered: str

    def place(self, record: CheckpointRecord, number: int) -> bytes:
        """Return what binds one of them to its record."""
        return _encode((f"@{self.name}", record.sequence, number))

    def sealed(self, record: CheckpointRecord) -> int:
        """Count those that are held apart."""
        return sum(1 for part in self.found(record) if part.sealed)

    def taken_out(self, record: CheckpointRecord) -> tuple[CheckpointRecord, list[bytes]]:
        """Return a record that names the texts by their digests, and the texts as payloads."""
        if next(self.found(record), None) is None:
            return record, []
        taken: list[bytes] = []

        def take_out(part: T) -> T:
            text = _encode(self.texts(part))
            taken.append(HEADER + text)
            return self.without(part, hashlib.sha256(text).digest())

        return self.changed(record, take_out), taken

    def closed(
        self, codecs: Codecs, run_id: str, record: CheckpointRecord, texts: Sequence[bytes]
    ) -> list[bytes]:
        """Return texts that were taken out as a store keeps them."""
        return [codecs.close(text, run_id, self.place(record, k)) for k, text in enumerate(texts)]

    def put_back(
        self, codecs: Codecs, run_id: str, record: CheckpointRecord, stored: Sequence[bytes], where: str
    ) -> CheckpointRecord:
        """Return a record with its texts, each with the digest it must have."""
        if not stored:
            return record
        left = iter(
            [codecs.open(s, run_id, self.place(record, k), self.name, None) for k, s in enumerate(stored)]
        )

        def put_back(part: T) -> T:
            if not part.sealed:
                return part
            text = body_of(next(left), self.name)
            if hashlib.sha256(text).digest() != part.sealed:
                raise StateCorrupted(f"{where}: {self.was_altered} was altered.")
            return self.whole(part, *_texts.decode(text))

        return self.changed(record, put_back)


def _errors(record: CheckpointRecord) -> Iterator[ErrorInfo]:
    for step in record.steps:
        if step.error is not None:
            yield step.error
    if record.error is not None:
        yield record.error
    if record.state is not None:
        if record.state.error is not None:
            yield record.state.error
        for scope in record.state.scopes.values():
            if scope.error is not None:
                yield scope.error


def _errors_changed(record: CheckpointRecord, change: Callable[[ErrorInfo], ErrorInfo]) -> CheckpointRecord:
    replace = msgspec.structs.replace
    steps = tuple(
        replace(step, error=change(step.error)) if step.error is not None else step for step in record.steps
    )
    error = change(record.error) if record.error is not None else None
    state = record.state
    if state is not None:
        own = change(state.error) if state.error is not None else None
        scopes = {
            path: replace(scope, error=change(scope.error)) if scope.error is not None else scope
            for path, scope in state.scopes.items()
        }
        state = replace(state, error=own, scopes=scopes)
    return replace(record, steps=steps, error=error, state=state)


def _acts(record: CheckpointRecord) -> Iterator[Act]:
    for step in record.steps:
        if step.act is not None:
            yield step.act
    if record.act is not None:
        yield record.act


def _acts_changed(record: CheckpointRecord, change: Callable[[Act], Act]) -> CheckpointRecord:
    replace = msgspec.structs.replace
    steps = tuple(
        replace(step, act=change(step.act)) if step.act is not None else step for step in record.steps
    )
    return replace(record, steps=steps, act=change(record.act) if record.act is not None else None)


_ERRORS = _Aside(
    "error",
    _errors,
    _errors_changed,
    texts=lambda info: (info.message, info.traceback),
    without=lambda info, digest: ErrorInfo(info.type, "", info.code, sealed=digest),
    whole=lambda info, message, traceback: ErrorInfo(info.type, message, info.code, traceback),
    was_altered="what an error said",
)
_ACTS = _Aside(
    "act",
    _acts,
    _acts_changed,
    texts=lambda act: (act.by, act.comment),
    without=lambda act, digest: Act(how=act.how, sealed=digest),
    whole=lambda act, by, comment: Act(by, comment, act.how),
    was_altered="who did it",
)
