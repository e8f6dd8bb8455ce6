"""Records as bytes: the digest covers the header, the one before, and by name every value."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from datetime import UTC, datetime

import msgspec
import pytest

from everstep.codec.payload import HEADER
from everstep.codec.records import check_values, seal, unseal
from everstep.errors import IncompatibleVersion, StateCorrupted
from everstep.model.enums import Trigger
from everstep.model.records import CheckpointRecord, StepRecord, Written

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
DATA = b"\x01"
WRITTEN = Written("x", 1, hashlib.sha256(DATA).digest(), 1)


def record(*, keyframe: bool = False) -> CheckpointRecord:
    return CheckpointRecord(
        checkpoint_id="c1",
        sequence=7,
        trigger=Trigger.STEP,
        created_at=NOW,
        keyframe=keyframe,
        steps=(StepRecord(path="a", reads={"y": 2}, writes=(WRITTEN,), started_at=NOW),),
    )


def test_a_record_comes_back_as_it_was() -> None:
    body, digest = seal(record(), b"before", [HEADER + DATA])
    opened = unseal(body, "it", b"before", "c1")
    assert opened.record == record() and opened.digest == digest and opened.payloads == [HEADER + DATA]
    check_values(opened, "it")


def test_another_predecessor_is_noticed() -> None:
    body, _ = seal(record(), b"before", [HEADER + DATA])
    with pytest.raises(StateCorrupted):
        unseal(body, "it", b"other", "c1")


def test_a_keyframe_can_be_read_alone_and_a_delta_cannot() -> None:
    body, _ = seal(record(keyframe=True), b"before", [HEADER + DATA])
    assert unseal(body, "it", None, "c1").record.keyframe
    body, _ = seal(record(), b"before", [HEADER + DATA])
    with pytest.raises(StateCorrupted):
        unseal(body, "it", None, "c1")


def test_every_flipped_byte_is_noticed() -> None:
    body, _ = seal(record(), b"before", [HEADER + DATA])
    for k in range(len(body)):
        for bit in (1, 0x80):
            flipped = body[:k] + bytes([body[k] ^ bit]) + body[k + 1 :]
            with pytest.raises((StateCorrupted, IncompatibleVersion)):
                check_values(unseal(flipped, "it", b"before", "c1"), "it")


def test_a_truncated_record_is_noticed() -> None:
    body, _ = seal(record(), b"before", [HEADER + DATA])
    for k in range(len(body)):
        with pytest.raises(StateCorrupted):
            unseal(body[:k], "it", b"before", "c1")


def test_a_newer_version_fails_closed() -> None:
    body, _ = seal(record(), b"before", [])
    parts = msgspec.msgpack.decode(body)
    with pytest.raises(IncompatibleVersion, match="schema version 3"):
        unseal(msgspec.msgpack.encode([3, *parts[1:]]), "it", b"before", "c1")


def test_unknown_fields_of_a_later_release_are_passed_over() -> None:
    body, _ = seal(record(), b"before", [HEADER + DATA])
    version, _, kept, header, payloads = msgspec.msgpack.decode(body)
    wider = msgspec.msgpack.encode({**msgspec.msgpack.decode(header), "colour": "blue"})
    digest = hashlib.sha256(b"before" + b"c1" + wider).digest()
    assert (
        unseal(msgspec.msgpack.encode([version, digest, kept, wider, payloads]), "it", b"before", "c1").record
        == record()
    )


_READERS = """
import threading, time
import msgspec._utils as inside
from everstep.codec import records
from everstep.model.enums import Trigger
from everstep.model.records import CheckpointRecord
from datetime import UTC, datetime

whole = {"keyframe": True, "run_id": "r", "flow_id": "f", "flow_hash": "h", "metadata": {"a": 1}}
record = CheckpointRecord(
    checkpoint_id="a", sequence=1, trigger=Trigger.STEP, created_at=datetime.now(UTC), **whole
)
body, _ = records.seal(record, b"", [])
look = inside._get_class_mro_and_typevar_mappings

def slowly(kind):  # a thread that looks at the types loses its turn, as it may at any time
    found = look(kind)
    time.sleep(0.002)
    return found

def read(after):
    time.sleep(after)
    records.unseal(body, "x", b"", "a")

inside._get_class_mro_and_typevar_mappings = slowly
readers = [threading.Thread(target=read, args=(k / 200,)) for k in range(4)]
for reader in readers:
    reader.start()
for reader in readers:
    reader.join()
print("read")
"""


def test_threads_may_read_their_first_record_at_the_same_time() -> None:
    done = subprocess.run([sys.executable, "-c", _READERS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "read\n"), done.stderr
