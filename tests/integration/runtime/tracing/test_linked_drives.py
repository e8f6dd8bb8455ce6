"""One run, driven by many processes over days, is one story for those who follow links."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]
TRACED = "tests.integration.runtime.tracing.traced"


class Shop:
    """What one process after the other does with a run."""

    def __init__(self, folder: Path) -> None:
        self.url, self.file = f"sqlite:///{folder}/runs.db", folder / "spans.jsonl"

    def act(self, act: str, *, day: int = 0, crash_in: str = "") -> list[str]:
        command = [sys.executable, "-m", TRACED, self.url, str(self.file), str(day), act]
        environment = {**os.environ, "CRASH_IN": crash_in}
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.returncode == (9 if crash_in else 0), done.stderr
        return done.stdout.split()

    def spans(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_text().splitlines()]

    def links_of(self, root: str) -> dict[str, str]:
        """Return what a drive is linked to: its root says so, or what it left behind before it died."""
        [links] = {
            json.dumps(span["links"], sort_keys=True)
            for span in self.spans()
            if span["id"] == root or (span["parent"] == root and span["name"].startswith("begin "))
        }
        found: dict[str, str] = json.loads(links)
        return found


@pytest.mark.slow
def test_links_lead_from_the_last_drive_over_crashes_a_takeover_and_a_week_to_the_caller(
    tmp_path: Path,
) -> None:
    shop = Shop(tmp_path)
    shop.act("start")
    for crash in ("pack", "label", "load"):
        shop.act("drive", crash_in=crash)
    assert shop.act("take over") == ["halted", "store.lease_lost"]
    shop.act("answer", day=7)
    assert shop.act("drive", day=7) == ["completed"]

    spans = shop.spans()
    named = {span["name"]: span for span in spans}
    roots = [span for span in spans if span["name"] == "drive parcel"]
    assert {root["parent"] for root in roots} == {None}
    last = next(root["id"] for root in roots if root["attributes"]["everstep.status"] == "completed")
    story = [last]
    while "drive" in (links := shop.links_of(story[-1])):
        assert links["caller"] == named["checkout"]["id"]
        story.append(links["drive"])
    assert len({drive.partition("/")[0] for drive in story}) == len(story)
    nodes = [
        [
            span["attributes"]["everstep.node"]
            for span in spans
            if span["parent"] == drive and "node" in span["name"]
        ]
        for drive in story
    ]
    # The owner that lost its lease had written that `load` was done; who took over goes on from there.
    assert nodes == [["send"], ["drive_off", "ok"], ["load", "drive_off"], ["label"], ["pack"], ["price"]]
    assert shop.links_of(story[-1]) == {"caller": named["checkout"]["id"]}

    answered, waited = named["answer ok"], named["wait ok"]
    assert answered["parent"] == named["boss"]["id"]
    assert answered["links"] == {"opened": story[1]}
    assert waited["links"] == {"opened": story[1], "answer": answered["id"]}
    assert waited["parent"] == last
    assert waited["attributes"]["everstep.waited_seconds"] > 6 * 86400
    stopped = [root for root in roots if root["attributes"]["everstep.status"] == "stopped"]
    assert [(root["id"], root["status"]) for root in stopped] == [(story[2], "ERROR")]
