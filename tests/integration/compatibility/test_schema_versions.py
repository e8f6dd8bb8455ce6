"""What a newer everstep wrote fails closed where it is needed and is shown as such where it is looked at."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from everstep import Flow, Host, KeyRing, node
from everstep.cli.main import cli
from everstep.codec.records import glance, with_payloads
from everstep.errors import EverstepError, IncompatibleVersion
from tests.integration.runtime.integrity.test_verify_damage import Place
from tests.keyframes import space_keyframes


@node(output=("b", "old"))
def first(a: int) -> tuple[int, str]:
    return a + 1, "readable"


@node(output="c")
def second(b: int, stop: bool) -> int:
    if stop:
        raise ValueError("not yet")
    return b + 1


FLOW = Flow("f", [first, second], durability="strong")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A run that failed, in whose second checkpoint `b` was written by a newer everstep."""
    made = Place(f"sqlite:///{tmp_path}/runs.db", tmp_path)
    with made.host() as host:
        assert host.run(FLOW, {"a": 1, "stop": True}, run_id="A").status == "failed"
    return made


def newer_value(place: Place, sequence: int = 2, *, at: int = 1) -> None:
    body = place.vandal.body("A", sequence)
    payloads = glance(body, "it").payloads
    payloads[0] = payloads[0][:at] + b"\x09" + payloads[0][at + 1 :]
    place.vandal.write("A", sequence, with_payloads(body, payloads))


@pytest.mark.parametrize("at", [0, 1])
def test_a_value_of_a_newer_format_or_serializer_is_shown_as_such(place: Place, at: int) -> None:
    newer_value(place, at=at)
    with place.host() as host:
        state = host.state("A")
        assert state["old"] == "readable" and state["a"] == 1
        with pytest.raises(IncompatibleVersion) as caught:
            state["b"]
        assert caught.value.code == "DAG-CKPT-009"
        assert [record.sequence for record in host.history("A")] == [1, 2, 3]
        assert host.debug.diff("A", start=1).values
        [found] = host.storage.verify("A")
        assert [(flaw.kind.value, flaw.sequence) for flaw in found.flaws] == [("newer", 2)]


def test_a_run_that_needs_it_fails_closed_and_loses_nothing(place: Place) -> None:
    newer_value(place)
    fixed = Flow("f", [first, second], durability="strong")
    with place.host() as host:
        for act in (
            lambda: host.resume("A", fixed),
            lambda: host.resume("A", fixed, fallback=True),
            lambda: host.run(fixed, run_id="A").raise_for_status(),
        ):
            with pytest.raises(IncompatibleVersion) as caught:
                act()
            assert caught.value.code == "DAG-CKPT-009"
        assert host.info("A").status == "failed" and not host.info("A").is_driven
        assert [run.run_id for run in host.runs()] == ["A"]


def test_a_worker_leaves_a_newer_run_alone_and_does_not_call_it_damaged(place: Place) -> None:
    with place.host() as host:
        host.start(FLOW, {"a": 1, "stop": False}, run_id="B")
        body = place.vandal.body("B", 1)
        version, *rest = msgspec.msgpack.decode(body)
        place.vandal.write("B", 1, msgspec.msgpack.encode([version + 1, *rest]))
        stats = host.work([FLOW], until_idle=True)
        assert (stats.set_aside, stats.failed, stats.completed) == (0, 0, 0)
        assert host.info("B").status == "running" and host.runs(needs_repair=True) == []
        place.vandal.write("B", 1, body)
    with place.host() as host:
        assert host.work([FLOW], until_idle=True).completed == 1


@pytest.mark.parametrize(
    "words", [("log", "A"), ("show", "A"), ("state", "A"), ("diff", "A@1", "A@3"), ("show", "A", "first")]
)
def test_commands_show_what_they_cannot_read_and_go_on(
    place: Place, tmp_path: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERSTEP_ENCRYPT_KEYS", "")
    newer_value(place)
    for more in ((), ("--json",)):
        said = CliRunner().invoke(
            cli, [*words, *more, "--store", str(tmp_path / "runs.db")], standalone_mode=False
        )
        assert said.exception is None, said.exception
        if words[0] in ("state", "diff"):
            assert "readable" in said.output and (
                "serializer 9" in said.output or "unreadable" in said.output
            )


def test_keyframes_of_a_newer_version_fail_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space_keyframes(monkeypatch, lambda: 0)
    place = Place(f"sqlite:///{tmp_path}/runs.db", tmp_path)
    looks: list[Callable[[Host], Any]] = [
        lambda host: host.state("A"),
        lambda host: host.history("A"),
        lambda host: host.checkpoints("A"),
        lambda host: host.resume("A", FLOW),
        lambda host: host.fork("A"),
        lambda host: host.latest("A"),
    ]
    with place.host() as host:
        host.run(FLOW, {"a": 1, "stop": True}, run_id="A")
        for envelope in (lambda rest: [3, *rest], lambda rest: [3, {"another": "shape"}], lambda rest: [3]):
            body = place.vandal.body("A", 3)
            _, *rest = msgspec.msgpack.decode(body)
            place.vandal.write("A", 3, msgspec.msgpack.encode(envelope(rest)))
            for look in looks:
                with pytest.raises(EverstepError) as caught:
                    look(host)
                assert caught.value.code == "DAG-CKPT-009", look
            place.vandal.write("A", 3, body)


# -- older and wider --------------------------------------------------------------------------------------


def test_what_a_later_release_adds_to_a_record_outlasts_a_change_of_keys(tmp_path: Path) -> None:
    place = Place(f"sqlite:///{tmp_path}/runs.db", tmp_path)
    with place.host() as host:
        host.run(FLOW, {"a": 1, "stop": False}, run_id="A")
    body = place.vandal.body("A", 3)
    version, _, kept, header, payloads = msgspec.msgpack.decode(body)
    wider = msgspec.msgpack.encode({**msgspec.msgpack.decode(header), "colour": {"of": "it"}})
    before = glance(place.vandal.body("A", 2), "it").digest
    with place.host() as host:
        called = host.history("A")[-1].checkpoint_id.encode()
    digest = hashlib.sha256(before + called + wider).digest()
    notes: list[bytes] = []
    envelope = [version, digest, kept, wider, payloads, notes, "and more"]
    place.vandal.write("A", 3, msgspec.msgpack.encode(envelope))
    with Host(f"sqlite:///{tmp_path}/runs.db", encrypt=KeyRing({"k": b"1" * 32})) as host:
        assert host.storage.rekey("A")[0].checkpoints == 3
        assert host.storage.verify("A")[0].is_sound and host.state("A")["c"] == 3
    *_, header, payloads, notes, more = msgspec.msgpack.decode(place.vandal.body("A", 3))
    assert msgspec.msgpack.decode(header)["colour"] == {"of": "it"} and more == "and more"
    assert all(payload[2] == 1 for payload in payloads)
