"""Stands between the store and the GitHub of the tests, and answers in its place what that one never says."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from email.utils import formatdate
from typing import Protocol

import httpx2

from everstep.ports.system import Clock
from everstep.stores.objects.github.address import GithubAddress, read_address
from everstep.stores.objects.github.bucket import GithubBucket
from everstep.testing import ManualClock

Rule = Callable[[httpx2.Request], httpx2.Response | None]
"""Answers a request, or leaves it to the next rule, and in the end to the server."""
NOW = 1_900_000_000
"""What the faked answers say is the time."""


class Meddler(httpx2.BaseTransport):
    """Asks its rules first, then the server; keeps every request and answer."""

    def __init__(self, *rules: Rule) -> None:
        self.rules = list(rules)
        self.asked: list[httpx2.Request] = []
        self.calls: list[tuple[str, str, int]] = []
        """Method, path and status of each call."""
        self._real = httpx2.HTTPTransport()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        answer = next((said for rule in self.rules if (said := rule(request)) is not None), None)
        if answer is None:
            answer = self._real.handle_request(request)
        self.calls.append((request.method, request.url.path, answer.status_code))
        return answer

    def count(self, method: str) -> int:
        return sum(1 for called, _, _ in self.calls if called == method)

    def pass_on(self, request: httpx2.Request) -> httpx2.Response:
        """Ask the server, and read its answer whole."""
        answer = self._real.handle_request(request)
        answer.read()
        return answer

    def close(self) -> None:
        self._real.close()


def says(status: int, message: str = "", headers: Mapping[str, str] | None = None) -> httpx2.Response:
    """Return an answer as GitHub words it."""
    said = {"date": formatdate(NOW, usegmt=True)} | dict(headers or {})
    return httpx2.Response(status, headers=said, content=json.dumps({"message": message}).encode())


def quota(remaining: int, reset_in: int) -> dict[str, str]:
    """Return the headers that tell of the quota."""
    return {"x-ratelimit-remaining": str(remaining), "x-ratelimit-reset": str(NOW + reset_in)}


def first(times: int, method: str, answer: Callable[[], httpx2.Response]) -> Rule:
    """Answer the first so many requests of a method."""
    left = [times]

    def rule(request: httpx2.Request) -> httpx2.Response | None:
        if request.method != method or left[0] == 0:
            return None
        left[0] -= 1
        return answer()

    return rule


def always(method: str, answer: Callable[[], httpx2.Response]) -> Rule:
    return first(-1, method, answer)


class Opener(Protocol):
    def __call__(self, *rules: Rule, clock: Clock | None = None, url: str | None = None) -> Pair: ...


Pair = tuple[GithubBucket, Meddler]


def address_of(url: str, token: str) -> GithubAddress:
    return read_address(url, {"EVERSTEP_GITHUB_TOKEN": token})


def pair_at(url: str, token: str, *rules: Rule, clock: Clock | None = None) -> Pair:
    """Open a bucket whose calls go through rules; the caller closes it."""
    meddler = Meddler(*rules)
    return GithubBucket(address_of(url, token), clock or ManualClock(auto=True), transport=meddler), meddler
