"""`everstep schedule`: made, listed, changed, asked to run, and deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from everstep import Flow, Host, node
from everstep.cli.commands.fleet.schedule import schedule
from everstep.errors import BadRequest, RunNotFound


@node(output="report")
def write(at: Any, region: str = "eu") -> str:
    return region


REPORT = Flow("report", [write])


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


def called(url: str, *words: str) -> str:
    result = CliRunner().invoke(schedule, [*words, "--store", url], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.output


def test_a_schedule_from_its_making_to_its_end(url: str) -> None:
    yearly = ("--cron", "0 0 1 1 *", "--zone", "Europe/Berlin", "--time-input", "at")
    assert "starts report 0 0 1 1 * Europe/Berlin" in called(url, "create", "report", "it", *yearly)
    [told] = json.loads(called(url, "list", "--json"))
    assert (told["schedule_id"], told["zone"], told["started"]) == ("it", "Europe/Berlin", 0)
    assert all("12-31 23:00:00Z" in at for at in called(url, "next", "it", "--count", "3").splitlines())
    asked = called(url, "run", "it").strip()
    called(url, "change", "it", "-i", "region=us", "--overlap", "allow")
    with Host(url) as host:
        host.work([REPORT], until_idle=True)
        assert host.state(asked)["report"] == "eu"  # what was asked for before the change
    assert json.loads(called(url, "list", "--json"))[0]["overlap"] == "allow"
    assert "paused" in called(url, "pause", "it") and "paused" not in called(url, "unpause", "it")
    assert "does it" in called(url, "backfill", "it", "--since", "2020-01-01", "--at-most", "3")
    with Host(url) as host:
        host.work([REPORT], until_idle=True)
        assert len(host.runs(tag="backfill")) >= 1
    called(url, "backfill", "it", "--stop")
    called(url, "delete", "it")
    assert json.loads(called(url, "list", "--json")) == []


def test_what_is_wrong_is_said(url: str) -> None:
    with pytest.raises(BadRequest, match="no cron expression"):
        called(url, "create", "report", "it", "--cron", "nonsense")
    called(url, "create", "report", "it", "--every", "1d")
    with pytest.raises(BadRequest, match="begins somewhere"):
        called(url, "backfill", "it")
    with pytest.raises(RunNotFound):
        called(url, "run", "other")
