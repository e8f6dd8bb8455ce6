"""What runs when: one rule for every node, decided from the steps alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from everstep import END, Flow, Node, ifelse, node, route
from everstep.engine import readiness
from everstep.engine.fold import write
from everstep.engine.keyframe import restore, snapshot
from everstep.engine.state import RunState
from everstep.model.enums import Status
from everstep.model.records import INPUTS, StepRecord, Written


def writes(*names: str, version: int = 1) -> tuple[Written, ...]:
    return tuple(Written(name, version, b"", 0) for name in names)


def begin(flow: Flow, *names: str) -> RunState:
    state = RunState(flow.plan)
    state.evolve(StepRecord(path=INPUTS, writes=writes(*names)))
    return state


def ready(state: RunState) -> list[str]:
    return [state.plan.paths[i] for i in readiness.ready(state)]


def done(state: RunState, path: str, decision: tuple[str, ...] | None = None) -> None:
    i = state.plan.index[path]
    n = state.plan.nodes[i]
    reads = {p.source: state.versions[p.source] for p in n.params if p.source in state.versions}
    new = tuple(Written(o, state.versions.get(o, 0) + 1, b"", 0) for o in n.outputs)
    state.evolve(StepRecord(path=path, visit=state.visits[i] + 1, reads=reads, writes=new, decision=decision))


def make(name: str, reads: str, output: str | None = None) -> Node:
    """A node that reads these names (a `?` makes one optional) and writes one."""
    names = reads.split()
    arguments = ", ".join(n.removesuffix("?") + ("=None" if n.endswith("?") else "") for n in names)
    namespace: dict[str, Any] = {}
    exec(f"def {name}({arguments}): ...", namespace)
    return node(output=output)(namespace[name])


@ifelse(when_true="step", when_false=END)
def more(i: int) -> bool:
    return True


def test_a_chain_runs_in_order() -> None:
    state = begin(Flow("f", [make("b", "x", "y"), make("a", "s", "x")]), "s")
    assert ready(state) == ["a"]
    done(state, "a")
    assert ready(state) == ["b"]
    done(state, "b")
    assert ready(state) == [] and not state.active


def test_independent_nodes_are_ready_together() -> None:
    state = begin(Flow("f", [make("a", "s", "x"), make("b", "s", "y"), make("c", "x y", "z")]), "s")
    assert ready(state) == ["a", "b"]
    done(state, "b")
    assert ready(state) == ["a"]
    done(state, "a")
    assert ready(state) == ["c"]


def test_a_node_with_a_default_waits_for_a_node_that_may_still_write_it() -> None:
    state = begin(Flow("f", [make("a", "s", "x"), make("b", "s x?", "y")]), "s")
    assert ready(state) == ["a"]
    done(state, "a")
    assert ready(state) == ["b"]


def test_a_started_node_still_blocks_those_behind_it() -> None:
    state = begin(Flow("f", [make("a", "s", "x"), make("b", "s x?", "y")]), "s")
    state.begin(0)
    assert ready(state) == []


def test_a_loop_goes_round_and_what_is_behind_it_runs_once_after_it() -> None:
    state = begin(Flow("f", [make("step", "i", "i"), more, make("report", "i", "text")], entry="step"), "i")
    assert ready(state) == ["step"]
    for _ in range(3):
        done(state, "step")
        assert ready(state) == ["more"]
        done(state, "more", ("step",))
        assert ready(state) == ["step"]
    done(state, "step")
    done(state, "more", ())
    assert ready(state) == ["report"]
    done(state, "report")
    assert not state.active
    assert state.visits[state.plan.index["report"]] == 1


def test_without_an_entry_the_gate_decides_first() -> None:
    state = begin(Flow("f", [make("step", "i", "i"), more]), "i")
    assert ready(state) == ["more"]
    done(state, "more", ())
    assert not state.active


def test_the_nodes_of_one_round_keep_their_order() -> None:
    both = ifelse(when_true="step", when_false=END, name="more")(make("g", "i j").fn)
    state = begin(Flow("f", [make("step", "i", "i"), make("half", "i", "j"), both], entry="step"), "i")
    for _ in range(3):
        done(state, "step")
        assert ready(state) == ["half"]
        done(state, "half")
        assert ready(state) == ["more"]
        done(state, "more", ("step",))


def test_a_branch_inside_a_loop_is_awaited_in_every_round() -> None:
    pick = route("left", END, name="pick")(make("p", "i").fn)
    again = ifelse(when_true="step", when_false=END, name="again")(make("g", "k").fn)
    nodes = [make("step", "i", "i"), pick, make("left", "i", "a"), make("join", "i a?", "k"), again]
    state = begin(Flow("f", nodes, entry="step"), "i")
    for _ in range(2):
        done(state, "step")
        assert ready(state) == ["pick"], "the join must wait for a choice that can still change its input"
        done(state, "pick", ("left",))
        assert ready(state) == ["left"]
        done(state, "left")
        assert ready(state) == ["join"]
        done(state, "join")
        assert ready(state) == ["again"]
        done(state, "again", ("step",))


def test_a_loop_inside_a_loop_ends_before_what_is_behind_it() -> None:
    inner = ifelse(when_true="s", when_false=END, name="inner")(make("g1", "i").fn)
    outer = route("s", END, name="outer")(make("g2", "k").fn)
    nodes = [make("s", "i", "i"), inner, make("behind", "i", "k"), outer]
    state = begin(Flow("f", nodes, entry="s"), "i")
    for _ in range(2):
        for _ in range(3):
            done(state, "s")
            assert ready(state) == ["inner"]
            done(state, "inner", ("s",))
        done(state, "s")
        done(state, "inner", ())
        assert ready(state) == ["behind"]
        done(state, "behind")
        assert ready(state) == ["outer"]
        done(state, "outer", ("s",))
    assert state.visits[state.plan.index["behind"]] == 2


def test_a_target_runs_only_when_chosen_and_once_per_choice() -> None:
    gate = route("a", "b", END, name="gate")(make("g", "s").fn)
    state = begin(Flow("f", [gate, make("a", "s", "x"), make("b", "s", "y")]), "s")
    assert ready(state) == ["gate"]
    done(state, "gate", ("b",))
    assert ready(state) == ["b"]
    done(state, "b")
    assert not state.active


def test_a_target_waits_for_an_active_writer_even_if_an_old_value_is_there() -> None:
    pick = route("use", END, name="pick")(make("p", "i").fn)
    again = ifelse(when_true="step", when_false=END, name="again")(make("g", "u").fn)
    nodes = [make("step", "i", "i"), make("slow", "i", "x"), pick, make("use", "x", "u"), again]
    state = begin(Flow("f", nodes, entry="step"), "i")
    done(state, "step")
    done(state, "slow")
    done(state, "pick", ("use",))
    done(state, "use")
    done(state, "again", ("step",))
    done(state, "step")
    done(state, "pick", ("use",))
    assert ready(state) == ["slow"], "x is left from the round before; timing must not decide which is read"


def test_a_skipped_branch_counts_as_settled() -> None:
    gate = route("a", "b", name="gate")(make("g", "s").fn)
    nodes = [
        gate,
        make("a", "s", "x"),
        make("b", "s", "y"),
        make("join", "x? y?", "z"),
        make("never", "x", "w"),
    ]
    state = begin(Flow("f", nodes), "s")
    assert ready(state) == ["gate"]
    done(state, "gate", ("b",))
    done(state, "b")
    assert ready(state) == ["join"]
    done(state, "join")
    assert not state.active, "a node whose input never came is skipped, not waited for"


def test_a_chosen_node_whose_input_cannot_come_is_named() -> None:
    gate = route("a", "b", name="gate")(make("g", "s").fn)
    state = begin(Flow("f", [gate, make("a", "s y", "x"), make("b", "s", "y")]), "s")
    done(state, "gate", ("a",))
    assert ready(state) == []
    found = readiness.starving(state.scopes())
    assert found is not None and found[0] is state and "waits for y" in str(found[1])


def test_several_targets_may_be_chosen() -> None:
    gate = route("a", "b", multi=True, name="gate")(make("g", "s").fn)
    state = begin(Flow("f", [gate, make("a", "s", "x"), make("b", "s", "y")]), "s")
    done(state, "gate", ("a", "b"))
    assert ready(state) == ["a", "b"]


def test_folding_in_pieces_gives_the_same_state_as_a_keyframe() -> None:
    flow = Flow("f", [make("step", "i", "i"), more, make("report", "i", "text")], entry="step")
    state = begin(flow, "i")
    done(state, "step")
    done(state, "more", ("step",))
    copy = RunState(flow.plan)
    restore(copy, state.versions, snapshot(state, ()), state.counters())
    for path, decision in (("step", None), ("more", ()), ("report", None)):
        assert ready(copy) == ready(state) == [path]
        done(state, path, decision)
        done(copy, path, decision)
    assert snapshot(copy, ()) == snapshot(state, ()) and copy.counters() == state.counters()


def test_a_value_written_while_its_reader_ran_is_read_again_on_every_replay() -> None:
    """The fold does not know what ran when, so staleness is told by versions alone."""
    flow = Flow("f", [make("a", "s", "x"), make("b", "x", "y")])
    state = begin(flow, "s")
    done(state, "a")
    state.evolve(StepRecord(path="b", visit=1, reads={"x": 0}, writes=writes("y")))
    assert ready(state) == ["b"]


def test_a_failed_attempt_keeps_its_count_and_pause() -> None:
    state = begin(Flow("f", [make("a", "s", "x")]), "s")
    state.begin(0)
    state.evolve(StepRecord(path="a", visit=1, status=Status.RETRYING, attempts=2, key="k"))
    assert state.attempts[0] == 2 and ready(state) == ["a"]
    assert state.idempotency().pending == {"a": "k"}
    done(state, "a")
    assert state.attempts[0] == 0


def test_a_failed_step_is_reopened_with_a_fresh_budget() -> None:
    state = begin(Flow("f", [make("a", "s", "x")]), "s")
    state.evolve(StepRecord(path="a", visit=1, status=Status.FAILED, attempts=4))
    state.reopen()
    assert ready(state) == ["a"] and state.attempts[0] == 0 and state.visits[0] == 0
    done(state, "a")
    assert state.visits[0] == 1


@pytest.mark.parametrize("size", [1, 500])
def test_a_wide_join_waits_for_every_branch(size: int) -> None:
    branches = [make(f"b{k}", "s", f"r{k}") for k in range(size)]
    join = node(output="z", inputs=[f"r{k}" for k in range(size)], name="join")(lambda **r: len(r))
    state = begin(Flow("f", [*branches, join]), "s")
    for k in range(size):
        assert "join" not in ready(state)
        done(state, f"b{k}")
    assert ready(state) == ["join"]


def critique_flow() -> Flow:
    """The writer reads the critique; critic and gate read the draft."""
    gate = ifelse(when_true="write", when_false=END, name="more")(make("g", "draft").fn)
    return Flow(
        "f",
        [make("write", "draft? feedback?", "draft"), make("critique", "draft", "feedback"), gate],
        entry="write",
    )


def test_a_new_round_waits_for_the_round_before_it() -> None:
    state = begin(critique_flow())
    for _ in range(3):
        assert ready(state) == ["write"]
        done(state, "write")
        assert ready(state) == ["critique", "more"]
        done(state, "more", ("write",))
        assert ready(state) == ["critique"], "the writer must not read the critique of the round before last"
        done(state, "critique")


def test_a_new_round_waits_for_a_node_that_runs() -> None:
    state = begin(critique_flow())
    done(state, "write")
    state.begin(state.plan.index["critique"])
    done(state, "more", ("write",))
    assert ready(state) == []
    done(state, "critique")
    assert ready(state) == ["write"]


def test_a_keyframe_keeps_rounds_and_the_order_in_which_nodes_became_due() -> None:
    flow = critique_flow()
    state = begin(flow)
    done(state, "write")
    done(state, "more", ("write",))
    copy = RunState(flow.plan)
    restore(copy, state.versions, snapshot(state, ()), state.counters())
    assert ready(copy) == ["critique"]
    done(copy, "critique")
    assert ready(copy) == ["write"]

    gate = route("a", "b", "c", multi=True, name="gate")(make("g", "s").fn)
    flow = Flow("f", [make("c", "s", "z"), make("b", "s", "y"), make("a", "s", "x"), gate])
    state = begin(flow, "s")
    done(state, "gate", ("a", "b", "c"))
    copy = RunState(flow.plan)
    restore(copy, state.versions, snapshot(state, ()), state.counters())
    assert ready(state) == ready(copy) == ["a", "b", "c"]


def test_loops_that_overlap_never_get_stuck() -> None:
    left = route("a", "b", END, name="left")(make("g1", "x").fn)
    right = route("a", "b", END, name="right")(make("g2", "y").fn)
    state = begin(Flow("f", [make("a", "y?", "x"), make("b", "x?", "y"), left, right], entry=["a", "b"]))
    for _ in range(40):
        now = ready(state) or [state.plan.paths[i] for i in readiness.oldest(state)]
        if not now:
            break
        path = now[0]
        goes_on = state.steps < 20
        targets = {"left": ("b",), "right": ("a",)}.get(path)
        done(state, path, targets if targets is None or goes_on else ())
    assert not state.active and state.steps >= 20


def test_several_entries_of_one_loop_begin_one_after_the_other() -> None:
    gate = route("a", "b", END, name="gate")(make("g", "x y").fn)
    nodes = [make("a", "y?", "x"), make("b", "x?", "y"), gate]
    state = begin(Flow("f", nodes, entry=["a", "b"]))
    assert ready(state) == ["a"]
    done(state, "a")
    assert ready(state) == ["b"]
    done(state, "b")
    assert ready(state) == ["gate"]


def test_a_head_chosen_while_it_runs_begins_a_round_of_its_own() -> None:
    pick = route("work", END, name="pick")(make("p", "").fn)
    back = route("pick", END, name="back")(make("q", "n").fn)
    state = begin(Flow("f", [pick, make("work", "", "n"), back], entry=["work", "pick"]))
    state.begin(state.plan.index["work"])
    done(state, "pick", ("work",))
    done(state, "work")
    assert ready(state) == ["back"], "what the first visit made due comes before the second"


def test_no_drive_wakes_up_for_a_pause_that_is_over_if_its_node_waits_for_another() -> None:
    state = begin(Flow("f", [make("a", "s", "x"), make("b", "s x", "y")]), "s")
    start = datetime(2030, 1, 1, tzinfo=UTC)
    later = start + timedelta(seconds=10)
    done(state, "a")
    state.evolve(
        StepRecord(
            path="b", visit=1, status=Status.RETRYING, attempts=1, retry_at=start + timedelta(seconds=1)
        )
    )
    write(state, "s", 2, 0)
    state.evolve(StepRecord(path="a", visit=2, status=Status.RETRYING, attempts=1, retry_at=later))
    assert state.startable(lambda: start + timedelta(seconds=2)) == []
    assert state.next_retry() == later
