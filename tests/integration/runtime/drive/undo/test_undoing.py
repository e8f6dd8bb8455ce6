"""When a run is undone, what an undo is given, what a person is asked, and what may be done with it then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from everstep import AsyncHost, Context, Flow, Host, Retry, Status, node, wait
from everstep.errors import BadRequest, EverstepError, FlowError, RunUndone
from everstep.results import RunResult
from tests.keyframes import space_keyframes

pytestmark = pytest.mark.stores("memory", "sqlite")
AT_ONCE = Retry(1, first=0, jitter=0)
Undo = Callable[..., Any]


class Shop:
    """What was done, and undone, in order."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.broken = 0
        """How often the refund fails from now on."""

    def refund(self, order: str, charge: str, idempotency_key: str) -> None:
        self.log.append(f"refund {order} {charge}")
        if self.broken:
            self.broken -= 1
            raise ConnectionError("the bank is closed")

    def release(self, order: str) -> None:
        self.log.append(f"release {order}")

    def flow(self, *, fails: bool = True, refund: Undo | None = None, **options: Any) -> Flow:
        @node(undo=self.release)
        def reserve(order: str) -> None:
            self.log.append(f"reserve {order}")

        @node(output="charge", undo=refund or self.refund)
        def pay(order: str) -> str:
            self.log.append(f"pay {order}")
            return "c1"

        @node(output="parcel")
        def pack(charge: str) -> str:
            if fails:
                raise ValueError("no box")
            return f"{charge} in a box"

        return Flow("order", [reserve >> pay >> pack], **options)


DONE = ["reserve A", "pay A"]
UNDONE = ["refund A c1", "release A"]


@pytest.fixture
def shop() -> Shop:
    return Shop()


def run(host: Host, flow: Flow, run_id: str = "a") -> RunResult:
    return host.run(flow, {"order": "A"}, run_id=run_id)


def came_to(host: Host, run_id: str = "a") -> str | None:
    return host.info(run_id).undoing


def test_a_run_that_fails_is_undone_and_fails_as_it_would_have(host: Host, shop: Shop) -> None:
    result = run(host, shop.flow())
    assert (result.status, shop.log) == (Status.FAILED, DONE + UNDONE)
    assert result.error is not None
    assert result.error.message == "no box"
    assert came_to(host) == "complete"
    last = host.history("a")[-1]
    assert (last.trigger, last.metadata) == ("failed", {"undo": "complete"})


def test_a_run_that_completes_is_not_undone(host: Host, shop: Shop) -> None:
    assert run(host, shop.flow(fails=False)).status is Status.COMPLETED
    assert shop.log == DONE
    assert came_to(host) is None


@pytest.mark.parametrize(
    ("when", "on_failure", "on_cancel"),
    [
        ("both", True, True),
        ("failure", True, False),
        ("cancel", False, True),
        ("never", False, False),
    ],
)
def test_a_flow_says_when_its_runs_are_undone(
    host: Host, shop: Shop, when: Any, on_failure: bool, on_cancel: bool
) -> None:
    run(host, shop.flow(undo=when))
    assert shop.log == DONE + UNDONE * on_failure
    shop.log.clear()

    @node(output="stop")
    def stop(charge: str, ctx: Context) -> str:
        ctx.cancel()

    flow = Flow("order", [*shop.flow().nodes[:2], stop], undo=when)
    assert run(host, flow, "b").status is Status.CANCELLED
    assert sorted(shop.log) == sorted(DONE + UNDONE * on_cancel)


def test_what_fails_for_good_while_it_is_undone_asks_a_person(host: Host, shop: Shop) -> None:
    shop.broken = 2
    result = run(host, shop.flow(refund=node(retry=AT_ONCE)(shop.refund)))
    assert result.status is Status.HALTED
    assert shop.log == [*DONE, "refund A c1", "refund A c1"]
    [asked] = result.waits
    assert (asked.kind, asked.node) == ("settle", "pay/!undo")
    assert "the bank is closed" in asked.prompt
    assert came_to(host) == "undoing"
    host.waiting.settle("a", "pay/!undo", rerun=True)
    result = host.resume("a", shop.flow(refund=node(retry=AT_ONCE)(shop.refund)))
    assert result.status is Status.FAILED
    assert shop.log == [*DONE, "refund A c1", "refund A c1", *UNDONE]
    assert came_to(host) == "complete"


def test_an_undo_that_was_done_by_hand_is_not_made_again(host: Host, shop: Shop) -> None:
    shop.broken = 9
    assert run(host, shop.flow()).status is Status.HALTED
    host.waiting.settle("a", "pay/!undo", done=None, by="ann", comment="by bank transfer")
    assert host.resume("a", shop.flow()).status is Status.FAILED
    assert shop.log == [*DONE, *UNDONE]
    assert came_to(host) == "complete"
    [step] = [s for r in host.history("a") for s in r.steps if s.path == "pay/!undo" and s.act is not None]
    assert step.act is not None
    assert (step.act.by, step.act.comment) == ("ann", "by bank transfer")


def test_an_undo_may_be_skipped_with_a_reason(host: Host, shop: Shop) -> None:
    shop.broken = 9
    assert run(host, shop.flow()).status is Status.HALTED
    with pytest.raises(BadRequest):
        host.waiting.settle("a", "pay/!undo", skip="x", rerun=True)
    host.waiting.settle("a", "pay/!undo", skip="the card has expired")
    assert host.resume("a", shop.flow()).status is Status.FAILED
    assert shop.log == [*DONE, *UNDONE]
    assert came_to(host) == "1 skipped"
    [step] = [s for r in host.history("a") for s in r.steps if s.status is Status.CANCELLED]
    assert step.error is not None
    assert (step.path, step.error.message) == ("pay/!undo", "the card has expired")


def test_a_person_may_be_asked_whether_a_run_is_undone(host: Host, shop: Shop) -> None:
    for run_id, approved in (("yes", True), ("no", False)):
        shop.log.clear()
        result = run(host, shop.flow(undo="ask"), run_id)
        assert (result.status, shop.log) == (Status.HALTED, DONE)
        [asked] = result.waits
        assert (asked.kind, asked.node) == ("approval", "!undo")
        host.answer(asked.id, {"approved": approved})
        assert host.resume(run_id, shop.flow(undo="ask")).status is Status.FAILED
        assert shop.log == DONE + UNDONE * approved
        assert came_to(host, run_id) == ("complete" if approved else "declined")
    shop.log.clear()
    assert host.undo("no") is Status.RUNNING
    assert host.resume("no", shop.flow(undo="ask")).status is Status.FAILED
    assert (shop.log, came_to(host, "no")) == (UNDONE, "complete")


def test_a_failed_run_can_be_undone_later(host: Host, shop: Shop) -> None:
    flow = shop.flow(undo="never")
    assert run(host, flow).status is Status.FAILED
    assert host.explain("a", flow).undoes == ("pay", "reserve")
    assert host.undo("a", by="ann", comment="they want their money back") is Status.RUNNING
    explained = host.explain("a", flow)
    assert (explained.is_undoing, explained.undoes, explained.starts) == (True, ("pay", "reserve"), ())
    result = host.resume("a", flow)
    assert (result.status, shop.log) == (Status.FAILED, DONE + UNDONE)
    assert result.error is not None
    assert result.error.message == "no box"
    acts = [record.act for record in host.history("a") if record.act is not None]
    assert [(act.by, act.comment) for act in acts] == [("ann", "they want their money back")]
    with pytest.raises(RunUndone):
        host.undo("a")


def test_what_has_nothing_to_undo_is_refused(host: Host, shop: Shop) -> None:
    run(host, shop.flow(fails=False))
    with pytest.raises(BadRequest, match="completed"):
        host.undo("a")

    @node(output="x")
    def fail(order: str) -> str:
        raise ValueError("no")

    run(host, Flow("plain", [fail]), "b")
    with pytest.raises(BadRequest, match="nothing that says how it is undone"):
        host.undo("b")


def test_a_run_that_was_undone_goes_forward_no_more(host: Host, shop: Shop) -> None:
    flow = shop.flow()
    run(host, flow)
    before = len(shop.log)
    with pytest.raises(RunUndone):
        host.resume("a", flow)
    with pytest.raises(RunUndone):
        host.resume("a", flow, start="pack")
    records = host.history("a")
    begins = next(record.sequence for record in records if record.trigger == "undo")
    with pytest.raises(RunUndone):
        host.fork("a", at=begins)
    with pytest.raises(RunUndone):
        host.fork("a")
    assert len(shop.log) == before


def test_a_fork_undoes_what_it_did_itself_and_nothing_of_its_parent(host: Host, shop: Shop) -> None:
    flow = shop.flow(undo="cancel")
    run(host, flow)
    at = next(
        r.sequence for r in host.history("a") if any(s.path == "reserve" and s.ended_at for s in r.steps)
    )
    shop.log.clear()
    forked = host.fork("a", at=at, fork_id="b")
    failing = shop.flow()
    result = host.resume(forked.run_id, failing)
    assert result.status is Status.FAILED
    assert shop.log == ["pay A", "refund A c1"]


def test_a_run_that_waits_is_undone_when_it_is_cancelled_by_who_has_its_code(host: Host, shop: Shop) -> None:
    ok = wait.approval("ok", context="order")
    flow = Flow("order", [*shop.flow(fails=False).nodes[:2], ok])
    assert run(host, flow).status is Status.HALTED
    done = sorted(shop.log)
    assert host.cancel("a", by="ann") is Status.HALTED
    assert sorted(shop.log) == done
    result = host.resume("a", flow)
    assert result.status is Status.CANCELLED
    assert sorted(shop.log[2:]) == sorted(UNDONE)
    assert came_to(host) == "complete"
    assert host.info("a").is_cancelling is False


def test_an_undo_that_takes_what_nothing_gives_is_refused(host: Host) -> None:
    def undo(nothing: str) -> None: ...

    with pytest.raises(FlowError, match=r"flow\.undo_input"):
        Flow("f", [node(undo=undo)(lambda: None).with_name("a")])
    with pytest.raises(BadRequest):
        node(undo=undo, effects="pure")(lambda: None)
    with pytest.raises(BadRequest):
        node(undo=3)(lambda: None)  # type: ignore[call-overload]


def test_what_a_group_or_a_map_tolerates_undoes_nothing(host: Host, shop: Shop) -> None:
    def unring(name: str) -> None:
        shop.log.append(f"unring {name}")

    @node(output="rang", undo=unring)
    def ring(name: str) -> str:
        shop.log.append(f"ring {name}")
        return name

    @node(output="heard")
    def hear(rang: str) -> str:
        if rang == "b":
            raise ValueError("deaf")
        return rang

    visits = Flow("visit", [ring, hear]).as_node().map_over("name", on_error="skip", max_concurrency=1)
    flow = Flow("f", [visits.with_inputs(name="names")])
    result = host.run(flow, {"names": ["a", "b", "c"]}, run_id="a")
    assert (result.status, result["heard"]) == (Status.COMPLETED, ["a", "c"])
    assert shop.log == ["ring a", "ring b", "ring c"]


def test_an_effect_under_way_is_awaited_and_undone_when_its_run_is_cancelled(url: str) -> None:
    log: list[str] = []

    def unbake(bread: str) -> None:
        log.append(f"unbake {bread}")

    async def main() -> RunResult:
        baking, may_end = asyncio.Event(), asyncio.Event()

        @node(output="bread", undo=unbake)
        async def bake(flour: str) -> str:
            baking.set()
            await may_end.wait()
            log.append("baked")
            return f"{flour} bread"

        @node(output="read")
        async def read(flour: str) -> str:
            try:
                await asyncio.sleep(3600)
            finally:
                log.append("read no more")
            return flour

        async with AsyncHost(url) as host:
            driving = asyncio.create_task(host.run(Flow("f", [bake, read]), {"flour": "rye"}, run_id="a"))
            await baking.wait()
            assert await host.cancel("a") is Status.RUNNING
            await asyncio.sleep(0.01)
            may_end.set()
            return await driving

    result = asyncio.run(main())
    assert result.status is Status.CANCELLED
    assert log == ["read no more", "baked", "unbake rye bread"]


def test_a_run_is_cancelled_by_its_node_and_undone(host: Host, shop: Shop) -> None:
    @node(output="parcel")
    def pack(charge: str, ctx: Context) -> str:
        ctx.cancel("sold out")

    flow = Flow("order", [*shop.flow().nodes[:2], pack])
    result = run(host, flow)
    assert result.status is Status.CANCELLED
    assert sorted(shop.log) == sorted(DONE + UNDONE)
    assert result.error is not None
    assert "sold out" in result.error.message


def test_a_run_that_may_still_be_undone_keeps_its_past(
    host: Host, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    space_keyframes(monkeypatch, lambda: 0)
    flow = shop.flow(undo="never")
    run(host, flow)
    assert host.retention.clean_up("a", keep=1) == 0
    host.undo("a")
    assert host.resume("a", flow).status is Status.FAILED
    assert shop.log == DONE + UNDONE
    assert host.retention.clean_up("a", keep=1) > 0


def test_a_flow_with_undo_needs_a_store_that_keeps_it(shop: Shop) -> None:
    with Host("none:") as host, pytest.raises(EverstepError, match="nothing is kept to undo by"):
        run(host, shop.flow())


@pytest.mark.parametrize(("when", "asks"), [("cancel", "cancel"), ("never", "undo"), ("both", "cancel")])
def test_a_run_that_fails_while_it_is_cancelled_is_undone_as_that_says(
    url: str, shop: Shop, when: Any, asks: str
) -> None:
    async def main() -> tuple[RunResult, str | None]:
        begun, may_end = asyncio.Event(), asyncio.Event()

        @node(output="parcel", effects="effectful", idempotency_key="auto")
        async def pack(charge: str) -> str:
            begun.set()
            await may_end.wait()
            raise ValueError("no box")

        flow = Flow("order", [*shop.flow().nodes[:2], pack], undo=when)
        async with AsyncHost(url) as host:
            driving = asyncio.create_task(host.run(flow, {"order": "A"}, run_id="a"))
            await begun.wait()
            assert await (host.cancel("a") if asks == "cancel" else host.undo("a")) is Status.RUNNING
            may_end.set()
            result = await driving
            return result, (await host.info("a")).undoing

    result, undoing = asyncio.run(main())
    assert sorted(shop.log) == sorted(DONE + UNDONE)
    assert undoing == "complete"
    assert result.status is (Status.FAILED if when == "both" else Status.CANCELLED)


def undo_later(given: str, idempotency_key: str) -> None:
    """What would undo the durable call below."""


def test_a_store_that_does_not_keep_undoing_is_refused_by_name(host: Host, shop: Shop) -> None:
    store: Any = host._host._services.store
    store.capabilities = msgspec.structs.replace(store.capabilities, undoes=False)
    with pytest.raises(
        BadRequest, match="flow 'order' has nodes that say how they are undone, and this store"
    ):
        run(host, shop.flow())
    with pytest.raises(BadRequest, match="this store does not keep that a run undoes"):
        host.start(shop.flow(), {"order": "A"}, run_id="b")

    @node(output="made")
    def make(order: str, ctx: Context) -> str:
        return ctx.step("make", str.upper, order, undo=undo_later)

    result = run(host, Flow("calls", [make]))
    assert result.error is not None
    assert "step 'make/$make' says how it is undone" in result.error.message
    assert shop.log == []
    assert host.runs(id_prefix="b") == []
    assert host.run(Flow("plain", [node(output="x")(lambda: 1).with_name("one")]))["x"] == 1


@pytest.mark.parametrize("when", ["never", "failure", "both"])
def test_an_effect_under_way_is_awaited_when_a_person_has_its_run_undone(
    url: str, shop: Shop, when: Any
) -> None:
    async def main() -> RunResult:
        begun, may_end = asyncio.Event(), asyncio.Event()

        @node(output="parcel", effects="effectful", idempotency_key="auto")
        async def pack(charge: str) -> str:
            begun.set()
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                shop.log.append("interrupted")
                raise
            shop.log.append("packed")
            return "parcel"

        flow = Flow(
            "order",
            [*shop.flow().nodes[:2], pack, node(output="x", name="close")(lambda parcel: 1)],
            undo=when,
        )
        async with AsyncHost(url) as host:
            driving = asyncio.create_task(host.run(flow, {"order": "A"}, run_id="a"))
            await begun.wait()
            assert await host.undo("a") is Status.RUNNING
            await asyncio.sleep(0.01)
            may_end.set()
            return await driving

    result = asyncio.run(main())
    assert result.status is Status.CANCELLED
    assert shop.log[2:3] == ["packed"]
    assert sorted(shop.log) == sorted([*DONE, "packed", *UNDONE])


def test_a_fork_makes_no_effect_to_undo_it_that_its_parent_had_begun(host: Host, shop: Shop) -> None:
    """What the parent announced and did not finish is its own: the fork has other keys."""

    made: list[str] = []

    @node(output="parcel", undo=lambda parcel: made.append("unpacked"))
    def pack(charge: str, idempotency_key: str = "") -> str:
        made.append("packed")
        raise KeyboardInterrupt

    @node(output="trip")
    def travel(charge: str, ctx: Context) -> str:
        return ctx.step("lodge", lodge, "inn", undo=unlodge)

    for other in (pack, travel):
        made.clear()
        LODGED.clear()
        flow = Flow("order", [*shop.flow().nodes[:2], other])
        run_id = other.name
        with pytest.raises(KeyboardInterrupt):
            run(host, flow, run_id)
        assert (made or LODGED) != []
        forked = host.fork(run_id, fork_id=f"{run_id}-fork").run_id
        count = len(made) + len(LODGED)
        host.cancel(forked)
        if not host.info(forked).status.is_final:
            host.resume(forked, flow)
        assert host.info(forked).status is Status.CANCELLED
        assert len(made) + len(LODGED) == count, "nothing more was called"


LODGED: list[str] = []


def lodge(inn: str) -> str:
    LODGED.append(inn)
    raise KeyboardInterrupt


def unlodge(inn: str, result: str) -> None:
    LODGED.append("left")


@pytest.mark.parametrize("said", ["done", "rerun"])
def test_an_effect_that_only_a_person_settles_is_settled_before_anything_is_undone(
    host: Host, shop: Shop, said: str
) -> None:
    is_first = [True]

    def call_back(truck: str) -> None:
        shop.log.append(f"call back {truck}")

    @node(output="truck", undo=call_back, on_unknown="stop")
    def send(charge: str) -> str:
        if is_first:
            is_first.clear()
            raise KeyboardInterrupt
        return "truck 4"

    flow = Flow("order", [*shop.flow().nodes[:2], send])
    with pytest.raises(KeyboardInterrupt):
        run(host, flow)
    host.cancel("a")
    halted = host.resume("a", flow)
    assert (halted.status, halted.waits[0].node) == (Status.HALTED, "send")
    assert sorted(shop.log) == sorted(DONE), "nothing is undone before"
    choice: Any = {"rerun": True} if said == "rerun" else {"done": "truck 3"}
    host.waiting.settle("a", "send", **choice)
    assert host.resume("a", flow).status is Status.CANCELLED
    sent = "truck 4" if said == "rerun" else "truck 3"
    assert shop.log[2] == f"call back {sent}"
    assert sorted(shop.log[3:]) == sorted(UNDONE)


def test_who_has_a_run_undone_answers_the_question_whether_it_is(host: Host, shop: Shop) -> None:
    flow = shop.flow(undo="ask")
    assert run(host, flow).status is Status.HALTED
    host.cancel("a")
    assert host.resume("a", flow).status is Status.HALTED  # it is asked all the same
    assert shop.log == DONE
    host.undo("a", by="ann")
    result = host.resume("a", flow)
    assert (result.status, shop.log, came_to(host)) == (Status.FAILED, DONE + UNDONE, "complete")
    assert result.error is not None
    assert result.error.message == "no box"
    assert host.waits("a", status="open") == []
    assert all(found.is_sound for found in host.storage.verify("a"))
