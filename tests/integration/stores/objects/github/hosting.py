"""Hosts on the GitHub of the tests, with something in between."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2

from everstep import Flow, Host, node
from everstep.ports.system import Clock
from everstep.registry import Opened
from everstep.runtime.system import SystemClock
from everstep.stores.objects.entries import Entry, decode
from everstep.stores.objects.github.store import GithubStore
from everstep.stores.objects.github.told import ReadableRepository
from tests.integration.stores.objects.github.meddling import Meddler, Rule, address_of, quota, says


@contextmanager
def hosted(
    url: str, token: str, spool: Path, *rules: Rule, clock: Clock | None = None, **options: Any
) -> Iterator[tuple[Host, Meddler]]:
    """Open a host whose calls go through rules."""
    meddler, clock = Meddler(*rules), clock or SystemClock()
    store = GithubStore(ReadableRepository(address_of(url, token), clock, transport=meddler), clock)
    with Host(Opened(store, store.artifacts, url), spool=spool, clock=clock, **options) as host:
        yield host, meddler
    meddler.close()


class Repository:
    """What lies in a repository, as anybody may look at it."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        api = parse_qs(parts.query)["api"][0]
        repo = parts.path.strip("/").split("/")[0]
        self._client = httpx2.Client(
            base_url=f"{api}/repos/{parts.netloc}/{repo}/", headers={"Authorization": f"Bearer {token}"}
        )

    def paths(self, prefix: str = "") -> list[str]:
        tree = self._client.get("git/trees/main", params={"recursive": "1"}).json()["tree"]
        found = [e["path"].removeprefix("kept/") for e in tree if e["type"] == "blob"]
        return sorted(path for path in found if path.startswith(prefix))

    def data(self, path: str) -> bytes:
        answer = self._client.get(f"contents/kept/{path}")
        answer.raise_for_status()
        return base64.b64decode(answer.json()["content"])

    def json(self, path: str) -> Any:
        return json.loads(self.data(path))

    def entries(self, run_id: str) -> list[Entry]:
        """Return what stands in the log of a run."""
        return [decode(self.data(path), path) for path in self.paths(f"runs/{run_id}/log/")]

    def messages(self) -> list[str]:
        """Return what the commits say, the newest first."""
        return [c["commit"]["message"] for c in self._client.get("commits", params={"per_page": 100}).json()]

    def close(self) -> None:
        self._client.close()


def chain(length: int, at: dict[int, Callable[[], None]] | None = None, name: str = "chain") -> Flow:
    """Return a flow of so many steps, each of which adds one; at some of them something happens."""
    return Flow(name, [_step(k, (at or {}).get(k)) for k in range(length)], durability="strong")


def _step(k: int, happens: Callable[[], None] | None) -> Any:
    def add(**given: int) -> int:
        if happens is not None:
            happens()
        [value] = given.values()
        return value + 1

    scope: dict[str, Any] = {"add": add}
    exec(f"def step{k}(v{k}: int) -> int:\n    return add(v{k}=v{k})", scope)  # a node's inputs are its names
    return node(output=f"v{k + 1}")(scope[f"step{k}"])


def low(meddler: Callable[[], Meddler], remaining: Callable[[], int]) -> Rule:
    """Let answers tell of a quota that is nearly used up."""

    def rule(request: httpx2.Request) -> httpx2.Response:
        answer = meddler().pass_on(request)
        answer.headers.update(quota(remaining(), 1800) | {"date": says(200).headers["date"]})
        return answer

    return rule
