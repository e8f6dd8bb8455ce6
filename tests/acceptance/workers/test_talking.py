"""Senders, publishers, workers and forks at random on real stores, all of which are killed at random times.

What is sent, where it goes and who is killed when follow from a seed; how the processes meet is up to the
machine. No signal is lost, none is taken twice, and those of one sender come in order; so do events, to each
run that waits for them. `EVERSTEP_SOAK=1` tries many seeds on every store, with longer plans.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from everstep import Host
from everstep.errors import BadRequest, LeaseConflict, StoreError
from tests.acceptance.workers.talker import told
from tests.acceptance.workers.talking_flows import FLOWS, LAST, NAMES, inputs_of
from tests.servers import warm

IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
SEED = int(os.environ.get("EVERSTEP_SEED", "0")) if IS_SOAK else 0
SEEDS = int(os.environ.get("EVERSTEP_SCHEDULES", "25")) if IS_SOAK else 1
LENGTH = 40 if IS_SOAK else 10
"""Acts of each sender."""
DEATHS, MOST_DEATHS = (10, 60) if IS_SOAK else (3, 5)
LIFE = 0.7
"""Seconds that a worker lives at least."""
PATIENCE = 120.0
SENDERS = ("ann", "bob")
WORKERS = 2
HERE = Path(__file__)
STORES = (
    *("sqlite", "redis"),
    *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("folder", "postgres", "s3")),
)


@dataclass
class Plan:
    """What is to happen besides deaths."""

    runs: dict[str, str] = field(default_factory=dict)
    """Flows by runs."""
    orders: dict[str, int] = field(default_factory=dict)
    acts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """By senders."""

    @classmethod
    def drawn(cls, chance: Random) -> Plan:
        plan = cls()
        for number in range(4):
            run_id = f"R{number}"
            plan.runs[run_id] = list(FLOWS)[number]
            plan.orders[run_id] = chance.randint(0, 1)
        for by in SENDERS:
            plan.acts[by] = [plan._act(chance, by, number) for number in range(1, LENGTH + 1)]
        return plan

    def _act(self, chance: Random, by: str, number: int) -> dict[str, Any]:
        run_id = chance.choice(list(self.runs))
        flow, about = self.runs[run_id], {"id": f"{by}:{number}", "pause": chance.choice([0, 0, 0.01, 0.05])}
        if flow not in NAMES:
            return {"kind": "publish", "order": chance.randint(0, 1), **about}
        to = chance.choice([run_id, run_id, fork_of(run_id)])
        return {"kind": "send", "run": to, "name": chance.choice(NAMES[flow]), **about}

    def events(self, order: int) -> list[str]:
        return [act["id"] for acts in self.acts.values() for act in acts if act.get("order", None) == order]


def fork_of(run_id: str) -> str:
    return f"{run_id}-fork"


class Stage:
    """The processes that play a plan, and those who kill them."""

    def __init__(self, folder: Path, url: str, plan: Plan, chance: Random) -> None:
        self.folder, self.url, self.plan, self.chance = folder, url, plan, chance
        self.began: dict[int, float] = {}
        """When workers did, by their ids."""
        self.told_before: dict[str, int] = {}
        """How many acts were told of when a sender began."""
        self.senders = {by: self._sender(by) for by in SENDERS}
        self.workers = [self._worker() for _ in range(WORKERS)]
        self.asleep: tuple[warm.Process, float] | None = None
        self.deaths = 0

    def _begin(self, name: str, *command: str) -> warm.Process:
        with (self.folder / f"{name}.txt").open("ab") as said:
            return warm.Process([sys.executable, "-m", *command], stdout=said, stderr=said)

    def _worker(self) -> warm.Process:
        flows = str(HERE.with_name("talking_flows.py"))
        worker = self._begin("workers", "everstep", "worker", flows, "--store", self.url)
        self.began[worker.pid] = time.monotonic()
        return worker

    def _sender(self, by: str) -> warm.Process:
        self.told_before[by] = len(told(self.journal(by)))
        script = self.folder / f"{by}.plan"
        if not script.exists():
            script.write_text("".join(json.dumps(act) + "\n" for act in self.plan.acts[by]))
        return self._begin(
            by, "tests.acceptance.workers.talker", self.url, str(script), str(self.journal(by))
        )

    def journal(self, by: str) -> Path:
        return self.folder / f"{by}.journal"

    def are_senders_done(self) -> bool:
        for by, process in self.senders.items():
            if process.poll() not in (None, 0, -signal.SIGKILL):
                raise AssertionError((self.folder / f"{by}.txt").read_text())
        return all(len(told(self.journal(by))) == LENGTH for by in SENDERS)

    def strike(self) -> None:
        """Kill a process, and let another begin at once; or let a worker sleep for longer than its lease."""
        victim = self.chance.randrange(WORKERS + len(SENDERS) + 1)
        if victim < WORKERS:
            if self._is_new(self.workers[victim]):
                return
            self._end(self.workers[victim])
            self.workers[victim] = self._worker()
        elif victim < WORKERS + len(SENDERS):
            by = SENDERS[victim - WORKERS]
            if len(told(self.journal(by))) in (LENGTH, self.told_before[by]):
                return  # it has not come to anything yet
            self._end(self.senders[by])
            self.senders[by] = self._sender(by)
        elif self.asleep is None:
            worker = self.chance.choice(self.workers)
            worker.send_signal(signal.SIGSTOP)
            self.asleep = worker, time.monotonic() + 2.0
        self.deaths += 1

    def _is_new(self, worker: warm.Process) -> bool:
        return time.monotonic() < self.began[worker.pid] + LIFE

    def wake(self, *, at_once: bool = False) -> None:
        if self.asleep is not None and (at_once or time.monotonic() > self.asleep[1]):
            self.asleep[0].send_signal(signal.SIGCONT)
            self.asleep = None

    def _end(self, process: warm.Process) -> None:
        if self.asleep is not None and self.asleep[0] is process:
            self.asleep = None
        process.kill()
        process.wait(20)

    def close(self) -> None:
        self.wake(at_once=True)
        for process in (*self.workers, *self.senders.values()):
            if process.poll() is None:
                process.kill()
            process.wait(20)


@pytest.fixture
def url(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> str:
    if kind in ("postgres", "redis", "s3"):
        return str(request.getfixturevalue(f"{kind}_url"))
    return f"sqlite:///{tmp_path}/runs.db" if kind == "sqlite" else f"file://{tmp_path}/store"


def again(work: Callable[[], Any]) -> Any:
    """Do something with the store, however often it is busy."""
    for _ in range(100):
        try:
            return work()
        except (StoreError, LeaseConflict):
            time.sleep(0.05)
    return work()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEED * 1000, SEED * 1000 + SEEDS))
@pytest.mark.parametrize("kind", STORES)
def test_no_signal_and_no_event_is_lost_or_taken_twice_whichever_process_dies(
    tmp_path: Path, url: str, seed: int
) -> None:
    chance = Random(seed)
    plan = Plan.drawn(chance)
    with Host(url) as host:
        for run_id, flow in plan.runs.items():
            order = plan.orders[run_id]
            host.start(FLOWS[flow], inputs_of(flow, order, len(plan.events(order))), run_id=run_id)
        stage = Stage(tmp_path, url, plan, chance)
        try:
            play(host, stage, chance)
            sent = [act for by in SENDERS for act in told(stage.journal(by))]
            wait_for_the_end(host, stage)
        finally:
            stage.close()
        judge(host, plan, sent)
    print(f"\n{len(sent)} signals and events, {stage.deaths} deaths")


def play(host: Host, stage: Stage, chance: Random) -> None:
    """Kill and fork until all is sent."""
    to_fork = list(stage.plan.runs)
    chance.shuffle(to_fork)
    end = time.monotonic() + PATIENCE
    while not stage.are_senders_done() or stage.deaths < DEATHS:
        assert time.monotonic() < end, "the senders do not come to their end"
        time.sleep(chance.uniform(0.05, 0.3))
        stage.wake()
        if to_fork and chance.random() < 0.5:
            fork(host, to_fork.pop())
        if stage.deaths < MOST_DEATHS:
            stage.strike()
    for run_id in to_fork:
        fork(host, run_id)


def fork(host: Host, run_id: str) -> None:
    """Fork a run as it stands."""
    try:
        again(lambda: host.fork(run_id, fork_id=fork_of(run_id)))
    except BadRequest:
        again(lambda: host.info(fork_of(run_id)))  # it was made, and the reply was lost


def wait_for_the_end(host: Host, stage: Stage) -> None:
    """Say the last word to every run, and wait until all have taken it."""
    everyone = [name for run_id in stage.plan.runs for name in (run_id, fork_of(run_id))]
    for run_id in everyone:
        names = NAMES.get(stage.plan.runs[run_id.removesuffix("-fork")])
        if names is not None:
            again(lambda run_id=run_id, name=names[0]: host.send(run_id, name, LAST, id=LAST))  # type: ignore[misc]
    stage.wake(at_once=True)
    end = time.monotonic() + PATIENCE
    while not all(again(lambda one=one: host.info(one)).status.is_final for one in everyone):  # type: ignore[misc]
        assert time.monotonic() < end, standing(host, everyone)
        time.sleep(0.05)


def standing(host: Host, everyone: list[str]) -> str:
    told = []
    for run_id in everyone:
        info = host.info(run_id)
        waits = [f"{wait.node}@{wait.visit} {wait.status}" for wait in host.waits(run_id)]
        told.append(
            f"{run_id} {info.status} {waits} {[s.id for s in host.inbox(run_id)]} {got(host, run_id)}"
        )
    return "\n".join(told)


def got(host: Host, run_id: str) -> list[str]:
    return list(host.state(run_id).get("got") or [])


def judge(host: Host, plan: Plan, sent: list[dict[str, Any]]) -> None:
    """Compare what each run has with what was sent to it."""
    for run_id, flow in plan.runs.items():
        for name in (run_id, fork_of(run_id)):
            assert host.info(name).status == "completed", host.info(name)
            assert not host.info(name).is_driven
            if flow == "pays":
                assert sorted(got(host, name)) == sorted(plan.events(plan.orders[run_id])), name
            else:
                judge_signals(host, name, [act for act in sent if act.get("run") == name])
    for run_id, flow in plan.runs.items():
        if flow != "pays":
            judge_fork(host, run_id, {act["id"] for act in sent if act.get("run") == run_id})


def judge_signals(host: Host, run_id: str, sent: list[dict[str, Any]]) -> None:
    """All that came is taken once, and that of one sender under one name as it was sent."""
    came = {act["id"]: act for act in sent if act["came"] == "sent"}
    taken = [one for one in got(host, run_id) if one in came]
    assert sorted(taken) == sorted(came), f"{run_id} has {taken} of {list(came)}"
    for by in SENDERS:
        for name in ("message", "notes", "got"):
            numbers = [
                int(one.partition(":")[2]) for one in taken if (came[one]["name"], one[:3]) == (name, by)
            ]
            assert numbers == sorted(numbers), f"{run_id} has {name} of {by} as {numbers}"
    assert [one.id for one in host.inbox(run_id)] == [], run_id


def judge_fork(host: Host, run_id: str, sent: set[str]) -> None:
    """A fork has what its run had taken until then, and nothing that came to that later."""
    before = [one for one in got(host, fork_of(run_id)) if one in sent]
    had = [one for one in got(host, run_id) if one in sent]
    assert before == had[: len(before)], f"{fork_of(run_id)} has {before}, its run {had}"
