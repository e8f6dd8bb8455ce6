"""Circuit breakers: what fails, costs or wavers too much halts for a person."""

from __future__ import annotations

import sys
import threading
from datetime import timedelta
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from everstep import Breaker, Context, Flow, Host, Retry, Status, chain, node, route
from everstep.errors import BadRequest, RunNotFound
from everstep.model.durability import DurabilityMode
from everstep.model.enums import Trigger
from everstep.model.ledger import BreakerState
from everstep.results import Event
from everstep.testing import ManualClock
from tests.servers import warm

pytestmark = pytest.mark.stores("sqlite")

AT_ONCE = Retry(9, first=0, jitter=0)


class Api:
    """Something to call that fails as long as it is down."""

    def __init__(self, fails: int = 10**6) -> None:
        self.left = fails
        self.calls = 0

    def node(self, name: str = "call", **options: Any) -> Any:
        @node(name=name, output=f"{name}_out", **options)
        def body() -> str:
            self.calls += 1
            self.left -= 1
            if self.left >= 0:
                raise ConnectionError("down")
            return "up"

        return body


def breaker_of(host: Host, run: str, name: str = "api") -> Any:
    return host.state(run).guards.breakers[name]


def trips(host: Host, run: str) -> list[Any]:
    found = [r.metadata or {} for r in host.history(run) if r.trigger is Trigger.CIRCUIT_BREAKER]
    assert {about["priority"] for about in found} <= {"critical"}
    return [{"breakers": about["breakers"]} for about in found]


@pytest.mark.parametrize("durability", ["partial", "strong"])
def test_failures_in_a_row_open_it_and_a_person_lets_it_try(host: Host, durability: DurabilityMode) -> None:
    api = Api(fails=3)
    flow = Flow("f", [api.node(retry=AT_ONCE)], breakers=[Breaker("api", failures=3)], durability=durability)
    result = host.run(flow, run_id="r")
    assert result.status is Status.HALTED and api.calls == 3
    (wait,) = result.waits
    assert (wait.kind, wait.node, wait.context["breaker"]) == ("approval", "call", "api")
    assert trips(host, "r") == [{"breakers": {"api": {"reason": "3 calls in a row failed", "trips": 1}}}]
    assert breaker_of(host, "r").state is BreakerState.OPEN
    host.answer(wait.id, {"approved": True})
    assert host.resume("r", flow)["call_out"] == "up"
    assert (breaker_of(host, "r").state, breaker_of(host, "r").trips) == (BreakerState.CLOSED, 1)


def test_a_try_that_fails_opens_it_again(host: Host) -> None:
    api = Api(fails=4)
    flow = Flow("f", [api.node(retry=AT_ONCE)], breakers=[Breaker("api", failures=3)])
    result = host.run(flow, run_id="r")
    host.answer(result.waits[0].id, {"approved": True})
    result = host.resume("r", flow)
    assert result.status is Status.HALTED and api.calls == 4
    assert [about["breakers"]["api"]["reason"] for about in trips(host, "r")][-1] == "it failed again"
    host.answer(result.waits[0].id, {"approved": True})
    assert host.resume("r", flow).status is Status.COMPLETED and api.calls == 5


def test_a_rejected_review_fails_the_run_by_name_and_a_resume_asks_again(host: Host) -> None:
    api = Api(fails=3)
    flow = Flow("f", [api.node(retry=AT_ONCE)], breakers=[Breaker("api", failures=3)])
    host.answer(host.run(flow, run_id="r").waits[0].id, {"approved": False})
    result = host.resume("r", flow)
    assert result.status is Status.FAILED and result.error is not None and result.error.code == "breaker.open"
    result = host.resume("r", flow)
    assert result.status is Status.HALTED and api.calls == 3
    host.answer(result.waits[0].id, {"approved": True})
    assert host.resume("r", flow).status is Status.COMPLETED


def test_a_run_that_failed_as_it_tripped_resumes_at_the_review(host: Host) -> None:
    api = Api(fails=2)
    flow = Flow("f", [api.node(retry=Retry(1, first=0))], breakers=[Breaker("api", failures=2)])
    result = host.run(flow, run_id="r")
    assert result.status is Status.FAILED
    triggers = [r.trigger for r in host.history("r")]
    assert triggers[-2:] == [Trigger.CIRCUIT_BREAKER, Trigger.FAILED]
    result = host.resume("r", flow)
    assert result.status is Status.HALTED and api.calls == 2
    host.answer(result.waits[0].id, {"approved": True})
    assert host.resume("r", flow)["call_out"] == "up"


def test_after_its_cooldown_it_tries_by_itself(url: str) -> None:
    clock = ManualClock()
    api = Api(fails=3)
    flow = Flow("f", [api.node(retry=AT_ONCE)], breakers=[Breaker("api", failures=3, cooldown="10m")])
    with Host(url, clock=clock) as host:
        result = host.run(flow, run_id="r")
        assert result.status is Status.HALTED and result.waits[0].due_at is not None
        clock.advance(timedelta(minutes=9))
        assert host.resume("r", flow).status is Status.HALTED and api.calls == 3
        clock.advance(timedelta(minutes=2))
        assert host.resume("r", flow).status is Status.COMPLETED and api.calls == 4
        assert breaker_of(host, "r").state is BreakerState.CLOSED


def test_a_manual_one_does_not(url: str) -> None:
    clock = ManualClock()
    flow = Flow(
        "f",
        [Api().node(retry=AT_ONCE)],
        breakers=[Breaker("api", failures=3, cooldown="10m", manual=True)],
    )
    with Host(url, clock=clock) as host:
        assert host.run(flow, run_id="r").waits[0].due_at is None
        clock.advance(timedelta(days=1))
        assert host.resume("r", flow).status is Status.HALTED


def test_an_error_rate_over_the_last_calls_opens_it(host: Host) -> None:
    @node(output="out")
    def item(x: int) -> int:
        if x % 2:
            raise ValueError(x)
        return x

    flow = Flow(
        "f",
        [item.map_over("x", on_error="skip", max_concurrency=1)],
        breakers=[Breaker("items", error_rate=0.5, window=4)],
    )
    result = host.run(flow, {"x": list(range(8))}, run_id="r")
    assert result.status is Status.HALTED and result.waits[0].node == "item#4"
    assert breaker_of(host, "r", "items").reason == "2 of the last 4 calls failed"


def spender(name: str) -> Any:
    @node(name=name, output=f"{name}_out")
    def spends(ctx: Context) -> str:
        ctx.spend(usd=60)
        return name

    return spends


def test_what_its_nodes_cost_opens_it(host: Host) -> None:
    flow = Flow(
        "f",
        chain(spender("a"), spender("b"), spender("c")),
        breakers=[Breaker("cost", cost={"usd": 100})],
    )
    result = host.run(flow, run_id="r")
    assert result.waits[0].node == "c"
    assert breaker_of(host, "r", "cost").reason == "the calls cost 120 usd, more than 100"
    host.answer(result.waits[0].id, {"approved": True})
    assert host.resume("r", flow).status is Status.COMPLETED


def test_the_time_its_calls_take_opens_it(url: str) -> None:
    clock = ManualClock()

    def slow(name: str) -> Any:
        @node(name=name, output=f"{name}_out")
        def body() -> int:
            clock.advance(timedelta(hours=3))
            return 1

        return body

    flow = Flow("f", chain(slow("a"), slow("b"), slow("c")), breakers=[Breaker("long", duration="4h")])
    with Host(url, clock=clock) as host:
        result = host.run(flow, run_id="r")
        assert result.waits[0].node == "c" and "together" in breaker_of(host, "r", "long").reason


def test_a_gate_that_decides_otherwise_on_the_same_input_opens_it(host: Host) -> None:
    answers = iter(["again", "done"])

    @node(output="draft")
    def write() -> str:
        return "the same"

    @route("write", "publish")
    def judge(draft: str) -> str:
        return "write" if next(answers) == "again" else "publish"

    @node(output="out")
    def publish(draft: str) -> str:
        return draft

    flow = Flow(
        "f",
        [write, judge, publish],
        entry="write",
        breakers=[Breaker("wavering", nodes=["judge", "publish"], changed_decision=True)],
    )
    result = host.run(flow, run_id="r")
    assert result.status is Status.HALTED and result.waits[0].node == "publish"
    assert "publish where it had chosen write" in breaker_of(host, "r", "wavering").reason


def test_only_the_nodes_it_names_are_stopped(host: Host) -> None:
    api, other = Api(), Api(fails=0)
    inner = Flow("inner", [other.node("fine")])
    flow = Flow(
        "f",
        [api.node("broken", retry=AT_ONCE), inner.as_node()],
        breakers=[Breaker("api", nodes=["broken"], failures=2)],
    )
    result = host.run(flow, run_id="r")
    assert [w.node for w in result.waits] == ["broken"] and other.calls == 1


def test_items_of_a_map_ask_once_and_one_of_them_tries(host: Host) -> None:
    down = [True]
    tried: list[int] = []

    @node(output="out", retry=AT_ONCE)
    def item(x: int) -> int:
        tried.append(x)
        if down[0]:
            raise ConnectionError("down")
        return x

    flow = Flow("f", [item.map_over("x", max_concurrency=3)], breakers=[Breaker("api", failures=3)])
    result = host.run(flow, {"x": list(range(10))}, run_id="r")
    assert result.status is Status.HALTED and len(result.waits) == 1
    before = len(tried)
    host.answer(result.waits[0].id, {"approved": True})
    result = host.resume("r", flow)
    assert result.status is Status.HALTED and len(tried) == before + 1, "one try is enough to know"
    down[0] = False
    host.answer(result.waits[0].id, {"approved": True})
    assert host.resume("r", flow)["out"] == list(range(10))


def test_the_first_of_several_asks_and_all_are_on_record(host: Host) -> None:
    api = Api(fails=2)
    flow = Flow(
        "f",
        [api.node(retry=AT_ONCE)],
        breakers=[
            Breaker("meta", trips=1),
            Breaker("first", failures=2),
            Breaker("second", error_rate=1, window=2),
        ],
    )
    result = host.run(flow, run_id="r")
    assert set(trips(host, "r")[0]["breakers"]) == {"meta", "first", "second"}
    asked = []
    while result.status is Status.HALTED:
        asked.append((result.waits[0].context["breaker"], result.waits[0].context["also"]))
        host.answer(result.waits[0].id, {"approved": True})
        result = host.resume("r", flow)
    assert asked[0] == ("meta", ["first", "second"]) and result.status is Status.COMPLETED


@pytest.mark.parametrize("order", list(permutations(("over", "meta", "first", "second"))))
def test_a_breaker_on_breakers_opens_wherever_it_is_listed(order: tuple[str, ...]) -> None:
    rules = {
        "over": Breaker("over", trips=2),
        "meta": Breaker("meta", trips=1),
        "first": Breaker("first", failures=2),
        "second": Breaker("second", error_rate=1, window=2),
    }
    flow = Flow("f", [Api().node(retry=AT_ONCE)], breakers=[rules[name] for name in order])
    with Host("memory:") as host:
        host.run(flow, run_id="r")
        found = host.state("r").guards.breakers
        assert {name: at.state for name, at in found.items()} == dict.fromkeys(order, BreakerState.OPEN)
        assert found["meta"].reason == "2 other breakers have opened"


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("shared", [("meta",), ("first", "second"), ("meta", "first", "second")])
def test_a_breaker_on_breakers_opens_where_some_are_shared(shared: tuple[str, ...], is_first: bool) -> None:
    meta = Breaker("meta", trips=1, shared="meta" in shared)
    others = [
        Breaker("first", failures=2, shared="first" in shared),
        Breaker("second", error_rate=1, window=2, shared="second" in shared),
    ]
    flow = Flow("f", [Api().node(retry=AT_ONCE)], breakers=[meta, *others] if is_first else [*others, meta])
    with Host("memory:") as host:
        host.run(flow, run_id="r")
        found = host.state("r").guards.breakers
        assert {at.state for at in found.values()} == {BreakerState.OPEN} and len(found) == 3


def test_a_breaker_on_breakers_that_was_closed_opens_again_only_with_another_one(host: Host) -> None:
    api = Api(fails=1)
    rules = [Breaker("one", failures=1), Breaker("two", failures=1, nodes=["call"])]
    flow = Flow(
        "f",
        [api.node(retry=AT_ONCE) >> Api(fails=0).node("then") >> Api(fails=0).node("last")],
        breakers=[Breaker("meta", trips=1), *rules],
    )
    result = host.run(flow, run_id="r")
    asked = []
    while result.status is Status.HALTED:
        asked.append(result.waits[0].context["breaker"])
        host.answer(result.waits[0].id, {"approved": True})
        result = host.resume("r", flow)
    assert (asked, result.status) == (["meta", "one", "two"], Status.COMPLETED)


def test_watchers_are_told(url: str) -> None:
    heard: list[Event] = []
    flow = Flow("f", [Api().node(retry=AT_ONCE)], breakers=[Breaker("api", failures=3)])
    with Host(url, on_event=heard.append) as host:
        host.run(flow, run_id="r")
        told = [e.data for e in heard if e.kind == "breaker_opened"]
        assert told == trips(host, "r")
        assert [e.data for e in host.events("r", live=False) if e.kind == "breaker_opened"] == told


# -- shared ------------------------------------------------------------------------------------------------

PROGRAM = """
import sys
from everstep import Breaker, Flow, Host, Retry, node

@node(output="out", retry=Retry(9, first=0))
def call():
    raise ConnectionError("down")

flow = Flow("there", [call], breakers=[Breaker("payments", failures=3, shared=True)])
with Host(sys.argv[1]) as host:
    print(host.run(flow, run_id="there").status.value)
"""


def shared_flow(api: Api, **options: Any) -> Flow:
    rule = Breaker("payments", **{"failures": 3, "shared": True, **options})
    return Flow("here", [api.node(retry=AT_ONCE)], breakers=[rule])


def test_one_that_another_process_tripped_is_open_here(url: str) -> None:
    done = warm.run(
        [sys.executable, "-c", PROGRAM, url], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "halted", done.stderr
    api = Api(fails=0)
    with Host(url) as host:
        result = host.run(shared_flow(api), run_id="here")
        assert result.status is Status.HALTED and api.calls == 0
        assert result.waits[0].context["breaker"] == "payments"
        assert host.fleet.breakers()["payments"].state is BreakerState.OPEN
        host.answer(result.waits[0].id, {"approved": True})
        assert host.resume("here", shared_flow(api)).status is Status.COMPLETED and api.calls == 1
        assert host.fleet.breakers()["payments"].state is BreakerState.CLOSED
    states = [
        at.state
        for r in _history(url, "breaker.payments")
        for s in r.steps
        if s.guards
        for at in s.guards.breakers.values()
    ]
    assert states[-3:] == [BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED]


def _history(url: str, run: str) -> Any:
    with Host(url) as host:
        return host.history(run)


def test_failures_of_several_runs_count_together(host: Host) -> None:
    api = Api()
    flow = Flow("f", [api.node()], breakers=[Breaker("builds", failures=3, shared=True)])
    statuses = [host.run(flow, run_id=f"r{k}").status for k in range(4)]
    assert statuses == [Status.FAILED, Status.FAILED, Status.FAILED, Status.HALTED]
    assert api.calls == 3


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_no_failure_is_lost_when_many_runs_fail_at_once(tmp_path: Path, kind: str) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}" if kind == "sqlite" else f"file:{tmp_path / 'runs'}"
    flow = Flow("f", [Api().node()], breakers=[Breaker("many", failures=100, shared=True)])

    def fail(host: Host) -> None:
        for _ in range(4):
            host.run(flow)

    with Host(url) as one, Host(url) as other:
        threads = [threading.Thread(target=fail, args=(host,)) for host in (one, one, other, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert one.fleet.breakers()["many"].failures == 16
        assert other.fleet.reset_breaker("many").failures == 0


def test_a_shared_one_tries_again_after_its_cooldown(url: str) -> None:
    clock = ManualClock()
    api = Api(fails=3)
    flow = shared_flow(api, cooldown="10m")
    with Host(url, clock=clock) as host:
        assert host.run(flow, run_id="a").status is Status.HALTED
        clock.advance(timedelta(minutes=11))
        assert host.run(flow, run_id="b").status is Status.COMPLETED and api.calls == 4
        assert host.resume("a", flow).status is Status.COMPLETED


def test_it_can_be_reset_by_hand(host: Host) -> None:
    api = Api(fails=3)
    flow = shared_flow(api)
    assert host.run(flow, run_id="a").status is Status.HALTED
    assert host.fleet.reset_breaker("payments").state is BreakerState.CLOSED
    assert host.run(flow, run_id="b").status is Status.COMPLETED
    with pytest.raises(RunNotFound):
        host.fleet.reset_breaker("no such")


def test_one_whose_run_was_cancelled_goes_on(host: Host) -> None:
    flow = shared_flow(Api())
    assert host.run(flow, run_id="a").status is Status.HALTED
    host.cancel("breaker.payments")
    assert host.fleet.breakers()["payments"].state is BreakerState.OPEN
    assert host.fleet.reset_breaker("payments").state is BreakerState.CLOSED
    assert host.run(flow, run_id="b").status is Status.HALTED
    assert host.fleet.breakers()["payments"].trips == 2


def test_a_run_that_has_its_place_is_told_of(host: Host) -> None:
    host.run(Flow("other", [Api(0).node()]), run_id="breaker.payments")
    with pytest.raises(BadRequest, match="payments"):
        host.run(shared_flow(Api()), run_id="r")


# -- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"failures": 0},
        {"failures": True},
        {"error_rate": 1.5},
        {"error_rate": 0},
        {"failures": 1, "window": 0},
        {"cost": 5},
        {"cost": {"usd": -1}},
        {"cost": {"U S D": 1}},
        {"duration": "long"},
        {"failures": 1, "cooldown": True},
        {"failures": 1, "cooldown": "soon"},
        {"failures": 1, "manual": "yes"},
        {"failures": 1, "nodes": []},
        {"failures": 1, "nodes": [3]},
    ],
)
def test_rules_that_mean_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        Breaker("b", **options)


@pytest.mark.parametrize(
    "breakers",
    [
        5,
        "api",
        Breaker("api", failures=1),
        ["api"],
        [Breaker("api", failures=1), Breaker("api", failures=2)],
        [Breaker("api", failures=1, nodes="unknown")],
    ],
)
def test_breakers_that_fit_no_flow_are_refused(breakers: Any) -> None:
    with pytest.raises(BadRequest):
        Flow("f", [Api().node()], breakers=breakers)


@pytest.mark.parametrize("name", ["", "with space", 5, "a/b"])
def test_names_that_cannot_be_kept_are_refused(name: Any) -> None:
    with pytest.raises(BadRequest):
        Breaker(name, failures=1)
