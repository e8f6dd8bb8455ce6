"""The durability matrix: what is skipped and what runs again after a kill, and where the value was kept."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from everstep import Host, validate
from everstep.model.enums import ValueForm
from everstep.model.records import Written
from tests.acceptance.crash.matrix_lives import CELLS, flow_of, host_of
from tests.servers import warm

ROOT = Path(__file__).resolve().parents[3]
INLINE, REF, NOT = "inline", "ref", "not kept"


class Outcome(NamedTuple):
    """What a cell promises."""

    calls: int
    """How often the node runs in the two lives together."""
    kept: str
    seen: int
    """What its reader got in the end."""


SKIPPED, RERUN = 1, 2
PROMISED = {
    # skip on resume, deterministic
    "skip-steady-light": Outcome(SKIPPED, INLINE, 7),
    "skip-steady-heavy": Outcome(SKIPPED, REF, 0),
    # skip on resume, not deterministic: the first value is the one
    "skip-chance-light": Outcome(SKIPPED, INLINE, 1),
    "skip-chance-heavy": Outcome(SKIPPED, REF, 1),
    # may run again, deterministic
    "rerun-steady-light": Outcome(SKIPPED, INLINE, 7),
    "rerun-steady-light-unkept": Outcome(RERUN, NOT, 7),
    "rerun-steady-heavy": Outcome(SKIPPED, REF, 0),
    "rerun-steady-heavy-unkept": Outcome(RERUN, NOT, 0),
    # may run again, not deterministic: the author chooses the old value or a new one
    "rerun-chance-light-unmade": Outcome(SKIPPED, INLINE, 1),
    "rerun-chance-light-stable": Outcome(SKIPPED, INLINE, 1),
    "rerun-chance-light-fresh": Outcome(RERUN, NOT, 2),
    "rerun-chance-heavy": Outcome(SKIPPED, REF, 1),
    "rerun-chance-heavy-fresh": Outcome(RERUN, NOT, 2),
    # whatever the size, if the author says so
    "marked-light": Outcome(SKIPPED, REF, 7),
    "marked-inline": Outcome(SKIPPED, INLINE, 0),
    # the fourth axis: a value that cannot be kept is made again, or has a stand-in that can
    "unstorable-transient": Outcome(RERUN, NOT, 2),
    "unstorable-registered": Outcome(SKIPPED, INLINE, 1),
}


def live(cell: str, folder: Path, *dies: str) -> int:
    """Run or resume a cell in a process of its own; returns how that ended."""
    command = [sys.executable, "-m", "tests.acceptance.crash.matrix_lives", cell, str(folder), *dies]
    return warm.run(command, cwd=ROOT, capture_output=True, check=False).returncode


def kept(host: Host) -> str:
    """Say where the value of the cell's node was kept."""
    [written] = [w for r in host.history("r") for s in r.steps if s.path == "make" for w in s.writes]
    return where(written)


def where(written: Written) -> str:
    if written.form is ValueForm.TRANSIENT:
        return NOT
    assert written.is_inline is (written.artifact is None)
    return INLINE if written.is_inline else REF


@pytest.mark.parametrize("cell", PROMISED)
def test_a_cell_behaves_as_the_matrix_says(cell: str, tmp_path: Path) -> None:
    promised = PROMISED[cell]
    assert live(cell, tmp_path, "die") == -9
    with host_of(cell, tmp_path) as host:
        assert kept(host) == promised.kept
        assert host.info("r").status == "running"
    assert live(cell, tmp_path) == 0
    calls = (tmp_path / "calls").read_text().split()
    assert (calls.count("make"), calls.count("use")) == (promised.calls, 2)
    with host_of(cell, tmp_path) as host:
        assert host.info("r").status == "completed"
        assert host.state("r")["seen"] == promised.seen


def test_every_cell_has_its_promise() -> None:
    assert set(CELLS) - {"unstorable-kept"} == set(PROMISED)


def test_a_value_that_cannot_be_kept_fails_its_node_by_name_if_it_is_to_be(tmp_path: Path) -> None:
    with host_of("unstorable-kept", tmp_path) as host:
        result = host.run(flow_of("unstorable-kept", tmp_path, dies=False), run_id="r")
    assert result.error is not None
    assert result.error.code == "value.not_storable"
    assert 'persist="no"' in result.error.message


@pytest.mark.parametrize("cell", CELLS)
def test_only_the_unmade_choice_is_warned_of(cell: str, tmp_path: Path) -> None:
    found = validate(flow_of(cell, tmp_path, dies=False))
    wanted = ["flow.unmade_choice"] if cell == "rerun-chance-light-unmade" else []
    assert [d.code for d in found] == wanted
    assert not found.errors
