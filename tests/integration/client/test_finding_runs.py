"""Runs that a query asks for are those of a plain listing for which it holds, in its order, page by page."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

import everstep.runtime.operations.find
from everstep import Flow, Host, node, wait
from everstep.client.views import RunInfo
from everstep.engine.query.tree import ARGUMENTS
from everstep.errors import BadRequest, EverstepError, RunNotFound, WaitNotFound
from everstep.stores import label_search

pytestmark = pytest.mark.stores("memory", "sqlite", "folder", "postgres", "redis")

ROUNDS = 2000 if os.environ.get("EVERSTEP_SOAK") == "1" else 60
MANY = 60
SEED = int(os.environ.get("EVERSTEP_SEED", "5"))


@node(output="done")
def work(n: int) -> int:
    if n == 3:
        raise TimeoutError("the supplier timed out")
    if n == 4:
        raise LookupError("no such order")
    return n


def unbuy(n: int) -> None:
    """Take a purchase back."""


@node(output="bought", undo=unbuy)
def buy(n: int) -> int:
    return n


@node(output="sent")
def send(bought: int) -> int:
    raise ConnectionError("no truck")


purchases = Flow("purchases", [buy, send])
orders = Flow("orders", [work], durability="strong")
papers = Flow("papers", [work, wait.approval("sign", context="done", prompt="Sign?")], version="2")
asked_twice = Flow("asked_twice", [wait.question("colour", kind="text", prompt="Which?")])
asked = Flow("asked", [wait.question("colour", kind="text", prompt="Which?")])


class Shop:
    """Runs of every kind, and what is known of them."""

    def __init__(self, host: Host) -> None:
        self.host = host
        for n in range(6):
            labels: dict[str, Any] = {"tags": {"team": "ab"[n % 2]} if n % 3 else ["vip"]}
            labels["attributes"] = {"customer": str(n), "total": n * 12.5, "late": n > 2}
            host.run(orders, {"n": n}, run_id=f"A{n}", priority=n % 3, **(labels if n else {}))
        for n in (1, 3):
            host.run(papers, {"n": n}, run_id=f"P{n}")
        host.start(orders, {"n": 9}, run_id="new-1", group="acme")
        host.start(orders, {"n": 9}, run_id="new-2", group="it's")
        host.run(asked, {}, run_id="Q1")
        host.cancel(host.start(asked, {}, run_id="Q2").run_id)
        host.run(purchases, {"n": 1}, run_id="U1")
        host.retention.pin("A1", "kept")
        host.fork("A2", at=1, fork_id="A2-b")
        host.fleet.tag("Q1", ["vip"])
        self.runs = list(host.runs(labels=True))
        self.waits = {run.run_id: host.waits(run.run_id) for run in self.runs}
        self.changed = {run.run_id: host.history(run.run_id)[-1].created_at for run in self.runs}
        self.errors = {run.run_id: _error(host, run) for run in self.runs}

    def conditions(self) -> list[tuple[str, Callable[[RunInfo], bool]]]:
        """Return what a query may say, and what that means."""
        middle = self.runs[len(self.runs) // 2].created_at
        a_moment = timedelta(microseconds=1)
        changed = self.changed
        then = sorted(changed.values())[len(changed) // 2]
        return [
            ("status = failed", lambda run: run.status == "failed"),
            ("status != completed", lambda run: run.status != "completed"),
            ("status in (halted, 'cancelled')", lambda run: run.status in ("halted", "cancelled")),
            ("flow = orders", lambda run: run.flow == "orders"),
            ("flow = nothing", lambda run: False),
            ("flow not in (orders, asked)", lambda run: run.flow not in ("orders", "asked")),
            ("version = '2'", lambda run: run.flow_version == "2"),
            ("id starts_with A", lambda run: run.run_id.startswith("A")),
            ("id = A2", lambda run: run.run_id == "A2"),
            ("id = '%'", lambda run: False),
            ("group is set", lambda run: run.group is not None),
            ("group = 'it''s'", lambda run: run.group == "it's"),
            ("group != acme", lambda run: run.group != "acme"),
            ("priority >= 1", lambda run: run.priority >= 1),
            ("priority < 2", lambda run: run.priority < 2),
            ("parent = A2", lambda run: run.parent_run_id == "A2"),
            ("parent is not set", lambda run: run.parent_run_id is None),
            ("pinned = true", lambda run: run.pinned is not None),
            ("pinned = false", lambda run: run.pinned is None),
            ("needs_repair = false", lambda run: run.needs_repair is None),
            (f"started >= {middle.isoformat()}", lambda run: run.created_at >= middle),
            (f"started < '{(middle + a_moment).isoformat()}'", lambda run: run.created_at <= middle),
            ("started > -1h", lambda run: True),
            ("ended is set", lambda run: run.ended_at is not None),
            ("ended < 2000-01-01", lambda run: False),
            ("changed is set", lambda run: True),
            (f"changed > '{then.isoformat()}'", lambda run: changed[run.run_id] > then),
            (f"changed <= '{then.isoformat()}'", lambda run: changed[run.run_id] <= then),
            ("waiting = approval", lambda run: self._waits(run, "kind", "approval")),
            ("waiting != approval", lambda run: not self._waits(run, "kind", "approval")),
            ("waiting_at in (colour, sign)", lambda run: run.status == "halted"),
            ("error contains 'timed out'", lambda run: "timed out" in self.errors[run.run_id]),
            ("error_code = node.failed", lambda run: bool(self.errors[run.run_id])),
            ("undoing = complete", lambda run: run.run_id == "U1"),
            ("undoing is not set", lambda run: run.run_id != "U1"),
            ("error is not set", lambda run: not self.errors[run.run_id]),
            ("owner is set", lambda run: False),
            ("tag = vip", lambda run: "vip" in _tags(run)),
            ("tag in (vip, team)", lambda run: bool(_tags(run))),
            ("tag.team = a", lambda run: _tags(run).get("team") == "a"),
            ("tag.team is set", lambda run: "team" in _tags(run)),
            ("tag.team != a", lambda run: _tags(run).get("team") != "a"),
            ("customer = '2'", lambda run: _attribute(run, "customer") == "2"),
            ("attribute.customer = 2", lambda run: _attribute(run, "customer") == "2"),
            ("customer in (1, '3', none)", lambda run: _attribute(run, "customer") in ("1", "3")),
            ("customer is set", lambda run: "customer" in _attributes(run)),
            ("total > 25", lambda run: _attribute(run, "total", 0.0) > 25),
            ("total >= 25 and total <= 50", lambda run: 25 <= _attribute(run, "total", 0.0) <= 50),
            ("total = 25", lambda run: _attribute(run, "total") == 25),
            ("total = '25'", lambda run: False),
            ("late = true", lambda run: _attribute(run, "late") is True),
            ("late = 1", lambda run: False),
        ]

    def _waits(self, run: RunInfo, name: str, value: str) -> bool:
        return any(getattr(wait, name) == value for wait in self.waits[run.run_id])


def _tags(run: RunInfo) -> dict[str, str]:
    return run.tags or {}


def _attributes(run: RunInfo) -> dict[str, Any]:
    return run.attributes or {}


def _attribute(run: RunInfo, name: str, default: Any = None) -> Any:
    return _attributes(run).get(name, default)


def _error(host: Host, run: RunInfo) -> str:
    error = list(host.history(run.run_id))[-1].error if run.status == "failed" else None
    return error.message if error is not None else ""


def _drawn(draw: random.Random, shop: Shop, depth: int = 0) -> tuple[str, Callable[[RunInfo], bool]]:
    kind = draw.random()
    if depth == 3 or kind < 0.4:
        return draw.choice(shop.conditions())
    first, a = _drawn(draw, shop, depth + 1)
    if kind < 0.55:
        return f"not ({first})", lambda run: not a(run)
    second, b = _drawn(draw, shop, depth + 1)
    if kind < 0.8:
        return f"({first}) and ({second})", lambda run: a(run) and b(run)
    return f"({first}) or ({second})", lambda run: a(run) or b(run)


def _all_pages(host: Host, where: str, limit: int) -> list[str]:
    found: list[str] = []
    before = None
    while True:
        page = host.runs(where=where, limit=limit, before=before)
        assert len(page) <= limit
        found += [run.run_id for run in page]
        before = page.next
        if before is None:
            return found


def test_every_query_finds_what_a_plain_listing_has_for_it(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_search, "STRETCH", 4)
    monkeypatch.setattr(label_search, "_LEARNT", 2)
    shop = Shop(host)
    assert {run.status.value for run in shop.runs} >= {
        "completed",
        "failed",
        "halted",
        "cancelled",
        "running",
    }
    draw = random.Random(SEED)
    for text, holds in [*shop.conditions(), *(_drawn(draw, shop) for _ in range(ROUNDS))]:
        monkeypatch.setattr(everstep.runtime.operations.find, "EXAMINED", draw.choice([1, 3, 5000]))
        wanted = [run.run_id for run in shop.runs if holds(run)]
        assert _all_pages(host, text, draw.choice([1, 2, 100])) == wanted, text


def test_arguments_and_a_query_both_hold(host: Host) -> None:
    Shop(host)
    found = host.runs(where="status = failed", flow="papers")
    assert [run.run_id for run in found] == ["P3"]
    assert host.runs(where="flow = orders", flow="papers") == []
    assert [run.run_id for run in host.runs(where="priority = 1", status="failed")] == ["A4"]


def test_each_argument_is_what_the_query_says(host: Host) -> None:
    shop = Shop(host)
    middle = shop.runs[len(shop.runs) // 2].created_at
    then = sorted(shop.changed.values())[len(shop.runs) // 2]
    ended = sorted(run.ended_at for run in shop.runs if run.ended_at)[3]
    said: dict[str, tuple[Any, str]] = {
        "version": ("2", "version = '2'"),
        "id_prefix": ("A", "id starts_with A"),
        "group": ("it's", "group = 'it''s'"),
        "owner": ("w-9", "owner = w-9"),
        "started_by": ("A17", "started_by = A17"),
        "waiting": ("approval", "waiting = approval"),
        "waiting_at": ("colour", "waiting_at = colour"),
        "error": ("timed out", "error contains 'timed out'"),
        "error_code": ("node.failed", "error_code = node.failed"),
        "undoing": ("complete", "undoing = complete"),
        "started_since": (middle, f"started >= '{middle.isoformat()}'"),
        "started_until": (middle.isoformat(), f"started < '{middle.isoformat()}'"),
        "ended_since": (ended, f"ended >= '{ended.isoformat()}'"),
        "ended_until": (ended, f"ended < '{ended.isoformat()}'"),
        "changed_since": (then, f"changed >= '{then.isoformat()}'"),
        "changed_until": (then, f"changed < '{then.isoformat()}'"),
    }
    assert said.keys() == ARGUMENTS.keys()
    for name, (value, where) in said.items():
        alone = [run.run_id for run in host.runs(**{name: value})]
        assert alone == [run.run_id for run in host.runs(where=where)], name
        assert alone or name in ("owner", "started_by")
        both = host.runs(**{name: value}, flow="orders", where="status != completed")
        whole = host.runs(where=f"flow = orders and status != completed and {where}")
        assert [run.run_id for run in both] == [run.run_id for run in whole], name
    assert [run.changed_at for run in host.runs(changed_since="-1h", id_prefix="A5")] == [shop.changed["A5"]]
    odd: dict[str, Any]
    for odd in ({"started_since": "soon"}, {"ended_until": 7}, {"group": 7}, {"error": "a\0b"}):
        [name] = odd
        with pytest.raises(BadRequest, match=name):
            host.runs(**odd)
    with pytest.raises(TypeError, match="stauts"):
        host.runs(stauts="failed")  # type: ignore[call-arg]


def test_a_page_that_cannot_go_on_says_so(host: Host) -> None:
    for n in range(3):
        host.run(orders, {"n": n}, run_id=f"A{n}")
    assert host.runs(before="A0") == host.runs(before="A0", where="status is set") == []
    host.retention.erase("A0")
    assert host.runs(before="A0") == []  # it was the first of all
    more: list[dict[str, Any]] = [{}, {"where": "flow = orders"}, {"tag": "vip"}, {"status": "failed"}]
    for asked in more:
        with pytest.raises(RunNotFound, match="cannot go on behind run 'never'"):
            host.runs(before="never", **asked)
    with pytest.raises(RunNotFound, match="cannot go on behind run 'never'"):
        host.fleet.count("group", before="never")
    waits = [host.run(asked_twice, run_id=f"W{n}").waits[0] for n in range(3)]
    assert host.waits(after=waits[-1].id) == []
    host.cancel("W0")
    host.retention.erase("W0")
    with pytest.raises(WaitNotFound, match=f"cannot go on behind wait '{waits[0].id}'"):
        host.waits(after=waits[0].id)


def test_pages_have_no_gaps_while_runs_come_and_change(host: Host) -> None:
    Shop(host)
    wanted = [run.run_id for run in host.runs(where="flow = orders")]
    found: list[str] = []
    before = None
    for n in range(100):
        page = host.runs(where="flow = orders", limit=2, before=before)
        found += [run.run_id for run in page]
        before = page.next
        if before is None:
            break
        host.start(orders, {"n": n}, run_id=f"later-{n}")  # newer than where the listing is
        if n == 1:
            host.cancel("new-1")
            host.retention.erase(found[-1])
    assert found == wanted


def test_pages_of_any_query_have_no_gaps_while_runs_change(host: Host) -> None:
    shop, draw = Shop(host), random.Random(SEED)
    for n in range(ROUNDS // 10):
        text, _ = _drawn(draw, shop)
        untouched = {run.run_id for run in shop.runs}
        wanted = _all_pages(host, text, 100)
        found: list[str] = []
        before = None
        while True:
            page = host.runs(where=text, limit=2, before=before)
            found += [run.run_id for run in page]
            before = page.next
            if before is None:
                break
            untouched.discard(_change(host, draw, f"more-{n}-{len(found)}", found))
        assert [one for one in found if one in untouched] == [one for one in wanted if one in untouched], text
        assert len(found) == len(set(found)), text
        there = [run.run_id for run in host.runs(limit=1000)]
        kept = [one for one in found if one in there]
        assert kept == sorted(kept, key=there.index), text


def _change(host: Host, draw: random.Random, new: str, found: Sequence[str]) -> str:
    """Start a run unless there are many, and end, label, acknowledge or erase one; return which."""
    runs = [run.run_id for run in host.runs(limit=1000)]
    if len(runs) < MANY:
        runs.append(host.start(asked, {}, run_id=new, tags=["vip"]).run_id)
    old = draw.choice(runs)
    match draw.randrange(4):
        case 0 if found:
            old = found[-1]  # where the listing goes on
            with suppress(BadRequest, EverstepError):
                host.retention.erase(old)
        case 1:
            with suppress(EverstepError):
                host.cancel(old)
        case 2:
            host.fleet.tag(old, {"team": draw.choice("ab")}, remove=["vip"])
        case _:
            host.retention.pin(old, "looked at")
    return old


def test_only_runs_that_the_rest_leaves_open_are_read(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(host)
    read: list[str] = []
    get = type(host._lanes.call(_store)).get

    async def noted(self: Any, run_id: str, **between: int) -> Any:
        read.append(run_id)
        return await get(self, run_id, **between)

    monkeypatch.setattr(type(host._lanes.call(_store)), "get", noted)
    page = host.runs(where="changed > -1h and (flow = asked or status = completed)")
    assert {run.run_id: run.changed_at for run in page} == {
        run.run_id: shop.changed[run.run_id]
        for run in shop.runs
        if run.flow == "asked" or run.status == "completed"
    }
    assert set(read) == {"Q1"}


def test_however_many_runs_are_read_only_so_many_are_at_once(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(7):
        host.run(orders, {"n": 3}, run_id=f"F{n}")
        host.run(asked, run_id=f"Q{n}")
    reading, most = 0, 0
    store = type(host._lanes.call(_store))

    def counted(call: Any) -> Any:
        async def count(self: Any, *args: Any, **how: Any) -> Any:
            nonlocal reading, most
            reading += 1
            most = max(most, reading)
            try:
                await asyncio.sleep(0)
                return await call(self, *args, **how)
            finally:
                reading -= 1

        return count

    for name in ("get", "waits"):
        monkeypatch.setattr(store, name, counted(getattr(store, name)))
    monkeypatch.setattr(everstep.runtime.operations.find, "_READ", 3)
    assert host.fleet.count("error_code").runs == {"": 7, "node.failed": 7}
    assert host.fleet.count("waiting").runs == {"": 7, "text": 7}
    assert len(host.runs(where="changed > -1d and status = halted")) == 7
    assert 1 <= most <= 3


async def _store(host: Any) -> Any:
    return host._services.store


def test_what_waits_is_found_at_once_however_many_runs_ended_since(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.run(asked, run_id="waits")
    for n in range(8):
        host.run(orders, {"n": 1}, run_id=f"done-{n}")
    monkeypatch.setattr(everstep.runtime.operations.find, "EXAMINED", 3)
    for where in ("waiting = text", "flow != orders and waiting_at in (colour, sign)"):
        assert [run.run_id for run in host.runs(where=where)] == ["waits"]
    assert host.runs(where="waiting = text", status="completed").next is None
    assert host.runs(where="waiting = text and status = failed").next is None


def test_a_query_that_cannot_be_read_names_its_place(host: Host) -> None:
    with pytest.raises(BadRequest, match=r"no field 'vresion', at character 20"):
        host.runs(where="status = failed or vresion = 7")


@pytest.mark.parametrize("odd", ["a\0b", "\ud800"])
def test_what_no_store_keeps_is_refused_wherever_it_is_asked_for(host: Host, odd: str) -> None:
    host.run(orders, {"n": 1}, run_id="A1", tags=["vip"])
    fields = ("flow", "group", "tag", "tag.team", "customer", "error")
    asked: list[Callable[[], Any]] = [partial(host.runs, where=f"{field} = '{odd}'") for field in fields]
    for what in ("flow", "before", "parent"):
        asked.append(partial(host.runs, **{what: odd}))  # type: ignore[arg-type]
    asked += [partial(host.runs, tag=f"team={odd}"), partial(host.runs, attribute={"customer": odd})]
    asked += [partial(host.waits, flow=odd), partial(host.waits, kind=odd)]
    asked += [partial(host.fleet.audit, odd), partial(host.fleet.audit, by=odd)]
    asked += [partial(host.fleet.count, where="flow = a", before=odd), partial(host.fleet.durations, odd)]
    for ask in asked:
        with pytest.raises(BadRequest):
            ask()


@pytest.mark.parametrize("odd", ["%", "_%", "\\", "''; --", "*", "e\u0301", "\u2028", "x" * 3000])
def test_odd_text_is_found_as_it_is_and_nothing_else(host: Host, odd: str) -> None:
    plain = odd.replace("''", "'")
    label = plain[:256]
    host.run(orders, {"n": 1}, run_id="A1", tags={"team": label}, attributes={"customer": label})
    host.run(orders, {"n": 1}, run_id="A2", tags={"team": "\xe9"}, attributes={"customer": "other"})
    same = "''".join(label.split("'"))
    for field in ("tag.team", "customer"):
        found = host.runs(where=f"{field} = '{same}'")
        assert [run.run_id for run in found] == ["A1"]
        assert [run.run_id for run in host.runs(where=f"{field} starts_with '{same}'")] == ["A1"]
    for field in ("id", "flow", "group", "tag", "waiting_at", "error"):
        assert host.runs(where=f"{field} = '{odd}'") == []
    assert [run.run_id for run in host.runs(tag=f"team={label}")] == ["A1"]
    assert not host.runs(flow=plain)
    assert not host.waits(flow=plain)
    assert not host.fleet.audit(by=plain)
