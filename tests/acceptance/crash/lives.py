"""The process that runs, kills and resumes flows.

`python -m tests.acceptance.crash.lives matrix chain FOLDER none` kills the flow at each of its points in a
forked child, resumes it in another, and prints what it saw as JSON; `crash_judge.py` judges it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from everstep import Host, Status
from everstep.engine import flush
from everstep.errors import RunNotFound
from everstep.ports.system import Clock
from everstep.registry import Opened, open_store
from everstep.runtime.outage import outbox
from everstep.runtime.waits import open
from everstep.stores.objects.folder.readable import ReadableFolder
from everstep.stores.objects.store import ObjectStore
from everstep.testing.killing import Killer, KillingSpool, die, killing, lose_reply, read_trace
from everstep.testing.killing_bucket import KillingBucket
from tests.acceptance.crash.flows.changed import CHANGED
from tests.acceptance.crash.flows.children import FAMILIES, MORE_FAMILIES
from tests.acceptance.crash.flows.dynamic import DYNAMIC
from tests.acceptance.crash.flows.effects import ACTING
from tests.acceptance.crash.flows.forks import FORKED
from tests.acceptance.crash.flows.groups import GROUPED
from tests.acceptance.crash.flows.guards import SPENDING
from tests.acceptance.crash.flows.limits import LIMITED
from tests.acceptance.crash.flows.maps import MAPPED
from tests.acceptance.crash.flows.nested import NESTED
from tests.acceptance.crash.flows.outages import CUT_OFF, MORE_CUT_OFF, Line
from tests.acceptance.crash.flows.phases import EXAMPLES, MORE_PHASED, PHASED
from tests.acceptance.crash.flows.plain import PLAIN
from tests.acceptance.crash.flows.sagas import MORE_SAGAS, SAGAS
from tests.acceptance.crash.flows.signals import SIGNALLED
from tests.acceptance.crash.flows.steps import MORE_STEPS, STEPS
from tests.acceptance.crash.flows.streams import STREAMING, chunk_path
from tests.acceptance.crash.flows.times import MORE_TIMED, TIMED
from tests.acceptance.crash.flows.unknown import MORE_UNKNOWN, UNKNOWN
from tests.acceptance.crash.flows.waits import MORE_WAITING, WAITING
from tests.acceptance.crash.scenarios import RUN, Bodies, Facts, Hurry
from tests.servers.parts import within

SCENARIOS = {**PLAIN, **NESTED, **MAPPED, **GROUPED, **DYNAMIC, **FORKED, **WAITING, **CHANGED}
SCENARIOS |= {**STREAMING, **UNKNOWN, **CUT_OFF, **SPENDING, **PHASED, **ACTING, **SIGNALLED}
SCENARIOS |= {**STEPS, **FAMILIES, **LIMITED, **SAGAS, **TIMED}
IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
LONG_LIFE = 24
"""A life with more points than this is by default not killed at each of them."""
if IS_SOAK:
    SCENARIOS |= {
        **MORE_FAMILIES,
        **MORE_WAITING,
        **MORE_UNKNOWN,
        **MORE_CUT_OFF,
        **MORE_PHASED,
        **MORE_STEPS,
        **MORE_SAGAS,
        **MORE_TIMED,
        **EXAMPLES,
    }
BY_NAME = {**SCENARIOS, **MORE_FAMILIES, **MORE_STEPS, **MORE_SAGAS, **EXAMPLES}
"""Those that may be asked for, too."""
MOST_PLACES = 25
FILES = "file:"
"""In place of a server: a folder in each place."""
CHANCE = re.compile(r"datetime\.datetime\([^()]*\)|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Times and fresh ids, which are others in every life."""


def store_in(folder: Path) -> str:
    """Return the URL of the store of one place: a file in it, or a part of the server that is named."""
    server = os.environ.get("EVERSTEP_CRASH_STORE")
    if server is None:
        return f"sqlite:///{folder}/runs.db"
    if server == FILES:
        return f"file://{folder}/runs"
    part = f"{part_of(folder.parent)}_{folder.name}"
    if server.startswith("s3:"):
        return within(server, part)
    return f"{server}{'schema' if server.startswith('postgres') else 'prefix'}={part}"


def opened_in(folder: Path, clock: Clock, killer: Killer, line: Line) -> Opened:
    """Open the store of a place with points around every write, or around every object of files."""
    url = store_in(folder)
    if not url.startswith("file:"):
        return killing(line.to(open_store(url, clock)), by=killer)
    store = ObjectStore(KillingBucket(ReadableFolder(folder / "runs"), killer), clock)
    return line.to(Opened(store, store.artifacts, url))


def part_of(folder: Path) -> str:
    """Return what the names of all parts of a server begin with that belong to the places in a folder."""
    return f"crash_{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"


def live(name: str, folder: Path, killer: Killer, *, is_first_life: bool) -> Facts:
    """Run or resume the scenario in this process and tell how it ended."""
    flush.MAX_LAG = timedelta(hours=1)  # a machine that is slow for a second writes no more than another
    scenario = BY_NAME[name]
    flow = scenario.flow(name, Bodies(killer, is_first_life=is_first_life, folder=folder))
    clock = Hurry(folder)
    line = Line(folder)
    line.restore()
    store = opened_in(folder, clock, killer, line)
    spool = KillingSpool(folder / "spool", killer)
    outbox.REST = 0  # nor how long it leaves a store alone that does not answer
    open.LOOK = 3600.0  # how often a slow machine looks for answers by itself is chance
    with Host(store, clock=clock, notifiers={"unknown": lambda notice: None}, spool=spool) as host:
        recorded_before = [chain_of(host, run, spooled=True) for run in scenario.runs]
        (folder / "recorded.json").write_text(json.dumps(recorded_before))
        result = scenario.program(host, flow, scenario.inputs)
        given = scenario.inputs if result.run_id == RUN else None
        # A flow of its own: a loser's thread that nothing waits for may begin or end as late as now.
        unused = Killer()
        recorded = scenario.flow(name, Bodies(unused, is_first_life=False, folder=folder))
        again = host.run(recorded, given, run_id=result.run_id)
        return {
            "status": result.status,
            "result": plain(result),
            "states": [plain(host.state(run)) for run in scenario.runs],
            "again": plain(again),
            "ran_again": len(unused.points),
            "chains": [chain_of(host, run) for run in scenario.runs],
            "waits": sorted(wait for run in scenario.runs for wait in waits_of(host, run)),
            "acts": sorted(act for run in scenario.runs for act in acts_of(host, run)),
            "is_driven": any(host.info(run).is_driven for run in scenario.runs),
        }


def chain_of(host: Host, run: str, *, spooled: bool = False) -> list[Facts]:
    """Return the checkpoints of a run, each with its steps as (path, visit, status, attempts, key).

    The chunks that are kept of a stream are told of like steps.

    A fork shares the finished steps of its parent, not the keys and the failures. What is `spooled` counts
    as recorded.
    """
    try:
        history, forked_at = host.history(run), host.info(run).forked_at or 0
        history += host.storage.spooled(run) if spooled else []
    except RunNotFound:
        return []
    where = "" if run == RUN else f"{run}:"
    return [
        {
            "sequence": record.sequence,
            "keyframe": record.keyframe,
            "steps": [
                [where + s.path, s.visit, s.status.value, s.attempts, s.key if is_own else None]
                for s in record.steps
                if is_own or s.status is Status.COMPLETED
            ]
            + [
                [where + chunk_path(s.path, n), s.visit, "kept", 1, None]
                for s in record.steps
                for n in range(1, s.stream.chunks + 1 if s.stream is not None else 0)
            ],
        }
        for record in history
        for is_own in (record.sequence > forked_at,)
    ]


def waits_of(host: Host, run: str) -> list[list[str]]:
    """Return every wait that a run ever opened, with what became of it."""
    return [
        [run, w.node, f"{w.visit}", w.kind, w.status, f"{w.settled_by}", f"{w.answer}", f"{w.act}"]
        for w in host.waits(run, status=None, limit=1000)
    ]


def acts_of(host: Host, run: str) -> list[list[str]]:
    """Return who gave the answers that the steps of a run have taken, and why."""
    return [
        [run, step.path, f"{step.visit}", step.act.by, step.act.comment]
        for record in host.history(run)
        for step in record.steps
        if step.act is not None
    ]


def plain(values: Mapping[str, Any]) -> Facts:
    """Return values as text, those of inner flows inside."""
    return {
        CHANCE.sub("?", k): plain(v) if isinstance(v, Mapping) and not isinstance(v, dict) else brief(v)
        for k, v in sorted(values.items())
    }


def brief(value: Any) -> str:
    """Return a value as text, or its digest if that is long."""
    if isinstance(value, bytes) and len(value) > 500:
        return hashlib.sha256(value).hexdigest()
    text = CHANCE.sub("?", repr(value))
    return text if len(text) < 500 else hashlib.sha256(text.encode()).hexdigest()


def main(work: str, name: str, where: str, at: str | None = None) -> None:
    """Live once in a folder, dying at a point if one is given; `lost` loses that point's reply instead."""
    folder = Path(where)
    trace = folder / "trace.jsonl"
    killer = Killer(at, act=lose_reply if work == "lost" else die, trace=trace)
    was_here = folder / "was-here"
    is_first_life = not was_here.exists()
    was_here.touch()
    facts = live(name, folder, killer, is_first_life=is_first_life)
    (folder / "outcome.json").write_text(json.dumps(facts))


def in_child(work: str, name: str, folder: Path, at: str | None, *, afresh: bool = False) -> Facts:
    """Do `main` in a process of its own, forked or `afresh`; return how it ended and what it came across."""
    forget(folder)
    arguments = [work, name, str(folder), *([at] if at is not None else [])]
    pid = started(arguments) if afresh else forked(lambda: attempt(arguments))
    _, status = os.waitpid(pid, 0)
    return found_in(folder, at, pid, os.waitstatus_to_exitcode(status))


def in_one_child(work: str, name: str, lives: Sequence[tuple[Path, str | None]]) -> list[Facts]:
    """Do `main` in several places, one after the other, in one forked process: none of these lives is killed.

    To resume where another process died takes a process that knows nothing of that one, and this is such a
    process for each of the places. A process for each would only copy the same memory again and again.
    """
    for folder, _ in lives:
        forget(folder)
    arguments = [[work, name, str(folder), *([at] if at is not None else [])] for folder, at in lives]
    pid = forked(lambda: max([attempt(each) for each in arguments], default=0))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return [
        found_in(folder, at, pid, 0 if (folder / "outcome.json").exists() else code) for folder, at in lives
    ]


def forget(folder: Path) -> None:
    """Remove what an earlier life said of itself."""
    for stale in ("outcome.json", "recorded.json", "error.txt"):
        (folder / stale).unlink(missing_ok=True)


def found_in(folder: Path, at: str | None, pid: int, code: int) -> Facts:
    """Return what a life left behind."""
    outcome, recorded, error = (folder / f for f in ("outcome.json", "recorded.json", "error.txt"))
    return {
        "at": at,
        "exit": code,
        "trace": [line for line in read_trace(folder / "trace.jsonl") if line["pid"] == pid],
        "error": error.read_text() if error.exists() else None,
        "recorded": json.loads(recorded.read_text()) if recorded.exists() else [],
        **(json.loads(outcome.read_text()) if outcome.exists() else {}),
    }


def forked(work: Callable[[], int]) -> int:
    """Start some work in a fork of this process, which has no threads; a hundred kills cost no imports."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = work()
        finally:
            os._exit(code)
    return pid


def attempt(arguments: list[str]) -> int:
    """Do `main`; return 1 and leave word if it fails."""
    try:
        main(*arguments)
    except BaseException:
        Path(arguments[2], "error.txt").write_text(traceback.format_exc())
        return 1
    return 0


def started(arguments: list[str]) -> int:
    """Start `main` in a new interpreter."""
    child = subprocess.Popen([sys.executable, "-m", "tests.acceptance.crash.lives", *arguments])
    child.returncode = 0  # the caller waits for it by its id
    return child.pid


def lives(work: str, name: str, folder: Path, *deaths: str | None, afresh: bool = False) -> list[Facts]:
    """Let one run live and die in a place of its own."""
    with TemporaryDirectory(dir=folder) as place:
        return [in_child(work, name, Path(place), at, afresh=afresh) for at in deaths]


@contextmanager
def places(folder: Path, count: int) -> Iterator[list[Path]]:
    """Make several places."""
    with ExitStack() as stack:
        yield [Path(stack.enter_context(TemporaryDirectory(dir=folder))) for _ in range(count)]


def killed_at(points: Sequence[str], name: str, folder: Path) -> Iterator[list[Facts]]:
    """Kill a run at each of these points, each time in a process of its own, and resume it."""
    for some in batched(points):
        with places(folder, len(some)) as here:
            first = [in_child("run", name, place, at) for place, at in zip(here, some, strict=True)]
            last = in_one_child("run", name, [(place, None) for place in here])
        yield from map(list, zip(first, last, strict=True))


def batched(points: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield as many points at a time as there may be places in memory."""
    for start in range(0, len(points), MOST_PLACES):
        yield points[start : start + MOST_PLACES]


def matrix(name: str, folder: Path, *, deep: str) -> list[list[Facts]]:
    """Kill at the points of the first life; after some of those also at every point of the second.

    `deep` says after which: `none`, `middle` or `every`; with `once` after none of them, but at every point
    of the first. Unless it is one of these two, one run also lives in new interpreters. Each case is the list
    of lives a run had; the last of them is not killed.
    """
    cases = [lives("run", name, folder, None)]
    points = points_of(cases[0][0])
    middle = points[len(points) // 2] if points else None
    for case in list(killed_at(deadly(points) if deep == "none" else points, name, folder)):
        cases.append(case)
        at = case[0]["at"]
        if deep == "every" or (deep == "middle" and at == middle):
            cases += [lives("run", name, folder, at, then, None) for then in points_of(case[-1])]
    if deep not in ("none", "once") or IS_SOAK:
        cases.append(lives("run", name, folder, middle, None, afresh=True))
    return cases


def at_some(name: str, folder: Path, seed: str, count: int) -> list[list[Facts]]:
    """Kill at a few of the points of the first life, those that follow from a seed."""
    [whole] = lives("run", name, folder, None)
    points = points_of(whole)
    drawn = Random(f"{seed} {name}").sample(points, min(count, len(points)))
    return [[whole], *killed_at(drawn, name, folder)]


def at_nodes(name: str, folder: Path) -> list[list[Facts]]:
    """Kill at the beginning of every node, one at a time."""
    [whole] = lives("run", name, folder, None)
    nodes = [at for at in points_of(whole) if at.startswith("before body")]
    return [[whole], *killed_at(nodes, name, folder)]


def lost_replies(name: str, folder: Path) -> list[list[Facts]]:
    """Lose the reply of every write, one at a time."""
    [whole] = lives("run", name, folder, None)
    own = ("body", "spool", "unspool")  # what no store replies to
    writes = [p for p in points_of(whole) if p.startswith("after") and p.split()[1] not in own]
    cases = [[whole]]
    for some in batched(writes):
        with places(folder, len(some)) as here:
            found = in_one_child("lost", name, list(zip(here, some, strict=True)))
            cases += [[life] for life in found]
    return cases


def points_of(life: Facts) -> list[str]:
    """Return the points of a life that every such life reaches: how often a lease is renewed is chance."""
    points = [line["point"] for line in life["trace"]]
    return [p for p in points if " renew " not in p or p.endswith(" renew 1")]


def deadly(points: Sequence[str]) -> list[str]:
    """Return the points at which a life is killed: all of them, of a long one by default those on one side of
    each write and node, in turn. The simulated world has the others, and the long tests kill at them, too."""
    if IS_SOAK or len(points) <= LONG_LIFE:
        return list(points)
    return [point for place, point in enumerate(points) if place % 4 in (0, 3)]


def warm_up() -> None:
    """Do once what every life would do anew: what is read, compiled and cached is shared by all forks.

    Every thread of it ends with its host, so this process can be forked as before. It uses no server: some
    clients do not outlast a fork.
    """
    with TemporaryDirectory() as place:
        main("run", "small", place)
    assert threading.active_count() == 1, threading.enumerate()


if __name__ == "__main__":
    kind = os.environ.get("EVERSTEP_CRASH_STORE", "").partition(":")[0]
    drivers = {"postgresql": "postgres.store", "redis": "redis.store", "s3": "objects.cloud.bucket"}
    if kind not in ("", "file"):
        import_module(f"everstep.stores.{drivers[kind]}")  # here, not again in each child
    match sys.argv[1:]:
        case ["matrix", name, where, deep]:
            print(json.dumps(matrix(name, Path(where), deep=deep)))
        case ["whole", name, where]:
            print(json.dumps([lives("run", name, Path(where), None)]))
        case ["nodes", name, where]:
            print(json.dumps(at_nodes(name, Path(where))))
        case ["some", name, where, seed, count]:
            print(json.dumps(at_some(name, Path(where), seed, int(count))))
        case ["replies", name, where]:
            print(json.dumps(lost_replies(name, Path(where))))
        case arguments:
            main(*arguments)
