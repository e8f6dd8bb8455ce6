"""Events by key: published once, they let every run go on that waits for one like it."""

from __future__ import annotations

import asyncio
from contextlib import closing
from enum import Enum
from http import HTTPStatus
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from everstep import END, AsyncHost, Context, Flow, Host, KeyRing, Status, chain, ifelse, node, wait
from everstep.errors import BadRequest, InvalidDelay, StateCorrupted
from everstep.ports.events import fields_of, wanted_by
from everstep.runtime.travel.had_events import had_by
from everstep.runtime.waits.answers import as_json
from everstep.testing import ManualClock


@node(output="order_id")
def order(number: int) -> str:
    return f"A{number}"


@node(output="receipt")
def close(paid: dict[str, Any]) -> str:
    return f"{paid['order']} paid {paid['amount']}"


shop = Flow("shop", [order, wait.event("paid", match={"order": "order_id"}), close], durability="strong")


def test_an_event_lets_the_runs_go_on_that_wait_for_it(host: Host) -> None:
    for number in range(3):
        assert host.run(shop, {"number": number}, run_id=f"r{number}").status is Status.HALTED
    done = host.publish("paid", {"order": "A1", "amount": 12}, by="bank", id="p1")
    assert (done.name, done.id, done.settled) == ("paid", "p1", 1)
    [settled] = host.waits("r1", status="settled")
    assert settled.answer == {"order": "A1", "amount": 12} and settled.act is not None
    assert settled.act.by == "bank"
    assert host.work([shop], until_idle=True).completed == 1
    assert host.state("r1")["receipt"] == "A1 paid 12"
    assert host.publish("paid", {"order": "A1", "amount": 12}).settled == 0
    assert [wait.run_id for wait in host.waits()] == ["r0", "r2"]
    assert host.storage.verify("r1")[0].is_sound


def test_a_kept_event_is_found_by_a_wait_that_opens_later(host: Host) -> None:
    host.publish("paid", {"order": "A7", "amount": 1})
    assert host.publish("paid", {"order": "A7", "amount": 2}, keep="1d").settled == 0
    host.run(shop, {"number": 7}, run_id="r")
    assert host.resume("r", shop)["receipt"] == "A7 paid 2"


def test_it_is_kept_no_longer_than_was_said() -> None:
    clock = ManualClock()
    with Host("memory:", clock=clock) as host:
        host.publish("paid", {"order": "A7", "amount": 2}, keep="1d")
        clock.advance(86_400)
        assert host.run(shop, {"number": 7}, run_id="r").status is Status.HALTED


@pytest.mark.parametrize("keep", [0, -1, "400d", "soon"])
def test_how_long_it_is_kept_is_a_span(host: Host, keep: Any) -> None:
    with pytest.raises((BadRequest, InvalidDelay)):
        host.publish("paid", {}, keep=keep)


def test_only_scalars_are_matched(host: Host) -> None:
    @node(output="key")
    def make(number: int) -> list[int]:
        return [number]

    flow = Flow("f", [make, wait.event("paid", match={"order": "key"})])
    ended = host.run(flow, {"number": 1}, run_id="r")
    assert ended.error is not None and "Match text, a number or a bool" in str(ended.error)


class _Color(str, Enum):  # noqa: UP042  # its members are said as `_Color.RED`
    RED = "red"


class _Size(float):
    def __repr__(self) -> str:
        return "size"


@pytest.mark.parametrize(
    ("given", "plain"),
    [(_Color.RED, "red"), (HTTPStatus.OK, 200), (_Size(1.5), 1.5), (-0.0, 0), (2.0**70, 2**70)],
)
def test_a_scalar_of_a_class_of_its_own_is_what_it_is_in_json(given: Any, plain: Any) -> None:
    said = msgspec.json.decode(as_json({"order": plain}))
    assert fields_of(said) == wanted_by("paid", {"order": given}).hashes


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, float("nan"), float("inf"), b"x"])
def test_what_no_event_could_equal_is_refused_when_the_flow_is_built(value: Any) -> None:
    for said in (value, wait.literal(value)):
        with pytest.raises(BadRequest, match="'paid' matches 'order' with"):
            wait.event("paid", match={"order": said})


@pytest.mark.stores("memory")
def test_all_fields_of_an_event_are_matched_and_more_than_that_are_refused(host: Host) -> None:
    fields = {f"field-{k}": k for k in range(100)}
    host.run(Flow("f", [wait.event("paid", match={"field-99": 99})]), {}, run_id="r")
    with pytest.raises(BadRequest, match="101 fields that could be matched; at most 100"):
        host.publish("paid", fields | {"more": 1})
    assert host.publish("paid", fields | {"nested": {"more": 1}}).settled == 1


@pytest.mark.stores("memory")
@pytest.mark.parametrize("about", [{"name": "\ud800"}, {"id": "é\udc00"}])
def test_a_name_and_an_id_are_whole_text(host: Host, about: dict[str, str]) -> None:
    with pytest.raises(BadRequest, match="of an event is"):
        host.publish(**({"name": "paid"} | about))


def test_a_match_that_names_no_fields_is_refused() -> None:
    with pytest.raises(BadRequest, match=r"'paid' matches 'order'\. Give fields of the event"):
        wait.event("paid", match="order")  # type: ignore[arg-type]  # on purpose


def test_such_a_wait_is_not_answered(host: Host) -> None:
    host.run(shop, {"number": 1}, run_id="r")
    with pytest.raises(BadRequest, match="waits for the event 'paid', which is not answered"):
        host.answer(host.waits("r")[0].id, {"order": "A1"})


def test_the_flow_ir_has_it(host: Host) -> None:
    flow = Flow("f", [wait.event("go", event="paid", match={"order": "order_id", "kind": wait.literal("x")})])
    again = Flow.from_ir(flow.to_ir(), {})
    assert again.to_ir() == flow.to_ir()
    host.run(again, {"order_id": "A1"}, run_id="r")
    assert host.publish("paid", {"order": "A1", "kind": "y"}).settled == 0
    assert host.publish("paid", {"order": "A1", "kind": "x", "n": 1}).settled == 1
    assert host.resume("r", again)["go"]["n"] == 1


def test_an_encrypted_event_cannot_be_put_where_it_was_not_for(tmp_path: Path) -> None:
    url, keys = f"sqlite:///{tmp_path}/runs.db", KeyRing({"k": b"1" * 32})
    with Host(url, encrypt=keys) as host:
        for number in (1, 2):
            host.run(shop, {"number": number}, run_id=f"r{number}")
        host.publish("paid", {"order": "A1", "amount": "the secret"})
        assert host.waits("r1", status="settled")[0].answer["amount"] == "the secret"
    assert b"secret" not in (tmp_path / "runs.db").read_bytes()
    with closing(apsw.Connection(f"{tmp_path}/runs.db")) as db:
        db.execute(
            "UPDATE waits SET status = 'settled', settled_by = 'answer', wake_at = 0, settled_at = 1, "
            "answer = (SELECT answer FROM waits WHERE answer NOTNULL) WHERE answer IS NULL"
        )
    with Host(url, encrypt=keys) as host:
        assert host.resume("r1", shop)["receipt"] == "A1 paid the secret"
        with pytest.raises(StateCorrupted, match="an event that it is not for"):
            host.resume("r2", shop)


@ifelse(when_true=END, when_false="paid")
def is_last(paid: dict[str, Any]) -> bool:
    return bool(paid["last"])


ROUNDS = Flow(
    "rounds", [wait.event("paid", match={"order": "order"}), is_last], entry="paid", durability="strong"
)


@pytest.mark.parametrize("how", ["move", "bundle"])
@pytest.mark.stores("sqlite", "postgres", "redis", "s3")
def test_an_event_that_a_run_had_is_not_taken_again_in_another_store(
    url: str, how: str, tmp_path: Path
) -> None:
    paid = {"order": "A1", "last": False}
    with Host(f"sqlite:///{tmp_path}/here.db") as host:
        host.run(ROUNDS, {"order": "A1"}, run_id="r")
        assert host.publish("paid", paid, id="p1").settled == 1
        assert host.resume("r", ROUNDS).status is Status.HALTED, "it waits for the second"
        assert host.publish("paid", paid, id="p1").settled == 0
        if how == "move":
            host.transfer.copy(url, ["r"], move=True)
        else:
            host.transfer.export("r", tmp_path / "r.everstep")
    with Host(url) as host:
        if how == "bundle":
            host.transfer.import_(tmp_path / "r.everstep")
        assert host.publish("paid", paid, id="p1").settled == 0, "its node had this one elsewhere"
        assert host.publish("paid", {**paid, "last": True}, id="p2").settled == 1
        assert host.resume("r", ROUNDS).status is Status.COMPLETED


@node(output="got")
def book(paid: dict[str, Any], got: list[str] | None = None) -> list[str]:
    return [*(got or []), paid["id"]]


@ifelse(when_true=END, when_false="paid")
def has_all(got: list[str]) -> bool:
    return len(got) == 3


collects = Flow("collects", [chain(wait.event("paid"), book, has_all)], entry="paid", durability="strong")


def had_by_fork(host: Host, run_id: str, at: int | None) -> list[str]:
    """Return what a fork has in the end."""
    fork = host.fork(run_id, at=at)
    while (result := host.resume(fork.run_id, collects)).status is Status.HALTED:
        assert any(wait.status == "settled" for wait in result.waits), result
    assert host.storage.verify(fork.run_id)[0].is_sound
    return list(result["got"])


@pytest.mark.stores("memory", "sqlite", "folder", "postgres", "redis")
def test_a_fork_gets_no_event_again_that_its_run_had_taken_until_then(host: Host) -> None:
    host.run(collects, {}, run_id="r")
    asked = [host.latest("r").sequence]
    for number in (1, 2):
        host.publish("paid", {"id": f"e{number}"}, id=f"e{number}", keep="1d")
        host.resume("r", collects)
        asked.append(host.latest("r").sequence)
    part = host.fork("r", at=asked[1], fork_id="part")  # its node has e1
    host.resume(part.run_id, collects)
    host.publish("paid", {"id": "e3"}, id="e3", keep="1d")
    for at in asked:
        assert had_by_fork(host, "r", at) == ["e1", "e2", "e3"], at
    for forked_at in (None, asked[0], asked[1]):
        assert had_by_fork(host, "part", forked_at) == ["e1", "e2", "e3"], forked_at


def test_a_node_has_an_event_once_under_each_name_that_it_waits_under(host: Host) -> None:
    @node(output="had", halts=True)
    def agent(number: int, ctx: Context) -> list[str]:
        names = ("deposit", "deposit", "rest")
        return [ctx.wait(wait.event(name, event="paid", match={"order": number}))["id"] for name in names]

    flow = Flow("agents", [agent], durability="strong")
    for name in ("p1", "p2"):
        host.publish("paid", {"order": 7, "id": name}, id=name, keep="1d")
    host.start(flow, {"number": 7}, run_id="r")
    assert host.work([flow], until_idle=True).completed == 1
    first, second, under_another = host.state("r")["had"]
    assert {first, second} == {"p1", "p2"} and under_another in ("p1", "p2")


def test_a_fork_with_another_input_asks_for_the_same_event_again(host: Host) -> None:
    host.publish("paid", {"order": "A7", "amount": 2}, keep="1d")
    host.run(shop, {"number": 7}, run_id="r")
    assert host.resume("r", shop)["receipt"] == "A7 paid 2"
    host.fork("r", inputs={"number": 7}, fork_id="again")
    assert host.resume("again", shop)["receipt"] == "A7 paid 2"


def test_a_fork_misses_no_event_of_a_run_that_goes_on_meanwhile() -> None:
    async def main() -> None:
        async with AsyncHost("memory:") as host:
            await host.run(collects, {}, run_id="r")
            await host.publish("paid", {"id": "e1"}, id="e1", keep="1d")
            await host.resume("r", collects)
            reader, then = host._runs.reader, await host._runs.reader.row("r")
            await host.publish("paid", {"id": "e2"}, id="e2", keep="1d")
            await host.resume("r", collects)
            await host.publish("paid", {"id": "e3"}, id="e3", keep="1d")
            found = await had_by(host._services, reader, collects.plan, then, then.checkpoints)
            assert [one.event_id for one in found] == ["e1"]

    asyncio.run(main())
