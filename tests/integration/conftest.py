"""Hosts on every store that ships with everstep.

Servers answer more slowly than a file. By default only the modules marked `servers` use them, which between
them ask a store for all it can do, and none uses S3; with EVERSTEP_SOAK=1 all use all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep import Host

HERE = Path(__file__).parent
SERVERS = ("postgres", "redis", "s3")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("EVERSTEP_SOAK") == "1":
        return
    left_out = [item for item in items if _is_for_later(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def _is_for_later(item: pytest.Item) -> bool:
    given = getattr(item, "callspec", None)
    server = None if given is None else given.params.get("url")
    if server not in SERVERS or not item.path.is_relative_to(HERE):
        return False
    return server == "s3" or item.get_closest_marker("servers") is None


@pytest.fixture(params=["memory", "sqlite", *SERVERS])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param in SERVERS:
        return str(request.getfixturevalue(f"{request.param}_url"))
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture
def host(url: str) -> Iterator[Host]:
    with Host(url) as opened:
        yield opened
