"""Runs that people preserve by writing them into a file, and the log of what was removed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from everstep import Flow, Host, Retention, node
from everstep.cli.commands.store.gc import command
from everstep.errors import EverstepError
from everstep.stores.objects.readable_store import BY_HAND


@node(output="doubled")
def double(x: int) -> int:
    return 2 * x


FLOW = Flow("double", [double], durability="strong")
NOTHING = Retention(completed_for=timedelta(0))


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with Host(f"file://{tmp_path}/store") as opened:
        for number in range(3):
            opened.run(FLOW, {"x": number}, run_id=f"run-{number}").raise_for_status()
        yield opened


@pytest.fixture
def preserved(tmp_path: Path) -> Path:
    folder = tmp_path / "store" / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "preserved_runs.json"


def runs(host: Host) -> list[str]:
    return sorted(info.run_id for info in host.runs())


@pytest.mark.parametrize("text", ['["run-1", "never-was"]', '{"run-1": "for the auditors"}'])
def test_a_run_that_was_written_into_the_file_is_kept(host: Host, preserved: Path, text: str) -> None:
    preserved.write_text(text)
    host.retention.gc(retention=NOTHING)
    assert runs(host) == ["run-1"]
    assert host.info("run-1").pinned == BY_HAND


def test_a_run_that_was_taken_out_of_the_file_is_no_longer_kept(host: Host, preserved: Path) -> None:
    preserved.write_text('["run-1", "run-2"]')
    host.retention.gc(retention=NOTHING)
    preserved.write_text('["run-2"]')
    host.retention.gc(retention=NOTHING)
    assert runs(host) == ["run-2"]


def test_the_file_tells_of_runs_that_were_pinned_otherwise(host: Host, preserved: Path) -> None:
    preserved.write_text('["run-1"]')
    host.retention.pin("run-2", "a reason")
    assert json.loads(preserved.read_text()) == ["run-1", "run-2"]
    host.retention.unpin("run-2")
    assert json.loads(preserved.read_text()) == ["run-1"]
    host.retention.gc(retention=NOTHING)
    assert runs(host) == ["run-1"]


def test_nothing_is_removed_while_the_file_cannot_be_read(host: Host, preserved: Path) -> None:
    for text in ("", "{", "[1]", '"run-1"', "null"):
        preserved.write_text(text)
        found = host.retention.gc(retention=NOTHING)
        assert len(found.problems) == 1 and "preserved_runs.json" in found.problems[0]
        with pytest.raises(EverstepError, match="nothing is removed"):
            host.retention.erase("run-0")
        assert runs(host) == ["run-0", "run-1", "run-2"]


@pytest.mark.parametrize("words", [[], ["--dry-run"]])
def test_gc_says_that_the_file_cannot_be_read_even_if_nothing_is_due(
    host: Host, preserved: Path, tmp_path: Path, words: list[str]
) -> None:
    preserved.write_text("run-1")
    url = f"file://{tmp_path}/store"
    done = CliRunner().invoke(command, ["--store", url, *words], standalone_mode=False)
    assert done.return_value == 1
    assert "is not a list of runs" in done.output
    assert len(runs(host)) == 3


def test_what_was_removed_can_be_read_in_a_log(host: Host, preserved: Path) -> None:
    host.retention.pin("run-1")
    host.retention.gc(retention=NOTHING)
    told = json.loads(preserved.with_name("retention_log.json").read_text())
    assert {(line["what"], line["run_id"]) for line in told} == {("run", "run-0"), ("run", "run-2")}
    assert all(line["reason"] and line["at"] for line in told)
    host.close()
    assert sorted(path.name for path in preserved.parent.iterdir()) == [
        *("preserved_runs.json", "retention_log.json", "run-1"),
    ]
