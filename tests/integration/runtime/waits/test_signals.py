"""Signals: sent to a run at any time, taken by the waits that are for them, once and in order."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from everstep import END, Flow, Host, KeyRing, Status, chain, node, route, wait
from everstep.errors import (
    AnswerInvalid,
    BadRequest,
    InboxFull,
    RunEnded,
    RunNotFound,
    StateCorrupted,
    WaitTimeout,
)
from everstep.inbox import append
from everstep.model.waits import SignalRow
from everstep.testing import ManualClock
from everstep.types import LeaveOut


@node(output="reply")
def reply(message: str) -> str:
    return f"re: {message}"


chat = Flow("chat", [wait.signal("message"), reply], durability="strong")


def test_a_signal_lets_a_run_that_waits_for_it_go_on(host: Host) -> None:
    assert host.run(chat, {}, run_id="r").status is Status.HALTED
    [waiting] = host.waits("r")
    assert (waiting.kind, waiting.token, waiting.schema) == ("signal", None, None)
    sent = host.send("r", "message", "hello", by="ann", comment="hi")
    assert (sent.run_id, sent.name, sent.is_new) == ("r", "message", True)
    [unread] = host.inbox("r")
    assert (unread.number, unread.value, unread.wait_id) == (1, "hello", waiting.id)
    assert unread.act is not None and (unread.act.by, unread.act.comment) == ("ann", "hi")
    assert host.work([chat], until_idle=True).completed == 1
    assert host.state("r")["reply"] == "re: hello"
    assert host.inbox("r") == []
    [step] = [s for record in host.history("r") for s in record.steps if s.path == "message" and s.act]
    assert step.act is not None and step.act.by == "ann"
    assert host.storage.verify("r")[0].is_sound


def test_what_was_sent_before_a_wait_opens_is_taken_in_order(host: Host) -> None:
    flow = Flow("two", [wait.signal("first", signal="m"), hand, second])
    host.start(flow, {}, run_id="r")
    for number in range(3):
        host.send("r", "m", number)
    host.work([flow], until_idle=True)
    state = host.state("r")
    assert (state["first"], state["second"]) == (0, 1)
    assert [signal.value for signal in host.inbox("r")] == [2], "unread, and shown"


@node(output="handed")
def hand(first: int) -> int:
    return first


@node(output="second", halts=True)
def second(handed: int) -> Any:
    return wait.Wait(kind="signal", signal="m")


def test_the_same_id_is_the_same_signal(host: Host) -> None:
    host.run(chat, {}, run_id="r")
    assert host.send("r", "message", "one", id="a").is_new
    assert not host.send("r", "message", "two", id="a").is_new
    host.resume("r", chat)
    assert host.state("r")["reply"] == "re: one"
    assert not host.send("r", "message", "one", id="a").is_new


def test_a_run_that_ended_or_is_not_there_takes_none(host: Host) -> None:
    host.run(chat, {}, run_id="r")
    host.cancel("r")
    with pytest.raises(RunEnded, match="has ended, and takes no signal"):
        host.send("r", "message", 1)
    with pytest.raises(RunNotFound):
        host.send("unknown", "message", 1)
    with pytest.raises(RunNotFound):
        host.inbox("unknown")


@pytest.mark.parametrize("name", ["", "x" * 201, None, 3])
def test_a_name_and_an_id_are_text_of_some_length(host: Host, name: Any) -> None:
    host.run(chat, {}, run_id="r")
    with pytest.raises(BadRequest, match="the name of a signal is"):
        host.send("r", name, 1)
    if name is not None:
        with pytest.raises(BadRequest, match="the id of a signal is"):
            host.send("r", "message", 1, id=name)


@pytest.mark.stores("memory")
@pytest.mark.parametrize(
    "about", [{"limit": 0}, {"limit": 1.5}, {"after": -1}, {"after": "x"}, {"after": 2**64}]
)
def test_a_listing_of_an_inbox_goes_on_after_a_number(host: Host, about: dict[str, Any]) -> None:
    host.run(chat, {}, run_id="r")
    with pytest.raises(BadRequest, match=next(iter(about))):
        host.inbox("r", **about)


def test_values_are_json_and_no_larger_than_answers(host: Host) -> None:
    host.run(chat, {}, run_id="r")
    with pytest.raises(AnswerInvalid, match="a signal is JSON"):
        host.send("r", "message", object())
    with pytest.raises(AnswerInvalid, match="a signal of 1,048,578 bytes is too large"):
        host.send("r", "message", "x" * 2**20)


def test_a_full_inbox_says_so(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.run(Flow("f", [wait.signal("a")]), {}, run_id="r")
    store = host._lanes.call(_store)
    send = store.send
    monkeypatch.setattr(store, "send", lambda run_id, signal: send(run_id, signal, most=2))
    host.send("r", "b", 1)
    host.send("r", "b", 2)
    with pytest.raises(InboxFull, match="the inbox of run 'r' is full"):
        host.send("r", "b", 3)


async def _store(opened: Any) -> Any:
    return opened._services.store


def test_such_a_wait_is_not_answered(host: Host) -> None:
    host.run(chat, {}, run_id="r")
    with pytest.raises(BadRequest, match="waits for the signal 'message', which is not answered"):
        host.answer(host.waits("r")[0].id, "hello")


def test_it_times_out_like_any_wait() -> None:
    clock = ManualClock()
    late = Flow("late", [wait.signal("message", timeout="5s", default="nothing"), reply])
    never = Flow("never", [wait.signal("message", timeout="5s")])
    with Host("memory:", clock=clock) as host:
        host.run(late, {}, run_id="a")
        host.run(never, {}, run_id="b")
        clock.advance(5)
        host.send("a", "message", "too late")
        assert host.resume("a", late)["reply"] == "re: nothing"
        ended = host.resume("b", never)
        assert ended.error is not None and ended.error.code == WaitTimeout.code
        assert [signal.value for signal in host.inbox("a")] == ["too late"]


def test_its_value_has_the_type_that_is_asked_for(host: Host) -> None:
    typed = Flow("typed", [wait.signal("count", answer_type=int)])
    host.run(typed, {}, run_id="r")
    host.send("r", "count", "many")
    ended = host.resume("r", typed)
    assert ended.error is not None and ended.error.code == AnswerInvalid.code
    assert host.inbox("r") == [], "a value that cannot be used is not met again and again"


def test_the_flow_ir_has_it(host: Host) -> None:
    flow = Flow("f", [wait.signal("next", signal="message", timeout="1h", answer_type=str)])
    again = Flow.from_ir(flow.to_ir(), {})
    assert again.to_ir() == flow.to_ir()
    host.run(again, {}, run_id="r")
    host.send("r", "message", "x")
    assert host.resume("r", again)["next"] == "x"


def test_an_encrypted_signal_is_read_only_with_the_key_and_only_by_its_run(tmp_path: Path) -> None:
    url, keys = f"sqlite:///{tmp_path}/runs.db", KeyRing({"k": b"1" * 32})
    with Host(url, encrypt=keys) as host:
        for run_id in ("r", "s"):
            host.run(chat, {}, run_id=run_id)
        host.send("r", "message", "the secret of r", id="r")
        host.send("s", "other", "the secret of s", id="s")
        assert [signal.value for signal in host.inbox("r")] == ["the secret of r"]
        assert host.waits("r", status="settled")[0].answer == "the secret of r"
    assert b"secret" not in (tmp_path / "runs.db").read_bytes()
    with Host(url) as blind:
        [signal] = blind.inbox("s")
        assert signal.value is None and "key" in signal.problem
    with closing(apsw.Connection(f"{tmp_path}/runs.db")) as db:
        db.execute(
            "UPDATE waits SET answer = (SELECT value FROM inbox WHERE signal_id = 's') WHERE answer NOTNULL"
        )
    with Host(url, encrypt=keys) as host, pytest.raises(StateCorrupted):
        host.resume("r", chat)


def test_bundles_copies_and_moves_carry_the_inbox(tmp_path: Path) -> None:
    keys = KeyRing({"k": b"1" * 32})
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "two", "three")]
    with Host(urls[0], encrypt=keys) as host:
        host.run(chat, {}, run_id="r")
        host.send("r", "other", "first", id="a")
        host.transfer.export("r", tmp_path / "r.everstep", decrypt=True)
        host.transfer.copy(urls[2], ["r"])
        host.send("r", "message", "second", id="b")
        host.transfer.copy(urls[2], ["r"], move=True)
        with pytest.raises(RunNotFound):
            host.send("r", "message", "lost")
    with Host(urls[1]) as host:
        host.transfer.import_(tmp_path / "r.everstep")
        assert [(s.id, s.value) for s in host.inbox("r")] == [("a", "first")]
        assert not host.send("r", "other", "again", id="a").is_new
        host.send("r", "message", "here")
        assert host.resume("r", chat)["reply"] == "re: here"
    with Host(urls[2], encrypt=keys) as host:
        assert [(s.id, s.value) for s in host.inbox("r")] == [("a", "first"), ("b", "second")]
        assert host.resume("r", chat)["reply"] == "re: second"


def test_a_fork_begins_with_an_empty_inbox_and_a_fallback_with_what_was_not_taken(tmp_path: Path) -> None:
    with Host(f"sqlite:///{tmp_path}/runs.db", encrypt=KeyRing({"k": b"1" * 32})) as host:
        host.run(chat, {}, run_id="r")
        host.send("r", "other", "kept", id="a")
        fork = host.fork("r", fork_id="f")
        assert host.inbox(fork.run_id) == []
        with closing(apsw.Connection(f"{tmp_path}/runs.db")) as db:
            key = db.execute("SELECT run_key FROM runs WHERE run_id = 'r'").fetchall()[0][0]
            last = db.execute(
                "SELECT max(position) FROM checkpoints WHERE position >> 32 = ?", (key,)
            ).fetchall()
            db.execute("UPDATE checkpoints SET body = x'00' WHERE position = ?", last[0])
        result = host.resume("r", chat, fallback=True)
        assert result.run_id != "r"
        assert [(signal.id, signal.value) for signal in host.inbox(result.run_id)] == [("a", "kept")]


def test_a_fallback_has_what_waits_took_behind_its_base_and_names_the_rest(tmp_path: Path) -> None:
    @node(output="log")
    def keep(m: str, notes: list[str], log: list[Any] | None = None) -> list[Any]:
        return [*(log or []), (m, len(notes))]

    @route("m", END)
    def again(log: list[Any]) -> str:
        return "m" if len(log) < 9 else END

    flow = Flow("turns", [chain(wait.signal("m"), keep, again)], entry="m", inbox={"notes": append})
    with Host(f"sqlite:///{tmp_path}/runs.db", encrypt=KeyRing({"k": b"1" * 32})) as host:
        host.run(flow, {"notes": []}, run_id="r")
        for said in ("one", "two"):
            host.send("r", "m", said, id=said)
            host.resume("r", flow)
        base = host.latest("r").sequence
        host.send("r", "notes", "aside", id="note")
        for said in ("three", "four"):
            host.send("r", "m", said, id=said)
            host.resume("r", flow)
        with closing(apsw.Connection(f"{tmp_path}/runs.db")) as db:
            damage = "UPDATE checkpoints SET body = x'00' WHERE position & 4294967295 > ?"
            db.execute(damage, (base,))
        result = host.resume("r", flow, fallback=True)
        assert result.fallback is not None and result.fallback.at == base
        assert result.fallback.lost_signals == ("note",)
        assert [said for said, _ in result["log"]] == ["one", "two", "three", "four"]
        assert not host.send(result.run_id, "m", "again", id="three").is_new


def test_a_fallback_has_all_even_if_that_is_more_than_an_inbox_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were too many were lost, and not named either."""
    flow = Flow("turns", [chain(*(wait.signal(f"w{k}", signal="m") for k in range(4)))])
    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        host.run(flow, {}, run_id="r")
        base = host.latest("r").sequence
        store = host._lanes.call(_store)
        send = store.send

        def send_few(run_id: str, signal: SignalRow, *, most: int = 2, **more: Any) -> Any:
            return send(run_id, signal, most=most, **more)

        monkeypatch.setattr(store, "send", send_few)
        for said in ("one", "two"):
            host.send("r", "m", said, id=said)
            host.resume("r", flow)
        for said in ("x", "y"):
            host.send("r", "other", said, id=said)
        with closing(apsw.Connection(f"{tmp_path}/runs.db")) as db:
            damage = "UPDATE checkpoints SET body = x'00' WHERE position & 4294967295 > ?"
            db.execute(damage, (base,))
        result = host.resume("r", flow, fallback=True)
        assert result.fallback is not None and result.fallback.lost_signals == ()
        assert [result[f"w{k}"] for k in range(2)] == ["one", "two"]
        assert [signal.id for signal in host.inbox(result.run_id)] == ["x", "y"]


def test_a_bundle_leaves_out_signals_whose_names_say_that_they_are_secrets(tmp_path: Path) -> None:
    flow = Flow("login", [wait.signal("password"), wait.signal("word")])
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "two")]
    with Host(urls[0]) as host:
        host.run(flow, {}, run_id="r")
        host.send("r", "password", "hunter2", id="a")
        host.send("r", "api_key", "hunter3", id="b")
        host.send("r", "word", "plain", id="c")
        done = host.transfer.export("r", tmp_path / "r.everstep", leave_out=LeaveOut.secrets())
    left = {(one.what, one.name) for one in done.left_out}
    assert {("signal", "password"), ("signal", "api_key")} <= left and ("signal", "word") not in left
    with Host(urls[1]) as host:
        host.transfer.import_(tmp_path / "r.everstep")
        assert [(s.id, s.value) for s in host.inbox("r")] == [("c", "plain")]
        assert "hunter" not in str(host.waits("r", status="settled"))
        assert host.send("r", "password", "hunter2", id="a").is_new, "it may be sent again"
        assert [s.id for s in host.inbox("r")] == ["c", "a"], "behind what came along"
        host.resume("r", flow)
        result = host.resume("r", flow)
        assert (result["password"], result["word"]) == ("hunter2", "plain")
