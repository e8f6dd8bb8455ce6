"""`everstep bench` on a real disk, with as little work as it allows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from everstep.cli.bench.command import bench
from everstep.cli.bench.report import Machine, Measured, write_report
from everstep.cli.bench.values import Sample

GROUPS = ["w1", "w10", "w2", "w3", "w4", "w5", "w6", "w7", "w8", "w9"]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(bench, arguments)


@pytest.fixture(scope="module")
def measured(quick_disk: Path) -> tuple[Path, dict[str, Any]]:
    # `?`, `%` and a space mean something in a URL and nothing in a path.
    folder = quick_disk / "50% of? it"
    folder.mkdir()
    result = invoke("--quick", "--json", "--rounds", "1", "--dir", str(folder))
    assert result.exit_code == 0, result.output
    return folder, json.loads(result.stdout)


@pytest.mark.slow
def test_every_workload_is_measured_on_both_sides(measured: tuple[Path, dict[str, Any]]) -> None:
    lines = measured[1]["workloads"]
    assert sorted({line["id"].partition(".")[0] for line in lines}) == GROUPS
    assert len({line["id"] for line in lines}) == len(lines) == 15
    for line in lines:
        assert line["everstep_seconds"] > 0, line
        assert line["raw_seconds"] > 0, line


@pytest.mark.slow
def test_the_ratio_is_that_of_the_times_shown(measured: tuple[Path, dict[str, Any]]) -> None:
    for line in measured[1]["workloads"]:
        [pair] = line["pairs"]
        assert (pair["everstep_seconds"], pair["raw_seconds"]) == (
            line["everstep_seconds"],
            line["raw_seconds"],
        )
        assert line["ratio"] == pytest.approx(line["everstep_seconds"] / line["raw_seconds"])


@pytest.mark.slow
def test_appended_messages_take_no_more_than_a_few_of_their_own_size(
    measured: tuple[Path, dict[str, Any]],
) -> None:
    [line] = [line for line in measured[1]["workloads"] if line["id"] == "w2"]
    assert 1000 < line["raw_bytes"] < 6000  # its rows are longer than a page of SQLite likes
    assert 1000 < line["everstep_bytes"] < 3000


@pytest.mark.slow
def test_the_disk_is_described_and_left_empty(measured: tuple[Path, dict[str, Any]]) -> None:
    folder, report = measured
    assert report["machine"]["folder"] == str(folder)
    assert 0 < report["machine"]["flush_p50"] <= report["machine"]["flush_p99"]
    assert list(folder.iterdir()) == []


def test_only_limits_the_work_to_what_it_names(quick_folder: Path) -> None:
    where = str(quick_folder)
    result = invoke("--quick", "--json", "--only", "w1.normal, w5", "--rounds", "2", "--dir", where)
    assert result.exit_code == 0, result.output
    lines = json.loads(result.stdout)["workloads"]
    assert [(line["id"], len(line["pairs"])) for line in lines] == [("w1.normal", 2), ("w5", 2)]


def test_a_group_names_all_its_variants(tmp_path: Path) -> None:
    result = invoke("--quick", "--only", "w1", "--rounds", "1", "--dir", str(tmp_path))
    assert result.exit_code == 0, result.output
    head, *lines = result.stdout.splitlines()
    assert head.split() == ["id", "work", "everstep", "raw", "ratio", "note"]
    assert [line for line in lines if "µs/step" in line] == lines[:4]
    ids = ["w1", "w1.normal", "w1.effects", "w1.files"]
    assert [line.replace(",", "").split()[:2] for line in lines[:4]] == [[name, "chain"] for name in ids]
    assert f"{tmp_path}: 4 KiB flushed in" in result.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--only", "w1,w99"], "w99"),
        (["--only", ","], "at least one workload"),
        (["--rounds", "0"], "--rounds"),
        (["--dir", "no/such/folder"], "no/such/folder"),
    ],
)
def test_wrong_usage_is_refused_before_anything_is_measured(arguments: list[str], says: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr


def test_the_ratio_is_the_median_of_pairs_and_an_uneven_one_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pairs = [(Sample(4.0), Sample(1.0)), (Sample(2.0), Sample(2.0)), (Sample(6.0), Sample(3.0))]
    line = Measured("w3", "some runs", "runs/s", "noted", 1, pairs)
    assert (line.everstep, line.raw, line.ratio) == (4.0, 2.0, 2.0)
    write_report(Machine("/disk", 0.001, 0.002, "3", "3", "3", 2), [line])
    assert "2.00  noted; uneven: 1.00 to 4.00" in capsys.readouterr().out


@pytest.mark.parametrize(("flush", "warns"), [(2e-6, True), (200e-6, False)])
def test_a_folder_in_memory_is_told_apart_from_a_disk(flush: float, warns: bool) -> None:
    lines = Machine("/disk", flush, flush, "3", "3", "3", 2).lines()
    assert ("does not wait for a disk" in " ".join(lines)) is warns
