"""Forks, comparisons, replays and recalled values inside flows, maps, the channel and tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from everstep import Context, Flow, Host, ItemError, ifelse, node, parallel
from everstep.errors import BadRequest, RunNotFound
from everstep.model.enums import Status
from everstep.model.records import CheckpointRecord, StepRecord

pytestmark = pytest.mark.stores("memory")

calls: list[str] = []
broken: set[str] = set()


@pytest.fixture(autouse=True)
def fresh() -> None:
    calls.clear()
    broken.clear()


@node(output="vector")
def embed(text: str) -> list[int]:
    calls.append("embed")
    return [len(text)] * (2 if "embed" in broken else 1)


@node(output="docs")
def find(vector: list[int], limit: int = 1) -> list[str]:
    calls.append("find")
    if "find" in broken:
        raise ValueError("no index")
    return [f"doc {k}" for k in range(sum(vector) * limit)]


RAG = Flow("rag", [embed, find])


@node(output="answer")
def write(docs: list[str]) -> str:
    calls.append("write")
    return ", ".join(docs)


ASK = Flow("ask", [RAG.as_node(), write], durability="strong")


@node(output="text")
def begin(topic: str, text: str = "") -> str:
    return text + topic


@ifelse(when_true="begin", when_false="write")
def is_short(docs: list[str]) -> bool:
    return len(docs) < 3


LOOP = Flow("loop", [begin, RAG.as_node(), is_short, write], entry="begin", durability="strong")


@node(output="clean")
def strip(raw: str) -> str:
    calls.append(f"strip {raw}")
    return raw.strip()


@node(output="size")
def measure(clean: str, ctx: Context) -> int:
    calls.append(f"measure {clean}")
    ctx.channel.append("seen", clean)
    ctx.channel.atomic_add("total", len(clean))
    if clean in broken:
        raise ValueError(f"no {clean}")
    return len(clean) * (10 if "measure" in broken else 1)


CHECK = Flow("check", [strip, measure])
MANY = Flow(
    "many",
    [CHECK.as_node().with_inputs(raw="raws").map_over("raw", on_error="stop", max_concurrency=1)],
    durability="strong",
)
LEAF = Flow("leaf", [strip.with_inputs(raw="raws").map_over("raw", max_concurrency=1)], durability="strong")


def steps_of(records: list[CheckpointRecord]) -> Iterator[tuple[CheckpointRecord, StepRecord]]:
    yield from ((record, step) for record in records for step in record.steps)


def checkpoint_of(host: Host, run: str, path: str, status: Status = Status.COMPLETED) -> int:
    """Return the checkpoint that holds a step."""
    found = [r.sequence for r, s in steps_of(host.history(run)) if (s.path, s.status) == (path, status)]
    return found[0]


# -- forks ------------------------------------------------------------------------------------------------


def test_a_value_inside_an_open_flow_is_edited_and_only_its_readers_run_again(host: Host) -> None:
    host.run(ASK, {"text": "abc"}, run_id="run")
    at = checkpoint_of(host, "run", "rag/embed")
    calls.clear()
    fork = host.fork("run", at=at, state={"rag/vector": [5]})
    result = host.resume(fork.run_id, ASK)
    assert result["docs"] == [f"doc {k}" for k in range(5)]
    assert calls == ["find", "write"]
    assert host.run(ASK, run_id="run")["docs"] == ["doc 0", "doc 1", "doc 2"]


def test_an_input_of_an_open_flow_is_edited(host: Host) -> None:
    host.run(ASK, {"text": "abc"}, run_id="run")
    at = checkpoint_of(host, "run", "rag/embed")
    fork = host.fork("run", at=at, state={"rag/text": "ab"})
    assert host.resume(fork.run_id, ASK)["docs"] == ["doc 0", "doc 1"]
    assert host.debug.recall(fork.run_id, [("rag/text", 1), ("rag/text", 2)]) == {
        ("rag/text", 1): "abc",
        ("rag/text", 2): "ab",
    }


def test_an_edit_inside_a_failed_flow_fixes_it(host: Host) -> None:
    broken.add("find")
    assert host.run(ASK, {"text": "abc"}, run_id="run").status is Status.FAILED
    broken.clear()
    fork = host.fork("run", state={"rag/vector": [1]})
    assert host.resume(fork.run_id, ASK)["answer"] == "doc 0"


def test_a_visit_may_be_left_out_and_is_the_open_one(host: Host) -> None:
    host.run(LOOP, {"topic": "a"}, run_id="run")
    at = checkpoint_of(host, "run", "rag@2/embed")
    for name in ("rag/vector", "rag@2/vector"):
        fork = host.fork("run", at=at, state={name: [9]})
        assert len(host.resume(fork.run_id, LOOP)["docs"]) == 9
    with pytest.raises(BadRequest, match="visit 2 of rag was open, not 1"):
        host.fork("run", at=at, state={"rag@1/vector": [9]})
    with pytest.raises(BadRequest, match="edited twice"):
        host.fork("run", at=at, state={"rag/vector": [9], "rag@2/vector": [8]})


def test_an_item_of_a_map_of_flows_is_edited(host: Host) -> None:
    broken.add("b")
    assert host.run(MANY, {"raws": ["a ", "b", "c"]}, run_id="run").status is Status.FAILED
    calls.clear()
    fork = host.fork("run", state={"check#1/clean": "dd"})
    result = host.resume(fork.run_id, MANY)
    assert (result["size"], result["clean"]) == ([1, 2, 1], ["a", "dd", "c"])
    assert calls == ["measure dd", "strip c", "measure c"]


def test_an_item_that_has_not_begun_is_edited(host: Host) -> None:
    host.run(LEAF, {"raws": ["a", "b", "c"]}, run_id="run")
    at = checkpoint_of(host, "run", "strip#0")
    fork = host.fork("run", at=at, state={"strip#2/raw": " z "})
    assert host.resume(fork.run_id, LEAF)["clean"] == ["a", "b", "z"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("rag/vektor", "flow 'rag' has no value 'vektor'. Did you mean 'vector'"),
        ("rga/vector", "the flow has no flow 'rga'. Did you mean 'rag'"),
        ("write/docs", "the flow has no flow 'write'"),
        ("rag#1/vector", "rag has no items"),
        ("rag@/vector", "not the name of a value"),
        ("/vector", "not the name of a value"),
        ("rag/", "has no value ''"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused(host: Host, name: str, says: str) -> None:
    host.run(ASK, {"text": "abc"}, run_id="run")
    with pytest.raises(BadRequest, match=says):
        host.fork("run", at=checkpoint_of(host, "run", "rag/embed"), state={name: 1})
    assert len(host.runs()) == 1


def test_a_flow_that_is_not_open_is_refused_with_what_to_edit_instead(host: Host) -> None:
    host.run(ASK, {"text": "abc"}, run_id="run")
    with pytest.raises(BadRequest, match=r"rag had ended at checkpoint \d.*Edit what it gave: docs, vector"):
        host.fork("run", state={"rag/vector": [1]})
    with pytest.raises(BadRequest, match="rag had not begun at checkpoint 1"):
        host.fork("run", at=1, state={"rag/vector": [1]})
    atomic = Flow("ask", [RAG.as_node(durability="atomic"), write], durability="strong")
    host.run(atomic, {"text": "abc"}, run_id="atomic")
    with pytest.raises(BadRequest, match="rag is atomic"):
        host.fork("atomic", state={"rag/vector": [1]})


def test_an_item_that_is_not_open_is_refused(host: Host) -> None:
    broken.add("b")
    host.run(MANY, {"raws": ["a", "b", "c"]}, run_id="run")
    for name, says in [
        ("check/clean", "check goes over 3 items.*check#0/NAME"),
        ("check#0/clean", "item 0 of check had ended"),
        ("check#3/clean", "check has no item 3.*It has 0 to 2"),
    ]:
        with pytest.raises(BadRequest, match=says):
            host.fork("run", state={name: "x"})


def test_a_fork_that_edits_nothing_inside_is_not_folded(host: Host) -> None:
    """A key of the channel may have a slash and is no value inside a flow."""
    host.run(ASK, {"text": "abc"}, run_id="run")
    fork = host.fork("run", channel={"a/b": 1})
    assert host.state(fork.run_id)["@channel/a/b"] == 1


# -- recall -----------------------------------------------------------------------------------------------


def test_recall_finds_what_inner_flows_began_with_and_wrote(host: Host) -> None:
    host.run(LOOP, {"topic": "a"}, run_id="run")
    wanted = {
        ("rag/text", 1): "a",
        ("rag/vector", 1): [1],
        ("rag@3/text", 1): "aaa",
        ("rag@3/docs", 1): ["doc 0", "doc 1", "doc 2"],
        ("text", 2): "aa",
        ("topic", 1): "a",
    }
    assert host.debug.recall("run", wanted) == wanted


def test_recall_finds_values_of_items_entries_and_arguments(host: Host) -> None:
    @node
    def mail(to: str) -> None: ...

    @node(output="done")
    def ask(size: list[int], ctx: Context) -> bool:
        ctx.next_task(mail, to="ann")
        return True

    flow = Flow("tasks", [*MANY.plan.nodes, ask], tasks=[mail], durability="strong")
    host.run(flow, {"raws": ["a ", " bb"]}, run_id="run")
    wanted = {
        ("check#1/raw", 1): " bb",
        ("check#1/clean", 1): "bb",
        ("@channel/seen", 1): ["a"],
        ("@channel/total", 2): 3,
        ("@task/1/to", 1): "ann",
        ("size", 1): [1, 2],
    }
    assert host.debug.recall("run", wanted) == wanted


def test_recall_says_what_cannot_be_found(host: Host) -> None:
    host.run(ASK, {"text": "abc"}, run_id="run")
    found = host.debug.recall("run", [("docs", 7), ("rag@9/docs", 1)])
    assert "version 7 of 'docs'" in found["docs", 7].why
    assert "rag@9/docs" in found["rag@9/docs", 1].why
    with pytest.raises(RunNotFound):
        host.debug.recall("unknown", [("docs", 1)])


# -- replay -----------------------------------------------------------------------------------------------


def test_a_step_inside_a_flow_is_replayed_by_its_address(host: Host) -> None:
    host.run(LOOP, {"topic": "a"}, run_id="run")
    for address, text in [("rag/embed", "aaa"), ("rag@1/embed", "a"), ("rag@2/embed@1", "aa")]:
        done = host.debug.replay("run", address, LOOP)
        assert (done.inputs, done.is_equal) == ({"text": text}, True)
    broken.add("embed")
    assert host.debug.replay("run", "rag@2/embed", LOOP).is_equal is False


def test_items_are_replayed(host: Host) -> None:
    host.run(LEAF, {"raws": ["a ", "b"]}, run_id="leaf")
    assert host.debug.replay("leaf", "strip#0", LEAF).inputs == {"raw": "a "}
    broken.add("b")
    host.run(MANY, {"raws": ["a ", "b"]}, run_id="run")
    done = host.debug.replay("run", "check#1/measure", MANY)
    assert (done.inputs, done.is_equal) == ({"clean": "b"}, True)
    assert done.error is not None
    broken.clear()
    assert host.debug.replay("run", "check#1/measure", MANY).is_equal is False


def test_a_replay_compares_what_a_step_did_to_the_channel(host: Host) -> None:
    host.run(MANY, {"raws": ["a", "bb"]}, run_id="run")
    done = host.debug.replay("run", "check#1/measure", MANY)
    assert {pair.name: pair.after for pair in done.outputs} == {
        "size": 2,
        "@channel/seen": ["a", "bb"],
        "@channel/total": 3,
    }
    assert done.is_equal is True

    @node(output="size", name="measure")
    def other(clean: str, ctx: Context) -> int:
        ctx.channel.append("seen", clean.upper())
        return len(clean)

    inner = Flow("check", [strip, other]).as_node().with_inputs(raw="raws").map_over("raw")
    done = host.debug.replay("run", "check#1/measure", Flow("many", [inner]))
    assert done.is_equal is False
    assert [(p.name, p.is_equal) for p in done.outputs] == [
        ("size", True),
        ("@channel/seen", False),
        ("@channel/total", False),
    ]
    assert host.state("run")["@channel/seen"] == ["a", "bb"]


def tasks_flow(to: str) -> Flow:
    @node
    def mail(to: str) -> str:
        return f"mailed {to}"

    @node
    def ask(name: str, ctx: Context) -> None:
        ctx.next_task("mail", to=to, priority=1)

    return Flow("tasks", [ask], tasks=[mail], durability="strong")


def test_a_replay_compares_the_tasks_that_a_step_asked_for(host: Host) -> None:
    host.run(tasks_flow("ann"), {"name": "x"}, run_id="run")
    assert host.debug.replay("run", "ask", tasks_flow("ann")).is_equal is True
    done = host.debug.replay("run", "ask", tasks_flow("bob"))
    assert done.is_equal is False
    [change] = next(pair for pair in done.outputs if pair.name == "@tasks").changes
    assert (change.before, change.after) == ("ann", "bob")
    assert host.debug.replay("run", "mail", tasks_flow("ann")).inputs == {"to": "ann"}


def test_what_is_no_step_of_one_node_is_not_replayed(host: Host) -> None:
    host.run(MANY, {"raws": ["a"]}, run_id="run")
    host.run(LEAF, {"raws": ["a"]}, run_id="leaf")
    for run, address, flow, says in [
        ("run", "check", MANY, "is a flow.*check#0/strip"),
        ("run", "check#0", MANY, "is a flow.*check#0/strip"),
        ("leaf", "strip", LEAF, "goes over items.*strip#0"),
    ]:
        with pytest.raises(BadRequest, match=says):
            host.debug.replay(run, address, flow)
    with pytest.raises(RunNotFound, match="no finished step 'check#9/strip'"):
        host.debug.replay("run", "check#9/strip", MANY)


# -- bisect and diff --------------------------------------------------------------------------------------


def test_bisect_finds_the_inner_step_to_blame(host: Host) -> None:
    host.run(LOOP, {"topic": "aa"}, run_id="good")
    broken.add("embed")
    host.run(LOOP, {"topic": "aa"}, run_id="bad")
    found = host.debug.bisect("good", "bad")
    assert found is not None
    assert (found.path, found.visit, found.is_culprit) == ("rag/embed", 1, True)
    assert [(pair.name, pair.before, pair.after) for pair in found.reads] == [("text", "aa", "aa")]
    assert [(pair.name, pair.before, pair.after) for pair in found.outputs] == [("vector", [2], [2, 2])]


def test_bisect_finds_the_item_to_blame(host: Host) -> None:
    host.run(MANY, {"raws": ["a", "b"]}, run_id="good")
    host.run(MANY, {"raws": ["a", "c"]}, run_id="bad")
    found = host.debug.bisect("good", "bad")
    assert found is not None
    assert (found.path, found.is_culprit) == ("check#1/strip", False)
    assert [(pair.before, pair.after) for pair in found.reads] == [("b", "c")]
    assert host.debug.bisect("good", "good") is None


def racing(slow: str) -> Flow:
    """Items that end in an order that depends on which of them is slow: that one is the last of three."""
    others: list[str] = []

    @node(output="size")
    async def measure(raw: str, ctx: Context) -> int:
        while raw == slow and len(others) < 2:
            await asyncio.sleep(0)
        others.append(raw)
        ctx.channel.append("seen", raw)
        ctx.channel.atomic_add("total", len(raw))
        ctx.next_task("mail", to=raw)
        return len(raw)

    @node
    def mail(to: str) -> None: ...

    inner = Flow("check", [measure], tasks=[mail])
    return Flow("race", [inner.as_node().with_inputs(raw="raws").map_over("raw")], durability="strong")


def test_items_that_ended_in_another_order_are_no_difference(host: Host) -> None:
    raws = ["a", "bb", "ccc"]
    host.run(racing("a"), {"raws": raws}, run_id="good").raise_for_status()
    host.run(racing("ccc"), {"raws": raws}, run_id="bad").raise_for_status()
    orders = [host.state(run)["@channel/seen"] for run in ("good", "bad")]
    assert orders[0] != orders[1]
    assert host.debug.bisect("good", "bad") is None


def test_bisect_finds_other_tasks(host: Host) -> None:
    host.run(tasks_flow("ann"), {"name": "x"}, run_id="good")
    host.run(tasks_flow("bob"), {"name": "x"}, run_id="bad")
    found = host.debug.bisect("good", "bad")
    assert found is not None
    assert (found.path, found.is_culprit) == ("ask", True)
    [tasks] = [pair for pair in found.outputs if pair.changes]
    assert [(c.before, c.after) for c in tasks.changes] == [("ann", "bob")]


def test_bisect_finds_another_entry_of_the_channel(host: Host) -> None:
    def noting(what: object) -> Flow:
        @node(output="done")
        def note(name: str, ctx: Context) -> bool:
            if what is None:
                ctx.channel.delete("note")
            else:
                ctx.channel.set("note", what)
            return True

        return Flow("notes", [note], durability="strong")

    for run, what in (("one", 1), ("other", 2), ("gone", None)):
        host.run(noting(what), {"name": "x"}, run_id=run, channel={"note": 0}).raise_for_status()
    for bad in ("other", "gone"):
        found = host.debug.bisect("one", bad)
        assert found is not None
        assert [pair.name for pair in found.outputs if pair.changes] == ["@channel/note"]
    assert host.debug.bisect("one", "one") is None
    assert host.debug.bisect("gone", "gone") is None


def test_cancelled_members_of_a_race_are_no_difference(host: Host) -> None:
    @node
    async def quick() -> str:
        return "quick"

    @node
    async def slow() -> str:
        await asyncio.Event().wait()
        return "slow"

    flow = Flow("race", [parallel(quick, slow, join="first_success", name="race")], durability="strong")
    for run in ("good", "bad"):
        host.run(flow, run_id=run).raise_for_status()
    assert host.debug.bisect("good", "bad") is None
    assert not host.debug.diff("good", "bad")


def test_diff_compares_the_last_visit_to_a_flow_whichever_it_is(host: Host) -> None:
    host.run(LOOP, {"topic": "a"}, run_id="three")
    host.run(LOOP, {"topic": "aaa"}, run_id="one")
    found = host.debug.diff("three", "one")
    assert {change.path for change in found.values} == {"topic"}
    assert {(node.path, node.visits) for node in found.nodes} == {
        ("begin", (3, 1)),
        ("rag", (3, 1)),
        ("is_short", (3, 1)),
    }


def test_diff_of_two_moments_of_an_open_flow_names_what_is_inside(host: Host) -> None:
    host.run(LOOP, {"topic": "a"}, run_id="run")
    at = checkpoint_of(host, "run", "rag@2/embed")
    found = host.debug.diff("run", start=at - 1, end=at)
    assert {change.path for change in found.values} >= {"rag/vector[0]", "rag/text"}
    assert ("rag/embed", (0, 1)) in {(n.path, n.visits) for n in found.nodes}


def test_diff_and_bisect_take_failed_items_into_account(host: Host) -> None:
    flow = Flow(
        "many",
        [CHECK.as_node().with_inputs(raw="raws").map_over("raw", on_error="collect")],
        durability="strong",
    )
    host.run(flow, {"raws": ["a", "b"]}, run_id="good")
    broken.add("b")
    host.run(flow, {"raws": ["a", "b"]}, run_id="bad")
    changed = {change.path: (change.before, change.after) for change in host.debug.diff("good", "bad").values}
    error = ItemError(1, "ValueError", "no b")
    assert changed["size[1]"] == (1, error)
    found = host.debug.bisect("good", "bad")
    assert found is not None
    assert (found.path, found.bad.status) == ("check#1/measure", Status.FAILED)


def test_fork_edits_are_shown_in_the_history_with_their_version(host: Host) -> None:
    host.run(ASK, {"text": "abc"}, run_id="run")
    at = checkpoint_of(host, "run", "rag/embed")
    fork = host.fork("run", at=at, state={"rag/vector": [5], "rag/limit": 2})
    [step] = host.history(fork.run_id)[-1].steps
    assert {w.name: w.version for w in step.writes} == {"rag/vector": 2, "rag/limit": 1}
    wanted = {("rag/vector", 1): [3], ("rag/vector", 2): [5], ("rag/limit", 1): 2}
    assert host.debug.recall(fork.run_id, wanted) == wanted
