"""What the commands draw of inner flows, maps, groups, the channel and tasks."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from everstep import Context, Flow, Host, ifelse, node, parallel
from everstep.cli.args.inputs import gather_channel
from everstep.cli.commands.runs.state import is_within
from everstep.cli.commands.runs.step import Search
from everstep.cli.commands.travel.diff import apart
from everstep.cli.live.progress import Lines
from everstep.cli.live.tree import LiveTree
from everstep.cli.view.groups import Groups, members_of
from everstep.cli.view.lookup import Lookup
from everstep.cli.view.outline import gathered
from everstep.cli.view.step_line import said
from everstep.client.diff import NodeChange
from everstep.client.documents import StateDocument
from everstep.client.outline import node_at, split_pending
from everstep.client.projection import Fold, ItemsInfo, LogLine, Maps, fold, inside, lines, name_of
from everstep.errors import BadRequest, InputError
from everstep.graph.author.joins import JoinNode
from everstep.graph.draw.outline import outline
from everstep.model.enums import Status
from everstep.model.records import CheckpointRecord, StepRecord
from everstep.results import as_json
from everstep.runtime.events import Event


@node(output="text")
def begin(topic: str, text: str = "") -> str:
    return text + topic


@node(output="vector")
def embed(text: str) -> list[int]:
    return [len(text)]


@node(output="docs")
def find(vector: list[int]) -> list[str]:
    return [f"doc {k}" for k in range(vector[0])]


@ifelse(when_true="begin", when_false="list_up")
def again(docs: list[str]) -> bool:
    return len(docs) < 2


@node(output="raws")
def list_up(count: int) -> list[str]:
    return [f"item {k}" for k in range(count)]


@node(output="clean")
def strip(raw: str) -> str:
    return raw.strip()


@node(output="size")
def measure(clean: str) -> int:
    if clean in ("item 3", "item 5"):
        raise ValueError(f"no {clean}")
    return len(clean)


@node(output="total")
def add_up(size: list[Any], ctx: Context) -> int:
    ctx.channel.append("notes", "added up")
    ctx.channel.atomic_add("sums", 2)
    ctx.channel.delete("old")
    ctx.next_task(mail, to="ann", priority=3)
    return len(size)


@node
def mail(to: str) -> str:
    return f"mailed {to}"


@node
async def quick(total: int) -> str:
    return "quick"


@node
async def broken(total: int) -> str:
    raise OSError("no route")


RAG = Flow("rag", [embed, find])
CHECK = Flow("check", [strip, measure])
SHAPES = Flow(
    "shapes",
    [
        begin,
        RAG.as_node(),
        again,
        list_up,
        CHECK.as_node().with_inputs(raw="raws").map_over("raw", on_error="collect", max_concurrency=1),
        add_up >> parallel(quick, broken, policy="best_effort", name="both"),
    ],
    entry="begin",
    tasks=[mail],
    durability="strong",
    max_concurrency=1,
)


@pytest.fixture
def host() -> Iterator[Host]:
    with Host("memory:") as opened:
        opened.run(SHAPES, {"topic": "a", "count": 8}, run_id="r1", channel={"old": 1}).raise_for_status()
        yield opened


def event(kind: Any, name: str = "", visit: int = 1, attempt: int = 1, **data: object) -> Event:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Event(kind=kind, run_id="r1", at=at, node=name, visit=visit, attempt=attempt, data=data)


# -- the tree of steps ------------------------------------------------------------------------------------


def test_inner_steps_stand_below_their_flow_and_items_in_one_line(host: Host) -> None:
    drawn = [
        f"{'  ' * line.depth}{line.name if isinstance(line, LogLine) else 'items'}"
        for line in lines(host.history("r1"), full=False)
    ]
    assert drawn[:9] == [
        "inputs",
        "begin@1",
        "rag@1",
        "  embed@1",
        "  find@1",
        "rag@1",
        "again@1",
        "begin@2",
        "rag@2",
    ]
    at = drawn.index("check@1")
    assert drawn[at : at + 3] == ["check@1", "  items", "check@1"]


def test_the_line_of_items_counts_them_and_names_those_that_failed(host: Host) -> None:
    [found] = [line for line in lines(host.history("r1"), full=False) if isinstance(line, Fold)]
    assert (found.items.completed, len(found.items.failed)) == (6, 2)
    assert found.first.sequence < found.last.sequence
    assert [inside(step) for step in found.items.failures] == ["#3/measure@1", "#5/measure@1"]


def test_every_item_has_its_lines_if_all_are_wanted(host: Host) -> None:
    names = [line.name for line in lines(host.history("r1"), full=True) if isinstance(line, LogLine)]
    assert [name for name in names if name.startswith("#7")] == ["#7/strip@1", "#7/measure@1", "#7"]


def test_a_step_whose_flow_is_not_right_above_has_its_whole_address() -> None:
    @node(output="one")
    async def first(x: int) -> int:
        return x

    @node(output="two")
    async def second(one: int) -> int:
        return one

    inner = Flow("inner", [first, second])
    both = [inner.as_node(name=name).with_outputs(one=f"{name}1", two=f"{name}2") for name in ("a", "b")]
    with Host("memory:") as host:
        host.run(Flow("beside", both, durability="strong"), {"x": 1}, run_id="r").raise_for_status()
        names = [line.name for line in lines(host.history("r"), full=False) if isinstance(line, LogLine)]
    for flow in ("a", "b"):
        assert any(name in names for name in (f"{flow}@1/first@1", f"{flow}@1/second@1"))


def told(host: Host, wanted: str) -> str:
    """Return what the log says of the last attempt at a step."""
    records = host.history("r1")
    maps, groups = Maps(), Groups(host.state("r1").plan)
    step = found_steps(records, wanted)[-1]
    for earlier in (s for r in records for s in r.steps):
        maps.take(earlier)
        if earlier is step:
            break
        groups.take(earlier)
    return said(step, Lookup(host, "r1", [step]), maps, groups.outcome(step))


def found_steps(records: list[CheckpointRecord], wanted: str) -> list[StepRecord]:
    return [step for _, step in Search([records], wanted).steps([records])]


@pytest.mark.parametrize(
    ("step", "text"),
    [
        ("inputs", "topic = 'a', count = 8; channel: old = 1"),
        ("rag@2/embed", "vector = [2]"),
        ("rag@1", "gives vector, docs"),
        ("check#3/measure", "✗ ValueError: no item 3"),
        ("check#7", "completed"),
        ("mail", "returns 'mailed ann'"),
        ("broken", "✗ OSError: no route"),
        ("both", "join of quick (completed), broken (failed)"),
        ("again@1", "→ begin"),
    ],
)
def test_the_log_says_what_a_step_did(host: Host, step: str, text: str) -> None:
    assert told(host, step) == text


def test_the_log_tells_channel_and_tasks_apart_from_values(host: Host) -> None:
    assert told(host, "add_up") == (
        "total = 8; channel: notes = ['added up'], sums = 2, old deleted; "
        "queues mail(to='ann') with priority 3"
    )
    assert told(host, "check").startswith("8 items, 2 failed, clean = ['item 0', ")


def test_nodes_of_a_run_are_folded_as_a_tree_with_maps_in_one_line(host: Host) -> None:
    nodes = fold(host.history("r1"), [place.name for place in outline(SHAPES.plan)])
    names = [line.name for line in nodes]
    assert names[:4] == ["begin", "rag", "rag/embed", "rag/find"]
    assert not any(name.startswith("check/") for name in names)
    by_name = {line.name: line for line in nodes}
    assert by_name["rag/embed"].visits == 2
    check = by_name["check"]
    assert check.info(is_pending=False).items == ItemsInfo(count=8, completed=6, failed=2)
    assert check.visits == 1


def test_nodes_inside_a_flow_that_was_not_reached_are_not_listed() -> None:
    assert [line.name for line in fold([], ["rag", "rag/embed"])] == ["rag"]


def test_steps_inside_are_found_by_address(host: Host) -> None:
    records = host.history("r1")
    for wanted, name in [("rag/embed", "rag@2/embed@1"), ("check#5", "check@1#5"), ("rag@1", "rag@1")]:
        assert {name_of(step) for step in found_steps(records, wanted)} == {name}
    assert found_steps(records, "check/measure") == []


# -- outline and what comes next --------------------------------------------------------------------------


def test_outline_has_what_is_inside_a_flow_below_it_but_nothing_of_items_and_tasks_last() -> None:
    names = [place.name for place in outline(SHAPES.plan)]
    at = names.index("rag")
    assert names[at : at + 3] == ["rag", "rag/embed", "rag/find"]
    assert "check/strip" not in names
    assert names[-1] == "mail"
    assert node_at(SHAPES.plan, "check/strip") is not None
    assert node_at(SHAPES.plan, "unknown/strip") is None


def test_of_a_flow_under_way_what_is_inside_comes_next() -> None:
    pending = ["rag", "again", "rag@2/find", "rag@2/embed"]
    assert split_pending(SHAPES.plan, pending) == (["rag@2/embed"], ["again", "rag@2/find"])
    assert split_pending(SHAPES.plan, ["check"]) == (["check"], [])
    items = ["check", "check#4/strip", "check#5/strip", "check#5/measure"]
    coming, waiting = split_pending(SHAPES.plan, items)
    assert (coming, waiting) == (["check#4/strip", "check#5/strip"], ["check#5/measure"])
    assert gathered(["begin", *coming]) == ["begin", "check (2 items)"]


def test_a_join_says_whom_it_waits_for() -> None:
    first = parallel(quick, broken, join="first_success", name="race")
    plan = Flow("race", [first]).plan
    found = plan.nodes[plan.index["race"]]
    assert isinstance(found, JoinNode)
    assert members_of(found) == "joins quick, broken: the first success"


# -- progress ---------------------------------------------------------------------------------------------


def drawn(tree: LiveTree) -> list[str]:
    console = Console(file=io.StringIO(), width=120, height=40)
    with console.capture() as capture:
        console.print(tree.draw())
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def line_of(tree: LiveTree, name: str) -> str:
    return next(line for line in drawn(tree) if name in line.split())


@pytest.fixture
def tree() -> Iterator[LiveTree]:
    opened = LiveTree(SHAPES, Console(file=io.StringIO(), width=120, height=40))
    opened(event("run_started", flow="shapes"))
    yield opened
    opened.stop()


def test_live_tree_shows_inner_steps_and_begins_anew_with_each_visit(tree: LiveTree) -> None:
    tree(event("step_started", "rag"))
    tree(event("step_started", "rag/embed"))
    tree(event("step_completed", "rag/embed", seconds=0.5))
    assert line_of(tree, "embed") == "├─ ✓ embed 500 ms"
    tree(event("step_completed", "rag", seconds=1))
    tree(event("step_started", "rag", visit=2))
    assert line_of(tree, "embed") == "├─ · embed"
    assert line_of(tree, "rag").endswith("×2")
    tree(event("step_started", "rag@2/embed"))
    assert line_of(tree, "embed").startswith("├─ ▶ embed")


def test_live_tree_has_one_line_for_a_map_however_many_items(tree: LiveTree) -> None:
    height = len(drawn(tree))
    tree(event("step_started", "check", items=1000))
    for k in range(250):
        tree(event("step_started", f"check#{k}/strip"))
        tree(event("step_completed", f"check#{k}/strip", seconds=0.1))
        tree(event("step_completed", f"check#{k}"))
    tree(event("step_failed", "check#300/measure", seconds=0.1, error="ValueError: no"))
    tree(event("step_failed", "check#300", error="ValueError: no"))
    assert len(drawn(tree)) == height
    assert "251 of 1,000 items, 1 failed check#300: ValueError: no" in line_of(tree, "check")
    assert line_of(tree, "check").count("━") > 0
    tree(event("step_completed", "check", seconds=2.5))
    assert line_of(tree, "check") == "├─ ✓ check 2.50 s 251 of 1,000 items, 1 failed"


def test_live_tree_shows_the_items_of_a_node_too() -> None:
    each = strip.with_inputs(raw="raws").map_over("raw")
    tree = LiveTree(Flow("leaf", [each]), Console(file=io.StringIO(), width=120, height=40))
    tree(event("step_started", "strip", items=2))
    tree(event("step_completed", "strip#1", seconds=0.1))
    assert "1 of 2 items" in line_of(tree, "strip")
    tree.stop()


def test_live_tree_shows_cancelled_members_and_why_a_tolerated_one_failed(tree: LiveTree) -> None:
    tree(event("step_started", "quick"))
    tree(event("step_cancelled", "quick"))
    assert line_of(tree, "quick") == "├─ ⊘ quick cancelled"
    tree(event("step_failed", "broken", seconds=0.1, error="OSError: no route"))
    assert line_of(tree, "broken").endswith("OSError: no route")
    assert line_of(tree, "both").endswith("joins quick, broken")
    assert line_of(tree, "mail") == "└─ · mail task"


def test_live_tree_of_a_resumed_run_knows_how_far_a_map_was(host: Host, tree: LiveTree) -> None:
    records = host.history("r1")
    at = next(r.sequence for r in records for s in r.steps if s.path == "check#4")
    tree.recall(lambda: host.state("r1", at=at))
    assert "5 of 8 items, 1 failed" in line_of(tree, "check")
    assert line_of(tree, "list_up") == "├─ – list_up done before"
    inner = next(r.sequence for r in records for s in r.steps if s.path == "rag@2/embed")
    tree.recall(lambda: host.state("r1", at=inner))
    assert line_of(tree, "embed") == "├─ – embed done before"


def test_lines_tell_of_a_map_at_every_tenth_and_of_each_failure(capsys: pytest.CaptureFixture[str]) -> None:
    watcher = Lines(SHAPES)
    watcher(event("step_started", "check", items=200))
    for k in range(200):
        watcher(event("step_completed", f"check#{k}/strip", seconds=0.1))
        if k == 13:
            watcher(event("step_failed", f"check#{k}/measure", seconds=0.1, error="ValueError: no"))
        watcher(event("step_failed" if k in (13, 14) else "step_completed", f"check#{k}", error="E: x"))
    watcher(event("step_cancelled", "quick"))
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "  ▶ check  goes over 200 items"
    assert said[1:4] == [
        "  ✗ check#13/measure  ValueError: no",
        "  ✗ check#14  E: x",
        "    check  20 of 200 items, 2 failed",
    ]
    assert said[-2:] == ["    check  180 of 200 items, 2 failed", "  ⊘ quick  cancelled"]
    assert len(said) == 13


def test_lines_of_a_resumed_run_go_on_counting(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    at = next(r.sequence for r in host.history("r1") for s in r.steps if s.path == "check#4")
    watcher = Lines(SHAPES)
    watcher.recall(lambda: host.state("r1", at=at))
    watcher(event("step_failed", "check#5", error="E: x"))
    assert capsys.readouterr().err == "  ✗ check#5  E: x\n"


# -- state, diff, channel ---------------------------------------------------------------------------------


def test_a_name_means_a_value_a_flow_an_item_or_the_channel() -> None:
    names = ["docs", "rag@2/docs", "check#7/size", "check#70/size", "@channel/a/b", "@task/1/to"]

    def within(name: str) -> list[str]:
        return [value for value in names if is_within(value, name)]

    assert within("docs") == ["docs"]
    assert within("rag") == within("rag@2") == within("rag/docs") == within("rag@2/docs") == ["rag@2/docs"]
    assert within("check") == ["check#7/size", "check#70/size"]
    assert within("check#7") == ["check#7/size"]
    assert within("channel") == within("a/b") == ["@channel/a/b"]
    assert within("rag@1") == within("nothing") == []


def test_json_of_a_state_has_the_channel_by_key_and_tasks_with_their_arguments(host: Host) -> None:
    at = next(r.sequence for r in host.history("r1") for s in r.steps if s.path == "add_up")
    found = host.state("r1", at=at)
    shown = as_json(StateDocument.of(found, {name: found[name] for name in found}, found.__getitem__))
    assert shown["channel"] == {"notes": ["added up"], "sums": 2}
    assert shown["queued"] == [
        {"number": 1, "node": "mail", "priority": 3, "asked_by": "add_up", "arguments": {"to": "ann"}}
    ]
    assert shown["values"]["rag@2/docs"] == ["doc 0", "doc 1"]
    assert not any(name.startswith("@") for name in shown["values"])


def test_changes_inside_many_items_are_told_apart() -> None:
    def change(path: str) -> NodeChange:
        return NodeChange(path, (0, 1), (None, Status.COMPLETED))

    few = [change(f"check#{k}/strip") for k in range(3)]
    assert apart([change("begin"), *few]) == ([change("begin"), *few], {})
    many = [change(f"check#{k}/strip") for k in range(4)]
    assert apart([change("begin"), *many]) == ([change("begin")], {"check#…/strip": many})


def test_entries_of_the_channel_are_read_by_their_declared_type() -> None:
    flow = Flow("f", [strip], channel={"user": str, "sums": int})
    assert gather_channel(flow, []) is None
    given = gather_channel(flow, ["user=1", "sums=2", "a=b=c", "list=[1]"])
    assert given == {"user": "1", "sums": 2, "a": "b=c", "list": [1]}
    for pairs, error in [(["user"], BadRequest), (["=1"], BadRequest), (["a=1", "a=2"], BadRequest)]:
        with pytest.raises(error):
            gather_channel(flow, pairs)
    with pytest.raises(InputError, match="--channel sums=x is not a whole number"):
        gather_channel(flow, ["sums=x"])
