"""Hosts on every store that ships with everstep.

Servers answer more slowly than a file. By default only the modules marked `servers` use them, which between
them ask a store for all it can do, and none uses S3; with EVERSTEP_SOAK=1 all use all. A module that is about
something else than stores names those it runs on: `pytestmark = pytest.mark.stores("sqlite")`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep import Host

HERE = ("memory", "sqlite")
SERVERS = ("postgres", "redis", "s3")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test that asks for `url` once for each store it is to run on."""
    if "kind_of_store" in metafunc.fixturenames:
        kinds: tuple[str, ...] = HERE
        if (named := metafunc.definition.get_closest_marker("stores")) is not None:
            kinds = named.args
        elif os.environ.get("EVERSTEP_SOAK") == "1":
            kinds = (*HERE, *SERVERS)
        elif metafunc.definition.get_closest_marker("servers") is not None:
            kinds = (*HERE, "postgres", "redis")
        metafunc.parametrize("kind_of_store", kinds, indirect=True)


@pytest.fixture
def kind_of_store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(request: pytest.FixtureRequest, kind_of_store: str, tmp_path: Path) -> str:
    if kind_of_store in SERVERS:
        return str(request.getfixturevalue(f"{kind_of_store}_url"))
    if kind_of_store == "folder":
        return f"file://{tmp_path}/runs"
    return "memory:" if kind_of_store == "memory" else f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture
def host(url: str) -> Iterator[Host]:
    with Host(url) as opened:
        yield opened
