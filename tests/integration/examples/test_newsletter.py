"""The example of rate limits, killed and finished."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from everstep import Host
from everstep.results import Event
from everstep.testing import ManualClock
from everstep.testing.killing import Killer
from tests.integration.examples.lives import example, lives

pytestmark = pytest.mark.stores("memory")


def post(outbox: Path, dies: int = 0, counts: Killer | None = None) -> dict[str, list[datetime]]:
    """Send all letters, and return when those of each shop were begun."""
    begun: dict[str, datetime] = {}

    def note(event: Event) -> None:
        if event.kind == "run_resumed":
            begun.setdefault(event.run_id, event.at)

    def main(host: Host, clock: ManualClock) -> None:
        letters = example("newsletter")
        vars(letters)["OUTBOX"] = outbox
        letters.accept(host)
        while not letters.are_sent(host):
            host.work([letters.LETTER], until_idle=True)
            clock.advance(1)
        assert len(host.runs(flow="letter", status="completed")) == 8

    lives(main, dies, counts, on_event=note)
    return {shop: [at for run, at in begun.items() if run.startswith(shop)] for shop in ("books", "tools")}


def most_at_once(begun: Sequence[datetime]) -> int:
    """Return how many began within most of a minute: time jumps here, and a run says so behind its claim."""
    return max(sum(at <= other < at + timedelta(seconds=40) for other in begun) for at in begun)


def test_letters_are_sent_once_and_no_faster_than_allowed_wherever_a_process_dies(tmp_path: Path) -> None:
    whole = Killer()
    for name in ("whole", *range(1, 1000, 7)):
        if name != "whole" and int(name) >= len(whole.points):
            break
        begun = post(tmp_path / f"{name}", *((0, whole) if name == "whole" else (int(name),)))
        keys = [json.loads(line)["key"] for line in (tmp_path / f"{name}").read_text().splitlines()]
        assert len(keys) == len(set(keys)) == 8
        for times in begun.values():
            assert len(times) == 4
            assert most_at_once(times) <= 3 + (name != "whole"), "one had begun in the process that died"
