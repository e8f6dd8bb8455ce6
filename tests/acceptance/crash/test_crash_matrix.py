"""Kill a run with SIGKILL at every point it has, resume it, and find the result of an uninterrupted run."""

from __future__ import annotations

import copy
import json
import os
import sys
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import Any

import pytest

from everstep import Flow, Host, node
from tests.acceptance.crash.judge import Case, around, judge, judge_replies, steps
from tests.acceptance.crash.lives import SCENARIOS, points_of
from tests.servers import warm

ROOT = Path(__file__).resolve().parents[3]

# Only a point that is certain to come can be chosen to die at. Once no one makes them wait, the branches of
# the diamond finish in any order; a lease of some milliseconds may or may not have expired at the resume.
# Those left out for other reasons have one like them that is in.
TWICE = (
    *("chain", "loop", "keyframes", "retry", "exhausted", "large", "interval", "before-effects", "partial"),
    *("partial-retry", "interrupted", "cancelled", "atomic", "map-product", "channel", "tasks"),
)
IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
DEEP = (
    {"small": "every"} | dict.fromkeys(TWICE, "middle")
    if IS_SOAK
    else dict.fromkeys(("small", "chain", "retry", "tasks"), "middle")
)
"""Those that are killed a second time, on the way back."""
LIKE_OTHERS = {
    *("partial-loop", "partial-retry", "partial-policies", "partial-map-product", "partial-map-atomic"),
    *("partial-atomic", "partial-channel", "partial-tasks", "partial-waits"),
    *("interval-chance", "interval-acting-atomic", "interval-acting-items", "partial-signals-between-steps"),
}
"""Flows that others are like but for the mode; they are left to the soak tests."""
REPLIED = {
    *(
        "small",
        "chain",
        "loop",
        "large",
        "retry",
        "interval",
        "before-effects",
        "partial",
        "nested",
        "atomic",
    ),
    *("map-nested", "channel", "tasks", "fork", "waits", "worked", "cancelled", "changed-flow", "stream"),
    *("phases", "spending", "tripped", "policies", "steps", "steps-around-waits"),
    *("signals-between-steps", "told", "undone", "undone-calls", "begun-later", "expired"),
}
"""Flows whose writes lose their replies by default, too."""


def by_default(names: Iterable[str], chosen: Container[str]) -> list[Any]:
    """Leave those that are not chosen to the soak tests."""
    return [name if name in chosen else pytest.param(name, marks=pytest.mark.soak) for name in names]


WRITES = ("put", "blob", "lease", "renew", "release_lease", "request_stop")
KINDS = {*WRITES, "settle", "fire", "change_wait", "claim_due", "introduce", "spool", "unspool"}
KINDS |= {"lease_within", "change_limit", "take_notices", "change_notice"}


def report(work: str, name: str, folder: Path, *options: str, store: str | None = None) -> list[Case]:
    """Let a process of its own do the killing; it forks, which a test runner with threads must not.

    `store` is the URL of a server that ends where its last option would begin.
    """
    command = [sys.executable, "-m", "tests.acceptance.crash.lives", work, name, str(folder), *options]
    where = {} if store is None else {"EVERSTEP_CRASH_STORE": store}
    done = warm.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, **where}
    )
    assert done.returncode == 0, done.stderr
    cases: list[Case] = json.loads(done.stdout)
    return cases


# -- lies that the judge must see ---------------------------------------------------------------------------

Lie = Callable[[list[Case]], None]


def case_at(cases: list[Case], at: str) -> Case:
    return next(case for case in cases if case[0]["at"] == at)


def begin_again(case: Case, path: str) -> None:
    case[1]["trace"].append({"point": f"before body {path} 1", "node": path, "visit": 1})


def leave_a_point_out(cases: list[Case]) -> None:
    cases[:] = [case for case in cases if case[0]["at"] != "after put 3"]


def let_it_live(cases: list[Case]) -> None:
    case_at(cases, "after put 3")[0]["exit"] = 0


def change_the_result(cases: list[Case]) -> None:
    case_at(cases, "after put 3")[1]["result"]["thanks"] = "'no'"


def change_a_key(cases: list[Case]) -> None:
    case = case_at(cases, "after body call 1")
    next(line for line in case[1]["trace"] if line.get("key"))["key"] = "another"


def run_a_recorded_step(cases: list[Case]) -> None:
    begin_again(case_at(cases, "after body call 1"), "take")


def forget_a_failure(cases: list[Case]) -> None:
    case = case_at(cases, "before body call 2")
    for line in case[1]["trace"]:
        if "attempt" in line:
            line["attempt"] -= 1


def record_an_attempt_twice(cases: list[Case]) -> None:
    chain = case_at(cases, "before body call 2")[1]["chains"][0]
    retried = next(c for c in chain if any(s[2] == "retrying" for s in c["steps"]))
    retried["steps"] *= 2


def lose_a_record(cases: list[Case]) -> None:
    case_at(cases, "after put 3")[1]["recorded"][0].pop()


def keep_the_lease(cases: list[Case]) -> None:
    case_at(cases, "after put 3")[1]["is_driven"] = True


def change_the_state(cases: list[Case]) -> None:
    case_at(cases, "after put 3")[1]["states"][0]["answer"] = "'no'"


def run_a_recorded_item(cases: list[Case]) -> None:
    begin_again(case_at(cases, "before body exchange#2/log_in 1"), "exchange#1/log_in")


def run_inside_a_recorded_map(cases: list[Case]) -> None:
    begin_again(case_at(cases, "before body describe 1"), "exchange#3/log_in")


def run_inside_a_recorded_visit(cases: list[Case]) -> None:
    begin_again(case_at(cases, "before body publish 1"), "edit@2/polishing/new")


def run_a_nested_step_again(cases: list[Case]) -> None:
    begin_again(case_at(cases, "before body edit/polishing/polish 1"), "edit/polishing/mark")


def decide_again(cases: list[Case]) -> None:
    begin_again(case_at(cases, "before body publish 1"), "draft.gate")


def run_a_loser_again(cases: list[Case]) -> None:
    begin_again(case_at(cases, "after body report 1"), "slow")


def let_a_loser_win(cases: list[Case]) -> None:
    chain = case_at(cases, "after body quick 1")[1]["chains"][0]
    next(s for c in chain for s in c["steps"] if s[2] == "cancelled")[2] = "completed"


def run_a_recorded_step_of_a_loser(cases: list[Case]) -> None:
    begin_again(case_at(cases, "before body deep/ship 1"), "deep/pay")


def run_on_inside_a_loser(cases: list[Case]) -> None:
    begin_again(case_at(cases, "before body report 1"), "deep/ship")


def pay_anew_inside_a_loser(cases: list[Case]) -> None:
    case = case_at(cases, "before body deep/pay 2")
    next(line for line in case[1]["trace"] if line.get("node") == "deep/pay")["key"] = "another"


def open_an_item_of_a_loser(cases: list[Case]) -> None:
    begin_again(case_at(cases, "before body report 1"), "rag#2/cut")


def go_on_in_an_item_of_a_loser(cases: list[Case]) -> None:
    chain = case_at(cases, "after body rag#1/measure 1")[1]["chains"][0]
    chain[-1]["steps"].append(["rag#1/measure", 1, "completed", 1, None])


def change_the_parent_of_a_fork(cases: list[Case]) -> None:
    case_at(cases, "before body child:weigh 1")[1]["states"][0]["words"] = "[]"


def settle_a_wait_otherwise(cases: list[Case]) -> None:
    case_at(cases, "after settle 1")[1]["waits"][0][5] = "unknown"


def open_a_wait_twice(cases: list[Case]) -> None:
    last = case_at(cases, "after put 3")[1]
    last["waits"].append(last["waits"][0])


def halt_twice(cases: list[Case]) -> None:
    chain = case_at(cases, "after put 3")[1]["chains"][0]
    next(c for c in chain if any(s[2] == "halted" for s in c["steps"]))["steps"] *= 2


def run_a_spooled_step_again(cases: list[Case]) -> None:
    begin_again(case_at(cases, "after spool 2"), "third")


def make_an_effect_twice(cases: list[Case]) -> None:
    letter = case_at(cases, "after body charge 2")[1]["result"]["letter"]
    assert letter == "['found 1', 1]"
    case_at(cases, "after body charge 2")[1]["result"]["letter"] = "['found 1', 2]"


def undo_twice(cases: list[Case]) -> None:
    begin_again(case_at(cases, "before body reserve/!undo 1"), "pay/!undo")


def undo_in_another_order(cases: list[Case]) -> None:
    lives = next(case for case in cases if len(case) == 2 and case[0]["at"] == "after put 2")
    trace = lives[1]["trace"]
    first, last = (
        next(k for k, line in enumerate(trace) if line["point"] == f"before body {name}/!undo 1")
        for name in ("pay", "reserve")
    )
    trace[first], trace[last] = trace[last], trace[first]


def undo_what_a_parent_did(cases: list[Case]) -> None:
    chain = case_at(cases, "after put 4")[1]["chains"][1]
    chain[-1]["steps"].append(["child:reserve/!undo", 1, "completed", 1, None])


def leave_an_effect_as_it_is(cases: list[Case]) -> None:
    chain = case_at(cases, "after body send 1")[1]["chains"][0]
    for checkpoint in chain:
        checkpoint["steps"] = [s for s in checkpoint["steps"] if s[0] != "send/!undo"]


def make_what_was_settled(cases: list[Case]) -> None:
    begin_again(case_at(cases, "after put 6"), "send")


def toss_again(cases: list[Case]) -> None:
    life = case_at(cases, "before body ship 1")[1]
    life["trace"].append(
        {"point": "before body refuse 1", "node": "refuse", "visit": 1, "key": "k", "given": ""}
    )


def ship_something_else(cases: list[Case]) -> None:
    life = case_at(cases, "after body ship 1")[1]
    next(line for line in life["trace"] if "given" in line)["given"] = "8"


def pay_for_a_finished_item(cases: list[Case]) -> None:
    case = case_at(cases, "before body buy#1/add 1")
    paid = next(line for line in case[0]["trace"] if line["point"] == "before body buy#0/pay 1")
    case[1]["trace"].append(paid)


def make_a_recorded_call_again(cases: list[Case]) -> None:
    begin_again(case_at(cases, "before body agent/$look 2"), "agent/$look")


def make_a_call_of_a_recorded_round(cases: list[Case]) -> None:
    begin_again(case_at(cases, "before body grow@2/$look 1"), "grow/$more")


def make_a_call_with_something_else(cases: list[Case]) -> None:
    life = case_at(cases, "before body agent/$look 2")[1]
    next(line for line in life["trace"] if "given" in line)["given"] = "something else"


def make_a_call_behind_a_wait_with_another_key(cases: list[Case]) -> None:
    life = case_at(cases, "before body agent/$look 2")[1]
    next(line for line in life["trace"] if line.get("node") == "agent/$look")["key"] = "another"


def make_a_call_again_that_a_retry_keeps(cases: list[Case]) -> None:
    begin_again(case_at(cases, "before body agent 2"), "agent/$look")


LIES: dict[str, list[Lie]] = {
    "steps": [make_a_recorded_call_again, make_a_call_with_something_else],
    "steps-in-a-loop": [make_a_call_of_a_recorded_round],
    "steps-around-waits": [make_a_call_behind_a_wait_with_another_key],
    "steps-kept-by-a-retry": [make_a_call_again_that_a_retry_keeps],
    "steps-held-by-a-budget": [make_a_recorded_call_again],
    "signals-between-steps": [make_a_call_with_something_else],
    "chance": [toss_again, ship_something_else],
    "acting-items": [pay_for_a_finished_item],
    "cut-off": [run_a_spooled_step_again],
    "probed": [make_an_effect_twice],
    "settled-as-done": [make_what_was_settled],
    "waits": [settle_a_wait_otherwise, open_a_wait_twice, halt_twice],
    "retry": [
        *(leave_a_point_out, let_it_live, change_the_result, change_the_state, change_a_key),
        *(run_a_recorded_step, forget_a_failure, record_an_attempt_twice, lose_a_record, keep_the_lease),
    ],
    "map-atomic": [run_a_recorded_item, run_inside_a_recorded_map],
    "nested": [run_a_nested_step_again, run_inside_a_recorded_visit],
    "first-success": [run_a_loser_again, let_a_loser_win],
    "first-success-over-a-flow": [
        *(run_a_recorded_step_of_a_loser, run_on_inside_a_loser, pay_anew_inside_a_loser),
    ],
    "first-success-over-a-map": [open_an_item_of_a_loser, go_on_in_an_item_of_a_loser],
    "fork": [change_the_parent_of_a_fork],
    "undone": [undo_twice, undo_in_another_order],
    "undone-fork": [undo_what_a_parent_did],
    "undone-when-cancelled": [leave_an_effect_as_it_is],
    "phases": [decide_again],
}


# -- the matrix ---------------------------------------------------------------------------------------------
# In memory: a killed process leaves to the system what it wrote, so that syncing a disk shows nothing here.


@pytest.mark.parametrize("name", by_default(SCENARIOS, SCENARIOS.keys() - LIKE_OTHERS))
def test_a_run_killed_at_any_point_ends_as_if_it_had_not_been(name: str, quick_folder: Path) -> None:
    cases = report("matrix", name, quick_folder, DEEP.get(name, "once" if name in LIES else "none"))
    judge(name, cases)
    for lie in LIES.get(name, ()):
        lied = copy.deepcopy(cases)
        lie(lied)
        with pytest.raises(AssertionError):
            judge(name, lied)
            print(f"the judge did not see it: {lie.__name__}")
    deep = sum(len(case) == 3 for case in cases)
    print(f"\n{name}: killed at {len(cases) - deep - 1} points, twice in {deep} runs")


def test_a_saga_of_every_shape_killed_at_some_points_undoes_each_effect_once(quick_folder: Path) -> None:
    seed = os.environ.get("EVERSTEP_SEED", "0")
    judge("saga", report("some", "saga", quick_folder, seed, "4"), is_partial=True)


def test_no_kind_of_write_is_left_out(quick_folder: Path) -> None:
    """Each scenario is killed at all of its writes; together they make every write that the runtime knows."""
    kinds = set()
    for name in ("large", "interrupted", "cancelled", "renewed", "worked", "told", "cut-off", "limited"):
        (quick_folder / name).mkdir()
        [[whole]] = report("whole", name, quick_folder / name)
        kinds |= {p.split()[1] for p in points_of(whole) if " body " not in p}
    assert kinds == KINDS


def test_branches_of_the_diamond_overlap_and_the_album_has_keyframes(quick_folder: Path) -> None:
    for name in ("diamond", "keyframes"):
        (quick_folder / name).mkdir()
    [[diamond]] = report("whole", "diamond", quick_folder / "diamond")
    points = points_of(diamond)
    assert points.index("before body publish 1") < points.index("after body count 1")
    assert points.index("after put 3") < points.index("after body publish 1")
    [[album]] = report("whole", "keyframes", quick_folder / "keyframes")
    assert sum(c["keyframe"] for c in album["chains"][0]) >= 2


def recorded(name: str, folder: Path) -> set[tuple[str, str]]:
    """Return the paths and outcomes of the steps of an uninterrupted run."""
    folder.mkdir()
    [[whole]] = report("whole", name, folder)
    return {(step[0], step[2]) for step in steps(whole["chains"])}


def test_the_shapes_are_what_they_are_called(quick_folder: Path) -> None:
    nested = recorded("nested", quick_folder / "nested")
    assert {("edit/polishing/mark", "completed"), ("edit@2/polishing/mark", "completed")} <= nested
    assert ("edit@2/send", "retrying") in nested
    assert not any("/" in path for path, _ in recorded("atomic", quick_folder / "atomic"))
    items = recorded("map-nested", quick_folder / "items")
    assert {("rag#0/measure", "retrying"), ("rag#1", "failed"), ("rest#0", "completed")} <= items
    race = recorded("first-success", quick_folder / "race")
    assert {("quick", "completed"), ("slow", "cancelled"), ("deep", "cancelled")} <= race
    far = recorded("first-success-over-a-flow", quick_folder / "far")
    assert {("deep/pick", "completed"), ("deep/pay", "retrying"), ("deep/pay", "completed")} <= far
    assert ("deep", "cancelled") in far
    over = recorded("first-success-over-a-map", quick_folder / "over")
    assert {("rag#0", "completed"), ("rag#1/cut", "completed"), ("rag", "cancelled")} <= over
    assert not any(path.startswith(("rag#1/measure", "rag#1/label", "rag#2")) for path, _ in over)
    later = recorded("begun-later", quick_folder / "later")
    assert {("@start", "halted"), ("@start", "completed")} <= later
    late = recorded("expired", quick_folder / "late")
    assert {("@deadline", "halted"), ("@deadline", "failed"), ("reserve/!undo", "completed")} <= late
    fork = recorded("fork", quick_folder / "fork")
    assert {("child:@fork", "completed"), ("grandchild:edit@2/cut", "completed")} <= fork


def test_the_changed_flow_goes_over_inside_an_inner_flow(quick_folder: Path) -> None:
    [[whole]] = report("whole", "changed-flow", quick_folder)
    paths = [step[0] for step in steps(whole["chains"]) if step[2] == "completed"]
    assert paths == ["@inputs", "take", "work/weigh", "work/pack", "work", "announce", "ship"]
    assert sum(c["keyframe"] for c in whole["chains"][0]) == 1
    assert whole["result"]["receipt"] == "[17, 3]"


def test_effects_are_made_once_and_asked_about_or_settled(quick_folder: Path) -> None:
    asked = recorded("settled-as-done", quick_folder / "done")
    assert {("send", "running"), ("send", "halted"), ("send", "completed")} <= asked
    rerun = recorded("settled-by-rerun", quick_folder / "rerun")
    assert {("send", "halted"), ("send", "retrying"), ("send", "completed")} <= rerun
    assert {("charge", "running"), ("charge", "retrying")} <= recorded("probed", quick_folder / "probed")


def test_items_of_a_map_overlap(quick_folder: Path) -> None:
    [[whole]] = report("whole", "map", quick_folder)
    points = points_of(whole)
    assert points.index("before body embed#1 1") < points.index("after body embed#0 1")
    assert points.index("after put 2") < points.index("after body embed#1 1")


# A signal is left once, and what a worker claimed without hearing of it stays leased until that expires.
UNHEARD = (
    "cancelled",
    "cancelled-wait",
    "undone-when-cancelled",
    "undone-atomic",
    "undone-unknown",
    "worked",
)


@pytest.mark.parametrize("name", by_default([n for n in SCENARIOS if n not in UNHEARD], REPLIED))
def test_a_write_whose_reply_was_lost_is_not_taken_for_a_conflict(name: str, quick_folder: Path) -> None:
    judge_replies(name, report("replies", name, quick_folder))


def test_inputs_the_caller_keeps_are_not_changed_by_a_node(tmp_path: Path) -> None:
    @node(output="total")
    def add(prices: list[int]):
        prices.append(1)
        return sum(prices)

    inputs = {"prices": [2, 3]}
    flow = Flow("add", [add], durability="strong")
    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        assert host.run(flow, inputs, run_id="a")["total"] == 6
        assert inputs == {"prices": [2, 3]}
        assert host.run(flow, inputs, run_id="a")["total"] == 6


def test_a_visit_lies_inside_every_flow_and_item_of_its_path() -> None:
    assert list(around("a", 2)) == [("a", 2)]
    assert list(around("a#3", 1)) == [("a#3", 1), ("a#3", 1), ("a", 1)]
    assert set(around("a/b@2/c", 1)) == {("a/b@2/c", 1), ("a/b", 2), ("a", 1)}
    assert set(around("f:a@3#7/b", 2)) == {("f:a@3#7/b", 2), ("f:a@3#7", 1), ("f:a", 3)}
