"""Kill a run with SIGKILL at every point it has, resume it, and find the result of an uninterrupted run."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from everstep import Flow, Host, node
from tests.acceptance.crash_flows import SCENARIOS, points_of, run_to_its_end

ROOT = Path(__file__).resolve().parents[2]
Life = dict[str, Any]
Case = list[Life]

# Only a point that is certain to come can be chosen to die at. Once nobody makes them wait, the branches of
# the diamond finish in any order; a lease of some milliseconds may or may not have expired at the resume.
# The others left out here have one like them that is in.
DEEP = {"small": "every"} | dict.fromkeys(
    ("diamond", "renewed", "interval-loop", "partial-loop", "before-effects-retry"), "none"
)
EVERY_STEP = [
    name for name, s in SCENARIOS.items() if s.durability == "strong" and s.program is run_to_its_end
]
KINDS = {"put", "blob", "lease", "renew", "release_lease", "signal"}


def report(work: str, name: str, folder: Path, *options: str) -> list[Case]:
    """Let a process of its own do the killing; it forks, which a test runner with threads must not."""
    command = [sys.executable, "-m", "tests.acceptance.crash_flows", work, name, str(folder), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cases: list[Case] = json.loads(done.stdout)
    return cases


def judge(name: str, cases: list[Case]) -> None:
    """Raise `AssertionError` for the first promise that a report breaks."""
    whole = cases[0][0]
    assert whole["exit"] == 0, whole["error"]
    killed = {case[0]["at"] for case in cases if len(case) > 1}
    assert killed == set(points_of(whole)), "a point was never killed"
    for case in cases[1:]:
        where = f"{name}, killed " + ", then ".join(life["at"] for life in case[:-1])
        judge_deaths(case, where)
        judge_end(case[-1], whole, where)
        judge_keys(case, where)
        for before, after in pairwise(case):
            judge_resume(name, before, after, where)
        if SCENARIOS[name].program is run_to_its_end:
            judge_chain_length(case, whole, where)


def judge_deaths(case: Case, where: str) -> None:
    for life in case[:-1]:
        assert life["exit"] == -9, f"{where}: ended with {life['exit']} instead. {life['error']}"
        assert life["at"] in [line["point"] for line in life["trace"]], where


def judge_end(last: Life, whole: Life, where: str) -> None:
    """The run ends as if nothing had happened, once, and nobody holds it."""
    assert last["exit"] == 0, f"{where}: {last['error']}"
    for field in ("status", "result", "state"):
        assert last[field] == whole[field], f"{where}: another {field}"
    assert last["again"] == whole["result"], f"{where}: the recorded result is another"
    assert last["ran_again"] == 0, f"{where}: a finished run ran again"
    assert not last["is_driven"], f"{where}: the lease was kept"
    assert [c["sequence"] for c in last["chain"]] == list(range(1, len(last["chain"]) + 1)), where
    assert ended_steps(last["chain"]) == ended_steps(whole["chain"]), f"{where}: other steps"


def judge_keys(case: Case, where: str) -> None:
    """Every attempt of a visit has one key, in every life, and it is the recorded one."""
    keys: dict[tuple[str, int], set[str]] = {}
    for life in case:
        for line in bodies(life):
            if "key" in line:
                keys.setdefault((line["node"], line["visit"]), set()).add(line["key"])
    for path, visit, _, _, key in steps(case[-1]["chain"]):
        if key is not None:
            keys.setdefault((path, visit), set()).add(key)
    changing = {visit: found for visit, found in keys.items() if len(found) > 1}
    assert not changing, f"{where}: keys changed: {changing}"


def judge_resume(name: str, before: Life, after: Life, where: str) -> None:
    """What was recorded does not run again; failed attempts go on counting."""
    begun = [(line["node"], line["visit"]) for line in bodies(after)]
    finished = {(s[0], s[1]) for s in steps(after["recorded"]) if s[2] == "completed"}
    assert finished.isdisjoint(begun), f"{where}: recorded steps ran again: {finished & set(begun)}"
    failures: dict[tuple[str, int], int] = {}
    for path, visit, status, attempts, _ in steps(after["recorded"]):
        if status == "retrying":
            failures[path, visit] = attempts
    for (path, visit), failed in failures.items():
        tried = [b["attempt"] for b in bodies(after) if (b["node"], b["visit"]) == (path, visit)]
        assert tried == list(range(failed + 1, failed + 1 + len(tried))), f"{where}: attempts {tried}"
    if name in EVERY_STEP:
        again = put_attempts(before) & {attempt_of(line) for line in bodies(after)}
        assert not again, f"{where}: ran again though a put had followed them: {again}"


def judge_chain_length(case: Case, whole: Life, where: str) -> None:
    """A put that was cut off before it began left nothing; one that had returned left its record."""
    when, kind, number = case[0]["at"].split(" ", 2)
    if kind == "put":
        there = int(number) - (when == "before")
        expected = min(there, len(whole["chain"]))
        assert len(case[1]["recorded"]) == expected, f"{where}: {len(case[1]['recorded'])} records"


def bodies(life: Life) -> list[dict[str, Any]]:
    """Return the bodies a process began."""
    return [line for line in life["trace"] if line["point"].startswith("before body")]


def attempt_of(line: dict[str, Any]) -> tuple[str, int, int]:
    return line["node"], line["visit"], line.get("attempt", 1)


def put_attempts(life: Life) -> set[tuple[str, int, int]]:
    """Return the attempts that had ended in a process before its last put began and that put returned."""
    ended: set[tuple[str, int, int]] = set()
    in_put: set[tuple[str, int, int]] = set()
    durable: set[tuple[str, int, int]] = set()
    for line in life["trace"]:
        if line["point"].startswith("after body"):
            ended.add(attempt_of(line))
        elif line["point"].startswith("before put"):
            in_put = set(ended)
        elif line["point"].startswith("after put"):
            durable |= in_put
    return durable


def steps(chain: list[dict[str, Any]]) -> list[list[Any]]:
    return [step for checkpoint in chain for step in checkpoint["steps"]]


def ended_steps(chain: list[dict[str, Any]]) -> list[list[Any]]:
    """Return every attempt that came to an end, in no particular order and without keys."""
    return sorted(step[:4] for step in steps(chain) if step[2] != "running")


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_killed_at_any_point_ends_as_if_it_had_not_been(name: str, tmp_path: Path) -> None:
    cases = report("matrix", name, tmp_path, DEEP.get(name, "middle"))
    judge(name, cases)
    deep = sum(len(case) == 3 for case in cases)
    print(f"\n{name}: killed at {len(points_of(cases[0][0]))} points, twice in {deep} runs")


def test_no_kind_of_write_is_left_out(tmp_path: Path) -> None:
    """Each scenario is killed at all of its writes; together they make every write that the runtime knows."""
    kinds = set()
    for name in ("large", "interrupted", "cancelled", "renewed"):
        (tmp_path / name).mkdir()
        [whole], *_ = report("replies", name, tmp_path / name)
        kinds |= {p.split()[1] for p in points_of(whole) if " body " not in p}
    assert kinds == KINDS


def test_branches_of_the_diamond_overlap_and_the_album_has_keyframes(tmp_path: Path) -> None:
    for name in ("diamond", "keyframes"):
        (tmp_path / name).mkdir()
    [diamond], *_ = report("replies", "diamond", tmp_path / "diamond")
    points = points_of(diamond)
    assert points.index("before body publish 1") < points.index("after body count 1")
    assert points.index("after put 3") < points.index("after body publish 1")
    [album], *_ = report("replies", "keyframes", tmp_path / "keyframes")
    assert sum(c["keyframe"] for c in album["chain"]) >= 2


@pytest.mark.parametrize("name", [n for n in SCENARIOS if n != "cancelled"])
def test_a_write_whose_reply_was_lost_is_not_taken_for_a_conflict(name: str, tmp_path: Path) -> None:
    [whole], *cases = report("replies", name, tmp_path)
    assert whole["exit"] == 0, whole["error"]
    assert cases
    for [life] in cases:
        where = f"{name}, reply lost {life['at']}"
        assert life["at"] in points_of(life), where
        judge_end(life, whole, where)
        judge_keys([life], where)


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


# -- the judge can say no -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    return report("matrix", "retry", tmp_path_factory.mktemp("honest"), "none")


def case_at(cases: list[Case], at: str) -> Case:
    return next(case for case in cases if case[0]["at"] == at)


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
    case = case_at(cases, "after body call 1")
    case[1]["trace"].append({"point": "before body take 1", "node": "take", "visit": 1})


def forget_a_failure(cases: list[Case]) -> None:
    case = case_at(cases, "before body call 2")
    for line in case[1]["trace"]:
        if "attempt" in line:
            line["attempt"] -= 1


def record_an_attempt_twice(cases: list[Case]) -> None:
    chain = case_at(cases, "before body call 2")[1]["chain"]
    retried = next(c for c in chain if any(s[2] == "retrying" for s in c["steps"]))
    retried["steps"] *= 2


def lose_a_record(cases: list[Case]) -> None:
    case_at(cases, "after put 3")[1]["recorded"].pop()


def keep_the_lease(cases: list[Case]) -> None:
    case_at(cases, "after put 3")[1]["is_driven"] = True


LIES = [
    *(leave_a_point_out, let_it_live, change_the_result, change_a_key, run_a_recorded_step),
    *(forget_a_failure, record_an_attempt_twice, lose_a_record, keep_the_lease),
]


@pytest.mark.parametrize("lie", LIES)
def test_the_judge_sees_what_is_wrong(lie: Callable[[list[Case]], None], honest: list[Case]) -> None:
    cases = copy.deepcopy(honest)
    judge("retry", cases)
    lie(cases)
    with pytest.raises(AssertionError):
        judge("retry", cases)
