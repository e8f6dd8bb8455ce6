"""Hosts that encrypt: what can be read without the key, what cannot, and what becomes of keys over time."""

from __future__ import annotations

import pickle
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everstep import Flow, Host, KeyRing, node, wait
from everstep.codec.records import with_payloads
from everstep.codec.tags import Tag
from everstep.codec.values import Values
from everstep.errors import BadRequest, EverstepError, KeyUnavailable, StateCorrupted, ValueNotStorable
from everstep.registry import Opened, open_store
from everstep.runtime.system import SystemClock
from everstep.stores.memory import MemoryData, MemoryStore
from everstep.testing import ManualClock
from everstep.testing.killing import Crashed, Killer, crash, killing
from tests import inside_memory
from tests.integration.runtime.outage.test_store_failures import DOWN, Place

OLD, NEW = {"2025": b"1" * 32}, {"2026": b"2" * 32}
SECRETS = (
    b"hunter2",
    b"4111-1111",
    b"BIG-SECRET",
    b"a secret question",
    b"a secret answer",
    b"a secret note",
)


@node(output="word")
def login(user: str) -> dict[str, str]:
    return {"password": "hunter2 " * 100, "user": user}


@node(output="big")
def export(word: dict[str, str]) -> str:
    return "BIG-SECRET " * 60_000


@node(output="paid")
def pay(big: str) -> int:
    raise ValueError("the card 4111-1111 was declined")


SHOP = Flow("shop", [login, export, pay])
ASK = Flow("ask", [login, wait.question("reply", kind="text", prompt="a secret question")])


def stored_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def host_of(folder: Path, keys: dict[str, bytes] | None, **options: Any) -> Host:
    ring: Any = KeyRing(keys) if keys is not None else False
    return Host(f"sqlite:///{folder}/runs.db", encrypt=ring, **options)


@pytest.mark.parametrize("compress", [False, True])
def test_values_errors_questions_and_answers_are_not_in_the_files(tmp_path: Path, compress: bool) -> None:
    with host_of(tmp_path, OLD, compress=compress) as host:
        failed = host.run(SHOP, {"user": "jo"}, run_id="shop")
        assert failed.error is not None and "4111-1111" in failed.error.message
        host.run(ASK, {"user": "a secret note"}, run_id="ask")
        host.answer(host.waits("ask")[0].id, "a secret answer")
        assert host.waits("ask", status="settled")[0].answer == "a secret answer"
        assert host.resume("ask", ASK)["reply"] == "a secret answer"
        assert [host.state("shop")[name] for name in ("user", "big")] == ["jo", "BIG-SECRET " * 60_000]
        assert host.history("shop")[-1].error == failed.error
        assert all(one.is_sound for one in host.storage.verify())
    kept = stored_bytes(tmp_path)
    assert [secret for secret in SECRETS if secret in kept] == []
    assert b"login" in kept and b"ValueError" in kept and b"2025" in kept


def test_without_the_key_a_run_is_listed_and_its_values_are_not_shown(tmp_path: Path) -> None:
    with host_of(tmp_path, OLD) as host:
        host.run(SHOP, {"user": "jo"}, run_id="shop")
        host.run(ASK, {"user": "jo"}, run_id="ask")
        digests = [record.digest for record in host.history("shop")]
    with host_of(tmp_path, None) as host:
        assert {info.run_id: info.status.value for info in host.runs()} == {"shop": "failed", "ask": "halted"}
        history = host.history("shop")
        assert [record.digest for record in history] == digests
        assert [step.path for record in history for step in record.steps][-1] == "pay"
        assert history[-1].error is not None and history[-1].error.type == "ValueError"
        assert history[-1].error.message == "(encrypted with the key '2025')"
        [asked] = host.waits("ask")
        assert asked.prompt == "(encrypted with the key '2025')" and asked.context is None
        for refused in (
            lambda: host.state("shop")["user"],
            lambda: host.state("shop")["big"],
            lambda: host.resume("shop", SHOP),
            lambda: host.answer(asked.id, "x"),
            lambda: host.run(SHOP, {"user": "jo"}, run_id="shop"),
        ):
            with pytest.raises(KeyUnavailable, match="the key '2025', which this host does not have"):
                refused()
        [found] = host.storage.verify("shop")
        assert found.is_sound and found.locked == len(history) and found.locked_by == ("2025",)
    with host_of(tmp_path, OLD) as host:
        assert host.state("shop")["user"] == "jo" and host.info("ask").status == "halted"


def test_a_worker_without_the_key_leaves_a_run_alone_and_does_not_call_it_damaged(tmp_path: Path) -> None:
    with host_of(tmp_path, OLD) as host:
        host.start(Flow("one", [login]), {"user": "jo"}, run_id="r")
    for keys in (None, NEW, {"2025": b"9" * 32}):
        with host_of(tmp_path, keys) as host:
            stats = host.work([Flow("one", [login])], until_idle=True)
            assert (stats.set_aside, stats.completed) == (0, 0)
            assert host.runs(needs_repair=True) == []
    with host_of(tmp_path, OLD) as host:
        assert host.work([Flow("one", [login])], until_idle=True).completed == 1


def test_a_chain_in_the_clear_loads_beside_an_encrypted_one(tmp_path: Path) -> None:
    flow = Flow("one", [login])
    with host_of(tmp_path, None) as host:
        host.run(flow, {"user": "clear"}, run_id="clear")
    with host_of(tmp_path, OLD, compress=True) as host:
        host.run(flow, {"user": "locked"}, run_id="locked")
        assert host.state("clear")["word"]["user"] == "clear"
        host.fork("clear", at=1, inputs={"user": "forked"}, fork_id="fork")
        assert host.resume("fork", flow)["word"]["user"] == "forked"
        assert host.debug.diff("clear", "fork").values
    with host_of(tmp_path, None) as host:
        assert host.state("clear")["word"]["user"] == "clear"
        with pytest.raises(KeyUnavailable):
            host.state("fork")["word"]


def test_a_host_that_requires_its_key_reads_nothing_that_was_put_there_without_it(tmp_path: Path) -> None:
    url, flow = f"sqlite:///{tmp_path}/runs.db", Flow("one", [login])
    with host_of(tmp_path, OLD) as host:
        host.run(flow, {"user": "jo"}, run_id="locked")
        host.run(ASK, {"user": "jo"}, run_id="ask")
    with host_of(tmp_path, None) as host:
        host.run(flow, {"user": "forged"}, run_id="clear")
        host.run(ASK, {"user": "jo"}, run_id="asked-in-the-clear")
    with Host(url, encrypt=KeyRing(OLD, required=True)) as host:
        assert host.state("locked")["word"]["user"] == "jo"
        assert host.waits("ask")[0].prompt == "a secret question"
        [forged] = host.waits("asked-in-the-clear")
        assert "cannot be read" in forged.prompt and forged.context is None
        for look in (
            lambda: host.state("clear"),
            lambda: host.resume("clear", flow, start="login"),
            lambda: host.answer(forged.id, "x"),
        ):
            with pytest.raises(StateCorrupted, match="is not encrypted, and this host reads only what is"):
                look()
    with host_of(tmp_path, OLD) as host:
        host.storage.rekey()
    with Host(url, encrypt=KeyRing(OLD, required=True)) as host:
        assert host.state("clear")["word"]["user"] == "forged"


def written_into(folder: Path, text: str, *given: Any) -> None:
    """Change a store as those do who can write to it and have no key."""
    with closing(sqlite3.connect(folder / "runs.db")) as db, db:
        assert db.execute(text, given).rowcount == 1


FORGED = "UPDATE waits SET status = 'settled', settled_at = opened_at + 1, settled_by = 'answer', answer = ?"


@pytest.mark.parametrize("required", [None, True, False])
@pytest.mark.parametrize("details", ["", ", details = CAST('{}' AS BLOB)"])
def test_an_answer_that_was_put_into_the_store_without_the_key_is_not_believed(
    tmp_path: Path, required: bool | None, details: str
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with host_of(tmp_path, OLD) as host:
        host.run(ASK, {"user": "jo"}, run_id="ask")
    written_into(tmp_path, FORGED + details, b'"forged"')
    with Host(url, encrypt=KeyRing(OLD, required=required)) as host:
        if required is False and details:  # it looks like a wait from before there was a key
            assert host.resume("ask", ASK)["reply"] == "forged"
            return
        with pytest.raises(StateCorrupted, match="not encrypted"):
            host.resume("ask", ASK)
        if not details:
            with pytest.raises(StateCorrupted, match="not encrypted"):
                host.storage.rekey()


@pytest.mark.parametrize("change", ["due_at = opened_at + 1", "FIRED"])
def test_a_time_that_was_altered_in_the_store_is_not_believed(tmp_path: Path, change: str) -> None:
    clock, url = ManualClock(), f"sqlite:///{tmp_path}/runs.db"
    flow = Flow("slow", [wait.question("reply", kind="text", timeout="2d", default="yes")])
    with Host(url, encrypt=KeyRing(OLD), clock=clock) as host:
        host.run(flow, run_id="r")
    if change == "FIRED":
        written_into(tmp_path, FORGED.replace("'answer'", "'clock'"), None)
    else:
        written_into(tmp_path, f"UPDATE waits SET {change}")
    clock.advance(timedelta(hours=1))
    with (
        Host(url, encrypt=KeyRing(OLD), clock=clock) as host,
        pytest.raises(StateCorrupted, match="was altered: it was not over yet"),
    ):
        host.resume("r", flow)


def test_the_time_of_an_encrypted_wait_may_be_over_moved_or_declared_over(tmp_path: Path) -> None:
    clock, url = ManualClock(), f"sqlite:///{tmp_path}/runs.db"
    flow = Flow("slow", [wait.question("reply", kind="text", timeout="2d", default="yes")])
    with Host(url, encrypt=KeyRing(OLD), clock=clock) as host:
        for run_id in ("fired", "over"):
            host.run(flow, run_id=run_id)
        host.waiting.fire(host.waits("fired")[0].id)
        assert host.resume("fired", flow)["reply"] == "yes"
        clock.advance(timedelta(days=3))
        assert host.resume("over", flow)["reply"] == "yes"


def test_answers_from_before_there_was_a_key_count_where_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with host_of(tmp_path, None) as host:
        for run_id in ("answered", "open"):
            host.run(ASK, {"user": "jo"}, run_id=run_id)
        host.answer(host.waits("answered")[0].id, "an old answer")
    monkeypatch.setenv("EVERSTEP_ENCRYPT_KEYS", f"k:{'0f' * 32}")
    with Host(url) as host:
        host.answer(host.waits("open")[0].id, "a new answer")
        assert host.resume("open", ASK)["reply"] == "a new answer"
        with pytest.raises(StateCorrupted, match="EVERSTEP_ENCRYPT_REQUIRED=0"):
            host.resume("answered", ASK)
    monkeypatch.setenv("EVERSTEP_ENCRYPT_REQUIRED", "0")
    with Host(url) as host:
        assert host.resume("answered", ASK)["reply"] == "an old answer"
    monkeypatch.setenv("EVERSTEP_ENCRYPT_REQUIRED", "1")
    with Host(url) as host, pytest.raises(StateCorrupted, match="reads only what is"):
        host.state("answered")
    monkeypatch.delenv("EVERSTEP_ENCRYPT_KEYS")
    with pytest.raises(BadRequest, match="there are no keys"):
        Host(url)


def test_encrypted_steps_that_waited_on_this_machine_open_in_the_fork_they_become(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERSTEP_ENCRYPT_KEYS", f"k:{'0f' * 32}")
    asked = wait.approval("ok", context="a secret note")
    place = Place(tmp_path)
    place.breaks = DOWN
    with place.host() as host:
        assert host.run(place.flow("best_effort", asked), {"x": 1}, run_id="A").status == "halted"
    [file] = tmp_path.rglob("A.spool")
    assert b"a secret note" not in file.read_bytes()
    other = Place(tmp_path)
    other.clock.advance(3600)
    with Host(other.opened, clock=other.clock, spool=tmp_path / "elsewhere") as host:
        assert host.resume("A", other.flow("best_effort", asked)).status == "halted"
    with Place(tmp_path).host() as host:
        [drained] = host.storage.drain()
        assert drained.fork is not None
        assert all(one.is_sound for one in host.storage.verify())
        host.work([place.flow("best_effort", asked)], until_idle=True)
        told = {w.run_id: w.context for w in host.waits()}
        assert told == {"A": "a secret note", drained.fork: "a secret note"}
        for opened in host.waits():
            host.answer(opened.id, {"approved": True})
        host.work([place.flow("best_effort", asked)], until_idle=True)
        assert {run.status for run in host.runs()} == {"completed"}


# -- moved and damaged ------------------------------------------------------------------------------------


@node(output=("one", "other"))
def first(x: int) -> tuple[str, str]:
    return "the same", "the same"


@node(output="two")
def second(one: str) -> str:
    return "the same"


TWINS = Flow("twins", [first, second])


class Vault:
    """A memory store whose records can be tampered with."""

    def __init__(self) -> None:
        self.data = MemoryData()
        self.clock = ManualClock()

    def host(self, keys: dict[str, bytes] | None = OLD, killer: Killer | None = None) -> Host:
        store = MemoryStore(self.clock, self.data)
        opened = killing(Opened(store, store.artifacts, "memory:"), by=killer or Killer())
        return Host(opened, clock=self.clock, encrypt=KeyRing(keys) if keys else False, compress=True)

    def payloads(self, run_id: str, sequence: int) -> list[bytes]:
        payloads: list[bytes] = msgspec.msgpack.decode(self._body(run_id, sequence))[4]
        return payloads

    def put(self, run_id: str, sequence: int, payloads: list[bytes]) -> None:
        self.put_body(run_id, sequence, with_payloads(self._body(run_id, sequence), payloads))

    def put_body(self, run_id: str, sequence: int, body: bytes) -> None:
        inside_memory.set_record(self.data, run_id, sequence, body=body)

    def _body(self, run_id: str, sequence: int) -> bytes:
        return inside_memory.records(self.data, run_id)[sequence - 1].body


def test_a_payload_moved_to_another_run_step_or_name_does_not_open() -> None:
    vault = Vault()
    with vault.host() as host:
        for run_id in ("a", "b"):
            host.run(TWINS, {"x": 1}, run_id=run_id)
        [at] = {r.sequence for r in host.history("a") for step in r.steps if step.path == "first"}
        one, other, two = mine = vault.payloads("a", at)
        theirs = vault.payloads("b", at)
        for moved in (theirs, [theirs[0], other, two], [other, one, two], [one, two, other]):
            vault.put("a", at, moved)
            with pytest.raises(StateCorrupted, match="belong to another place"):
                host.state("a")
        vault.put("a", at, mine)
        assert host.state("a")["one"] == "the same"


def test_without_encryption_equal_values_can_be_moved_which_is_what_the_binding_is_for() -> None:
    vault = Vault()
    with vault.host(None) as host:
        for run_id in ("a", "b"):
            host.run(TWINS, {"x": 1}, run_id=run_id)
        _, other, two = vault.payloads("a", 2)
        vault.put("a", 2, [vault.payloads("b", 2)[0], two, other])
        assert host.state("a")["one"] == "the same"


def test_an_artifact_under_the_name_of_another_does_not_open() -> None:
    vault = Vault()

    @node(output="big")
    def make(x: int) -> str:
        return f"{x}" * 600_000

    with vault.host() as host:
        for x in (1, 2):
            host.run(Flow("big", [make]), {"x": x}, run_id=f"r{x}")
        kept = inside_memory.blobs(vault.data)
        one, two = kept
        inside_memory.set_blob(vault.data, one, kept[two])
        inside_memory.set_blob(vault.data, two, kept[one])
        for run_id in ("r1", "r2"):
            with pytest.raises(StateCorrupted, match="belong to another place"):
                host.state(run_id)["big"]


def test_equal_artifacts_of_two_runs_and_a_fork_are_one_and_open_for_all() -> None:
    vault = Vault()

    @node(output="big")
    def make(x: int) -> str:
        return "9" * 600_000

    with vault.host() as host:
        for x in (1, 2):
            host.run(Flow("big", [make]), {"x": x}, run_id=f"r{x}")
        host.fork("r1", fork_id="fork")
        assert len(inside_memory.blobs(vault.data)) == 1
        assert {host.state(r)["big"] for r in ("r1", "r2", "fork")} == {"9" * 600_000}


@pytest.fixture(scope="module")
def whole() -> tuple[Vault, dict[str, Any]]:
    vault = Vault()
    with vault.host() as host:
        host.run(TWINS, {"x": 1}, run_id="a")
        return vault, dict(host.state("a").items())


@given(data=st.data())
@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_damaged_record_gives_a_named_error_never_another_value(
    whole: tuple[Vault, dict[str, Any]], data: st.DataObject
) -> None:
    vault, values = whole
    records = inside_memory.records(vault.data, "a")
    sequence = data.draw(st.integers(1, len(records)))
    body = bytearray(records[sequence - 1].body)
    at = data.draw(st.integers(0, len(body) - 1))
    if data.draw(st.booleans()):
        body[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del body[at : at + data.draw(st.integers(1, len(body)))]
    vault.put_body("a", sequence, bytes(body))
    try:
        with vault.host() as host:
            assert dict(host.state("a").items()) == values
    except EverstepError as error:
        assert error.code in ("DAG-CKPT-008", "DAG-CKPT-009", "value.unreadable", "value.key_unavailable")
    finally:
        vault.put_body("a", sequence, records[sequence - 1].body)


# -- another key ------------------------------------------------------------------------------------------


def digests(host: Host) -> dict[str, list[str]]:
    return {info.run_id: [record.digest for record in host.history(info.run_id)] for info in host.runs()}


def test_rekey_leaves_nothing_under_the_old_key_and_no_digest_changed(tmp_path: Path) -> None:
    with host_of(tmp_path, OLD, compress=True) as host:
        host.run(SHOP, {"user": "jo"}, run_id="shop")
        host.fork("shop", at=1, inputs={"user": "al"}, fork_id="fork")
        host.run(ASK, {"user": "jo"}, run_id="ask")
        host.answer(host.waits("ask")[0].id, "a secret answer")
    with host_of(tmp_path, None) as host:
        host.run(Flow("one", [login]), {"user": "jo"}, run_id="clear")
    told: list[str] = []
    with host_of(tmp_path, {**NEW, **OLD}) as host:
        before = digests(host)
        tried = host.storage.rekey(dry_run=True)
        assert host.storage.rekey(dry_run=True) == tried
        done = host.storage.rekey(on_run=lambda one: told.append(one.run_id))
        assert done == tried
        assert told == [one.run_id for one in done] and set(told) == {"shop", "fork", "ask", "clear"}
        by_run = {one.run_id: one for one in done}
        assert by_run["shop"].artifacts == 1 and by_run["ask"].waits == 1
        assert all(one.checkpoints for one in done)
        assert not any(one.has_changed for one in host.storage.rekey())
    with host_of(tmp_path, NEW) as host:
        assert digests(host) == before
        assert all(one.is_sound for one in host.storage.verify())
        assert host.state("shop")["big"] == "BIG-SECRET " * 60_000
        assert host.state("fork")["user"] == "al"
        assert host.state("clear")["word"]["user"] == "jo"
        assert host.resume("ask", ASK)["reply"] == "a secret answer"
        failed = host.history("shop")[-1].error
        assert failed is not None and "4111-1111" in failed.message
    with host_of(tmp_path, OLD) as host:
        for run_id in ("shop", "fork", "ask", "clear"):
            with pytest.raises(KeyUnavailable, match="2026"):
                host.state(run_id)["user"]


def test_rekey_that_was_killed_anywhere_goes_on_when_it_is_started_again() -> None:
    at, is_killed = 0, True
    while is_killed:
        at, is_killed = at + 1, False
        vault = Vault()
        with vault.host() as host:
            for k in range(3):
                host.run(SHOP, {"user": f"jo {k}"}, run_id=f"r{k}")
            before = digests(host)
        with vault.host({**NEW, **OLD}, Killer(at, act=crash)) as host:
            try:
                host.storage.rekey()
            except Crashed:
                is_killed = True
        with vault.host({**NEW, **OLD}) as host:
            assert digests(host) == before and host.state("r1")["user"] == "jo 1"
            host.storage.rekey()
        with vault.host(NEW) as host:
            assert digests(host) == before
            assert [host.state(f"r{k}")["user"] for k in range(3)] == ["jo 0", "jo 1", "jo 2"]
    assert at > 8


def test_rekey_of_one_run_leaves_the_others_and_one_that_lacks_a_key_is_left_whole(tmp_path: Path) -> None:
    flow = Flow("one", [login])
    with host_of(tmp_path, OLD) as host:
        for run_id in ("a", "b"):
            host.run(flow, {"user": run_id}, run_id=run_id)
    with host_of(tmp_path, {**NEW, **OLD}) as host:
        assert [one.run_id for one in host.storage.rekey("a")] == ["a"]
    with host_of(tmp_path, NEW) as host:
        assert host.state("a")["user"] == "a"
        with pytest.raises(KeyUnavailable, match="2025"):
            host.storage.rekey()
    with host_of(tmp_path, OLD) as host:
        assert host.state("b")["user"] == "b"


@pytest.mark.parametrize("server", ["postgres_url", "redis_url"])
def test_rekey_on_a_server_leaves_nothing_under_the_old_key(
    server: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(server)
    with Host(url, encrypt=KeyRing(OLD), compress=True) as host:
        host.run(SHOP, {"user": "jo"}, run_id="shop")
        host.fork("shop", at=1, inputs={"user": "al"}, fork_id="fork")
        host.run(ASK, {"user": "jo"}, run_id="ask")
        host.answer(host.waits("ask")[0].id, "a secret answer")
        before = digests(host)
    with Host(url, encrypt=KeyRing({**NEW, **OLD})) as host:
        assert all(one.checkpoints for one in host.storage.rekey())
        assert not any(one.has_changed for one in host.storage.rekey())
    with Host(url, encrypt=KeyRing(NEW)) as host:
        assert digests(host) == before and all(one.is_sound for one in host.storage.verify())
        assert host.state("shop")["big"] == "BIG-SECRET " * 60_000
        assert host.state("fork")["user"] == "al"
        assert host.resume("ask", ASK)["reply"] == "a secret answer"


def test_rekey_never_encrypts_what_was_altered() -> None:
    vault = Vault()
    with vault.host(None) as host:
        host.run(TWINS, {"x": 1}, run_id="a")
    payloads = vault.payloads("a", 2)
    vault.put("a", 2, [payloads[0][:-1] + b"!", *payloads[1:]])
    with vault.host(NEW) as host, pytest.raises(StateCorrupted, match="were altered"):
        host.storage.rekey()


def test_rekey_needs_a_key_and_a_store_that_can() -> None:
    vault = Vault()
    with vault.host(None) as host, pytest.raises(BadRequest, match="no key to encrypt with"):
        host.storage.rekey()


# -- where keys come from ---------------------------------------------------------------------------------


def test_keys_and_compression_are_taken_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, flow = f"sqlite:///{tmp_path}/runs.db", Flow("one", [login])
    monkeypatch.setenv("EVERSTEP_ENCRYPT_KEYS", f"env:{'0f' * 32}")
    monkeypatch.setenv("EVERSTEP_COMPRESS", "1")
    with Host(url) as host:
        host.run(flow, {"user": "jo"}, run_id="r")
    with Host(url, encrypt=False) as host, pytest.raises(KeyUnavailable, match="'env'"):
        host.state("r")["word"]
    monkeypatch.delenv("EVERSTEP_ENCRYPT_KEYS")
    file = tmp_path / "keys"
    file.write_text(f"new:{'0e' * 32}\nenv:{'0f' * 32}\n")
    monkeypatch.setenv("EVERSTEP_ENCRYPT_KEYS_FILE", str(file))
    with Host(url) as host:
        assert host.state("r")["word"]["user"] == "jo"
    monkeypatch.setenv("EVERSTEP_COMPRESS", "perhaps")
    with pytest.raises(BadRequest, match="EVERSTEP_COMPRESS"):
        Host(url)


@pytest.mark.parametrize("wrong", [True, "2026:key", b"1" * 32, {"2026": b"1" * 32}])
def test_what_is_no_key_ring_is_refused_and_not_shown(wrong: Any) -> None:
    with pytest.raises(BadRequest, match="encrypt takes a KeyRing") as caught:
        Host("memory:", encrypt=wrong)
    assert "1111" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "module", "extra"),
    [
        ({"encrypt": KeyRing(NEW)}, "cryptography.hazmat.primitives.ciphers.aead", "crypto"),
        ({"compress": True}, "backports.zstd", "zstd"),
    ],
)
def test_a_missing_package_names_its_extra_before_the_run_is_accepted(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with Host("memory:", **options) as host:
        with pytest.raises(BadRequest) as caught:
            host.run(Flow("one", [login]), {"user": "jo" * 600}, run_id="r")
        assert f"everstep[{extra}]" in caught.value.fix
        assert host.runs() == []


# -- pickle -----------------------------------------------------------------------------------------------


class Handle:
    """Nothing that could be stored as data."""

    def __init__(self, number: int) -> None:
        self.number = number


@node(output="handle")
def grasp(x: int) -> Handle:
    return Handle(x)


@node(output="number")
def look(handle: Handle) -> int:
    return handle.number


def test_pickle_is_used_where_it_is_allowed_and_refused_elsewhere(tmp_path: Path) -> None:
    url, flow = f"sqlite:///{tmp_path}/runs.db", Flow("handles", [grasp, look])
    with Host(url) as host, pytest.raises(ValueNotStorable, match="'grasp' returns Handle"):
        host.run(flow, {"x": 7})
    with Host(url, allow_pickle=True) as host:
        assert host.run(flow, {"x": 7}, run_id="r")["number"] == 7
        assert host.state("r")["handle"].number == 7
    with Host(url) as host:
        state = host.state("r")
        assert state["number"] == 7
        with pytest.raises(EverstepError, match="was pickled, and this host does not unpickle") as caught:
            state["handle"]
        assert caught.value.code == "value.unreadable" and "allow_pickle=True" in caught.value.fix


class Exploding:
    went_off = 0

    def __reduce__(self) -> tuple[Callable[[], int], tuple[()]]:
        return _go_off, ()


def _go_off() -> int:
    Exploding.went_off += 1
    return 1


def test_no_pickle_is_loaded_to_find_out_that_it_is_refused() -> None:
    ext = msgspec.msgpack.Ext(int(Tag.PICKLED), msgspec.msgpack.encode(pickle.dumps(Exploding())))
    for values in (Values(), Values(loose=True)):
        with pytest.raises(EverstepError, match="was pickled"):
            values.decode(msgspec.msgpack.encode([ext]))
    assert Exploding.went_off == 0
    Values(allow_pickle=True).decode(msgspec.msgpack.encode([ext]))
    assert Exploding.went_off == 1


def test_the_store_that_a_url_names_can_be_rekeyed(tmp_path: Path) -> None:
    assert open_store(f"sqlite:///{tmp_path}/r.db", SystemClock()).store.capabilities.recodes


def test_what_was_said_of_an_encrypted_effect_is_explained(tmp_path: Path) -> None:
    calls: list[int] = []

    @node(output="paid", effects="effectful", on_unknown="stop", idempotency_key="auto")
    def pay(amount: int) -> str:
        calls.append(amount)
        raise KeyboardInterrupt

    flow = Flow("pay", [pay], durability="strong")
    with host_of(tmp_path, OLD) as host:
        with pytest.raises(KeyboardInterrupt):
            host.run(flow, {"amount": 1}, run_id="A")
        assert host.resume("A", flow).status == "halted"
        host.waiting.settle("A", "pay", done="by hand")
        [asked] = host.explain("A", flow).waits
        assert asked.outcome == "done"
        assert host.resume("A", flow)["paid"] == "by hand" and calls == [1]
