"""Every kind of damage is found on every store, and called what it is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from everstep import Flow, Host, node, wait
from everstep.codec.records import Glance, glance, seal
from everstep.registry import Opened
from everstep.results import Verified
from everstep.stores.memory import MemoryData, MemoryStore
from everstep.stores.objects.cloud.address import read_address
from everstep.stores.objects.cloud.bucket import Cloud
from everstep.testing import ManualClock
from tests.integration.runtime.integrity.vandals import InPostgres, InRedis, InSqlite, Vandal
from tests.integration.runtime.integrity.vandals_of_objects import InMemory, InObjects
from tests.keyframes import space_keyframes

pytestmark = pytest.mark.servers


@node(output="a")
def first(x: int) -> int:
    return x + 1


@node(output="large")
def second(a: int) -> str:
    return "x" * 700_000


@node(output="c")
def third(a: int, large: str) -> int:
    return a + len(large)


@node(output="d")
def last(c: int, ok: wait.ApprovalOutput) -> int:
    return c + ok.approved


@node(output="b")
def twice(a: int) -> int:
    return 2 * a


FLOW = Flow("f", first >> second >> third >> wait.approval("ok") >> last, durability="strong")
PLAIN = Flow("g", [first, twice], durability="strong")


class Place:
    """A store with a halted run A of FLOW, of five checkpoints, and a finished run B of PLAIN."""

    def __init__(self, url: str, tmp_path: Path) -> None:
        self.clock = ManualClock()
        self._url = url
        self._data = MemoryData()
        self.vandal: Vandal
        if url == "memory:":
            self.vandal = InMemory(self._data, self.clock)
        elif url.startswith("sqlite"):
            self.vandal = InSqlite(tmp_path / "runs.db")
        elif url.startswith("s3"):
            self.vandal = InObjects(Cloud(read_address(url), self.clock))
        else:
            self.vandal = InPostgres(url) if url.startswith("postgres") else InRedis(url)

    def host(self) -> Host:
        return Host(self._opened(), clock=self.clock, encrypt=False, compress=False)

    def _opened(self) -> str | Opened:
        """Return a client that has seen nothing yet."""
        if self._url != "memory:":
            return self._url
        store = MemoryStore(self.clock, self._data)
        return Opened(store, store.artifacts, self._url)

    def seen(self, run_id: str, sequence: int) -> Glance:
        """Return a record as the store keeps it."""
        with self.host() as host:
            called = {record.sequence: record.checkpoint_id for record in host.history(run_id)}
        return glance(self.vandal.body(run_id, sequence), "it", called[sequence])

    def verify(self, run_id: str) -> Verified:
        with self.host() as host:
            [one] = host.storage.verify(run_id)
        return one


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Those that can be reached beneath by a vandal; buckets are in test_verify_buckets."""
    if request.param in ("postgres", "redis"):
        return str(request.getfixturevalue(f"{request.param}_url"))
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture
def place(url: str, tmp_path: Path) -> Iterator[Place]:
    made = Place(url, tmp_path)
    with made.host() as host:
        assert host.run(FLOW, {"x": 1}, run_id="A").status == "halted"
        assert host.run(PLAIN, {"x": 1}, run_id="B").status == "completed"
        assert [one.flaws for one in host.storage.verify()] == [(), ()]
    yield made


def flipped(body: bytes, at: int) -> bytes:
    return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]


def kinds(one: Verified) -> list[tuple[str, int | None]]:
    return [(flaw.kind.value, flaw.sequence) for flaw in one.flaws]


def edit(vandal: Vandal) -> None:
    body = vandal.body("A", 3)
    vandal.write("A", 3, flipped(body, body.index(b"second")))


def edit_value(vandal: Vandal) -> None:
    body = vandal.body("A", 2)
    version, digest, kept, header, [payload] = msgspec.msgpack.decode(body)
    vandal.write("A", 2, msgspec.msgpack.encode([version, digest, kept, header, [flipped(payload, 3)]]))


def cut(vandal: Vandal) -> None:
    vandal.write("A", 4, vandal.body("A", 4)[:-9])


def of_another_run(vandal: Vandal) -> None:
    vandal.write("A", 1, vandal.body("B", 1))


def newer(vandal: Vandal) -> None:
    version, *rest = msgspec.msgpack.decode(vandal.body("A", 4))
    vandal.write("A", 4, msgspec.msgpack.encode([version + 1, *rest]))


RECORDS: dict[str, tuple[Callable[[Vandal], None], list[tuple[str, int]], int | None]] = {
    "edited": (edit, [("altered", 3)], 2),
    "edited value": (edit_value, [("value", 2)], 1),
    "cut short": (cut, [("cut_short", 4)], 3),
    "of another run": (of_another_run, [("altered", 1), ("altered", 2), ("foreign", 1)], None),
    "newer": (newer, [("newer", 4)], 3),
    "missing": (lambda v: v.delete("A", 3), [("missing", 3)], 2),
    "first missing": (lambda v: v.delete("A", 1), [("missing", 1)], None),
    "reordered": (lambda v: v.swap("A", 2, 4), [("reordered", 2), ("reordered", 4)], 1),
    "duplicated": (lambda v: v.repeat("A", 3), [("duplicated", 4)], 3),
}


@pytest.mark.parametrize("what", RECORDS)
def test_what_was_done_to_a_record_is_named_with_the_newest_valid_checkpoint(place: Place, what: str) -> None:
    damage, expected, newest = RECORDS[what]
    damage(place.vandal)
    found = place.verify("A")
    assert sorted(kinds(found)) == sorted(expected), found.flaws
    assert found.newest_valid == newest and not found.is_sound
    assert place.verify("B").is_sound


def test_the_end_of_a_run_that_was_cut_off_is_missed(place: Place, url: str) -> None:
    place.vandal.delete("B", 3)
    found = place.verify("B")
    assert found.newest_valid == 2
    knows_its_head = not url.startswith(("sqlite", "postgres"))
    assert kinds(found) == [("missing", 3) if knows_its_head else ("row", None)]


def test_a_wait_tells_of_the_end_that_was_cut_off(place: Place) -> None:
    place.vandal.delete("A", 5)
    found = place.verify("A")
    assert found.newest_valid == 4 and not found.is_sound
    assert {flaw.kind.value for flaw in found.flaws} <= {"missing", "row", "wait"}


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("artifact_missing", lambda old: None),
        ("artifact_cut_short", lambda old: old[:-1]),
        ("artifact_cut_short", lambda old: b""),
        ("artifact_altered", lambda old: flipped(old, 5000)),
        ("artifact_altered", lambda old: old + b"!"),
    ],
)
def test_a_damaged_artifact_is_named_and_what_does_not_need_it_is_valid(
    place: Place, kind: str, change: Callable[[bytes], bytes | None]
) -> None:
    assert place.verify("A").artifacts == 1
    place.vandal.change_blob(change)
    found = place.verify("A")
    assert kinds(found) == [(kind, 3)] and found.newest_valid == 2
    assert "'large'" in found.problem
    with place.host() as host:
        [unread] = host.storage.verify("A", blobs=False)
    assert unread.is_sound and unread.newest_valid == 5


def test_a_row_that_disagrees_with_the_chain_is_named(place: Place) -> None:
    place.vandal.set_row("B", status="failed")
    assert kinds(place.verify("B")) == [("row", None)] and "is failed" in place.verify("B").problem
    place.vandal.set_row("B", status="completed", adopted_at=2)
    assert kinds(place.verify("B")) == [("row", None)]
    place.vandal.set_row("A", flow_hash="0" * 64)
    assert kinds(place.verify("A")) == [("row", None), ("blueprint", None)]


def test_a_missing_structure_is_named(place: Place) -> None:
    place.vandal.delete_blueprint(FLOW.plan.hash)
    found = place.verify("A")
    assert kinds(found) == [("blueprint", None)] and found.newest_valid == 5
    with place.host() as host:
        assert [one.is_sound for one in host.storage.verify()] == [True, False]


def test_waits_that_disagree_with_the_chain_are_named(place: Place) -> None:
    with place.host() as host:
        [asked] = host.waits("A")
    place.vandal.set_wait(asked.id, path="elsewhere")
    assert kinds(place.verify("A")) == [("wait", None)] and "not at 'elsewhere'" in place.verify("A").problem
    place.vandal.set_wait(asked.id, path="ok", status="closed")
    assert kinds(place.verify("A")) == [("wait", None)] and "is closed" in place.verify("A").problem
    place.vandal.set_wait(asked.id, status="open")
    assert place.verify("A").is_sound


def test_waits_that_are_not_there_or_that_no_one_opened_are_named(place: Place) -> None:
    with place.host() as host:
        [asked] = host.waits("A")
    place.vandal.set_wait(asked.id, run_id="B")
    assert kinds(place.verify("A")) == [("wait", None)] and "no such wait" in place.verify("A").problem
    assert kinds(place.verify("B")) == [("wait", None)] and "no record" in place.verify("B").problem
    place.vandal.delete_wait(asked.id)
    assert kinds(place.verify("A")) == [("wait", None)] and place.verify("B").is_sound


# -- forks, stubs and keyframes ---------------------------------------------------------------------------


def test_forks_are_verified_down_to_their_base(place: Place) -> None:
    with place.host() as host:
        host.fork("A", at=4, inputs={"x": 5}, fork_id="F")
        host.fork("A", at=2, fork_id="E")
        assert all(one.is_sound for one in host.storage.verify())
    edit(place.vandal)
    assert kinds(place.verify("F")) == [("altered", 3)] and place.verify("F").newest_valid == 2
    assert place.verify("F").flaws[0].run_id == "A" and place.verify("E").is_sound
    with place.host() as host:
        found = {one.run_id: one for one in host.storage.verify()}
    assert {run: one.is_sound for run, one in found.items()} == {"A": False, "B": True, "E": True, "F": False}


@pytest.fixture
def framed(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The same with a run K whose checkpoints are all keyframes but the first."""
    space_keyframes(monkeypatch, lambda: 0)
    with place.host() as host:
        host.run(FLOW, {"x": 2}, run_id="K")
        assert [c.keyframe for c in host.checkpoints("K")] == [False, True, True, True, True]
        assert place.verify("K").is_sound
    return place


def test_behind_damage_a_keyframe_is_firm_ground(framed: Place) -> None:
    framed.vandal.write("K", 3, b"nothing")
    found = framed.verify("K")
    assert kinds(found) == [("altered", 3)] and found.newest_valid == 5
    with framed.host() as host:
        host.answer(host.waits("K")[0].id, {"approved": True})
        assert host.resume("K", FLOW)["d"] == 700_004


def test_a_keyframe_that_tells_another_state_is_named(framed: Place) -> None:
    seen = framed.seen("K", 5)
    state = seen.record.state
    assert state is not None
    for change in (
        {"nodes": {**state.nodes, "first": msgspec.structs.replace(state.nodes["first"], visits=7)}},
        {"values": tuple(msgspec.structs.replace(w, version=w.version + 1) for w in state.values)},
        {"task_count": -1},
    ):
        told = msgspec.structs.replace(seen.record, state=msgspec.structs.replace(state, **change))
        body, _ = seal(told, seen.base_digest, seen.payloads)
        framed.vandal.write("K", 5, body)
        assert kinds(framed.verify("K")) == [("keyframe", 5)], change
    framed.vandal.write("K", 5, seal(seen.record, seen.base_digest, seen.payloads)[0])
    assert framed.verify("K").is_sound


def test_a_record_that_does_not_fit_its_flow_is_named(place: Place) -> None:
    seen, before = place.seen("A", 5), place.seen("A", 4)
    strange = tuple(msgspec.structs.replace(step, path="nowhere") for step in seen.record.steps)
    body, _ = seal(msgspec.structs.replace(seen.record, steps=strange), before.digest, seen.payloads)
    place.vandal.write("A", 5, body)
    assert kinds(place.verify("A")) == [("keyframe", 5)]


def test_a_stub_whose_digest_does_not_join_is_named(framed: Place) -> None:
    with framed.host() as host:
        assert host.retention.clean_up("K", keep=2) == 3
        assert framed.verify("K").removed == 3 and framed.verify("K").is_sound
    digest = framed.vandal.body("K", 3)
    framed.vandal.write("K", 3, hashlib.sha256(digest).digest())
    found = framed.verify("K")
    assert kinds(found) == [("stub", 3)] and found.newest_valid == 5
    framed.vandal.write("K", 3, digest[:5])
    assert ("stub", 3) in kinds(framed.verify("K"))
    framed.vandal.write("K", 3, digest)
    framed.vandal.delete("K", 2)
    # What is left of a checkpoint in Redis does not say which one it was.
    assert kinds(framed.verify("K"))[0] in [("missing", 2), ("missing", 3)]


def test_a_lone_fork_is_named(place: Place) -> None:
    with place.host() as host:
        host.fork("A", at=3, fork_id="F")
    for sequence in range(5, 0, -1):
        place.vandal.delete("A", sequence)
    found = place.verify("F")
    assert {flaw.kind.value for flaw in found.flaws} == {"missing"} and found.newest_valid is None
    assert place.verify("A").newest_valid is None and not place.verify("A").is_sound


def test_a_head_that_was_never_written_is_refused_with_the_way_back(place: Place, url: str) -> None:
    """Only where a store keeps the head apart from the records can it be wrong."""
    place.vandal.delete("B", 3)
    with place.host() as host:
        with pytest.raises(Exception, match=r"missing|its records end with") as refused:
            host.run(PLAIN, {"x": 1}, run_id="B")
        assert getattr(refused.value, "code", None) == "DAG-CKPT-008"


def test_progress_is_told_and_every_run_when_it_is_done(place: Place, monkeypatch: Any) -> None:
    monkeypatch.setattr("everstep.runtime.integrity.chain_check.PAGE", 2)
    pages: list[tuple[str, int, int]] = []
    done: list[str] = []
    with place.host() as host:
        host.storage.verify(
            on_progress=lambda *told: pages.append(told), on_run=lambda one: done.append(one.run_id)
        )
        assert done == ["B", "A"]
        assert [told for told in pages if told[0] == "A"] == [("A", 2, 5), ("A", 4, 5), ("A", 5, 5)]
        assert [one.run_id for one in host.storage.verify(["A", "B"])] == ["A", "B"]
