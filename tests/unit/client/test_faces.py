"""`Host` says exactly what `AsyncHost` says, without the waiting."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from everstep import AsyncHost, Host

ONLY_ASYNC = {"driving", "twin", "worker"}
"""`twin` is for another event loop; a worker lives on one, and so does what is driven."""


def public(cls: type) -> dict[str, Any]:
    return {name: member for name, member in inspect.getmembers_static(cls) if not name.startswith("_")}


def test_both_faces_have_the_same_methods() -> None:
    names = set(public(AsyncHost)) | {"url"}
    assert set(public(Host)) == names - ONLY_ASYNC


AWAITED = sorted(n for n, m in public(AsyncHost).items() if inspect.iscoroutinefunction(m))


@pytest.mark.parametrize("name", AWAITED)
def test_signatures_and_promises_agree(name: str) -> None:
    there, here = getattr(AsyncHost, name), getattr(Host, name)
    assert inspect.signature(here) == inspect.signature(there)
    assert inspect.getdoc(here) == inspect.getdoc(there)
    assert not inspect.iscoroutinefunction(here)


def test_the_constructors_agree() -> None:
    there = dict(inspect.signature(AsyncHost.__init__).parameters)
    del there["owns_loop"]
    assert list(inspect.signature(Host.__init__).parameters.values()) == list(there.values())
