"""Hosts on every store that ships with everstep."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep import Host


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param in ("postgres", "redis"):
        return str(request.getfixturevalue(f"{request.param}_url"))
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture
def host(url: str) -> Iterator[Host]:
    with Host(url) as opened:
        yield opened
