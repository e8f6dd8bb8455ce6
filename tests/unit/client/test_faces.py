"""The calls of a host: `Host` is made from `AsyncHost`, neither grows unnoticed, 0.1's names still work."""

from __future__ import annotations

import asyncio
import inspect
import runpy
from typing import Any
from unittest.mock import create_autospec

import pytest

from everstep import AsyncHost, Flow, Host, wait
from everstep.client.moved import MOVED_CALLS, MovedCall
from everstep.client.parts import CallGroup
from tests.architecture.sources import ROOT

CALLS = {
    *("run", "start", "resume", "cancel", "fork", "answer", "deliver", "work", "close"),
    *("runs", "info", "find", "waits", "wait", "state", "channel", "history", "checkpoints", "latest"),
    *("events", "explain", "follow", "stream", "send", "inbox", "drop_signal", "publish", "changes"),
    "undo",
}
"""What most programs need. A call that few need belongs into a group."""
PROPERTIES = {"clock", "durability", "offers", "url", "values"}
ONLY_ASYNC = {"borrower", "driving", "twin", "worker"}
"""`twin` is for another event loop; a worker and what is driven live on one, a borrower needs one."""
GROUPS = {
    "debug": {
        *("compare", "preview_fork"),
        *("bisect", "diff", "drawing", "edges", "logs", "nodes", "recall", "replay", "steps"),
        *("checkpoints", "raw_value", "timeline", "values", "visit"),
    },
    "fleet": {
        *("audit", "breakers", "count", "counts", "durations", "metrics", "reopen", "reset_breaker", "tag"),
        *(
            "bulk",
            "bulk_progress",
            "compat",
            "drawing",
            "drive_bulk",
            "explain",
            "findings",
            "flows",
            "limits",
            "report",
            "pause",
            "pauses",
            "unpause",
            "untaken",
            "workers",
        ),
    },
    "notices": {"again", "again_all", "find", "send"},
    "retention": {"ack", "clean_up", "erase", "gc", "pin", "removals", "removed", "unpin"},
    "schedules": {
        *(
            "apply",
            "backfill",
            "change",
            "create",
            "delete",
            "get",
            "list",
            "pause",
            "run_now",
            "stop_backfill",
        ),
        *("times", "unpause"),
    },
    "storage": {"after_restore", "doctor", "drain", "info", "rekey", "schemes", "spool", "spooled", "verify"},
    "transfer": {"checkpoint_as", "copy", "export", "import_", "was_imported", "write_run_folder"},
    "versions": {"compat", "migrate"},
    "waiting": {"fire", "reissue", "revoke", "settle"},
}


def public(cls: type) -> dict[str, Any]:
    members = inspect.getmembers_static(cls)
    return {n: m for n, m in members if not n.startswith("_") and not isinstance(m, MovedCall)}


def test_host_is_what_the_script_makes_of_the_async_host() -> None:
    made: dict[Any, str] = runpy.run_path(str(ROOT / "scripts" / "generate_host.py"))["generate"]()
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, "run scripts/generate_host.py"


def test_a_host_has_these_calls_and_groups() -> None:
    assert set(public(Host)) == CALLS | PROPERTIES | set(GROUPS)
    assert set(public(AsyncHost)) | {"url"} == CALLS | PROPERTIES | set(GROUPS) | ONLY_ASYNC


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_has_these_calls(group: str, host: Host) -> None:
    assert set(public(type(getattr(host, group)))) == GROUPS[group]
    assert set(public(type(getattr(host._host, group)))) == GROUPS[group]


def test_no_call_has_the_name_of_a_group() -> None:
    assert not set(GROUPS) & (CALLS | PROPERTIES | ONLY_ASYNC | set(MOVED_CALLS))
    assert {name for name, member in public(AsyncHost).items() if isinstance(member, CallGroup)} == set(
        GROUPS
    )


def test_signatures_and_promises_agree(host: Host) -> None:
    pairs = [(Host, AsyncHost)] + [(type(getattr(host, g)), type(getattr(host._host, g))) for g in GROUPS]
    compared = 0
    for here, there in pairs:
        for name, member in public(there).items():
            if inspect.iscoroutinefunction(member):
                assert inspect.signature(getattr(here, name)) == inspect.signature(member), name
                assert inspect.getdoc(getattr(here, name)) == inspect.getdoc(member)
                compared += 1
    assert compared > 50


def test_the_constructors_agree() -> None:
    there = dict(inspect.signature(AsyncHost.__init__).parameters)
    del there["owns_loop"]
    assert list(inspect.signature(Host.__init__).parameters.values()) == list(there.values())


@pytest.mark.parametrize("name", MOVED_CALLS)
def test_calls_of_0_1_work_and_say_where_they_are_now(name: str, host: Host) -> None:
    group, _, call = MOVED_CALLS[name].partition(".")
    for one in (host, host._host):
        with pytest.warns(DeprecationWarning, match=rf"host\.{name} is host\.{group}\.{call} now") as caught:
            old = getattr(one, name)
        assert caught[0].filename == __file__
        new = getattr(getattr(one, group), call)
        assert (old.__func__ is new.__func__) if inspect.ismethod(new) else old == new


def test_a_call_of_0_1_does_what_it_did(host: Host) -> None:
    with pytest.warns(DeprecationWarning, match="host.counts is host.fleet.counts now"):
        assert host.counts().runs == {}  # type: ignore[attr-defined]


def test_a_subclass_reaches_a_call_of_0_1_by_super() -> None:
    class Mine(Host):
        def counts(self) -> Any:
            return super().counts()  # type: ignore[misc]

    class Theirs(AsyncHost):
        async def counts(self) -> Any:
            return await super().counts()  # type: ignore[misc]

    async def counted() -> Any:
        async with Theirs("memory:") as host:
            return await host.counts()

    with pytest.warns(DeprecationWarning, match=r"host\.fleet\.counts"), Mine("memory:") as host:
        assert host.counts().runs == {}
    with pytest.warns(DeprecationWarning, match=r"host\.fleet\.counts"):
        assert asyncio.run(counted()).runs == {}


@pytest.mark.parametrize("cls", [Host, AsyncHost])
def test_the_class_has_the_calls_of_0_1_and_its_groups(cls: type) -> None:
    for name in MOVED_CALLS:
        assert callable(getattr(cls, name)) or name == "spool"
    assert all(hasattr(cls, group) for group in GROUPS)
    inspect.getmembers(cls)


def test_a_call_of_0_1_is_called_on_the_class(host: Host) -> None:
    with pytest.warns(DeprecationWarning, match=r"host\.fleet\.counts") as caught:
        assert Host.counts(host).runs == {}  # type: ignore[attr-defined]
    assert caught[0].filename == __file__


def test_mocks_of_hosts_have_the_calls_of_0_1_and_the_groups() -> None:
    for mock in (create_autospec(Host), create_autospec(Host, instance=True)):
        mock.pin("a")
        with pytest.raises(TypeError, match="run_id"):
            mock.pin()
        mock.retention.pin("a")
    there = create_autospec(AsyncHost, instance=True)
    assert inspect.iscoroutinefunction(there.pin)
    assert inspect.iscoroutinefunction(there.retention.pin)


def test_waits_are_kept_in_sets(host: Host) -> None:
    host.run(Flow("f", [wait.approval("ok", prompt="Well?")], durability="strong"), run_id="a")
    assert set(host.waits()) == {host.waits()[0]}


def test_what_never_was_a_call_is_none(host: Host) -> None:
    with pytest.raises(AttributeError, match="'Host' object has no attribute 'nothing'"):
        host.nothing  # type: ignore[attr-defined]  # noqa: B018
