"""Runs that go on with another version of their flow, and what looking back sees of that."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import pytest

from everstep import Done, Flow, Host, migrate, node, wait
from everstep.client.projection import fold
from everstep.engine import verdict
from everstep.engine.keys import automatic_key
from everstep.errors import BadRequest, FlowChanged, InputsDiffer, LeaseConflict
from everstep.graph.author.node import Node
from everstep.ports.store import StopRequest

pytestmark = pytest.mark.servers


@node(output="total")
def add(items: list[int]) -> int:
    return sum(items)


@node(output="paid", effects="effectful", idempotency_key="auto", name="pay")
def interrupts(total: int) -> str:
    raise KeyboardInterrupt


@node(output="amount", name="add")
def add_cents(items: list[int]) -> dict[str, int]:
    return {"cents": sum(items) * 100}


@node(output="paid", effects="effectful", idempotency_key="auto")
def charge(amount: dict[str, int]) -> str:
    return f"{amount['cents']} ct"


@node(output="mail")
def thank(paid: str, tone: str) -> str:
    return f"{tone}: {paid}"


@node(output="size")
def count(items: list[int]) -> int:
    return len(items)


FIRST = Flow("shop", [add, interrupts], durability="strong")
RULES = [
    migrate.rename_node("pay", "charge"),
    migrate.rename_value("total", "amount"),
    migrate.upcast("amount", lambda euros: {"cents": euros * 100}, versions="1"),
    migrate.add_value("tone", "thanks"),
]
SECOND = Flow(
    "shop",
    [add_cents, charge, thank, count],
    durability="strong",
    version="2",
    migrations=RULES,
)


def begun(host: Host, flow: Flow = FIRST, run_id: str = "r") -> None:
    with pytest.raises(KeyboardInterrupt):
        host.run(flow, {"items": [1, 2]}, run_id=run_id)


def test_a_run_is_begun_by_one_version_and_finished_by_the_next(host: Host) -> None:
    begun(host)
    result = host.resume("r", SECOND)
    assert dict(result) == {"amount": {"cents": 300}, "paid": "300 ct", "size": 2, "mail": "thanks: 300 ct"}
    history = host.history("r")
    assert [c.trigger.value for c in history][:3] == ["admission", "step", "migration"]
    assert [c.flow_version for c in history] == ["1", "1", *["2"] * (len(history) - 2)]
    moved = history[2]
    assert moved.keyframe and moved.steps == () and moved.metadata is not None
    assert moved.metadata["from"] == {"flow_version": "1", "flow_hash": FIRST.plan.hash}
    assert moved.metadata["migrations"] == [
        "rename_node('pay', 'charge')",
        "rename_value('total', 'amount')",
        "upcast('amount')",
        "add_value('tone')",
    ]
    assert moved.metadata["starts"] == ["count"]
    assert host.info("r").flow_version == "2"
    assert host.run(SECOND, run_id="r") == result


def test_a_renamed_effect_keeps_the_key_it_may_have_been_tried_with(host: Host) -> None:
    begun(host)
    host.resume("r", SECOND)
    paid = next(s for c in host.history("r") for s in c.steps if s.path == "charge")
    assert paid.key == automatic_key("r", "pay", 1)


def test_looking_back_sees_each_version_as_it_was(host: Host) -> None:
    begun(host)
    host.resume("r", SECOND)
    assert dict(host.state("r", 2)) == {"items": [1, 2], "total": 3}
    assert host.state("r", 3)["amount"] == {"cents": 300}
    assert host.debug.recall("r", [("total", 1), ("amount", 2), ("paid", 1)]) == {
        ("total", 1): 3,
        ("amount", 2): {"cents": 300},
        ("paid", 1): "300 ct",
    }
    changes = {c.path: c.kind for c in host.debug.diff("r", start=2).values}
    assert changes["total"] == "removed" and changes["amount"] == "added"
    assert host.debug.replay("r", "charge", SECOND, allow_effects=True).is_equal
    assert host.debug.replay("r", "add", FIRST).is_equal


def test_runs_that_went_over_are_compared_step_by_step(host: Host) -> None:
    begun(host)
    begun(host, run_id="s")
    host.resume("r", SECOND)
    host.resume("s", SECOND)
    assert host.debug.bisect("r", "s") is None


def test_a_fork_from_before_a_migration_goes_by_the_version_of_that_time(host: Host) -> None:
    begun(host)
    host.resume("r", SECOND)
    early = host.fork("r", at=2, inputs={"items": [5]})
    late = host.fork("r", at=3)
    assert (early.flow_version, late.flow_version) == ("1", "2")
    assert host.resume(late.run_id, SECOND)["paid"] == "300 ct"
    with pytest.raises(KeyboardInterrupt):
        host.resume(early.run_id, FIRST)
    assert host.resume(early.run_id, SECOND)["paid"] == "500 ct"
    assert dict(host.state(early.run_id, 2)) == {"items": [1, 2], "total": 3}
    assert host.state(early.run_id, 3)["items"] == [5]


def test_a_run_can_go_over_more_than_once(host: Host) -> None:
    begun(host)
    host.versions.migrate("r", SECOND)
    third = Flow(
        "shop",
        [add_cents, charge.with_name("debit"), thank, count],
        durability="strong",
        version="3",
        migrations=[*RULES, migrate.rename_node("charge", "debit")],
    )
    assert host.resume("r", third)["mail"] == "thanks: 300 ct"
    assert [c.trigger.value for c in host.history("r")].count("migration") == 2
    begun(host, run_id="s")
    assert host.resume("s", third)["mail"] == "thanks: 300 ct"
    assert {k: dict(host.state("r", k)) for k in (2, 3)} == {
        2: {"items": [1, 2], "total": 3},
        3: {"items": [1, 2], "amount": {"cents": 300}, "tone": "thanks"},
    }


def test_a_dry_run_tries_everything_and_writes_nothing(host: Host) -> None:
    begun(host)
    told = host.versions.migrate("r", SECOND, dry_run=True)
    assert told.verdict == "continues"
    assert told.migrations[-2:] == ("upcast('amount')", "add_value('tone')")
    assert (host.info("r").checkpoints, host.info("r").flow_version) == (2, "1")
    broken = Flow(
        "shop",
        SECOND.nodes,
        version="2",
        migrations=[*RULES[:2], migrate.upcast("amount", lambda euros: euros["no"]), RULES[3]],
    )
    for told in (host.versions.compat("r", broken), host.versions.migrate("r", broken, dry_run=True)):
        assert told.verdict == "needs_migration"
        assert "upcast('amount') failed on 'amount': TypeError" in told.reason
    with pytest.raises(FlowChanged, match=r"upcast\('amount'\) failed on 'amount': TypeError"):
        host.versions.migrate("r", broken)
    with pytest.raises(FlowChanged, match="nothing was changed"):
        host.resume("r", broken)
    assert host.resume("r", SECOND).status == "completed"


def test_to_migrate_writes_one_checkpoint_and_lets_the_run_go(host: Host) -> None:
    begun(host)
    assert host.versions.migrate("r", SECOND).verdict == "continues"
    info = host.info("r")
    assert (info.checkpoints, info.flow_version, info.is_driven) == (3, "2", False)
    assert host.versions.migrate("r", SECOND).is_same
    host.resume("r", SECOND)
    with pytest.raises(BadRequest, match="'r' is completed"):
        host.versions.migrate("r", SECOND)


def test_an_upcast_alone_is_made_when_the_version_is_another(host: Host) -> None:
    @node(output="paid", name="pay")
    def pays(total: Any) -> Any:
        return total

    begun(host)
    next_ = Flow(
        "shop",
        [add, pays],
        durability="strong",
        version="1.1",
        migrations=[migrate.upcast("total", str, versions=["1"])],
    )
    assert next_.plan.hash == FIRST.plan.hash
    assert host.resume("r", next_)["paid"] == "3"
    assert [c.trigger.value for c in host.history("r")].count("migration") == 1
    without_rules = Flow("shop", [add, pays], durability="strong", version="9")
    begun(host, run_id="s")
    host.resume("s", without_rules)
    assert "migration" not in [c.trigger.value for c in host.history("s")]


def test_inputs_are_compared_as_far_as_both_versions_know_them(host: Host) -> None:
    begun(host)
    with pytest.raises(InputsDiffer, match="items"):
        host.run(SECOND, {"items": [9], "tone": "warm"}, run_id="r")
    assert host.run(SECOND, {"items": [1, 2], "tone": "warm"}, run_id="r")["mail"] == "thanks: 300 ct"
    assert host.run(SECOND, {"items": [1, 2], "tone": "warm"}, run_id="r")["mail"] == "thanks: 300 ct"


def test_a_failed_run_goes_over_and_is_reopened(host: Host) -> None:
    @node(output="paid", name="pay")
    def refuses(total: int) -> str:
        raise ValueError("no")

    first = Flow("shop", [add, refuses], durability="strong")
    assert host.run(first, {"items": [1, 2]}, run_id="r").status == "failed"
    assert host.resume("r", SECOND)["mail"] == "thanks: 300 ct"
    assert [c.trigger.value for c in host.history("r")][3:5] == ["migration", "resume"]


def test_a_completed_run_is_left_as_it_is(host: Host) -> None:
    flow = Flow("shop", [add])
    host.run(flow, {"items": [1]}, run_id="r")
    assert host.resume("r", SECOND)["total"] == 1
    assert host.history("r")[-1].flow_hash == flow.plan.hash


def test_an_answer_finds_its_node_under_another_name(host: Host) -> None:
    ask = wait.approval("ask")

    @node(output="done")
    def finish(ask: Any) -> bool:
        return bool(ask.approved)

    @node(output="done", name="finish")
    def finish_later(sign: Any) -> bool:
        return bool(sign.approved)

    halted = host.run(Flow("f", [ask, finish], durability="strong"), run_id="r")
    rules = [migrate.rename_node("ask", "sign"), migrate.rename_value("ask", "sign")]
    renamed = ask.with_name("sign").with_outputs("sign")
    after = Flow("f", [renamed, finish_later], durability="strong", migrations=rules)
    host.versions.migrate("r", after)
    assert host.info("r").status == "halted"
    again = host.resume("r", after)
    assert [w.id for w in again.waits] == [w.id for w in halted.waits]
    host.answer(halted.waits[0].id, {"approved": True})
    assert host.resume("r", after)["done"] is True
    assert host.waits("r") == []


def test_clean_up_across_a_migration_leaves_what_a_resume_needs(host: Host) -> None:
    begun(host)
    host.resume("r", SECOND)
    assert host.retention.clean_up("r", keep=1) == 2
    assert host.run(SECOND, run_id="r")["mail"] == "thanks: 300 ct"
    assert host.state("r", 3)["amount"] == {"cents": 300}


# -- workers ----------------------------------------------------------------------------------------------


def works(host: Host, *flows: Flow) -> None:
    host.work(flows, until_idle=True)


def test_a_worker_goes_on_with_runs_of_older_versions(host: Host) -> None:
    for k in range(3):
        begun(host, run_id=f"r{k}")
    works(host, SECOND)
    assert {info.status.value for info in host.runs()} == {"completed"}
    assert {info.flow_version for info in host.runs()} == {"2"}


def test_a_worker_leaves_runs_of_newer_versions_to_newer_workers(host: Host) -> None:
    begun(host)
    works(host, SECOND)
    more = add.with_name("more")
    newer = Flow("shop", [add_cents, charge, thank, count, more], version="3")
    host.start(newer, {"items": [1], "tone": "hi"}, run_id="new")
    works(host, SECOND)
    assert host.info("new").status == "running" and host.info("new").checkpoints == 1
    works(host, newer)
    assert host.info("new").status == "completed"


def test_a_worker_leaves_a_refused_run_alone_and_says_why_once(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    begun(host)
    other = Flow("shop", [add.with_inputs(items="lines"), interrupts])
    with caplog.at_level(logging.ERROR):
        works(host, other)
    [message] = [r.getMessage() for r in caplog.records]
    assert "run 'r' is left alone" in message and "accept('add')" in message
    info = host.info("r")
    assert (info.checkpoints, info.flow_version, info.is_driven) == (2, "1", False)
    works(host, SECOND)
    assert host.info("r").status == "completed"


@pytest.mark.parametrize("by", ["worker", "resume"])
def test_a_cancelled_run_of_an_older_version_ends_without_going_over(host: Host, by: str) -> None:
    halts = Flow("f", [wait.approval("ask")], durability="strong")
    host.run(halts, run_id="r")
    host._lanes.call(lambda opened: opened._services.store.request_stop("r", StopRequest.CANCEL))
    changed = Flow("f", [wait.approval("ask"), count], durability="strong")
    if by == "worker":
        works(host, changed)
    else:
        assert host.resume("r", changed).status == "cancelled"
    assert host.info("r").status == "cancelled"
    assert host.history("r")[-1].flow_hash == halts.plan.hash


@pytest.mark.parametrize("is_wrong", ["raises", "not storable"])
def test_an_upcast_that_fails_fails_the_deploy_and_is_explained(host: Host, is_wrong: str) -> None:
    class Odd: ...

    def cast(value: int) -> Any:
        if is_wrong == "raises":
            raise RuntimeError("no such form")
        return Odd()

    @node(output="a")
    def one(x: int) -> int:
        return x + 1

    nodes = [one, wait.approval("ok", context="a")]
    host.run(Flow("f", nodes), {"x": 1}, run_id="r")
    rules = [migrate.upcast("a", cast, versions=["1"])]
    changed = Flow("f", nodes, version="2", migrations=rules)
    reason = "no such form" if is_wrong == "raises" else "Odd"
    for told in (
        host.versions.compat("r", changed),
        host.explain("r", changed).compat,
        host.versions.migrate("r", changed, dry_run=True),
    ):
        assert (told.verdict, told.values) == ("needs_migration", ("a",))
        assert reason in told.reason and "upcast('a')" in told.reason
    for go_over in (host.versions.migrate, host.resume):
        with pytest.raises(FlowChanged, match=reason):
            go_over("r", changed)
    assert (host.info("r").flow_version, host.info("r").is_driven) == ("1", False)


def test_an_added_value_that_cannot_be_stored_is_told(host: Host) -> None:
    nodes = [wait.approval("ok")]
    host.run(Flow("f", nodes), run_id="r")

    @node(output="b")
    def more(ok: Any, lock: object) -> int:
        return 1

    changed = Flow("f", [*nodes, more], migrations=[migrate.add_value("lock", object())])
    told = host.versions.migrate("r", changed, dry_run=True)
    assert (told.verdict, told.values) == ("needs_migration", ("lock",))
    with pytest.raises(FlowChanged, match="lock"):
        host.resume("r", changed)


def test_what_is_no_rule_is_refused_when_the_flow_is_made() -> None:
    async def cast(value: int) -> int:
        return value

    for wrong in (["rename"], "rename", [None], 5):
        with pytest.raises(BadRequest, match="no migration"):
            Flow("f", [], migrations=wrong)  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="plain function"):
        migrate.upcast("a", cast)


def test_runs_that_stand_alike_are_judged_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[object] = []
    judge = verdict._judge

    def counting(*given: Any) -> Any:
        judged.append(given)
        return judge(*given)

    monkeypatch.setattr(verdict, "_judge", counting)

    @node(output="a")
    def one(x: int) -> int:
        if x > 7:
            raise KeyboardInterrupt
        return x + 1

    flow = Flow("f", [one, wait.approval("ok", context="a")], durability="strong")
    for x in range(10):
        with contextlib.suppress(KeyboardInterrupt):
            host.run(flow, {"x": x}, run_id=f"r{x}")
    changed = Flow("f", [one.with_name("first"), wait.approval("ok", context="a")], durability="strong")
    told = [host.versions.compat(f"r{x}", changed) for x in range(10)]
    assert [t.reason for t in told[:8]] == ["'one' is finished, and is gone from the flow."] * 8
    assert [t.reason for t in told[8:]] == ["'one' is pending, and is gone from the flow."] * 2
    assert len(judged) == 2
    changed.migrations = (migrate.rename_node("one", "first"),)
    assert {host.versions.compat(f"r{x}", changed).verdict for x in range(10)} == {"continues"}


@pytest.mark.parametrize("is_newer_first", [False, True])
def test_two_versions_of_the_code_do_not_drive_a_run_at_once(host: Host, is_newer_first: bool) -> None:
    refused: list[str] = []

    def version(number: str) -> Flow:
        other = "2" if number == "1" else "1"

        def work(x: int) -> int:
            for drive in (host.resume, host.versions.migrate):
                try:
                    drive("r", version(other))
                except LeaseConflict as conflict:
                    refused.append(conflict.code)
            return x

        nodes = [node(name=f"work_{number}", output="y")(work)]
        rules = [migrate.rename_node(f"work_{other}", f"work_{number}")]
        return Flow("f", nodes, version=number, durability="strong", migrations=rules)

    first = version("2" if is_newer_first else "1")
    assert host.run(first, {"x": 1}, run_id="r")["y"] == 1
    assert refused == [LeaseConflict.code] * 2
    assert [c.trigger for c in host.history("r")] == ["admission", "completed"]
    assert host.info("r").flow_version == first.version


def test_compat_names_the_rules_that_change_values(host: Host) -> None:
    begun(host)
    told = host.versions.compat("r", SECOND)
    assert told.migrations == host.versions.migrate("r", SECOND, dry_run=True).migrations
    assert {"upcast('amount')", "add_value('tone')"} <= set(told.migrations)


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_recorded_value_that_no_longer_fits_is_warned_of(host: Host, version: str) -> None:
    @node(output="a")
    def early(source: str) -> str:
        return source

    @node(output="b")
    def late(source: str, ok: wait.ApprovalOutput) -> str:
        return source

    @node(output="a", name="early")
    def early_two(source: dict[str, str]) -> str:
        return source["url"]

    @node(output="b", name="late")
    def late_two(source: dict[str, str], ok: wait.ApprovalOutput) -> str:
        return source["url"]

    ok = wait.approval("ok")
    first, changed = Flow("f", [early, ok, late]), Flow("f", [early_two, ok, late_two], version=version)
    rules = [migrate.upcast("source", lambda url: {"url": url}, versions=["1"])]
    host.run(first, {"source": "x"}, run_id="W")
    assert host.versions.compat("W", first).warnings == host.explain("W", first).compat.warnings == ()
    for told in (host.versions.compat("W", changed), host.explain("W", changed).compat):
        assert told.verdict == "continues"
        (said,) = told.warnings
        assert "'source'" in said and "'late'" in said and "dict[str, str]" in said
    assert host.versions.compat("W", Flow("f", changed.nodes, version="2", migrations=rules)).warnings == ()


def test_show_knows_a_renamed_node_by_its_new_name_only(host: Host) -> None:
    def announced(name: str, **options: Any) -> Node:
        def pay(total: int) -> str:
            raise KeyboardInterrupt if name in ("pay", "gone") else AssertionError

        made: Node = node(name=name, output=name, effects="effectful", idempotency_key="auto", **options)(pay)
        return made

    first = Flow("shop", [add, announced("pay", probe=lambda: Done("paid")), announced("gone")])
    rules = [migrate.rename_node("pay", "charge"), migrate.rename_value("pay", "charge")]
    second = Flow(
        "shop",
        [add, announced("charge", probe=lambda: Done("paid"))],
        version="2",
        migrations=[*rules, migrate.drop_node("gone")],
    )
    begun(host, first)
    assert ("pay", "running", 1) in shown(host)
    assert host.resume("r", second)["charge"] == "paid"
    assert set(shown(host)) == {("add", "completed", 1), ("charge", "completed", 1)}


def shown(host: Host) -> list[tuple[str, str | None, int]]:
    return [(line.name, line.status, line.visits) for line in fold(host.history("r"), ())]
