"""Records whose payloads went through codecs.

An encrypted payload is bound to where it lies: the run whose record holds it, the step, and the value's name,
version and form. Put anywhere else, it does not open. What an error said is a payload too then, behind those
of the values, so that a header holds no word of it. Who did something and why are notes behind the payloads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from everstep.codec.chain import Codecs
from everstep.codec.payload import HEADER, LEFT_OUT, body_of
from everstep.codec.records import OpenRecord, check_values, seal
from everstep.errors import IncompatibleVersion, KeyUnavailable, StateCorrupted
from everstep.model.acts import Act
from everstep.model.records import CheckpointRecord, ErrorInfo, Written

STATE = "@state"
"""Stands for the step among the values of a keyframe."""
_ERROR = "@error"
_ACT = "@act"

_encode = msgspec.msgpack.Encoder().encode
_texts = msgspec.msgpack.Decoder(tuple[str, str])


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
    if codecs.encrypts and next(_errors(record), None) is not None:
        record, texts = _without_texts(record)
        closed += [codecs.close(text, run_id, _error_place(record, k)) for k, text in enumerate(texts)]
    notes: list[bytes] = []
    if codecs.encrypts and any(True for _ in _acts(record)):
        record, said = _without_acts(record)
        notes = [codecs.close(text, run_id, _act_place(record, k)) for k, text in enumerate(said)]
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
    sealed = _sealed(opened.record)
    places = _places(opened.record)
    count = len(places)
    if len(opened.payloads) != count + len(sealed):
        raise StateCorrupted(f"{where} does not hold the values it names.")
    payloads = [
        codecs.open(payload, run_id, place, write.name, write.size)
        for payload, (write, place) in zip(opened.payloads, places, strict=False)
    ]
    texts = [
        codecs.open(payload, run_id, _error_place(opened.record, k), "error", None)
        for k, payload in enumerate(opened.payloads[count:])
    ]
    record = _with_acts(_with_texts(opened.record, texts, where), opened, run_id, where, codecs)
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
    record = _acts_changed(_changed(opened.record, locked), unknown)
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
    _, texts = _without_texts(plain.record)
    places += [_error_place(opened.record, k) for k in range(len(stored) - len(places))]
    both = zip([*plain.payloads, *texts], places, strict=False)
    closed = [
        payload if payload == LEFT_OUT else codecs.close(payload, run_id, place) for payload, place in both
    ]
    said = _without_acts(plain.record)[1] if opened.notes else []
    notes = [codecs.close(text, run_id, _act_place(opened.record, k)) for k, text in enumerate(said)]
    return Kept(closed, notes)


def without_codecs(opened: OpenRecord, run_id: str, where: str, codecs: Codecs) -> Kept:
    """Return the payloads of a record as they were before codecs, texts of errors too, and its notes."""
    plain = open_record(opened, run_id, where, codecs)
    payloads = [*plain.payloads, *_without_texts(plain.record)[1]][: len(opened.payloads)]
    return Kept(payloads, _without_acts(plain.record)[1] if opened.notes else [])


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


def _error_place(record: CheckpointRecord, number: int) -> bytes:
    return _encode((_ERROR, record.sequence, number))


def _has_sealed(record: CheckpointRecord) -> bool:
    for step in record.steps:
        if step.error is not None and step.error.sealed:
            return True
    return (record.error is not None or record.state is not None) and bool(_sealed(record))


def _sealed(record: CheckpointRecord) -> list[ErrorInfo]:
    return [info for info in _errors(record) if info.sealed]


def _errors(record: CheckpointRecord) -> Iterator[ErrorInfo]:
    """Yield every error that a record holds, in the order in which `_changed` meets them."""
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


def _changed(record: CheckpointRecord, change: Callable[[ErrorInfo], ErrorInfo]) -> CheckpointRecord:
    """Return a record with every error of it replaced."""
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


def _without_texts(record: CheckpointRecord) -> tuple[CheckpointRecord, list[bytes]]:
    """Return a record whose errors name what they said by its digest, and what they said as payloads."""
    texts: list[bytes] = []

    def take_out(info: ErrorInfo) -> ErrorInfo:
        text = _encode((info.message, info.traceback))
        texts.append(HEADER + text)
        return ErrorInfo(info.type, "", info.code, sealed=hashlib.sha256(text).digest())

    return _changed(record, take_out), texts


def _with_texts(record: CheckpointRecord, payloads: list[bytes], where: str) -> CheckpointRecord:
    if not payloads:
        return record
    left = iter(payloads)

    def put_back(info: ErrorInfo) -> ErrorInfo:
        if not info.sealed:
            return info
        text = body_of(next(left), "error")
        if hashlib.sha256(text).digest() != info.sealed:
            raise StateCorrupted(f"{where}: what an error said was altered.")
        message, traceback = _texts.decode(text)
        return ErrorInfo(info.type, message, info.code, traceback)

    return _changed(record, put_back)


def _act_place(record: CheckpointRecord, number: int) -> bytes:
    return _encode((_ACT, record.sequence, number))


def _acts(record: CheckpointRecord) -> Iterator[Act]:
    """Yield who did what a record tells of, in the order in which `_acts_changed` meets them."""
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


def _without_acts(record: CheckpointRecord) -> tuple[CheckpointRecord, list[bytes]]:
    """Return a record that names who did what by a digest, and names and comments as notes."""
    notes: list[bytes] = []

    def take_out(act: Act) -> Act:
        text = _encode((act.by, act.comment))
        notes.append(HEADER + text)
        return Act(how=act.how, sealed=hashlib.sha256(text).digest())

    return _acts_changed(record, take_out), notes


def _with_acts(
    record: CheckpointRecord, opened: OpenRecord, run_id: str, where: str, codecs: Codecs
) -> CheckpointRecord:
    count = sum(1 for act in _acts(record) if act.sealed)
    if count != len(opened.notes):
        raise StateCorrupted(f"{where} does not hold who did what it tells of.")
    if not count:
        return record
    left = iter(
        [codecs.open(note, run_id, _act_place(record, k), "act", None) for k, note in enumerate(opened.notes)]
    )

    def put_back(act: Act) -> Act:
        if not act.sealed:
            return act
        text = body_of(next(left), "act")
        if hashlib.sha256(text).digest() != act.sealed:
            raise StateCorrupted(f"{where}: who did it was altered.")
        return Act(*_texts.decode(text), act.how)

    return _acts_changed(record, put_back)
