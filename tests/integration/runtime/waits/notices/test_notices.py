"""People and systems are told of runs: who, of what, at least once, and again on request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import apsw
import pytest

from everstep import Budget, Context, Flow, Host, node, notify, wait
from everstep.errors import BadRequest, NoticeNotFound
from everstep.graph.tells import Occasion
from everstep.model.commits import ASK_FLOW
from everstep.runtime.drive.chain_writer import Journal
from everstep.runtime.waits.notices.chat import message
from everstep.testing import ManualClock
from tests.integration.runtime.waits.notices.notices_at_work import FAILING, Receiver, fails, works

pytestmark = pytest.mark.stores("memory", "sqlite", "postgres", "redis", "folder")
Tell = notify.Tell


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ops() -> Receiver:
    return Receiver()


@pytest.fixture
def boss() -> Receiver:
    return Receiver()


@pytest.fixture
def host(url: str, clock: ManualClock, ops: Receiver, boss: Receiver) -> Iterator[Host]:
    with Host(
        url, clock=clock, notifiers={"ops": ops, "boss": boss}, base_url="https://flows.test"
    ) as opened:
        yield opened


def test_who_a_flow_names_is_told_that_a_run_failed_and_why(
    host: Host, ops: Receiver, boss: Receiver
) -> None:
    assert host.run(FAILING, {"a": 7}, run_id="A17").status == "failed"
    [notice] = ops.got
    assert (notice.run_id, notice.flow, notice.occasion, notice.kind) == ("A17", "failing", "failed", "run")
    assert (notice.node, notice.error, notice.status) == ("fails", "ValueError: 7 is too much", "failed")
    assert notice.run_link == "https://flows.test/ui/runs/A17"
    assert (notice.wait_id, notice.token, notice.link) == ("", None, None)
    assert boss.got == []
    [info] = host.notices.find()
    assert (info.id, info.state, info.tries, info.error) == (notice.id, "sent", 1, "")


def test_what_is_to_be_sent_is_due_since_it_happened(url: str, clock: ManualClock) -> None:
    with Host(url, clock=clock) as host:  # it has no notifier of this name
        host.run(FAILING, {"a": 7}, run_id="A17")
        [info] = host.notices.find()
    assert info.state == "pending" and info.at is not None
    assert info.due_at == info.at
    assert abs(info.at - clock.now()).total_seconds() < 3600


def test_a_run_without_notifiers_has_no_notice(host: Host, ops: Receiver) -> None:
    host.run(Flow("quiet", [fails]), {"a": 1}, run_id="A")
    host.run(Flow("well", [works], notify="ops"), {"a": 1}, run_id="B")
    assert ops.got == []
    assert host.notices.find() == []


def test_a_host_names_who_is_told_of_all_runs_of_a_flow_or_of_a_tag(
    url: str, clock: ManualClock, ops: Receiver, boss: Receiver
) -> None:
    tells = [
        Tell("ops", on=["failed", "completed"]),
        Tell("boss", on="failed", tag="tier=1"),
        Tell("boss", on="completed", flow="well"),
    ]
    flow, well = Flow("plain", [fails]), Flow("well", [works])
    with Host(url, clock=clock, notifiers={"ops": ops, "boss": boss}, notify=tells) as host:
        host.run(flow, {"a": 1}, run_id="A")
        host.run(flow, {"a": 1}, run_id="B", tags={"tier": "1"})
        host.run(flow, {"a": 1}, run_id="C", tags={"tier": "2"})
        host.run(well, {"a": 1}, run_id="D", tags={"tier": "1"})
    assert [notice.run_id for notice in ops.got] == ["A", "B", "C", "D"]
    assert [(notice.run_id, notice.occasion) for notice in boss.got] == [("B", "failed"), ("D", "completed")]


def test_a_worker_without_the_flow_tells_that_it_was_cancelled(
    host: Host, url: str, clock: ManualClock, boss: Receiver
) -> None:
    flow = Flow("asks", [wait.approval("ok")], notify=Tell("boss", on=["cancelled", "halted"]))
    host.run(flow, {}, run_id="A")
    assert [notice.occasion for notice in boss.got] == ["halted"]
    if url == "memory:":
        host.cancel("A")
    else:
        with Host(url, clock=clock) as other:  # it knows neither the flow nor the notifier
            other.cancel("A", by="ann")
    assert host.info("A").status == "cancelled"
    assert len(boss.got) == 1
    host.notices.send()
    assert [notice.occasion for notice in boss.got] == ["halted", "cancelled"]


def test_who_is_told_that_a_run_halted_gets_the_question_and_the_page_to_answer_at(
    url: str, clock: ManualClock, ops: Receiver
) -> None:
    flow = Flow(
        "pays",
        [wait.approval("ok", prompt="Pay it?", context={"amount": 12})],
        notify=Tell("ops", on="halted"),
    )
    key = "a key that is long enough"
    with Host(url, clock=clock, notifiers={"ops": ops}, base_url="https://flows.test", key=key) as host:
        [opened] = host.run(flow, {}, run_id="A").waits
        [notice] = ops.got
        assert (notice.prompt, notice.context, notice.wait_id) == ("Pay it?", {"amount": 12}, opened.id)
        assert notice.link == f"https://flows.test/w/{opened.token}"
        host.answer(notice.token, {"approved": True})
        assert host.resume("A", flow).status == "completed"


def test_a_run_that_takes_too_long_is_overdue_and_one_that_ended_in_time_is_not(
    host: Host, clock: ManualClock, ops: Receiver
) -> None:
    flow = Flow("slow", [wait.approval("ok")], notify=Tell("ops", on="failed", overdue="2h"))
    [opened] = host.run(flow, {}, run_id="early").waits
    host.run(flow, {}, run_id="late")
    host.answer(opened.id, {"approved": True})
    host.resume("early", flow)
    clock.advance(3600)
    host.work([flow], until_idle=True)
    assert ops.got == []
    clock.advance(3600 + 1)
    sent = host.notices.send()
    assert (sent.sent, sent.dropped) == (1, 0)
    assert [(notice.run_id, notice.occasion, notice.status) for notice in ops.got] == [
        ("late", "overdue", "halted")
    ]
    assert [info.run_id for info in host.notices.find()] == ["late"]


def test_a_budget_that_is_spent_is_told_of(host: Host, ops: Receiver) -> None:
    @node(output="x")
    def spends(ctx: Context) -> int:
        ctx.spend(usd=5)
        return 1

    @node(output="y")
    def more(x: int) -> int:
        return x

    flow = Flow("spends", [spends, more], budgets=[Budget("usd", 5)], notify=Tell("ops", on="budget"))
    assert host.run(flow, {}, run_id="A").status == "halted"
    [notice] = ops.got
    assert notice.occasion == "budget"


@pytest.mark.parametrize(("said", "told"), [("rerun", "complete"), ("skip", "1 skipped"), ("no", None)])
def test_a_run_that_was_undone_is_told_of_once_with_what_came_of_it(
    host: Host, ops: Receiver, said: str, told: str | None
) -> None:
    broken = [True]

    def untake(taken: int) -> None:
        if broken:
            raise ConnectionError("the shelf is locked")

    @node(output="taken", undo=untake)
    def take(a: int) -> int:
        return a

    @node(output="x")
    def fails_then(taken: int) -> int:
        raise ValueError(f"{taken} is too much")

    asks: Any = "ask" if said == "no" else "both"
    flow = Flow("taking", [take, fails_then], notify=Tell("ops", on=["failed", "undone"]), undo=asks)
    assert host.run(flow, {"a": 1}, run_id="A").status == "halted"
    assert ops.got == []
    broken.clear()
    if said == "no":
        host.answer(host.waits("A")[0].id, {"approved": False})
    else:
        choice: Any = {"skip": "by hand"} if said == "skip" else {"rerun": True}
        host.waiting.settle("A", "take/!undo", **choice)
    assert host.resume("A", flow).status == "failed"
    of_undo = [(notice.occasion, notice.context) for notice in ops.got if notice.occasion == "undone"]
    assert of_undo == ([("undone", {"undo": told})] if told else [])
    assert sorted(notice.occasion for notice in ops.got) == sorted(["failed", *(["undone"] if told else [])])
    assert {notice.error for notice in ops.got} == {"ValueError: 1 is too much"}


def test_a_run_that_is_cancelled_and_undone_is_told_of(host: Host, ops: Receiver) -> None:
    @node(output="taken", undo=lambda taken: None)
    def take(a: int) -> int:
        return a

    tells = Tell("ops", on=["cancelled", "undone", "halted"])
    flow = Flow("taking", [take, wait.approval("ok")], notify=tells)
    host.run(flow, {"a": 1}, run_id="A")
    host.cancel("A")
    host.resume("A", flow)
    assert sorted(notice.occasion for notice in ops.got) == ["cancelled", "halted", "undone"]
    assert len(set(ops.ids)) == 3


def test_what_another_part_brings_about_is_told_of_by_one_line(
    host: Host, ops: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hook: a journal that is told of an occasion, and the put that comes next."""
    flow = Flow("undone", [fails], notify=Tell("ops", on=["undone", "missed_schedule"]))
    ends = Journal._seal

    def seal(self: Journal, record: Any, status: Any, admission: Any) -> Any:
        if status is not None and status.is_final:
            self.tell(Occasion.UNDONE)
            self.tell(Occasion.BUDGET)
        return ends(self, record, status, admission)

    monkeypatch.setattr(Journal, "_seal", seal)
    host.run(flow, {"a": 1}, run_id="A")
    assert [notice.occasion for notice in ops.got] == ["undone"]


def test_a_fork_is_told_of_as_its_parent_is(host: Host, ops: Receiver) -> None:
    host.run(FAILING, {"a": 1}, run_id="A")
    host.fork("A", at=1, fork_id="B", inputs={"a": 2})
    host.resume("B", FAILING)
    assert [(notice.run_id, notice.error) for notice in ops.got] == [
        ("A", "ValueError: 1 is too much"),
        ("B", "ValueError: 2 is too much"),
    ]


def test_a_run_that_fails_again_is_told_of_again_under_another_id(host: Host, ops: Receiver) -> None:
    host.run(FAILING, {"a": 1}, run_id="A")
    assert host.resume("A", FAILING).status == "failed"
    assert len(set(ops.ids)) == 2


# -- sending ------------------------------------------------------------------------------------------------


def test_what_could_not_be_sent_is_sent_later_with_the_same_id(
    host: Host, clock: ManualClock, ops: Receiver
) -> None:
    ops.is_down = True
    host.run(FAILING, {"a": 1}, run_id="A")
    [info] = host.notices.find(state="pending")
    assert (info.tries, info.error) == (1, "ConnectionError: no line")
    host.notices.send()
    assert len(ops.tried) == 1, "it is backed off"
    ops.is_down = False
    clock.advance(60)
    host.work([FAILING], until_idle=True)
    assert ops.ids == [info.id]
    clock.advance(3600)
    host.work([FAILING], until_idle=True)
    assert ops.tried == [info.id, info.id]


def test_a_dead_letter_is_listed_and_sent_again_on_request(
    host: Host, clock: ManualClock, ops: Receiver
) -> None:
    ops.is_down = True
    for run_id in ("A", "B"):
        host.run(FAILING, {"a": 1}, run_id=run_id)
    for _ in range(20):
        clock.advance(86_400)
        host.notices.send()
    dead = host.notices.find(state="dead")
    assert [(info.run_id, info.tries) for info in dead] == [("B", 12), ("A", 12)]
    assert len(ops.tried) == 24
    assert host.notices.find(state="pending") == []
    ops.is_down = False
    assert host.notices.send().sent == 0
    again = host.notices.again(dead[0].id, by="ann")
    assert (again.id, again.state) == (dead[0].id, "pending")
    assert host.notices.send().sent == 1
    assert ops.ids == [dead[0].id]
    assert host.notices.again_all() == 1
    host.notices.send()
    assert ops.ids == [dead[0].id, dead[1].id]
    assert host.notices.find(state="dead") == []
    if host.url.startswith(("sqlite", "postgres", "redis")):
        acts = [(row.by, row.run_id, row.about) for row in host.fleet.audit(act="resend")]
        assert acts == [("ann", "B", dead[0].id)]


def test_one_that_was_sent_is_sent_once_more_if_that_is_asked_for(host: Host, ops: Receiver) -> None:
    host.run(FAILING, {"a": 1}, run_id="A")
    host.notices.again(ops.ids[0])
    host.notices.send()
    assert len(ops.ids) == 2
    assert len(set(ops.ids)) == 1


@pytest.mark.parametrize("name", ["A-9", "nothing", "", "A-1.x", "A-" + "9" * 30])
def test_a_notice_that_is_not_there_is_said_so(host: Host, name: str) -> None:
    host.run(FAILING, {"a": 1}, run_id="A")
    with pytest.raises(NoticeNotFound):
        host.notices.again(name)


def test_no_notice_is_sent_once_its_run_was_erased(host: Host, clock: ManualClock, ops: Receiver) -> None:
    ops.is_down = True
    host.run(FAILING, {"a": 1}, run_id="A")
    host.run(FAILING, {"a": 1}, run_id="B")
    host.retention.erase("A")
    ops.is_down = False
    clock.advance(86_400)
    assert host.notices.send().sent == 1
    assert [notice.run_id for notice in ops.got] == ["B"]
    assert [info.run_id for info in host.notices.find()] == ["B"]


def test_a_notifier_that_this_host_does_not_have_is_left_to_those_who_do(
    host: Host, url: str, clock: ManualClock, ops: Receiver
) -> None:
    flow = Flow("elsewhere", [fails], notify="pager")
    host.run(flow, {"a": 1}, run_id="A")
    [info] = host.notices.find(state="pending")
    assert (info.notifier, info.tries) == ("pager", 0)
    if url != "memory:":
        with Host(url, clock=clock, notifiers={"pager": ops}) as other:
            other.work([FAILING], until_idle=True)
        assert ops.ids == [info.id]


# -- waits without an answer --------------------------------------------------------------------------------


def test_who_was_told_of_a_wait_is_reminded_until_it_is_answered(
    host: Host, clock: ManualClock, ops: Receiver
) -> None:
    flow = Flow("asks", [wait.approval("ok", prompt="Pay it?", notify="ops", remind="1d")])
    [opened] = host.run(flow, {}, run_id="A").waits
    assert [(notice.occasion, notice.wait_id) for notice in ops.got] == [("", opened.id)]
    for _ in range(3):
        clock.advance(86_400)
        host.notices.send()
        host.notices.send()
    reminders = ops.got[1:]
    assert [(notice.occasion, notice.prompt, notice.wait_id) for notice in reminders] == [
        ("reminder", "Pay it?", opened.id)
    ] * 3
    assert len(set(ops.ids)) == 4
    host.answer(opened.id, {"approved": True})
    clock.advance(86_400 * 5)
    assert host.notices.send().dropped == 1
    assert len(ops.got) == 4
    assert host.notices.find() == []


def test_a_reminder_that_was_missed_is_not_made_up_for(host: Host, clock: ManualClock, ops: Receiver) -> None:
    flow = Flow("asks", [wait.approval("ok", notify="ops", remind="1d")])
    host.run(flow, {}, run_id="A")
    clock.advance(86_400 * 5 + 60)
    assert host.notices.send().sent == 1
    assert host.notices.send().sent == 0
    clock.advance(86_400)
    assert host.notices.send().sent == 1


def test_a_wait_is_escalated_to_others_and_expires_with_its_time(
    host: Host, clock: ManualClock, ops: Receiver, boss: Receiver
) -> None:
    ask = wait.approval(
        "ok", notify="ops", remind="12h", escalate={"1d": "boss", "3d": ["boss", "ops"]}, timeout="4d"
    )
    flow = Flow("asks", [ask])
    host.run(flow, {}, run_id="A")
    for _ in range(10):
        clock.advance(43_200)
        host.work([flow], until_idle=True)
    assert [notice.occasion for notice in boss.got] == ["escalation", "escalation"]
    assert len({notice.id for notice in boss.got}) == 2
    assert [notice.occasion for notice in ops.got].count("escalation") == 1
    assert [notice.occasion for notice in ops.got].count("reminder") == 7
    result = host.state("A")
    assert host.info("A").status == "completed"
    assert result["ok"].approved is False


def test_a_node_that_waits_inside_is_reminded_of_too(host: Host, clock: ManualClock, ops: Receiver) -> None:
    @node(output="x", halts=True)
    async def asks(ctx: Context) -> bool:
        return bool((await ctx.wait(wait.approval("ok", notify="ops", remind="1h"))).approved)

    flow = Flow("inside", [asks])
    [opened] = host.run(flow, {}, run_id="A").waits
    clock.advance(3_601)
    host.notices.send()
    assert [notice.occasion for notice in ops.got] == ["", "reminder"]
    host.answer(opened.id, {"approved": True})
    assert host.resume("A", flow)["x"] is True


@pytest.mark.parametrize(
    "declare",
    [
        lambda: wait.approval("ok", remind="1d"),
        lambda: wait.approval("ok", notify="ops", remind="0s"),
        lambda: wait.approval("ok", escalate={}),
        lambda: wait.approval("ok", escalate=cast("Any", "boss")),
        lambda: wait.approval("ok", escalate={"1d": ""}),
        lambda: wait.approval("ok", escalate=cast("Any", ["boss"])),
        lambda: wait.approval("ok", escalate={"0s": "boss"}),
        lambda: Flow("f", [works], notify=Tell("ops", flow="g")),
        lambda: Flow("f", [works], notify=cast("Any", 3)),
        lambda: Tell(""),
        lambda: Tell("a\nb"),
        lambda: Tell("ops", on="explodes"),
        lambda: Tell("ops", on=[]),
        lambda: Tell("ops", on="reminder"),
        lambda: Tell("ops", overdue="0s"),
        lambda: Tell("ops", tag=""),
    ],
)
def test_what_cannot_be_told_is_refused_where_it_is_written(declare: Any) -> None:
    with pytest.raises(BadRequest):
        declare()


def test_a_damaged_run_is_told_of(url: str, clock: ManualClock, ops: Receiver) -> None:
    if not url.startswith("sqlite"):
        pytest.skip("its bytes are altered in a file of SQLite")
    flow = Flow("asks", [wait.approval("ok")], notify="ops")
    with Host(url, clock=clock, notifiers={"ops": ops}) as host:
        [opened] = host.run(flow, {}, run_id="A").waits
        host.answer(opened.id, {"approved": True})
    db = apsw.Connection(url.removeprefix("sqlite:///"))
    db.execute("UPDATE checkpoints SET body = zeroblob(40)")
    db.close()
    with Host(url, clock=clock, notifiers={"ops": ops}) as host:
        host.work([flow], until_idle=True)
        host.notices.send()
        assert host.info("A").needs_repair
    assert [(notice.run_id, notice.occasion) for notice in ops.got] == [("A", "needs_repair")]


@pytest.mark.parametrize(
    "said",
    [
        "POST https://hooks.chat.test/services/T0/B0/SECRET failed",
        "no smtp://ops:SECRET@mail.test",
        "Pool(host='hooks.chat.test', port=443): Max retries exceeded with url: /T0/SECRET (Caused by x)",
        "404, message='Not Found', url='https://hooks.chat.test/T0?key=SECRET'",
        "Client error '404' for url 'https://hooks.chat.test/SECRET#SECRET'",
        "(https://hooks.chat.test/SECRET)",
        "no https://ops:SECRET#SECRET@hooks.test:443/ at hooks.test",
        "no https://hooks.test:8443/SECRET",
    ],
)
@pytest.mark.stores("memory")
def test_what_a_notifier_says_of_its_address_is_kept_without_what_is_secret(
    url: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    def down(notice: Any) -> None:
        raise ConnectionError(said)

    with Host(url, notifiers={"ops": down}) as host:
        host.run(FAILING, {"a": 1}, run_id="A")
        [info] = host.notices.find()
    assert ".test" in info.error
    assert "SECRET" not in info.error + caplog.text


@pytest.mark.stores("memory")
def test_no_one_is_told_of_the_questions_that_workers_answer(url: str, ops: Receiver) -> None:
    with Host(url, notifiers={"ops": ops}, notify=[Tell("ops", on=["completed", "failed"])]) as host:
        host.run(Flow(f"{ASK_FLOW}well", [works]), {"a": 1})
        host.run(Flow("well", [works]), {"a": 1})
    assert [notice.flow for notice in ops.got] == ["well"]


@pytest.mark.stores("memory", "redis")
def test_reminders_go_on_after_an_outage_of_days(url: str, clock: ManualClock) -> None:
    told: list[str] = []
    is_down = True

    def desk(notice: Any) -> None:
        if is_down and notice.occasion:
            raise ConnectionError("no line")
        told.append(notice.occasion)

    flow = Flow("pays", [wait.approval("ok", notify="desk", remind="1d")])
    with Host(url, clock=clock, notifiers={"desk": desk}) as host:
        host.run(flow, {}, run_id="A")
        for hour in range(24 * 10):
            is_down = hour < 24 * 5
            clock.advance(3_600)
            host.notices.send()
        [reminder] = host.notices.find()
    assert told[0] == ""
    assert told[1:] == ["reminder"] * len(told[1:])
    assert 3 <= len(told[1:]) <= 6
    assert reminder.state == "pending"


@pytest.mark.stores("memory")
def test_a_notice_of_a_run_that_waits_for_another_asks_no_one_to_answer(url: str, ops: Receiver) -> None:
    child = Flow("child", [wait.approval("ok")])

    @node(output="x", halts=True)
    def asks(ctx: Context) -> Any:
        return ctx.result(ctx.start(child))

    with Host(url, notifiers={"ops": ops}) as host:
        flow = Flow("starter", [asks], starts=[child], notify=Tell("ops", on="halted"))
        host.start(flow, {}, run_id="A")
        host.work([flow], until_idle=True)
    [notice] = ops.got
    assert notice.kind == "child"
    mail = notify.Mail("localhost", sender="a@b.test", to="c@d.test", security="none").mail(notice)
    assert "everstep answer" not in message(notice) + mail.get_content()
