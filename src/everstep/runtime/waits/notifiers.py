"""Telling people and systems of a wait, or of a run."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from everstep.errors import BadRequest, NotifyFailed, UnknownNotifier
from everstep.graph.check.validate import known_aliases
from everstep.on_demand import on_demand
from everstep.ports.durability import Notice, Notifier
from everstep.ports.system import System
from everstep.runtime.drive.node_threads import apart

if TYPE_CHECKING:
    from everstep.runtime.metrics.meter import Meter
    from everstep.runtime.waits.notices.words import subject
    from everstep.runtime.waits.tokens import without_tokens
else:
    subject = on_demand("everstep.runtime.waits.notices.words:subject")
    without_tokens = on_demand("everstep.runtime.waits.tokens:without_tokens")


log = logging.getLogger("everstep")
_ADDRESS: Final = re.compile(
    r"(?i)\b([a-z][a-z0-9+.-]{0,20}://)(?:[^\s/?#@]*@)?"
    r"([\w.\[\]-]*(?::[0-9]{1,5}(?=[\s/?'\"<>()]|$))?)([^\s'\"<>()]*)"
)
_LOCAL: Final = re.compile(r"(?i)\b((?:url|path):? ?['\"]?)/[^\s'\"<>()]+")
MOST_HANGING: Final = 100
"""So many calls of one function may be under way; one more fails."""


def console(notice: Notice) -> None:
    """Write two lines to standard error: what waits, and where or how to answer; or what became of a run."""
    if notice.occasion:
        what, how = subject(notice), notice.link or notice.run_link or f"everstep show {notice.run_id}"
        sys.stderr.write(f"everstep: {_plain(what)}\n  {_plain(how)}\n")
        sys.stderr.flush()
        return
    until = f" until {notice.due_at:%Y-%m-%d %H:%M:%S} UTC" if notice.due_at is not None else ""
    prompt = f": {notice.prompt}" if notice.prompt else ""
    what = f"{notice.kind} {notice.node!r} of run {notice.run_id} ({notice.flow}) waits{until}{prompt}"
    how = notice.link if notice.link is not None else f"everstep answer {notice.wait_id}"
    sys.stderr.write(f"everstep: {_plain(what)}\n  {_plain(how)}\n")
    sys.stderr.flush()


def _plain(text: str) -> str:
    """Return a text on one line, without what a terminal would obey."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _without_paths(text: str) -> str:
    """Return a text whose addresses say their host only: the rest may be a secret, or hold a password."""
    return _LOCAL.sub(r"\1/…", _ADDRESS.sub(_cut, text))


def _cut(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}{'/…' if found[3] else ''}"


def _about(notice: Notice) -> str:
    return f"notice {notice.id}" if notice.id else f"wait {notice.wait_id}"


class Failure(NamedTuple):
    """A notification that failed, and why, without anything secret."""

    alias: str
    error: str


class Notifiers:
    """The notifiers of a host by alias."""

    def __init__(self, notifiers: Mapping[str, Notifier], system: System, meter: Meter | None = None) -> None:
        self._system = system
        self._meter = meter
        for alias, notifier in notifiers.items():
            if not isinstance(alias, str) or not alias:
                raise BadRequest(f"a notifier is called {alias!r}.", fix="Give it a name.")
            if not callable(notifier):
                raise BadRequest(f"notifier {alias!r} cannot be called.", fix="Give a function of a notice.")
        self._all = {
            alias: notifier.with_clock(system.clock) if hasattr(notifier, "with_clock") else notifier
            for alias, notifier in notifiers.items()
        }
        self._calls: dict[str, set[Future[Any]]] = {}
        """Calls of functions by alias, of which some may hang."""

    @property
    def aliases(self) -> frozenset[str]:
        return frozenset(self._all)

    def of(self, alias: str) -> Notifier:
        """Return the notifier with this alias, or raise `UnknownNotifier`."""
        found = self._all.get(alias) if isinstance(alias, str) else None
        if found is None:
            raise UnknownNotifier(
                f"this host has no notifier {alias!r}.", fix=known_aliases(alias, self._all, "notifiers")
            )
        return found

    async def tell(
        self, aliases: Iterable[str], notice: Notice, on_told: Callable[[str], None] | None = None
    ) -> list[Failure]:
        """Call each of them, side by side, and return who could not be told. Never raises.

        A function that is not async is called on a thread. `on_told` hears of each as soon as it returns.
        """

        async def one(alias: str) -> Failure | None:
            failure = await self._tell(alias, notice)
            if self._meter is not None:
                self._meter.told(alias if alias in self._all else "other", is_told=failure is None)
            if failure is None and on_told is not None:
                on_told(alias)
            return failure

        outcomes = await asyncio.gather(*(one(alias) for alias in dict.fromkeys(aliases)))
        failures = [failure for failure in outcomes if failure is not None]
        for alias, error in failures:
            log.warning("notifier %r failed for %s: %s", alias, _about(notice), error)
        return failures

    async def tell_once(self, alias: str, notice: Notice) -> list[Failure]:
        """Call one with a notice that is kept and tried again from there, so not by the notifier itself."""
        failure = await self._tell(alias, notice, once=True)
        if self._meter is not None:
            self._meter.told(alias if alias in self._all else "other", is_told=failure is None)
        if failure is None:
            return []
        log.warning("notifier %r failed for %s: %s", alias, _about(notice), failure.error)
        return [failure]

    async def _tell(self, alias: str, notice: Notice, *, once: bool = False) -> Failure | None:
        try:
            notifier = self.of(alias)
            if once and hasattr(notifier, "trying_once"):
                notifier = notifier.trying_once()
            await self._call(alias, notifier, notice)
        except Exception as error:
            # The text of a foreign error may quote what it was given.
            said = f"{type(error).__name__}: {error}".replace(notice.link or "\0", "<link>")
            return Failure(alias, _plain(_without_paths(without_tokens(said)))[:300])
        return None

    async def _call(self, alias: str, notifier: Notifier, notice: Notice) -> None:
        is_async = inspect.iscoroutinefunction(notifier) or inspect.iscoroutinefunction(
            type(notifier).__call__
        )
        answer = notifier(notice) if is_async else await self._apart(alias, notifier, notice)
        if inspect.isawaitable(answer):
            await answer

    async def _apart(self, alias: str, notifier: Notifier, notice: Notice) -> Any:
        """Call a function on a thread that nothing else needs: it may hang for as long as it likes."""
        calls = {call for call in self._calls.get(alias, ()) if not call.done()}
        if len(calls) >= MOST_HANGING:
            raise NotifyFailed(f"{len(calls)} calls of it have not returned.")
        call = apart(self._system.spawn, partial(copy_context().run, notifier, notice))
        self._calls[alias] = {*calls, call}
        return await asyncio.wrap_future(call)
