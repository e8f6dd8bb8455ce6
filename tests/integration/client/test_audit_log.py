"""The audit log: every act with a name, once, whether it was done or refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from everstep import AsyncHost, Breaker, Context, Flow, Host, Retention, node, wait
from everstep.client.moved import MOVED_CALLS
from everstep.client.parts import CallGroup
from everstep.client.queries import BulkOptions
from everstep.errors import EverstepError, RunErased, ServiceMissing
from everstep.registry import Opened
from everstep.results import AuditInfo
from everstep.stores.memory import MemoryStore
from everstep.testing.clock import ManualClock
from tests.integration.client.audited_acts import (
    LATER_CASES,
    Case,
    Who,
    dead_letter,
    hourly,
    nothing,
    out_of_reach,
)

ADA: Who = {"by": "ada", "comment": "ticket 4711"}


@pytest.fixture
def host(url: str) -> Iterator[Host]:
    with Host(url, clock=ManualClock(), notifiers={"ops": out_of_reach}) as opened:
        yield opened


@node(output="priced")
def price(region: str) -> str:
    return f"price in {region}"


@node(output="told")
def tell(priced: str) -> str:
    return priced


@node
def fails() -> int:
    raise ValueError("no")


@node(effects="effectful", idempotency_key="auto", on_unknown="stop")
def charge(ctx: Context) -> str:
    if ctx.run_id == "dies":
        raise KeyboardInterrupt
    return "receipt"


PLAIN = Flow("plain", [price])
NEWER = Flow("plain", [price, tell], version="2")
ASKING = Flow("asking", [wait.question("region", answer_type=str), price])
LISTENING = Flow("listening", [wait.signal("region"), price])
SLEEPING = Flow("sleeping", [wait.timer("nap", duration="1d")])
FAILING = Flow("failing", [fails])
GUARDED = Flow("guarded", [fails], breakers=[Breaker("bank", failures=1, shared=True)])
CHARGING = Flow("charging", [charge])
NORTH = {"region": "north"}


def over(host: Host) -> str:
    host.run(PLAIN, NORTH, run_id="over")
    return "over"


def asked(host: Host, flow: Flow = ASKING) -> str:
    """Return the id of an open wait."""
    return host.run(flow, run_id="asking").waits[0].id


def unread(host: Host) -> str:
    """Return the id of a signal that nothing takes."""
    asked(host)
    host.send("asking", "other", 7, id="one")
    return "one"


def settled(host: Host) -> str:
    wait_id = asked(host)
    host.answer(wait_id, "north")
    return wait_id


def failed(host: Host) -> str:
    host.run(FAILING, run_id="failed")
    return "failed"


def unknown_effect(host: Host) -> str:
    """Return a run that asks what became of an effect."""
    with pytest.raises(KeyboardInterrupt):
        host.run(CHARGING, run_id="dies")
    host.resume("dies", CHARGING)
    return "dies"


def bundled(host: Any) -> str:
    """Return a bundle of a run of another store."""
    path = f"{host.folder}/{id(host)}.everstep"
    with Host("memory:") as other:
        other.transfer.export(over(other), path)
    return path


def paused(host: Host) -> str:
    host.start(PLAIN, NORTH, run_id="plain")
    host.fleet.pause("plain")
    return "plain"


def tripped(host: Host) -> str:
    host.run(GUARDED)
    return "bank"


def stream(host: Host, who: Who, *given: Any) -> None:
    for _ in host.stream(PLAIN, *given, **who):
        pass


CASES: dict[str, Case] = {
    "run": Case(nothing, lambda h, _, who: h.run(PLAIN, NORTH, **who), lambda h, _, who: h.run(PLAIN, **who)),
    "stream": Case(
        nothing, lambda h, _, who: stream(h, who, NORTH), lambda h, _, who: stream(h, who), act="run"
    ),
    "start": Case(
        nothing, lambda h, _, who: h.start(PLAIN, NORTH, **who), lambda h, _, who: h.start(PLAIN, **who)
    ),
    "resume": Case(
        failed,
        lambda h, run, who: h.resume(run, FAILING, **who),
        lambda h, _, who: h.resume("no", PLAIN, **who),
    ),
    "answer": Case(
        asked,
        lambda h, one, who: h.answer(one, "north", **who),
        lambda h, one, who: h.answer(one, "south", **who),
        settled,
    ),
    "send": Case(
        lambda h: asked(h, LISTENING),
        lambda h, _, who: h.send("asking", "region", "north", **who),
        lambda h, run, who: h.send(run, "region", "north", **who),
        over,
    ),
    "drop_signal": Case(
        unread,
        lambda h, one, who: h.drop_signal("asking", one, **who),
        lambda h, _, who: h.drop_signal("asking", "no", **who),
        asked,
    ),
    "publish": Case(
        nothing,
        lambda h, _, who: h.publish("paid", {"order": 7}, keep="1d", **who),
        lambda h, _, who: h.publish("paid", object(), **who),
    ),
    "deliver": Case(
        asked,
        lambda h, one, who: h.deliver({"wait_id": one, "answer": "north"}, [ASKING], **who),
        lambda h, _, who: h.deliver({"wait_id": 7}, [ASKING], **who),
    ),
    "cancel": Case(
        asked, lambda h, _, who: h.cancel("asking", **who), lambda h, _, who: h.cancel("no", **who)
    ),
    "fork": Case(over, lambda h, run, who: h.fork(run, **who), lambda h, _, who: h.fork("no", **who)),
    "fleet.reopen": Case(
        failed,
        lambda h, run, who: h.fleet.reopen(run, FAILING, **who),
        lambda h, _, who: h.fleet.reopen("no", PLAIN, **who),
    ),
    "fleet.reset_breaker": Case(
        tripped,
        lambda h, name, who: h.fleet.reset_breaker(name, **who),
        lambda h, _, who: h.fleet.reset_breaker("no", **who),
    ),
    "fleet.pause": Case(
        asked,
        lambda h, _, who: h.fleet.pause("asking", **who),
        lambda h, run, who: h.fleet.pause(run, **who),
        over,
    ),
    "fleet.unpause": Case(
        paused,
        lambda h, run, who: h.fleet.unpause(run, **who),
        lambda h, _, who: h.fleet.unpause("no", **who),
    ),
    "fleet.bulk": Case(
        failed,
        lambda h, _, who: h.fleet.bulk("retry", "status = failed", **who),
        lambda h, _, who: h.fleet.bulk("retry", "statsu = failed", **who),
    ),
    "fleet.tag": Case(
        over,
        lambda h, run, who: h.fleet.tag(run, ["vip"], **who),
        lambda h, _, who: h.fleet.tag("no", ["vip"], **who),
    ),
    "retention.pin": Case(
        over, lambda h, run, who: h.retention.pin(run, **who), lambda h, _, who: h.retention.pin("no", **who)
    ),
    "retention.unpin": Case(
        over,
        lambda h, run, who: h.retention.unpin(run, **who),
        lambda h, _, who: h.retention.unpin("no", **who),
    ),
    "retention.ack": Case(
        over,
        lambda h, run, who: h.retention.ack(run, **who),
        lambda h, _, who: h.retention.ack("asking", **who),
        asked,
    ),
    "retention.erase": Case(
        over,
        lambda h, run, who: h.retention.erase(run, **who),
        lambda h, _, who: h.retention.erase("asking", **who),
        asked,
    ),
    "retention.gc": Case(
        over,
        lambda h, run, who: h.retention.gc(run, **who),
        lambda h, _, who: h.retention.gc("no", **who),
    ),
    "transfer.export": Case(
        over,
        lambda h, run, who: h.transfer.export(run, f"{h.folder}/out.everstep", **who),
        lambda h, _, who: h.transfer.export("no", f"{h.folder}/no.everstep", **who),
    ),
    "transfer.import_": Case(
        bundled,
        lambda h, path, who: h.transfer.import_(path, **who),
        lambda h, _, who: h.transfer.import_(f"{h.folder}/no.everstep", **who),
        act="import",
    ),
    "transfer.copy": Case(
        over,
        lambda h, run, who: h.transfer.copy(f"sqlite:///{h.folder}/other.db", [run], **who),
        lambda h, _, who: (
            h.transfer.copy(h.url, **who)
            if h.url != "memory:"
            else h.transfer.copy("memory:", move=True, **who)
        ),
    ),
    "versions.migrate": Case(
        lambda h: h.start(PLAIN, NORTH, run_id="plain"),
        lambda h, _, who: h.versions.migrate("plain", NEWER, **who),
        lambda h, run, who: h.versions.migrate(run, NEWER, **who),
        over,
    ),
    "waiting.fire": Case(
        lambda h: asked(h, SLEEPING),
        lambda h, one, who: h.waiting.fire(one, **who),
        lambda h, one, who: h.waiting.fire(one, **who),
        asked,
    ),
    "waiting.settle": Case(
        unknown_effect,
        lambda h, run, who: h.waiting.settle(run, "charge", done="receipt", **who),
        lambda h, _, who: h.waiting.settle("no", "charge", rerun=True, **who),
    ),
    "waiting.reissue": Case(
        asked,
        lambda h, one, who: h.waiting.reissue(one, **who),
        lambda h, one, who: h.waiting.reissue(one, **who),
        settled,
    ),
    "waiting.revoke": Case(
        asked,
        lambda h, one, who: h.waiting.revoke(one, **who),
        lambda h, _, who: h.waiting.revoke("no such wait", **who),
    ),
    **LATER_CASES,
}


def calls_that_take_a_name() -> list[str]:
    """Return the calls of a host that take a name and a comment, also those in groups."""
    found = []
    for name, member in inspect.getmembers(AsyncHost):
        if isinstance(vars(AsyncHost).get(name), CallGroup):
            found += [f"{name}.{call}" for call in _named_in(member)]
    own = [name for name in _named_in(AsyncHost) if name not in MOVED_CALLS]
    return [*own, *found]


def _named_in(face: type) -> list[str]:
    calls = inspect.getmembers(face, inspect.isfunction)
    return [name for name, call in calls if not name.startswith("_") and {"by", "comment"} <= _given_to(call)]


def _given_to(call: Callable[..., Any]) -> set[str]:
    """Return the names of a call's arguments, also of those that it hands on as its options."""
    parameters = inspect.signature(call).parameters
    options = BulkOptions.__annotations__ if "options" in parameters else {}
    return {*parameters, *options}


def test_every_call_that_is_told_who_acts_is_tried_here() -> None:
    assert set(calls_that_take_a_name()) == set(CASES)


@pytest.fixture
def at(host: Any, tmp_path: Path) -> Any:
    host.folder = tmp_path  # where cases write files
    return host


def log(host: Host, **wanted: Any) -> list[AuditInfo]:
    return host.fleet.audit(**wanted)


@pytest.mark.parametrize("name", CASES)
def test_a_named_act_is_in_the_log_once(at: Any, name: str) -> None:
    case = CASES[name]
    needed = case.needs(at)
    assert log(at) == []
    case.does(at, needed, ADA)
    [row] = log(at)
    act = case.act or name.rpartition(".")[2]
    assert (row.act, row.by, row.comment) == (act, "ada", "ticket 4711")
    assert (row.how, row.outcome, row.code) == ("claimed", "done", "")
    assert row.run_id is not None or name in ("publish", "fleet.reset_breaker"), "it says to which run"


@pytest.mark.parametrize("name", CASES)
def test_an_act_without_a_name_is_not_in_the_log(at: Any, name: str) -> None:
    case = CASES[name]
    case.does(at, case.needs(at), {})
    assert log(at) == []


@pytest.mark.parametrize("name", CASES)
def test_a_refused_act_is_in_the_log_once_with_the_code_of_its_error(at: Any, name: str) -> None:
    case = CASES[name]
    needed = case.needs_to_be_refused(at)
    with pytest.raises(EverstepError) as error:
        case.is_refused(at, needed, ADA)
    [row] = log(at)
    act = case.act or name.rpartition(".")[2]
    assert row.by == "ada" and (row.act == act or (act, row.act) == ("copy", "move"))
    assert (row.outcome, row.code) == ("refused", error.value.code)


def test_no_token_comes_into_the_log(host: Host) -> None:
    [waits] = host.run(ASKING, run_id="r").waits
    token = waits.token
    assert token is not None
    host.resume(token, ASKING, by="ada")
    host.answer(token, "north", by="ada")
    for again in (token, token[:-4]):
        with pytest.raises(EverstepError):
            host.answer(again, "south", by="ada")
        with pytest.raises(EverstepError):
            host.resume(f"{again}-", ASKING, by="ada")
    found = log(host)
    assert [(row.act, row.run_id) for row in found if row.outcome == "done"] == [
        ("resume", "r"),
        ("answer", "r"),
    ]
    assert token[:16] not in str(found) and len(found) == 6


HALF = "na\udcffme"
"""What a shell makes of a word that is not UTF-8."""


@pytest.mark.parametrize(
    "act",
    [
        lambda host, name: host.send("r", name, 1, **ADA),
        lambda host, name: host.send(name, "paid", 1, **ADA),
        lambda host, name: host.publish(name, 1, **ADA),
        lambda host, name: host.cancel(name, **ADA),
        lambda host, name: host.answer(name, 1, **ADA),
    ],
    ids=["send name", "send run", "publish", "cancel", "answer"],
)
@pytest.mark.parametrize(
    "name", [HALF, 5, b"x", object(), "x" * 100_000], ids=lambda name: type(name).__name__
)
def test_what_nothing_can_be_called_is_refused_and_the_log_can_still_be_read(
    host: Host, act: Callable[[Host, Any], Any], name: Any
) -> None:
    with pytest.raises(EverstepError) as refused:
        act(host, name)
    assert len(str(refused.value)) < 500
    [row] = host.fleet.audit()
    assert (row.by, row.outcome, row.code) == ("ada", "refused", refused.value.code)
    assert len(row.about) <= 200


def test_an_approval_that_says_who_gives_it_is_in_the_log(host: Host) -> None:
    [first] = host.run(Flow("f", [wait.approval("ok")]), run_id="a").waits
    host.answer(first.id, {"approved": True, "approver": "ada", "comment": "ticket 4711"})
    [row] = log(host)
    assert (row.act, row.by, row.run_id, row.about) == ("answer", "ada", "a", first.id)


def test_a_message_may_say_itself_who_sent_it(host: Host) -> None:
    host.deliver({"wait_id": asked(host), "answer": "north", "by": "ada"}, [ASKING])
    [row] = log(host)
    assert (row.act, row.by, row.run_id) == ("deliver", "ada", "asking")


def test_a_turn_that_starts_its_run_is_one_act(host: Host) -> None:
    host.send("turn", "region", "north", drive=LISTENING, inputs={}, by="ada")
    [row] = log(host)
    assert (row.act, row.run_id, row.about) == ("send", "turn", "region")


def test_what_a_node_does_meanwhile_is_an_act_of_its_own(host: Host) -> None:
    asked(host)

    @node
    async def meddle(ctx: Context) -> int:
        other = AsyncHost(host.url) if host.url != "memory:" else None
        if other is not None:
            await other.cancel("asking")
            await other.close()
        return 1

    flow = Flow("meddling", [meddle])
    host.start(flow, run_id="m")
    host.resume("m", flow, by="ada")
    assert [(row.act, row.run_id) for row in log(host)] == [("resume", "m")]


def test_the_log_is_read_by_run_name_act_and_time_and_page_by_page(at: Any) -> None:
    clock = at._host.clock
    for number, who in enumerate(["ada", "grace", "ada"]):
        at.run(PLAIN, NORTH, run_id=f"r{number}", by=who)
        clock.advance(timedelta(days=1))
    at.fork("r0", fork_id="fork", by="grace")
    assert [row.run_id for row in log(at)] == ["r0", "r1", "r2", "fork"]
    assert [row.run_id for row in log(at, by="ada")] == ["r0", "r2"]
    assert [row.run_id for row in log(at, act="fork", by="grace")] == ["fork"]
    assert [row.act for row in log(at, run_id="r1")] == ["run"]
    assert [row.run_id for row in log(at, since="-36h")] == ["r2", "fork"]
    assert [row.run_id for row in log(at, until="-36h")] == ["r0", "r1"]
    assert [row.run_id for row in log(at, limit=2)] == ["r2", "fork"]
    first = log(at, limit=2, after=0)
    rest = log(at, limit=9, after=first[-1].number)
    assert [row.run_id for row in (*first, *rest)] == ["r0", "r1", "r2", "fork"]
    with pytest.raises(EverstepError, match="since is 'yesterday'"):
        log(at, since="yesterday")


def test_rows_stay_when_their_run_goes_until_they_are_old(host: Host) -> None:
    clock: Any = host._host.clock
    host.run(PLAIN, NORTH, run_id="r", by="ada")
    host.retention.erase("r", by="ada")
    assert [row.act for row in log(host, run_id="r")] == ["run", "erase"]
    clock.advance(timedelta(days=40))
    host.run(PLAIN, NORTH, run_id="s", by="ada")
    assert host.retention.gc().audit == 0
    assert host.retention.gc(audit_older_than="30d", dry_run=True).audit == 2
    assert len(log(host)) == 3
    assert host.retention.gc(audit_older_than="30d").audit == 2
    assert [row.run_id for row in log(host)] == ["s"]


def test_both_stores_tell_of_a_run_that_goes_from_one_to_the_other(at: Any) -> None:
    over(at)
    there = f"sqlite:///{at.folder}/other.db"
    at.transfer.copy(there, ["over", "gone"], move=True, by="ada")
    told = [(row.act, row.run_id, row.outcome) for row in log(at)]
    assert sorted(told) == [("move", "gone", "refused"), ("move", "over", "done")]
    with Host(there) as other:
        assert [(row.act, row.run_id) for row in log(other)] == [("move", "over")]


class PlainStore(MemoryStore):
    """A store of one's own that keeps no audit log: it takes no `audit`."""

    capabilities = msgspec.structs.replace(MemoryStore.capabilities, audits=False)

    async def pin(self, run_id: str, reason: str | None) -> bool:  # type: ignore[override]  # as in 0.1
        return await super().pin(run_id, reason)


def test_a_store_that_keeps_no_audit_log_takes_named_acts_all_the_same() -> None:
    store = PlainStore(ManualClock())
    with Host(Opened(store, store.artifacts, "memory:")) as host:
        host.run(PLAIN, NORTH, run_id="r", **ADA)
        assert host.retention.pin("r", **ADA).pinned_by is not None
        with pytest.raises(ServiceMissing, match="audit log"):
            host.fleet.audit()


def test_clean_up_by_name_has_one_row_that_counts_what_went(url: str, tmp_path: Path) -> None:
    clock = ManualClock()
    with Host(url, clock=clock) as host:
        for run_id in ("a", "b", "c"):
            host.run(PLAIN, NORTH, run_id=run_id)
        clock.advance(timedelta(days=2))
        rules = Retention(keep_for="1d")
        assert len(host.retention.gc("a", retention=rules, dry_run=True, **ADA).runs) == 1
        assert len(host.retention.gc("a", retention=rules, **ADA).runs) == 1
        host.retention.gc(retention=rules, by="bo")
        host.retention.gc(retention=rules, by="bo")
        host.retention.gc(retention=rules)
        with pytest.raises(RunErased):
            host.retention.gc("a", by="bo")
        rows = host.fleet.audit(act="gc")
        assert [(row.by, row.run_id, row.about, row.comment, row.outcome) for row in rows] == [
            ("ada", "a", "1 run", "ticket 4711", "done"),
            ("bo", None, "2 runs", "", "done"),
            ("bo", None, "nothing", "", "done"),
            ("bo", "a", "", "", "refused"),
        ]


def test_each_letter_that_is_sent_again_with_all_has_one_row(host: Host) -> None:
    assert host.notices.again_all(by="bo") == 0
    last = dead_letter(host, "second")
    assert host.notices.again_all(**ADA) == 2
    rows = [(row.act, row.by, row.run_id, row.about, row.outcome) for row in log(host)]
    assert rows[0] == ("resend", "bo", None, "", "done"), "there was none"
    assert [row[:3] for row in rows[1:]] == [("resend", "ada", "second"), ("resend", "ada", "telling")]
    assert rows[1][3] == last and len(rows) == 3


def test_what_is_asked_of_a_schedule_that_is_not_there_is_in_the_log_once(host: Host) -> None:
    hourly(host)
    asks: dict[str, Callable[[], Any]] = {
        "change_schedule": lambda: host.schedules.change("no", every="2h", **ADA),
        "backfill_schedule": lambda: host.schedules.backfill("no", "-3d", "-1d", **ADA),
    }
    for ask in asks.values():
        with pytest.raises(EverstepError):
            ask()
    assert [(row.act, row.run_id, row.outcome) for row in log(host)] == [
        (act, "no", "refused") for act in asks
    ]
