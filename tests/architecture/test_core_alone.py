"""The core stands alone: installed without the rest of the package, it loads and passes its own tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.core import EVERY_MODULE, MORE_TESTS, OUTSIDE, SOME_TESTS, Alone
from tests.architecture.sources import PACKAGE


def passed(output: str) -> int:
    """Return how many tests passed."""
    [count] = re.findall(r"(\d+) passed", output)
    return int(count)


def test_the_core_passes_its_own_tests_without_the_rest(tmp_path: Path) -> None:
    core = Alone(tmp_path)
    loaded = core.python("-c", EVERY_MODULE)
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.strip() == str(core.package)
    tested = core.test(SOME_TESTS)
    assert tested.returncode == 0, tested.stdout
    assert passed(tested.stdout) > 100


@pytest.mark.soak
def test_the_core_passes_all_its_tests_without_the_rest(tmp_path: Path) -> None:
    tested = Alone(tmp_path).test((*SOME_TESTS, *MORE_TESTS))
    assert tested.returncode == 0, tested.stdout
    assert passed(tested.stdout) > 1000


def test_a_core_that_needs_a_front_end_does_not_load(tmp_path: Path) -> None:
    core = Alone(tmp_path)
    broken = core.package / "runtime" / "runs.py"
    broken.write_text(f"{broken.read_text()}\nfrom everstep.frontends.dot import parser\n")
    loaded = core.python("-c", EVERY_MODULE)
    assert "No module named 'everstep.frontends'" in loaded.stderr


def test_what_the_core_does_without_is_there() -> None:
    assert [name for name in OUTSIDE if not (PACKAGE / name).exists()] == []
