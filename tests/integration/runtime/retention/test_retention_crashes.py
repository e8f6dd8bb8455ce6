"""Clean-up that is cut off before or after any of its writes, and begun again, comes to the same end."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from everstep import Durability, Flow, Host, Retention, node
from everstep.errors import EverstepError, RunErased, StoreError
from everstep.registry import Opened, open_store
from everstep.stores.memory import MemoryData, MemoryStore
from everstep.testing import ManualClock
from everstep.testing.conformance.crash import Interruption, Loss, interrupted

DAY = 24 * 3600
POLICY = Retention(whole=2, keep_last=4, tombstones_for="10d")


@node(output="page")
def fetch(text: str) -> str:
    return text * 1000


@node(output="size")
def measure(page: str) -> int:
    return len(page)


FLOW = Flow("pages", [fetch, measure], durability=Durability("strong", blob_threshold=500))
Open = Callable[[ManualClock], Opened]


def opener(kind: str, folder: Path) -> Open:
    if kind == "sqlite":
        return partial(open_store, f"sqlite:///{folder}/runs.db?synchronous=off")
    data = MemoryData()

    def open_it(clock: ManualClock) -> Opened:
        store = MemoryStore(clock, data)
        return Opened(store, store.artifacts, "memory:")

    return open_it


def furnish(open_it: Open, clock: ManualClock) -> None:
    """Make runs of which some share an artifact, and one that was erased long ago."""
    with Host(open_it(clock), clock=clock) as host:
        host.run(FLOW, {"text": "x"}, run_id="buried")
        host.retention.erase("buried")
        clock.advance(11 * DAY)
        for number in range(7):
            host.run(FLOW, {"text": "ab"[number % 2] if number < 4 else f"{number}"}, run_id=f"run-{number}")
        clock.advance(2 * DAY)


def picture(open_it: Open, clock: ManualClock) -> dict[str, Any]:
    """Return all that can be seen."""
    opened = open_it(clock)
    with Host(opened, clock=clock) as host:
        runs = host.runs()
        blobs: Any = opened.blobs
        return {
            "runs": {
                run.run_id: (run.status, run.checkpoints, run.trimmed_before, run.ended_at, run.is_driven)
                for run in runs
            },
            "values": {run.run_id: dict(host.state(run.run_id)) for run in runs},
            "left": {run.run_id: (run.reason, run.summary) for run in host.retention.removed()},
            "artifacts": [one.key for one in blobs.list_checkpoint_blobs()],
            "sound": [verified.is_sound for verified in host.storage.verify()],
        }


def clean(host: Host) -> None:
    found = host.retention.gc(retention=POLICY)
    if found.problems or found.artifacts.problem:
        raise StoreError("; ".join([*found.problems, found.artifacts.problem]))


def erase(host: Host) -> None:
    with suppress(RunErased):
        host.retention.erase("run-5")


IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
PLACES = [("memory", loss) for loss in Loss] + [
    ("sqlite", loss) for loss in (Loss if IS_SOAK else [Loss.AFTER])
]


@pytest.mark.parametrize("act", [clean, erase])
@pytest.mark.parametrize(("kind", "loss"), PLACES)
def test_clean_up_that_is_cut_off_comes_to_the_same_end(
    kind: str, loss: Loss, act: Callable[[Host], None], tmp_path: Path
) -> None:
    ends: list[dict[str, Any]] = []
    hit: list[str] = []
    for at in range(1, 100):
        clock = ManualClock(auto=True)
        folder = tmp_path / str(at)
        folder.mkdir()
        open_it = opener(kind, folder)
        furnish(open_it, clock)
        interruption = Interruption(at, loss)
        host = Host(interrupted(open_it(clock), interruption), clock=clock)
        with suppress(EverstepError):
            act(host)
        with suppress(EverstepError):
            host.close()
        clock.advance(31)
        with Host(open_it(clock), clock=clock) as sound:
            act(sound)
            clock.advance(2 * DAY)
            clean(sound)
        ends.append(picture(open_it, clock))
        if interruption.hit is None:
            break
        hit.append(interruption.hit)
    assert all(end == ends[-1] for end in ends), [
        (k, kind) for k, (end, kind) in enumerate(zip(ends, hit, strict=False)) if end != ends[-1]
    ]
    assert all(ends[-1]["sound"]) and "erase" in hit
    assert {"lease", "put", "trim", "note", "forget", "unblob"} <= set(hit) or act is erase
