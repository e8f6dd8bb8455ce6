"""Whatever was done to stored bytes, reading them gives a named error or what was written, never else."""

from __future__ import annotations

import enum
import hashlib
import resource
from collections import OrderedDict, deque
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from ipaddress import ip_address
from pathlib import PurePosixPath
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep import KeyRing
from everstep.codec.chain import Codecs
from everstep.codec.notes import close_note, open_wait
from everstep.codec.payload import AES_GCM, HEADER, Layer, body_of, header_with
from everstep.codec.records import OpenRecord, check_digest, digest_of, glance, unseal
from everstep.codec.sealing import open_record, seal_closed
from everstep.codec.values import Values
from everstep.errors import (
    EverstepError,
    IncompatibleVersion,
    KeyUnavailable,
    StateCorrupted,
    ValueUnreadable,
)
from everstep.model.enums import Status, Trigger, ValueForm
from everstep.model.records import (
    CheckpointRecord,
    Counters,
    ErrorInfo,
    NodeState,
    SerializedState,
    StepRecord,
    Written,
)
from everstep.model.waits import WaitRow
from tests.unit.codec.fuzzing import IS_SOAK, MANY, anything, damaged, spoiled, tries
from tests.unit.codec.version_1 import header_of_version_1

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


class Colour(enum.Enum):
    RED = 1


@dataclass
class Point:
    x: int
    y: str = "y"


class Pair(NamedTuple):
    left: int
    right: object


VALUE = {
    "plain": [None, True, -1, 2**63, 1.5, "text", b"bytes", {"k": []}],
    "dates": [NOW, date(2020, 1, 2), time(3, 4), timedelta(seconds=1), NOW.replace(tzinfo=None)],
    "numbers": [2**200, Decimal("1.10"), Fraction(1, 3), 1 + 2j, UUID(int=7)],
    "groups": [(1, 2), {1, 2}, frozenset("ab"), deque([1], maxlen=3), OrderedDict(a=1), {1: 2, (3,): 4}],
    "own": [Colour.RED, Point(1), Pair(1, Point(2)), range(3), slice(1, 2)],
    "odd": [
        PurePosixPath("/a"),
        ip_address("::1"),
        np.arange(4, dtype="int16"),
        np.float32(2),
        bytearray(b"x"),
    ],
}


def stored_value() -> bytes:
    return Values().encode({k: v for k, v in VALUE.items() if _is_storable(v)}, "value")


def _is_storable(value: object) -> bool:
    try:
        Values().encode(value, "value")
    except EverstepError:
        return False
    return True


WHOLE = stored_value()


@tries(100)
@given(data=damaged(WHOLE, (Values().encode(VALUE["plain"], "v"),)), loose=st.booleans())
def test_damaged_values_are_read_or_refused_by_name(data: bytes, loose: bool) -> None:
    try:
        Values(loose=loose).decode(data, "value")
    except EverstepError as error:
        assert isinstance(error, ValueUnreadable | IncompatibleVersion | StateCorrupted)


@tries(60)
@given(code=st.integers(-128, 127), parts=anything(), loose=st.booleans())
def test_any_tag_with_any_content_is_read_or_refused_by_name(code: int, parts: Any, loose: bool) -> None:
    inside = msgspec.msgpack.encode(parts)
    for payload in (inside, b""):
        data = msgspec.msgpack.encode([msgspec.msgpack.Ext(code, payload)])
        try:
            Values(loose=loose).decode(data, "value")
        except EverstepError as error:
            assert isinstance(error, ValueUnreadable | IncompatibleVersion | StateCorrupted)


# -- records ----------------------------------------------------------------------------------------------

INLINE = [Values().encode(value, "v") for value in (1, "two" * 200, [3])]


def written(name: str, data: bytes, form: ValueForm = ValueForm.WHOLE, version: int = 1) -> Written:
    return Written(name, version, hashlib.sha256(data).digest(), len(data), form)


ERROR = ErrorInfo("ValueError", "it said no", traceback="Traceback ...")
DELTA = CheckpointRecord(
    checkpoint_id="c1",
    sequence=7,
    trigger=Trigger.STEP,
    created_at=NOW,
    steps=(
        StepRecord(path="a", reads={"y": 2}, writes=(written("x", INLINE[0]),), started_at=NOW),
        StepRecord(path="b", visit=2, status=Status.FAILED, writes=(written("z", INLINE[1]),), error=ERROR),
    ),
)
KEYFRAME = msgspec.structs.replace(
    DELTA,
    keyframe=True,
    run_id="r",
    flow_id="f",
    flow_hash="h",
    state=SerializedState(
        (written("x", INLINE[0]), written("list", INLINE[2])), {"a": NodeState(1, Status.COMPLETED)}
    ),
    counters=Counters(1),
)
PAYLOADS = {False: [HEADER + INLINE[0], HEADER + INLINE[1]]}
PAYLOADS[True] = [*PAYLOADS[False], HEADER + INLINE[0], HEADER + INLINE[2]]
KEYS = KeyRing({"k": b"1" * 32})
NONCE = iter(range(2**60))
CODECS = {
    "plain": Codecs(bytes),
    "zstd": Codecs(bytes, compress=True),
    "aes": Codecs(lambda n: next(NONCE).to_bytes(n, "big"), keys=KEYS),
    "both": Codecs(lambda n: next(NONCE).to_bytes(n, "big"), keys=KEYS, compress=True),
}
RECORDS = {
    (kind, is_keyframe): seal_closed(
        codecs, "r", KEYFRAME if is_keyframe else DELTA, b"before", PAYLOADS[is_keyframe]
    )[0]
    for kind, codecs in CODECS.items()
    for is_keyframe in (False, True)
}
ALL = tuple(RECORDS.values())
DIGESTS = set(map(digest_of, ALL))


def read(body: bytes, kind: str, before: bytes | None = b"before") -> OpenRecord:
    return open_record(unseal(body, "it", before, "c1"), "r", "it", CODECS[kind])


@pytest.mark.parametrize("kind", CODECS)
@tries(60)
@given(data=st.data(), is_keyframe=st.booleans())
def test_damaged_records_are_refused_or_say_what_was_written(
    kind: str, data: st.DataObject, is_keyframe: bool
) -> None:
    whole = RECORDS[kind, is_keyframe]
    body = data.draw(damaged(whole, ALL))
    for attempt in (lambda: digest_of(body), lambda: check_digest(body, "it", b"before", "c1")):
        try:
            attempt()
        except EverstepError as error:
            assert isinstance(error, StateCorrupted | IncompatibleVersion)
    try:
        found = read(body, kind)
    except EverstepError as error:
        assert isinstance(error, StateCorrupted | IncompatibleVersion | ValueUnreadable)
    else:
        # Whatever can be exchanged for it says the same: the key of another host, no compression.
        expected = read(whole, kind)
        if found.digest == expected.digest:
            assert found.record == expected.record and found.payloads == expected.payloads
        else:
            assert body in ALL or any(found.digest == digest_of(other) for other in ALL)


@pytest.mark.parametrize("kind", ["aes", "both"])
def test_every_flipped_bit_of_an_encrypted_record_is_refused(kind: str) -> None:
    whole = RECORDS[kind, True]
    for at in range(len(whole)):
        flipped = whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :]
        with pytest.raises(EverstepError):
            read(flipped, kind, None)


@pytest.mark.parametrize("place", range(5))
def test_encrypted_values_open_nowhere_but_where_they_were_written(place: int) -> None:
    for other in range(5):
        envelope = msgspec.msgpack.decode(RECORDS["aes", True])
        envelope[4][place] = envelope[4][other]
        if other != place:
            with pytest.raises(StateCorrupted):
                read(msgspec.msgpack.encode(envelope), "aes")
    with pytest.raises(StateCorrupted):
        open_record(unseal(RECORDS["aes", True], "it", None, "c1"), "another", "it", CODECS["aes"])


def test_thousands_of_damaged_records_and_values_are_refused_by_name() -> None:
    chance = Random(7 if not IS_SOAK else None)
    for _ in range(MANY * (50 if IS_SOAK else 1)):
        kind, is_keyframe = chance.choice(list(RECORDS))
        whole = RECORDS[kind, is_keyframe]
        with suppress(StateCorrupted, IncompatibleVersion, ValueUnreadable):
            found = read(spoiled(chance, whole, ALL), kind)
            assert found.digest in DIGESTS, "something that was never written"
            assert found.payloads == PAYLOADS[found.record.keyframe]
        with suppress(StateCorrupted, IncompatibleVersion, ValueUnreadable):
            Values(loose=chance.random() < 0.5).decode(spoiled(chance, WHOLE, ALL), "value")


@tries(60)
@given(header=anything(4), payloads=st.lists(st.binary(max_size=20), max_size=3), version=st.integers(-1, 4))
def test_any_header_that_was_hashed_is_read_or_refused_by_name(
    header: Any, payloads: list[bytes], version: int
) -> None:
    raw = msgspec.msgpack.encode(header)
    digest = hashlib.sha256(raw).digest()
    for envelope in ([version, digest, b"", raw, payloads], [version, header], header, [version]):
        body = msgspec.msgpack.encode(envelope)
        try:
            opened = unseal(body, "it", b"", "")
            open_record(opened, "r", "it", CODECS["both"])
        except EverstepError as error:
            is_newer = isinstance(envelope, list) and envelope[:1] in ([3], [4])
            assert isinstance(error, StateCorrupted | IncompatibleVersion | ValueUnreadable)
            assert isinstance(error, IncompatibleVersion) or not is_newer


FIELDS = {1: header_of_version_1(KEYFRAME), 2: glance(RECORDS["plain", True], "it").header}


@tries(60)
@given(data=st.data())
def test_any_field_of_a_header_may_be_anything(data: st.DataObject) -> None:
    """One that was hashed all the same, as by a program that has an error."""
    version = data.draw(st.sampled_from([1, 2]))
    header = msgspec.msgpack.decode(FIELDS[version])
    place: Any = header
    while isinstance(place, dict | list) and place:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.integers(0, 2)) == 0:
            place[key] = data.draw(anything())
            break
        place = place[key]
    raw = msgspec.msgpack.encode(header)
    digest = hashlib.sha256(b"before" + (b"" if version == 1 else b"c1") + raw).digest()
    body = msgspec.msgpack.encode([version, digest, b"before", raw, PAYLOADS[True]])
    try:
        read(body, "plain")
    except EverstepError as error:
        assert isinstance(error, StateCorrupted | IncompatibleVersion | ValueUnreadable)


# -- payloads and codecs ----------------------------------------------------------------------------------

BIG = HEADER + Values().encode("x" * 5000, "v")


@pytest.mark.parametrize("kind", CODECS)
@tries(60)
@given(data=st.data())
def test_damaged_payloads_are_refused_unless_nothing_protects_them(kind: str, data: st.DataObject) -> None:
    codecs = CODECS[kind]
    closed = codecs.close(BIG, "r", b"place")
    payload = data.draw(damaged(closed, (CODECS["zstd"].close(BIG, "r", b"place"), BIG)))
    try:
        opened = codecs.open(payload, "r", b"place", "v", len(BIG) - len(HEADER))
        body_of(opened, "v")
    except EverstepError as error:
        assert isinstance(error, StateCorrupted | IncompatibleVersion | ValueUnreadable)
    else:
        # What is not encrypted may stand in the place of what is, unless a host requires keys; digests tell.
        assert kind in ("plain", "zstd") or opened == BIG or payload[2] == 0 or b"zstd" in payload[:10]


@tries(60)
@given(
    names=st.lists(st.sampled_from(["zstd", AES_GCM, "", "other", "é" * 30]), max_size=9),
    note=st.binary(max_size=40),
    rest=st.binary(max_size=60),
    kind=st.sampled_from(sorted(CODECS)),
    format_=st.integers(0, 3),
)
def test_any_chain_of_codecs_is_undone_or_refused_by_name(
    names: list[str], note: bytes, rest: bytes, kind: str, format_: int
) -> None:
    payload = header_with([Layer(name, note) for name in names]) + rest
    payload = bytes((format_,)) + payload[1:]
    try:
        opened = CODECS[kind].open(payload, "r", b"place", "v", 100)
        body_of(opened, "v")
        CODECS[kind].is_current(payload, "v")
    except EverstepError as error:
        assert isinstance(error, StateCorrupted | IncompatibleVersion | ValueUnreadable)


def test_a_small_payload_that_unfolds_to_gigabytes_is_refused_before_it_does() -> None:
    bomb = CODECS["zstd"].close(HEADER + bytes(200_000_000), "r", b"")
    assert len(bomb) < 100_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(StateCorrupted):
        CODECS["zstd"].open(bomb, "r", b"", "v", 1000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


# -- waits and keys ---------------------------------------------------------------------------------------


def wait_with(details: bytes, answer: bytes | None) -> WaitRow:
    return WaitRow(
        wait_id="w", run_id="r", flow_id="f", path="a", visit=1, kind="question", opened_at=NOW,
        details=details, answer=answer,
    )  # fmt: skip


NOTE = close_note(CODECS["aes"], "w", b"details", b'{"prompt": "why"}')


@tries(60)
@given(details=damaged(NOTE, (b'{"prompt": 1}',)) | st.just(NOTE), answer=st.none() | st.binary(max_size=40))
def test_damaged_notes_of_a_wait_are_refused_by_name(details: bytes, answer: bytes | None) -> None:
    try:
        opened = open_wait(CODECS["aes"], wait_with(details, answer))
    except EverstepError as error:
        assert isinstance(error, StateCorrupted | IncompatibleVersion | ValueUnreadable)
    else:
        assert details[:1] != b"\x01" or opened.details == b'{"prompt": "why"}'


@tries(100)
@given(text=st.text(max_size=80) | st.text("0123456789abcdef:,k=\n", max_size=90))
def test_any_text_is_a_ring_of_keys_or_refused_by_name(text: str) -> None:
    try:
        KeyRing.from_text(text)
    except EverstepError as error:
        assert error.code == "request.invalid"


def test_a_wrong_key_and_a_missing_one_are_named() -> None:
    closed = CODECS["aes"].close(BIG, "r", b"place")
    for keys in (KeyRing({"k": b"2" * 32}), KeyRing({"other": b"1" * 32})):
        with pytest.raises(KeyUnavailable, match="'k'"):
            Codecs(bytes, keys=keys).open(closed, "r", b"place", "v", len(BIG))
