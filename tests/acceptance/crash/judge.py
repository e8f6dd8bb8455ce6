"""Judge what was seen of runs that were killed and resumed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from tests.acceptance.crash.lives import BY_NAME, deadly, points_of
from tests.acceptance.crash.scenarios import Scenario, run_to_its_end

Life = dict[str, Any]
Case = list[Life]
Visit = tuple[str, int]
Attempt = tuple[str, int, int]
LOOKS = (" claim_due ", " fire ")
"""In the names of the points where someone looks for work, or for answers."""
UNDONE = "/!undo"
AT_ONCE = ("signals-for-two-open-waits", "child-runs,")
"""Scenarios in which two nodes end at the same time, or two runs are driven, and may share a put."""


def judge(name: str, cases: list[Case], *, is_partial: bool = False) -> None:
    """Raise `AssertionError` for the first promise that a report breaks.

    One that is partial is of a few points; any other is of each at which the run is to be killed.
    """
    scenario, whole = BY_NAME[name], cases[0][0]
    assert whole["exit"] == 0, whole["error"]
    killed = {case[0]["at"] for case in cases if len(case) > 1}
    due = set() if is_partial else set(deadly(points_of(whole)))
    assert killed and killed >= due, "a point was never killed"
    for case in cases[1:]:
        where = f"{name}, killed " + ", then ".join(life["at"] for life in case[:-1])
        judge_deaths(case, where)
        judge_end(case[-1], like(case[-1], whole, scenario), where, stops=scenario.stops)
        judge_keys(case, where)
        judge_effects(case, where)
        for before, after in pairwise(case):
            judge_resume(scenario, before, after, where)
        judge_undone(case, where)
        if scenario.program is run_to_its_end:
            judge_chain_length(case, whole, where)


def judge_replies(name: str, cases: list[Case]) -> None:
    """A write whose reply was lost is not taken for a conflict: the run ends as if it had been heard."""
    [whole], *others = cases
    assert whole["exit"] == 0, whole["error"]
    assert others
    for [life] in others:
        where = f"{name}, reply lost {life['at']}"
        assert life["at"] in points_of(life), where
        judge_end(life, whole, where, stops=BY_NAME[name].stops)
        judge_keys([life], where)


def judge_deaths(case: Case, where: str) -> None:
    for life in case[:-1]:
        is_reached = life["at"] in [line["point"] for line in life["trace"]]
        may_share = where.startswith(AT_ONCE) and " put " in life["at"]
        if (may_share or any(look in life["at"] for look in LOOKS)) and not is_reached:
            # How often it looks for work, or for answers, while a run is slow is up to the machine.
            assert life["exit"] == 0, f"{where}: {life['error']}"
            continue
        assert life["exit"] == -9, f"{where}: ended with {life['exit']} instead. {life['error']}"
        assert is_reached, where


def judge_end(last: Life, whole: Life, where: str, *, stops: bool = False) -> None:
    """The run ends as if nothing had happened, once, and no one holds it."""
    assert last["exit"] == 0, f"{where}: {last['error']}"
    if stops:
        last, whole = asked_once(last), asked_once(whole)
    for field in ("status", "result", "states", "waits", "acts"):
        assert last[field] == whole[field], f"{where}: another {field}"
    assert last["again"] == whole["result"], f"{where}: the recorded result is another"
    assert last["ran_again"] == 0, f"{where}: a finished run ran again"
    assert not last["is_driven"], f"{where}: the lease was kept"
    for chain in last["chains"]:
        assert [c["sequence"] for c in chain] == list(range(1, len(chain) + 1)), where
    assert ended_steps(last["chains"]) == ended_steps(whole["chains"]), f"{where}: other steps"


def like(last: Life, whole: Life, scenario: Scenario) -> Life:
    """Return the life that the last one is to be like: of a chancy flow, itself."""
    return {**last, "status": whole["status"]} if scenario.is_chancy and "result" in last else whole


def judge_effects(case: Case, where: str) -> None:
    """An effect is only repeated with the same inputs and key, and not once anything behind it began."""
    made: dict[str, set[tuple[str, str]]] = {}
    over: set[Visit] = set()
    for life in case:
        ended: set[Visit] = set()
        for line in life["trace"]:
            if "node" not in line:
                continue
            is_begun, visit = line["point"].startswith("before body"), visit_of(line)
            if is_begun:
                over |= {one for one in ended if place_of(one[0]) != place_of(line["node"])}
            if "given" in line and is_begun:
                assert visit not in over, f"{where}: {visit} was made again though more had begun"
                made.setdefault(line["key"], set()).add((line["node"], line["given"]))
            elif "given" in line:
                ended.add(visit)
    others = {key: found for key, found in made.items() if len(found) > 1}
    assert not others, f"{where}: repeated with other inputs: {others}"
    begun = {place_of(path) for found in made.values() for path, _ in found}
    paths = {path for path, *_ in steps(case[-1]["chains"])}
    kept = paths | {place_of(path) for path in paths if "/$" in path or path.endswith(UNDONE)}
    assert begun <= kept, f"{where}: {begun - kept} was begun, and the run went another way"


def place_of(path: str) -> str:
    """Return the node or item of the run's own flow that a path lies in."""
    return path.partition("/")[0]


def asked_once(life: Life) -> Life:
    """Return a life as if its operator had been asked once about each effect."""
    chains = [
        [
            {**checkpoint, "steps": [s for s in checkpoint["steps"] if s[2] not in ("halted", "retrying")]}
            for checkpoint in chain
        ]
        for chain in life["chains"]
    ]
    waits = sorted(map(list, {tuple(wait) for wait in life["waits"]}))
    states = [{k: v for k, v in state.items() if not k.startswith("@wait")} for state in life["states"]]
    acts = sorted(map(list, {tuple(act) for act in life["acts"]}))
    return {**life, "chains": chains, "waits": waits, "states": states, "acts": acts}


def judge_keys(case: Case, where: str) -> None:
    """Every attempt of a visit has one key, in every life, and it is the recorded one."""
    keys: dict[Visit, set[str]] = {}
    for life in case:
        for line in bodies(life):
            if "key" in line:
                keys.setdefault(visit_of(line), set()).add(line["key"])
    for path, visit, _, _, key in steps(case[-1]["chains"]):
        if key is not None:
            keys.setdefault((path, visit), set()).add(key)
    changing = {visit: found for visit, found in keys.items() if len(found) > 1}
    assert not changing, f"{where}: keys changed: {changing}"


def judge_resume(scenario: Scenario, before: Life, after: Life, where: str) -> None:
    """What was recorded does not run again, nor anything inside it; failed attempts go on counting."""
    ended = {(s[0], s[1]) for s in steps(after["recorded"]) if s[2] in (*scenario.final, "kept")}
    again = {visit for line in bodies(after) for visit in around(*visit_of(line)) if visit in ended}
    assert not again, f"{where}: recorded steps ran again: {again}"
    failures: dict[Visit, int] = {}
    for path, visit, status, attempts, _ in steps(after["recorded"]):
        if status == "retrying":
            failures[path, visit] = attempts
    for failed, count in failures.items():
        tried = [b["attempt"] for b in bodies(after) if visit_of(b) == failed]
        assert tried == list(range(count + 1, count + 1 + len(tried))), f"{where}: attempts {tried}"
    if scenario.commits_every_step:
        failed_visits = {(s[0], s[1]) for s in steps(after["recorded"]) if s[2] == "failed"}
        passed = (failed_visits if scenario.reopens else set()) | left_inside(after["recorded"])
        begun = {attempt_of(line) for line in bodies(after) if visit_of(line) not in passed}
        repeated = put_attempts(before, scenario.atomic) & begun
        assert not repeated, f"{where}: ran again though a put had followed them: {repeated}"


def judge_undone(case: Case, where: str) -> None:
    """What is undone is undone in reverse order of the chain, one after the other."""
    begun = [line["node"] for life in case for line in bodies(life) if line["node"].endswith(UNDONE)]
    undone = [path for k, path in enumerate(begun) if path not in begun[:k]]
    ended = [(s[0], s[1]) for s in steps(case[-1]["chains"]) if s[2] == "completed"]
    addresses = [f"{path}@{visit}" if visit > 1 else path for path, visit in ended]
    expected = [f"{one}{UNDONE}" for one in reversed(addresses) if f"{one}{UNDONE}" in undone]
    assert undone == expected, f"{where}: undone in another order: {undone}"
    again = [
        begun[k] for k in range(1, len(begun)) if begun[k] in begun[: k - 1] and begun[k] != begun[k - 1]
    ]
    assert not again, f"{where}: {again} was undone again though more had been undone"


def left_inside(chains: list[list[dict[str, Any]]]) -> set[Visit]:
    """Return the visits that were left for a wait inside them: they are entered again."""
    inside = {visit for path, visit_, *_ in steps(chains) if "/$" in path for visit in around(path, visit_)}
    return {(s[0], s[1]) for s in steps(chains) if s[2] == "halted" and (s[0], s[1]) in inside}


def judge_chain_length(case: Case, whole: Life, where: str) -> None:
    """A put that was cut off before it began left nothing; one that had returned left its record."""
    when, kind, number = case[0]["at"].split(" ", 2)
    if kind == "put":
        there = int(number) - (when == "before")
        expected = min(there, len(whole["chains"][0]))
        found = sum(len(chain) for chain in case[1]["recorded"])
        assert found == expected, f"{where}: {found} records"


def around(path: str, visit: int) -> Iterator[Visit]:
    """Yield a visit, and every visit and item it lies inside of: `rag@2#7/embed` is in `rag#7` and `rag`.

    An item is recorded as a visit of its own, a flow under its name and the number of the visit.
    """
    yield path, visit
    while path and not path.endswith(UNDONE):  # which is beside what it undoes
        head, _, last = path.rpartition("/")
        address, _, item = last.partition("#")
        name, _, number = address.partition("@")
        outer = f"{head}/" if head else ""
        if item:
            yield outer + last, 1
        if item or number:
            yield outer + name, int(number or 1)
        elif visit == 0:
            yield outer + name, 1
        path, visit = head, 0


def is_inside(path: str, names: Iterable[str]) -> bool:
    """True if a path lies inside one of these flows, at any depth."""
    outer = path.split("/")[:-1]
    return any(segment.partition("#")[0].partition("@")[0] in names for segment in outer)


def bodies(life: Life) -> list[dict[str, Any]]:
    """Return the bodies a process began."""
    return [line for line in life["trace"] if line["point"].startswith("before body")]


def visit_of(line: dict[str, Any]) -> Visit:
    return line["node"], line["visit"]


def attempt_of(line: dict[str, Any]) -> Attempt:
    return line["node"], line["visit"], line.get("attempt", 1)


def put_attempts(life: Life, atomic: Iterable[str] = ()) -> set[Attempt]:
    """Return the attempts that had ended in a process before its last put began and that put returned.

    What is inside an atomic flow is not recorded, so no put covers it.
    """
    ended: set[Attempt] = set()
    in_put: set[Attempt] = set()
    durable: set[Attempt] = set()
    for line in life["trace"]:
        if line["point"].startswith("after body") and not is_inside(line["node"], atomic):
            ended.add(attempt_of(line))
        elif line["point"].startswith("before put"):
            in_put = set(ended)
        elif line["point"].startswith("after put"):
            durable |= in_put
    return durable


def steps(chains: list[list[dict[str, Any]]]) -> list[list[Any]]:
    return [step for chain in chains for checkpoint in chain for step in checkpoint["steps"]]


def ended_steps(chains: list[list[dict[str, Any]]]) -> list[list[Any]]:
    """Return every attempt that came to an end, in no particular order and without keys."""
    return sorted(step[:4] for step in steps(chains) if step[2] not in ("running", "kept"))
