"""The parsed sources of the package, which only these tests need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.architecture.sources import everstep_sources


@pytest.fixture(scope="package", autouse=True)
def sources() -> Iterator[None]:
    """Let go of the parsed sources after the last of these tests: they are a million objects."""
    yield
    everstep_sources.cache_clear()
