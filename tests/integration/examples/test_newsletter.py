"""The example of rate limits, killed and finished."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from everstep import Host
from everstep.testing import ManualClock
from everstep.testing.killing import Killer
from tests.integration.examples.lives import example, lives

pytestmark = pytest.mark.stores("memory")


def post(outbox: Path, dies: int = 0, counts: Killer | None = None) -> dict[str, list[datetime]]:
    """Send all letters, and return when those of each shop were sent."""

    def main(host: Host, clock: ManualClock) -> dict[str, list[datetime]]:
        letters = example("newsletter")
        vars(letters)["OUTBOX"] = outbox
        letters.accept(host)
        while not letters.are_sent(host):
            host.work([letters.LETTER], until_idle=True)
            clock.advance(1)
        sent: dict[str, list[datetime]] = {}
        for run in host.runs(flow="letter", status="completed"):
            assert run.ended_at is not None
            sent.setdefault(run.run_id.split("-")[0], []).append(run.ended_at)
        return sent

    return lives(main, dies, counts)


def most_in_a_minute(sent: Sequence[datetime]) -> int:
    return max(sum(at <= other < at + timedelta(minutes=1) for other in sent) for at in sent)


def test_letters_are_sent_once_and_no_faster_than_allowed_wherever_a_process_dies(tmp_path: Path) -> None:
    whole = Killer()
    sent = post(tmp_path / "whole", counts=whole)
    assert {shop: len(times) for shop, times in sent.items()} == {"books": 4, "tools": 4}
    assert all(most_in_a_minute(shop) <= 3 for shop in sent.values())
    for at in range(1, len(whole.points), 7):
        sent = post(tmp_path / f"{at}", dies=at)
        keys = [json.loads(line)["key"] for line in (tmp_path / f"{at}").read_text().splitlines()]
        assert len(keys) == len(set(keys)) == 8
        for shop in sent.values():
            assert len(shop) == 4
            assert most_in_a_minute(shop) <= 4, "three, and one that had started in the process that died"
