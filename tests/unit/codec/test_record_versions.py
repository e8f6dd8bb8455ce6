"""Records of version 1 and 2 tell the same, and a chain may hold both: each is hashed onto the one before."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.codec.payload import HEADER
from everstep.codec.records import (
    check_digest,
    digest_of,
    read_channel_entry,
    read_checked,
    seal,
    unseal,
    with_payloads,
)
from everstep.errors import StateCorrupted
from everstep.model.acts import Act, Known
from everstep.model.enums import Status, Trigger, ValueForm
from everstep.model.ledger import Guarded, Ledger
from everstep.model.records import (
    ArtifactRef,
    CheckpointRecord,
    Counters,
    ErrorInfo,
    FlowFrontier,
    IdempotencyState,
    NodeState,
    OpenedState,
    QueuedTask,
    ScopeState,
    SerializedState,
    StepRecord,
    Stored,
    StreamAt,
    Undo,
    Undoable,
    UndoState,
    UnitAt,
    UnitFacts,
    Written,
)
from everstep.model.waits import WaitOpened
from tests.architecture.sources import ROOT
from tests.unit.codec.fuzzing import tries
from tests.unit.codec.version_1 import header_of_version_1, seal_as_version_1

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
NAMES = st.text("abcxyz@/#é", min_size=1, max_size=8)
COUNTS = st.integers(0, 2**40)
TIMES = st.datetimes(datetime(2020, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC))
AMOUNTS = st.decimals(0, 10**6, places=3)
SECONDS = st.floats(0, 10**6, allow_nan=False)
LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: COUNTS,
    bool: st.booleans(),
    bytes: st.binary(max_size=40),
    datetime: TIMES,
    timedelta: st.timedeltas(timedelta(0), timedelta(days=400)),
    Decimal: AMOUNTS,
}
METADATA = st.none() | st.dictionaries(
    TEXT, st.none() | st.booleans() | st.integers(-5, 5) | TEXT, max_size=2
)


def struct(cls: type[Any], **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return structs whose fields are there or left as they are by default."""
    fields = msgspec.structs.fields(cls)
    assert given.keys() == {f.name for f in fields} - (
        {"version", "digest"} if cls is CheckpointRecord else set()
    )
    needed = {f.name: given[f.name] for f in fields if f.required}
    others = {name: one for name, one in given.items() if name not in needed}
    return st.fixed_dictionaries(needed, optional=others).map(lambda chosen: cls(**chosen))


def many(one: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(one, max_size=3).map(tuple)


def named(one: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(NAMES, one, max_size=3)


ERRORS = st.builds(ErrorInfo, TEXT, TEXT, TEXT, TEXT, st.binary(max_size=32))
ACTS = st.builds(Act, TEXT, TEXT, st.sampled_from(Known))
WAITS = st.builds(WaitOpened, NAMES, TEXT, st.none() | TIMES, TEXT, TEXT)
STREAMS = st.builds(StreamAt, NAMES, COUNTS, st.none() | TEXT, COUNTS, named(COUNTS))
READS, MASKS = named(COUNTS), COUNTS | st.binary(min_size=9, max_size=12)
WRITES = struct(
    Written,
    name=NAMES,
    version=COUNTS,
    digest=st.binary(min_size=32, max_size=32),
    size=COUNTS,
    form=st.sampled_from(ValueForm),
    artifact=st.none() | st.builds(ArtifactRef, TEXT, TEXT, COUNTS, TEXT, TEXT),
    source=TEXT,
    expires_at=TIMES,
)
TASKS = st.builds(QueuedTask, NAMES, COUNTS, many(NAMES), st.integers(-9, 9), TEXT, TEXT)
UNIT_FACTS = struct(
    UnitFacts,
    arguments=st.binary(max_size=8),
    is_brief=st.booleans(),
    is_fresh=st.booleans(),
    changed=many(NAMES),
    unasked=many(NAMES),
    behind=TEXT,
    asked=SECONDS,
)
UNITS = struct(
    UnitAt,
    status=st.sampled_from(Status),
    attempts=COUNTS,
    arguments=st.binary(max_size=8),
    is_brief=st.booleans(),
    error=ERRORS,
    retry_at=TIMES,
    behind=TEXT,
    asked=SECONDS,
)
STEPS = struct(
    StepRecord,
    path=NAMES,
    visit=COUNTS,
    status=st.sampled_from(Status),
    attempts=COUNTS,
    reads=READS,
    writes=many(WRITES),
    decision=many(NAMES),
    key=TEXT,
    error=ERRORS,
    retry_at=TIMES,
    started_at=TIMES,
    ended_at=TIMES,
    items=COUNTS,
    queued=many(TASKS),
    task=COUNTS,
    goto=st.booleans(),
    ends=st.booleans(),
    wait=WAITS,
    stream=STREAMS,
    outcome=TEXT,
    unknown=st.booleans(),
    spent=named(AMOUNTS),
    guards=st.just(Guarded()),
    again=named(many(NAMES)),
    act=ACTS,
    unit=st.none() | UNIT_FACTS,
    undo=st.none() | struct(Undo, by=TEXT, is_kept=st.booleans()),
)
NODES = struct(
    NodeState,
    visits=COUNTS,
    status=st.sampled_from(Status),
    attempts=COUNTS,
    reads=READS,
    chosen=COUNTS,
    retry_at=TIMES,
    key=TEXT,
    consumed=TEXT,
    is_due=st.booleans(),
    round=COUNTS,
    arrived=COUNTS,
    won=MASKS,
    lost=MASKS,
    has_fired=st.booleans(),
    winners=MASKS,
    begun=st.booleans(),
    wait=WAITS,
    since=TIMES,
    task=COUNTS,
    stream=STREAMS,
    units=st.none() | named(UNITS),
    began_as=TEXT,
)
UNDOABLES = struct(Undoable, sequence=COUNTS, path=NAMES, visit=COUNTS, key=TEXT, by=TEXT, was=TEXT)
UNDO_STATES = struct(
    UndoState,
    stack=many(UNDOABLES),
    ends=TEXT,
    error=ERRORS,
    asks=st.booleans(),
    is_declined=st.booleans(),
    done=COUNTS,
    skipped=COUNTS,
    at=st.none() | NODES,
)
STATES = struct(
    SerializedState,
    values=many(WRITES),
    nodes=named(NODES),
    error=ERRORS,
    opened=named(st.builds(OpenedState, COUNTS, READS, st.none() | COUNTS, many(COUNTS), many(COUNTS))),
    scopes=named(st.builds(ScopeState, COUNTS, st.booleans(), st.none() | ERRORS)),
    tasks=many(TASKS),
    task_count=COUNTS,
    has_ended=st.booleans(),
    key_run=TEXT,
    ledger=st.builds(Ledger, named(AMOUNTS)),
    undo=st.none() | UNDO_STATES,
    delay=st.none() | WAITS,
    deadline=st.none() | WAITS,
)
RECORDS = struct(
    CheckpointRecord,
    checkpoint_id=st.uuids().map(str),
    sequence=COUNTS,
    base=st.uuids().map(str),
    trigger=st.sampled_from(Trigger),
    created_at=TIMES,
    keyframe=st.booleans(),
    status=st.sampled_from(Status),
    steps=many(STEPS),
    error=ERRORS,
    metadata=METADATA,
    resume_after=TIMES,
    ttl=LEAVES[timedelta],
    act=ACTS,
    run_id=TEXT,
    parent_run_id=TEXT,
    flow_id=TEXT,
    flow_version=TEXT,
    flow_hash=TEXT,
    frontier=st.builds(FlowFrontier, pending=many(NAMES)),
    state=STATES,
    idempotency=st.builds(IdempotencyState, named(st.lists(TEXT, max_size=2)), named(TEXT)),
    counters=st.builds(Counters, COUNTS, named(COUNTS), named(COUNTS), named(AMOUNTS)),
)
FIRST = CheckpointRecord(
    checkpoint_id="c1",
    sequence=1,
    trigger=Trigger.STEP,
    created_at=datetime(2030, 1, 1, tzinfo=UTC),
    steps=(StepRecord(path="a", writes=(Written("x", 1, b"\0" * 32, 1),)),),
)


def since(record: CheckpointRecord, version: int) -> CheckpointRecord:
    return msgspec.structs.replace(record, version=version)


@tries(60)
@given(record=RECORDS, before=st.binary(max_size=32), payloads=st.lists(st.binary(max_size=9), max_size=3))
def test_no_field_is_lost_in_either_version(
    record: CheckpointRecord, before: bytes, payloads: list[bytes]
) -> None:
    old, old_digest = seal_as_version_1(record, before, payloads)
    new, new_digest = seal(record, before, payloads)
    for body, digest, version in ((old, old_digest, 1), (new, new_digest, 2)):
        opened = unseal(body, "it", before, record.checkpoint_id)
        assert opened.record == since(record, version) == read_checked(body, record.checkpoint_id).record
        assert (opened.payloads, opened.digest) == (payloads, digest)
        assert digest == digest_of(body) == check_digest(body, "it", before, record.checkpoint_id)
    assert len(new) < len(old)
    again, _ = seal(unseal(old, "it", before, record.checkpoint_id).record, before, payloads)
    assert again == new, "a record of version 1 is written anew as if it had been made now"


def test_a_chain_changes_its_version_in_the_middle() -> None:
    second = msgspec.structs.replace(FIRST, checkpoint_id="c2", sequence=2)
    third = msgspec.structs.replace(FIRST, checkpoint_id="c3", sequence=3)
    one, after_one = seal_as_version_1(FIRST, b"", [HEADER])
    two, after_two = seal(second, after_one, [HEADER])
    three, _ = seal(third, after_two, [HEADER])
    assert unseal(one, "it", b"", "c1").digest == after_one
    assert unseal(two, "it", after_one, "c2").digest == after_two
    assert unseal(three, "it", after_two, "c3").record == third
    for wrong in (b"", after_two):
        with pytest.raises(StateCorrupted):
            unseal(two, "it", wrong, "c2")


def test_the_id_beside_a_record_is_bound_to_it() -> None:
    body, _ = seal(FIRST, b"before", [HEADER])
    assert b"c1" not in body
    for read in (unseal, check_digest):
        with pytest.raises(StateCorrupted):
            read(body, "it", b"before", "c2")


def test_a_record_that_is_said_to_be_of_the_other_version_is_refused() -> None:
    for body in (seal(FIRST, b"", [HEADER])[0], seal_as_version_1(FIRST, b"", [HEADER])[0]):
        version, *rest = msgspec.msgpack.decode(body)
        with pytest.raises(StateCorrupted):
            unseal(msgspec.msgpack.encode([3 - version, *rest]), "it", b"", "c1")


def test_other_payloads_leave_version_and_digest() -> None:
    for body in (seal(FIRST, b"", [HEADER])[0], seal_as_version_1(FIRST, b"", [HEADER])[0]):
        changed = with_payloads(body, [HEADER + b"1"])
        assert digest_of(changed) == digest_of(body) and changed[1] == body[1]


def test_headers_of_0_1_0_come_back_byte_for_byte() -> None:
    kept = msgspec.json.decode((ROOT / "tests/fixtures/chain-0.1.0.json").read_bytes())
    headers = [msgspec.msgpack.decode(base64.b64decode(commit["body"]))[3] for commit in kept["commits"]]
    for commit, header in zip(kept["commits"], headers, strict=True):
        record = read_checked(base64.b64decode(commit["body"]), "").record
        assert record.checkpoint_id == commit["checkpoint_id"] and record.version == 1
        assert header_of_version_1(record) == header


def test_names_of_one_letter_are_given_once_and_to_every_field() -> None:
    for cls in (CheckpointRecord, StepRecord, NodeState, UnitFacts, UnitAt, Written):
        assert issubclass(cls, Stored)
        fields = msgspec.structs.fields(cls)
        names = [f.encode_name for f in fields if cls is Written or f.name not in ("version", "digest")]
        assert len(set(names)) == len(names) and {len(name) for name in names} == {1}


def test_the_reference_lists_the_letters() -> None:
    reference = (ROOT / "docs" / "reference" / "records.md").read_text()
    for cls in (CheckpointRecord, StepRecord, NodeState, UnitFacts, UnitAt, Written):
        [line] = [line for line in reference.splitlines() if line.startswith(f"| `{cls.__name__}` | `")]
        told = {part.strip(" |") for part in line.removeprefix(f"| `{cls.__name__}` |").split(",")}
        fields = [f for f in msgspec.structs.fields(cls) if len(f.encode_name) == 1]
        assert told == {f"`{f.encode_name}` {f.name}" for f in fields if f.name != "checkpoint_id"}


def test_an_entry_of_a_channel_that_0_1_kept_is_read() -> None:
    write = {"name": "k", "version": 3, "digest": b"\1" * 32, "size": 7, "form": "append"}
    entry = msgspec.msgpack.encode(([write], [b"payload"]))
    assert read_channel_entry(entry) == (
        (Written("k", 3, b"\1" * 32, 7, ValueForm.APPEND),),
        [b"payload"],
    )
