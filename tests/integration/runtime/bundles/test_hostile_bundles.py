"""Bundles that lie, are damaged, or were made by an attacker."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everstep import Host
from everstep.errors import (
    BundleInvalid,
    EverstepError,
    IncompatibleVersion,
    StateCorrupted,
    TooLarge,
)
from everstep.model.records import SCHEMA_VERSION
from tests.integration.runtime.bundles.carried import (
    ASK,
    CRAWL,
    GIVEN,
    parts_of,
    repacked,
)


@pytest.fixture
def honest(here: Host, file: Path) -> Path:
    here.run(CRAWL, GIVEN, run_id="A17")
    here.fork("A17", at=2, fork_id="B")
    here.transfer.export("B", file)
    return file


def without(parts: dict[str, bytes], start: str) -> dict[str, bytes]:
    return {name: data for name, data in parts.items() if not name.startswith(start)}


def renamed(parts: dict[str, bytes], old: str, new: str) -> dict[str, bytes]:
    return {name.replace(old, new): data for name, data in parts.items()}


def about(parts: dict[str, bytes], of: str, **changes: Any) -> dict[str, bytes]:
    name = f"runs/{of}/run.json"
    said = msgspec.json.decode(parts[name])
    return parts | {name: msgspec.json.encode(said | {"row": said["row"] | changes})}


def waiting(parts: dict[str, bytes], *waits: dict[str, Any]) -> dict[str, bytes]:
    said = msgspec.json.decode(parts["runs/A17/run.json"]) | {"waits": waits}
    return parts | {"runs/A17/run.json": msgspec.json.encode(said)}


def swapped(parts: dict[str, bytes], start: str, change: Callable[[bytes], bytes]) -> dict[str, bytes]:
    return {name: change(data) if name.startswith(start) else data for name, data in parts.items()}


def records(parts: dict[str, bytes], change: Callable[[list[Any]], list[Any]]) -> dict[str, bytes]:
    return swapped(
        parts, "runs/A17/records", lambda data: msgspec.msgpack.encode(change(msgspec.msgpack.decode(data)))
    )


WAIT = {
    "wait_id": "w",
    "run_id": "A17",
    "flow_id": "crawl",
    "path": "login",
    "visit": 1,
    "kind": "approval",
    "opened_at": "2026-11-15T12:00:00Z",
    "details": "e30=",
}
LIES: dict[str, Callable[[dict[str, bytes]], dict[str, bytes]]] = {
    "no run.json": lambda p: without(p, "runs/B/run.json"),
    "no records": lambda p: without(p, "runs/B/records"),
    "no parent": lambda p: without(p, "runs/A17"),
    "no artifact": lambda p: without(p, "blobs/"),
    "an artifact too many": lambda p: {"blobs/" + "0" * 64: b"\1\1\0x"} | p,
    "a part that does not belong": lambda p: {"evil.sh": b"rm -rf"} | p,
    "an artifact of another name": lambda p: renamed(p, "blobs/", "blobs/x"),
    "no structure": lambda p: without(p, "flows/"),
    "an altered structure": lambda p: swapped(p, "flows/", lambda d: d.replace(b"login", b"logic")),
    "an altered artifact": lambda p: swapped(p, "blobs/", lambda d: d[:-1] + b"?"),
    "an altered record": lambda p: records(p, lambda rs: [[*rs[0][:3], rs[0][3][::-1], None], *rs[1:]]),
    "a record less": lambda p: records(p, lambda rs: rs[:-1]),
    "records in another order": lambda p: records(p, lambda rs: [rs[0], rs[2], rs[1], *rs[3:]]),
    "a record twice": lambda p: records(p, lambda rs: [*rs, rs[-1]]),
    "a stub in the middle": lambda p: records(p, lambda rs: [rs[0], [*rs[1][:3], b"", b"d" * 32], *rs[2:]]),
    "no records at all": lambda p: swapped(p, "runs/A17/records", lambda d: b"\x90"),
    "garbage for records": lambda p: swapped(p, "runs/A17/records", lambda d: b"\xc1" * 20),
    "another status": lambda p: about(p, "A17", status="running"),
    "a status that is none": lambda p: about(p, "A17", status="splendid"),
    "another id": lambda p: about(p, "A17", run_id="A18"),
    "more checkpoints": lambda p: about(p, "A17", checkpoints=99),
    "a huge number": lambda p: about(p, "A17", priority=2**60),
    "a time without a zone": lambda p: about(p, "A17", created_at="2026-11-15T12:00:00"),
    "trimmed from the end on": lambda p: about(p, "A17", trimmed_before=99),
    "trimmed where no keyframe is": lambda p: about(p, "A17", trimmed_before=2),
    "forked from nowhere": lambda p: about(p, "B", forked_at=77),
    "forked from itself": lambda p: about(p, "B", parent_run_id="B"),
    "no fork any more": lambda p: about(p, "B", forked_at=None),
    "with a lease": lambda p: about(
        p,
        "A17",
        lease={
            "run_id": "A17",
            "owner": "me",
            "epoch": 9,
            "expires_at": "2036-01-01T00:00:00Z",
            "process": None,
        },
    ),
    "a run with a hostile id": lambda p: renamed(p, "runs/B", "runs/-rf"),
    "a wait that was never opened": lambda p: waiting(p, WAIT),
    "a wait of another run": lambda p: waiting(p, WAIT | {"run_id": "B"}),
    "a wait twice": lambda p: waiting(p, WAIT, WAIT),
    "deep nesting": lambda p: p | {"runs/A17/run.json": b"[" * 100_000},
}


class TestHostility:
    @pytest.mark.parametrize("lie", LIES.values(), ids=list(LIES))
    def test_whatever_it_lies_about_nothing_is_written(
        self, honest: Path, there: Host, tmp_path: Path, lie: Callable[[dict[str, bytes]], dict[str, bytes]]
    ) -> None:
        bad = repacked(lie(parts_of(honest)), tmp_path / "bad.everstep")
        with pytest.raises((BundleInvalid, StateCorrupted, TooLarge)):
            there.transfer.import_(bad)
        assert there.runs() == []
        assert not [
            p for p in (tmp_path / "there.db.artifacts").rglob("*") if p.is_file() and len(p.name) == 64
        ]

    def test_the_repacked_one_without_a_lie_is_read(self, honest: Path, there: Host, tmp_path: Path) -> None:
        assert there.transfer.import_(repacked(parts_of(honest), tmp_path / "good")).restored == ("A17", "B")

    @pytest.mark.parametrize(
        ("said", "error"),
        [
            ({"version": 2}, IncompatibleVersion),
            ({"schema_version": SCHEMA_VERSION + 1}, IncompatibleVersion),
            ({"format": "tar"}, BundleInvalid),
            ({"content": "0" * 64}, BundleInvalid),
            ({"artifacts": 7}, BundleInvalid),
            ({"runs": []}, BundleInvalid),
            ({"runs": None}, BundleInvalid),
        ],
    )
    def test_a_manifest_that_lies_is_refused(
        self, honest: Path, there: Host, tmp_path: Path, said: dict[str, Any], error: type[EverstepError]
    ) -> None:
        with pytest.raises(error) as caught:
            there.transfer.import_(repacked(parts_of(honest), tmp_path / "bad", **said))
        assert caught.value.code == ("DAG-CKPT-009" if error is IncompatibleVersion else "bundle.invalid")
        assert there.runs() == []

    def test_a_digest_that_the_manifest_makes_up_is_refused(
        self, honest: Path, there: Host, tmp_path: Path
    ) -> None:
        parts = parts_of(honest)
        runs = msgspec.json.decode(parts["manifest.json"])["runs"]
        with pytest.raises(BundleInvalid, match="other things"):
            there.transfer.import_(
                repacked(parts, tmp_path / "bad", runs=[runs[0] | {"digest": "0" * 64}, runs[1]])
            )

    @pytest.mark.parametrize("what", ["folder", "nothing", "text", "pipe"])
    def test_what_is_no_bundle_is_refused(self, there: Host, tmp_path: Path, what: str) -> None:
        path = tmp_path / "what"
        if what == "folder":
            path.mkdir()
        elif what == "text":
            path.write_text("hello")
        elif what == "pipe":
            os.mkfifo(path)
        with pytest.raises(BundleInvalid):
            there.transfer.import_(path)

    @pytest.mark.parametrize(
        "changes",
        [
            {"details": "W10="},
            {"details": "AQEB////"},
            {"details": "e30"},
            {"status": "settled"},
            {"status": "settled", "answer": "////"},
            {"token_hash": "AAAA"},
            {"opened_at": "2026-11-15T12:00:00"},
            {"visit": 2**60},
        ],
        ids=str,
    )
    def test_a_wait_that_would_break_every_listing_is_refused(
        self, here: Host, there: Host, file: Path, tmp_path: Path, changes: dict[str, Any]
    ) -> None:
        here.run(ASK, GIVEN, run_id="A17")
        here.transfer.export("A17", file)
        parts = parts_of(file)
        [asked] = msgspec.json.decode(parts["runs/A17/run.json"])["waits"]
        assert there.transfer.import_(
            repacked(waiting(parts, asked), tmp_path / "good"), dry_run=True
        ).restored
        with pytest.raises(BundleInvalid):
            there.transfer.import_(repacked(waiting(parts, asked | changes), tmp_path / "bad"))
        assert there.runs() == [] and there.waits() == []

    def test_a_run_whose_wait_is_taken_there_is_refused_whole(
        self, here: Host, there: Host, file: Path
    ) -> None:
        here.run(ASK, GIVEN, run_id="A17")
        here.transfer.export("A17", file)
        there.transfer.import_(file)
        with pytest.raises(EverstepError):
            parts = renamed(parts_of(file), "A17", "A18")
            there.transfer.import_(repacked(parts, file))
        assert [info.run_id for info in there.runs()] == ["A17"]

    @settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_cut_and_flipped_bundles_are_always_refused_by_name(
        self, honest: Path, there: Host, tmp_path: Path, data: st.DataObject
    ) -> None:
        whole = honest.read_bytes()
        altered = bytearray(whole)
        for _ in range(data.draw(st.integers(0, 3))):
            altered[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
        cut = data.draw(st.one_of(st.none(), st.integers(0, len(whole))))
        if bytes(altered[:cut]) == whole:
            return
        bad = tmp_path / "bad.everstep"
        bad.write_bytes(bytes(altered[:cut]))
        with pytest.raises(EverstepError):
            there.transfer.import_(bad)
        assert there.runs() == []
