"""Timelines, checkpoints, visits and values of real runs, and how little is read for them."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everstep import END, AsyncHost, Context, Durability, Flow, Host, KeyRing, Retry, node, route, wait
from everstep.errors import BadRequest, RunNotFound
from everstep.results import Status, StepVisit, TimeLane, Timeline, ValueCut
from everstep.testing import ManualClock

pytestmark = pytest.mark.stores("sqlite")


@node(output="n")
def up(n: int) -> int:
    return n + 1


@route("up", END)
def again(n: int, top: int) -> str:
    return END if n >= top else "up"


counting = Flow("counting", [up, again], entry="up", durability="strong", max_steps=100_000)


@node(output="words")
def split(text: str) -> list[str]:
    return text.split()


@node(output="size")
def measure(words: str) -> int:
    if words == "bad":
        raise ValueError("a bad word")
    return len(words)


@node(output="total")
def add(size: list[Any]) -> int:
    return sum(one for one in size if isinstance(one, int))


@node(output="note")
def draft(total: int) -> str:
    return f"{total} letters"


@node(output="sent", effects="effectful", idempotency_key="auto", on_unknown="stop")
def send(note: str, approve: wait.ApprovalOutput, ctx: Context) -> str:
    ctx.spend(usd=2)
    return ctx.step("post", str.upper, note)


letters = Flow(
    "letters",
    [
        split,
        measure.map_over("words", on_error="collect", max_concurrency=1),
        add,
        Flow("writing", [draft]).as_node(),
        wait.approval("approve", context="note", timeout="3d"),
        send,
    ],
    durability="strong",
)


def lanes(told: Timeline) -> dict[str, TimeLane]:
    return {lane.node: lane for lane in told.lanes}


def values(cuts: dict[str, ValueCut]) -> dict[str, Any]:
    return {name: found.value for name, found in cuts.items()}


def test_a_halted_run_shows_its_nodes_in_order_and_its_wait_open(host: Host) -> None:
    host.run(letters, {"text": "a bad day"}, run_id="A", by="ann", comment="for Bo")
    told = host.debug.timeline("A")
    assert [(lane.node, lane.kind) for lane in told.lanes] == [
        ("split", "node"),
        ("measure", "map"),
        ("add", "node"),
        ("writing", "subflow"),
        ("writing/draft", "node"),
        ("approve", "wait"),
    ]
    [waiting] = lanes(told)["approve"].segments
    assert (waiting.kind, waiting.status, waiting.ended) == ("wait", Status.HALTED, None)
    measured = lanes(told)["measure"]
    assert measured.items is not None
    assert (measured.items.count, measured.items.completed, measured.items.failed) == (3, 2, 1)
    failed = measured.buckets[0]
    assert (failed.status.value, failed.count, failed.first_item) == ("failed", 1, "measure#1")
    assert [(mark.kind, mark.by, mark.text) for mark in told.marks] == [("start", "ann", "for Bo")]
    assert told.is_live and told.left_out is None
    assert [one.sequence for one in told.commits] == list(range(1, told.last + 1))


def test_a_run_as_it_was_tells_nothing_of_what_came_later(host: Host) -> None:
    host.run(letters, {"text": "a day"}, run_id="A")
    host.answer(host.waits("A")[0].id, {"approved": True})
    host.resume("A", letters)
    told = host.debug.timeline("A@2")
    assert (told.last, told.is_live) == (2, False)
    assert set(lanes(told)) <= {"split", "measure"}
    assert told.left_out is not None and told.left_out.checkpoints_after > 0
    whole = host.debug.timeline("A")
    assert lanes(whole)["approve"].segments[0].ended is not None
    assert (lanes(whole)["send/$post"].kind, whole.is_live) == ("unit", False)
    inside = host.debug.timeline("A/writing")
    assert set(lanes(inside)) == {"writing", "writing/draft"}


def test_a_visit_has_what_it_read_and_wrote_its_calls_and_its_costs(host: Host) -> None:
    host.run(letters, {"text": "a day"}, run_id="A")
    host.answer(host.waits("A")[0].id, {"approved": True}, by="bo", comment="fine")
    host.resume("A", letters)
    sent = host.debug.visit("A", "send")
    assert (sent.address, sent.status, sent.path) == ("send@1", Status.COMPLETED, "send")
    assert sent.inputs["note"].value == "4 letters" and values(sent.outputs) == {"sent": "4 LETTERS"}
    assert sent.outputs["sent"].name == "sent" and sent.inputs["note"].version == 1
    assert [child.key for child in sent.inputs["approve"].children or []][:1] == ["approved"]
    assert [(unit.name, unit.status.value) for unit in sent.units] == [("$post", "completed")]
    assert {name: str(amount) for name, amount in (sent.spent or {}).items()} == {"usd": "2"}
    assert sent.idempotency_key and len(sent.record) >= 2
    assert sent.record[0].status is Status.RUNNING
    unit = host.debug.visit("A", sent.units[0].address)
    assert unit.status is Status.COMPLETED
    approved = host.debug.visit("A", "approve")
    assert approved.wait is not None and approved.act is not None and approved.act.by == "bo"
    item = host.debug.visit("A", "measure#1")
    assert values(item.outputs) == {"size": 3}
    mapped = host.debug.visit("A", "measure")
    assert mapped.items is not None and (mapped.items.count, mapped.items.completed) == (2, 2)
    assert mapped.outputs["size"].count == 2
    assert values(host.debug.visit("A", "writing/draft").inputs) == {"total": 4}
    assert values(host.debug.visit("A/writing", "draft").inputs) == {"total": 4}
    bare = host.debug.visit("A", "send", values=False)
    assert (bare.inputs, bare.outputs, bare.status) == ({}, {}, Status.COMPLETED)


def test_a_visit_has_all_its_attempts_and_the_versions_before(host: Host) -> None:
    tried = Counter[str]()

    @node(output="n", retry=Retry(3, first=0))
    def shaky(n: int) -> int:
        tried["shaky"] += 1
        if tried["shaky"] in (2, 3):
            raise ConnectionError(f"try {tried['shaky']}")
        return n + 10

    @route("shaky", END)
    def on(n: int) -> str:
        return END if n >= 20 else "shaky"

    flow = Flow("shaking", [shaky, on], entry="shaky", durability="strong")
    assert host.run(flow, {"n": 0}, run_id="A").status == "completed"
    first, second = host.debug.visit("A", "shaky@1"), host.debug.visit("A", "shaky")
    assert (first.visit, second.visit) == (1, 2)
    assert [(one.attempt, one.status.value) for one in second.attempts] == [
        (1, "retrying"),
        (2, "retrying"),
        (3, "completed"),
    ]
    assert [one.error.message for one in second.attempts if one.error] == ["try 2", "try 3"]
    assert "ConnectionError" in (second.attempts[0].error.traceback if second.attempts[0].error else "")
    assert values(second.inputs) == {"n": 10} == values(second.before)
    assert values(second.outputs) == {"n": 20}
    assert second.began_checkpoint < second.checkpoint
    failing = host.debug.visit("A", "shaky@2", at=second.began_checkpoint)
    assert (failing.status, failing.outputs) == (Status.RETRYING, {})
    assert failing.error is not None and failing.error.message == "try 2"
    gate = host.debug.visit("A", "on@1")
    assert gate.decision == ("shaky",)


def test_a_visit_that_was_not_made_is_refused(host: Host) -> None:
    host.run(counting, {"n": 0, "top": 2}, run_id="A")
    for address, said in (("up@7", "was not reached"), ("down", "no part"), ("up@2#1", "no ")):
        with pytest.raises(RunNotFound, match=said):
            host.debug.visit("A", address)
    with pytest.raises(BadRequest):
        host.debug.visit("A", "up@@")
    with pytest.raises(RunNotFound, match="was not reached"):
        host.debug.visit("A", "up@2", at=2)


def test_checkpoints_are_listed_from_both_ends(host: Host) -> None:
    host.run(counting, {"n": 0, "top": 4}, run_id="A")
    newest = host.debug.checkpoints("A", limit=3)
    assert [one.sequence for one in newest.checkpoints] == [9, 8, 7] and newest.next == 7
    seen = [one.sequence for one in newest.checkpoints]
    before: int | None = newest.next
    while before is not None:
        page = host.debug.checkpoints("A", before=before, limit=4)
        seen += [one.sequence for one in page.checkpoints]
        before = page.next
    assert seen == list(range(9, 0, -1))
    first = host.debug.checkpoints("A", after=0, limit=5)
    assert [one.sequence for one in first.checkpoints] == [1, 2, 3, 4, 5] and first.next == 5
    assert first.checkpoints[1].nodes == ["up@1"]
    assert host.debug.checkpoints("A", after=5, limit=5).next is None


class Reads:
    """Counts how many records of a store are read."""

    def __init__(self, host: AsyncHost) -> None:
        self.records = 0
        store: Any = host._services.store
        for name in ("get", "tail"):
            setattr(store, name, self._counted(getattr(store, name)))

    def _counted(self, call: Any) -> Any:
        async def counted(*args: Any, **named: Any) -> Any:
            found = await call(*args, **named)
            self.records += len(found)
            return found

        return counted

    def since(self) -> int:
        found, self.records = self.records, 0
        return found


@pytest.mark.slow
def test_of_a_long_run_a_bounded_part_is_read_and_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncHost(f"sqlite:///{tmp_path}/runs.db") as host:
            result = await host.run(counting, {"n": 0, "top": 3000}, run_id="L")
            assert result.status == "completed"
            reads, newest = Reads(host), (await host.info("L")).checkpoints
            told = await host.debug.timeline("L")
            assert reads.since() < 2400
            assert (told.first, told.last) == (newest - 1999, newest)
            assert sum(len(lane.segments) for lane in told.lanes) == 300
            assert sum(one.count for lane in told.lanes for one in lane.segments) == 2000
            assert len(told.commits) == 300
            assert told.left_out is not None
            assert (told.left_out.checkpoints_before, told.left_out.commits) == (told.first - 1, 1700)
            few = await host.debug.timeline("L", at=3000, most=10)
            assert reads.since() < 2400
            assert (few.first, few.last) == (2001, 4000)
            assert sum(len(lane.segments) for lane in few.lanes) == 10
            middle = (await host.debug.checkpoints("L", after=2999, limit=10)).checkpoints
            assert reads.since() <= 12
            window = await host.debug.timeline("L", since=middle[0].created_at, until=middle[-1].created_at)
            assert (window.first, window.last) == (3000, 3009)
            assert reads.since() < 200
            visit = await host.debug.visit("L", "up@1500", at=3000)
            assert (visit.visit, values(visit.inputs)) == (1500, {"n": 1499})
            assert reads.since() < 400
            listed = await host.debug.values("L", at=3000)
            assert values(listed.values)["n"] == 1500 and reads.since() < 200

    asyncio.run(main())


def test_what_waits_since_before_the_stretch_is_told(tmp_path: Path) -> None:
    flow = Flow(
        "both",
        [wait.approval("sign"), up, again],
        entry=["sign", "up"],
        durability="strong",
        max_steps=10_000,
    )

    async def main() -> None:
        async with AsyncHost(f"sqlite:///{tmp_path}/runs.db") as host:
            await host.run(flow, {"n": 0, "top": 1200}, run_id="L")
            told = await host.debug.timeline("L")
            assert told.first > 100
            [waiting] = lanes(told)["sign"].segments
            assert (waiting.kind, waiting.ended) == ("wait", None)
            [opened] = await host.waits("L")
            assert abs(waiting.began - opened.opened_at) < timedelta(seconds=5)

    asyncio.run(main())


def test_who_goes_on_with_a_run_whose_process_died_is_marked(host: Host) -> None:
    dies = [True]

    @node(output="b")
    def fragile(words: list[str]) -> int:
        if dies.pop() if dies else False:
            raise KeyboardInterrupt
        return len(words)

    flow = Flow("fragile", [split, fragile], durability="strong")
    with pytest.raises(KeyboardInterrupt):
        host.run(flow, {"text": "a day"}, run_id="A")
    host.resume("A", flow)
    marks = [mark for mark in host.debug.timeline("A").marks if mark.kind == "takeover"]
    assert len(marks) == 1 and marks[0].worker is not None and " on " in marks[0].worker
    told = host.history("A")[marks[0].sequence - 1]
    assert told.metadata is not None and told.metadata["@owner"]["epoch"] == 2


def test_a_run_that_went_on_without_a_death_has_no_such_mark(host: Host) -> None:
    host.run(letters, {"text": "a day"}, run_id="A")
    host.answer(host.waits("A")[0].id, {"approved": True})
    host.resume("A", letters)
    assert {mark.kind for mark in host.debug.timeline("A").marks} == {"start"}


def test_a_fork_tells_of_what_it_shares_and_where_it_began(host: Host) -> None:
    host.run(counting, {"n": 0, "top": 3}, run_id="A")
    host.fork("A", at=4, fork_id="B")
    host.resume("B", counting)
    told = host.debug.timeline("B")
    assert [(mark.kind, mark.sequence) for mark in told.marks] == [("start", 1), ("fork", 5)]
    assert told.first == 1 and lanes(told)["up"].visits == 3
    assert host.debug.visit("B", "up@1").checkpoint == 2


def test_of_a_trimmed_run_what_is_left_is_told(host: Host) -> None:
    host.run(counting, {"n": 0, "top": 30}, run_id="A")
    host.retention.clean_up("A", keep=1)
    oldest = host.info("A").trimmed_before
    assert oldest > 1
    told = host.debug.timeline("A")
    assert told.first == oldest and told.left_out is not None and told.left_out.removed == oldest - 1
    page = host.debug.checkpoints("A")
    assert page.next is None and page.checkpoints[-1].sequence == oldest
    with pytest.raises(RunNotFound):
        host.debug.visit("A", "up@1")


def test_a_paused_run_says_so(host: Host) -> None:
    host.run(letters, {"text": "a day"}, run_id="A")
    host.fleet.pause("A", by="ann", comment="a look")
    marks = host.debug.timeline("A").marks
    assert [(mark.kind, mark.by, mark.text) for mark in marks][-1] == ("pause", "ann", "a look")


@pytest.fixture
def halves(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


def test_without_the_key_all_but_values_and_words_is_shown(halves: str) -> None:
    @node(output="b")
    def broken(words: list[str]) -> int:
        raise ValueError("a secret word")

    flow = Flow("secret", [split, broken], durability="strong")
    with Host(halves, encrypt=KeyRing({"k1": b"1" * 32})) as host:
        host.run(flow, {"text": "a day"}, run_id="A", by="ann")
    with Host(halves) as host:
        told = host.debug.timeline("A")
        assert [lane.node for lane in told.lanes] == ["split", "broken"]
        assert told.marks[0].by == "(encrypted with the key 'k1')"
        visit = host.debug.visit("A", "broken")
        assert [found.state for found in visit.inputs.values()] == ["encrypted"]
        assert visit.error is not None and "secret" not in visit.error.message
        assert {found.state for found in host.debug.values("A").values.values()} == {"encrypted"}


@node(output="page")
def write(n: int) -> str:
    return "é" * (n * 1000)


@node(output="picture")
def paint(n: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + bytes(n)


@node(output="table")
def tabulate(n: int) -> list[dict[str, int]]:
    return [{"row": k, "square": k * k} for k in range(n * 100)]


@node(output="gone", persist="no")
def forget(n: int) -> int:
    return n


pages = Flow(
    "pages", [write, paint, tabulate, forget], durability=Durability("strong", blob_threshold=10_000)
)


def test_values_are_cut_and_artifacts_left_where_they_are(host: Host) -> None:
    host.run(pages, {"n": 9}, run_id="A")
    blobs: Any = host._host._services.blobs
    fetched = []
    fetch = blobs.get_checkpoint_blob

    def noted(ref: Any) -> Any:
        fetched.append(ref)
        return fetch(ref)

    blobs.get_checkpoint_blob = noted
    listed = host.debug.values("A")
    visit = host.debug.visit("A", "write")
    assert fetched == []
    assert {name: found.state for name, found in listed.values.items()} == {
        "n": "ok",
        "page": "artifact",
        "picture": "ok",
        "table": "artifact",
        "gone": "not_kept",
    }
    assert (visit.outputs["page"].state, visit.outputs["page"].size) == ("artifact", 18_003)
    picture = listed.values["picture"]
    assert (picture.mime, picture.shape, picture.count) == ("image/png", "image", 17)
    page = host.debug.values("A", "page", start=8_990, count=100).values["page"]
    assert (page.value, page.start, page.count) == ("é" * 10, 8_990, 9_000) and len(fetched) == 1
    table = host.debug.values("A", "table", start=895, count=10).values["table"]
    assert (table.shape, table.columns, table.count) == ("table", ["row", "square"], 900)
    assert len(table.children or []) == 5
    cell = host.debug.values("A", "table", pointer="/30/square").values["table"]
    assert (cell.value, cell.pointer, cell.name) == (900, "/30/square", "table")
    with pytest.raises(RunNotFound):
        host.debug.values("A", "nothing")


def test_a_version_that_was_overwritten_is_found_near_the_step_that_read_it(host: Host) -> None:
    host.run(counting, {"n": 0, "top": 5}, run_id="A")
    assert host.debug.values("A", "n", at=4, version=1).values["n"].value == 0
    with pytest.raises(RunNotFound, match="no version 6"):
        host.debug.values("A", "n", at=4, version=6)


def test_a_value_is_given_as_a_file(host: Host) -> None:
    host.run(pages, {"n": 2}, run_id="A")
    picture = host.debug.raw_value("A", "picture")
    assert (picture.data[:4], picture.content_type, picture.is_image) == (b"\x89PNG", "image/png", True)
    page = host.debug.raw_value("A", "page")
    assert page.data.decode() == "é" * 2000 and page.content_type.startswith("text/plain")
    row = host.debug.raw_value("A", "table", pointer="/3")
    assert (row.content_type, row.data) == ("application/json", b'{\n  "row": 3,\n  "square": 9\n}')


def test_a_running_node_is_under_way_while_its_process_lives(tmp_path: Path) -> None:
    async def main() -> None:
        started, go_on = asyncio.Event(), asyncio.Event()

        @node(output="slow")
        async def slow(words: list[str]) -> int:
            started.set()
            await go_on.wait()
            return len(words)

        clock = ManualClock()
        flow = Flow("slow", [split, slow], durability="strong")
        async with AsyncHost(f"sqlite:///{tmp_path}/runs.db", clock=clock) as host:
            driving = asyncio.create_task(host.run(flow, {"text": "a day"}, run_id="A"))
            await started.wait()
            told = await host.debug.timeline("A")
            [segment] = lanes(told)["slow"].segments
            assert (segment.kind, segment.status, segment.address) == ("under_way", Status.RUNNING, "slow@1")
            go_on.set()
            await driving
            assert isinstance(await host.debug.visit("A", "slow"), StepVisit)

    asyncio.run(main())
