"""The same seed gives the same trace, byte for byte: in any process, under any hash seed, on a busy machine.

Flows in one process are in `test_world.py`; here are fleets, with users, and the SQLite store.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from everstep.testing.simulation.faults import Drawn
from tests.simulation.kinds import KINDS
from tests.simulation.soaking import size

ROOT = Path(__file__).resolve().parents[2]
FLEETS = ("users", "signals", "bulk", "random")
SEEDS = size(soak=range(20), first=range(2))
BUSY = 3
"""So many processes compute all the time beside one of those that are compared."""
PROGRAM = """
from everstep import Context
from tests.simulation.test_same_trace import told
Context.marks = None  # as here
print(*told(), sep="\\n")
"""
SPIN = "while True: sum(range(1000))"


def told() -> Iterator[str]:
    """Yield what some worlds saw, with faults, and with threads in disorder."""
    for seed in SEEDS:
        for kind in FLEETS:
            store = "remote" if seed % 2 else "local"
            yield _told(kind, {"seed": seed, "store": store}, seed)
        yield _told("sqlite", {"subject": "spacious", "store": "sqlite"}, seed)
        yield _told("sqlite fleet", {"store": "sqlite"}, seed)


def _told(kind: str, said: dict[str, object], seed: int) -> str:
    found = KINDS[kind]
    drawn = Drawn(seed, hazard=0.02, disorder=0.1, kinds=found.faults(said))
    world = found.make(said).world(seed, drawn)
    try:
        world.run()
        return f"{kind} {seed}: {world.ledger.digest()}, {len(world.ledger.taken)} decisions"
    finally:
        world.close()


def in_a_process(hash_seed: str) -> list[str]:
    """Return what another process is told."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@contextmanager
def a_busy_machine() -> Iterator[None]:
    """Let other processes have most of the processors."""
    others = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(BUSY)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_the_same_seed_is_the_same_fleet_and_the_same_file_in_any_process_on_a_busy_machine() -> None:
    here = list(told())
    assert len({line.partition(": ")[2] for line in here}) == len(here), "worlds of different seeds differ"
    assert sum(int(line.split()[-2]) for line in here) > len(here)
    assert in_a_process("1") == here
    with a_busy_machine():
        assert in_a_process("2") == here
