"""The parsed sources of the package, which only these tests need."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.sources import everstep_sources


def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Let go of the parsed sources after the last of these tests: they are a million objects."""
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        everstep_sources.cache_clear()
