"""`Host`: `AsyncHost` for code that does not await. No logic of its own.

The caller's thread drives the loop, so a sync node runs where the caller is and Ctrl-C reaches it. When
several threads call at once, one drives for all; when it is done, another takes over.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from everstep.client.host import AsyncHost
from everstep.client.views import RunInfo, RunResult, RunState
from everstep.codec.values import Values
from everstep.graph.flow import Flow
from everstep.model.enums import Status
from everstep.model.records import CheckpointRecord
from everstep.ports.system import Clock, Ids
from everstep.registry import Opened
from everstep.runtime.events import Listener

T = TypeVar("T")


class _Loop:
    """An event loop that whichever thread is waiting for a result drives."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._turn = threading.Condition()
        self._is_driven = False

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        is_nested = asyncio._get_running_loop() is not None
        return self._call_aside(work) if is_nested else self._call(work)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        with self._turn:
            alone = not self._is_driven
            self._is_driven = True
        if alone:
            try:
                return self._loop.run_until_complete(work)
            finally:
                self._pass_on()
        return self._join(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _join(self, result: Future[T]) -> T:
        """Wait while another thread drives; drive if it stops before our result is there."""
        result.add_done_callback(lambda _: self._notify())
        while True:
            with self._turn:
                self._turn.wait_for(lambda: result.done() or not self._is_driven)
                if result.done():
                    return result.result()
                self._is_driven = True
            try:
                self._loop.run_until_complete(asyncio.wrap_future(result, loop=self._loop))
            finally:
                self._pass_on()

    def _notify(self) -> None:
        with self._turn:
            self._turn.notify_all()

    def _pass_on(self) -> None:
        with self._turn:
            self._is_driven = False
            self._turn.notify_all()

    def _call_aside(self, work: Coroutine[Any, Any, T]) -> T:
        """Called where a loop is running already, as in a notebook: drive on another thread."""
        outcome: Future[T] = Future()

        def target() -> None:
            try:
                outcome.set_result(self._call(work))
            except BaseException as error:
                outcome.set_exception(error)

        thread = threading.Thread(target=target, name="everstep-host")
        thread.start()
        thread.join()
        return outcome.result()

    def close(self) -> None:
        self._loop.close()


class Host:
    """Runs flows and keeps what they do. Without a URL, in a SQLite file under `./.everstep/`."""

    def __init__(
        self,
        url: str | Opened | None = None,
        *,
        on_event: Listener | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        max_threads: int = 32,
        create: bool = True,
    ) -> None:
        self._host = AsyncHost(
            url,
            on_event=on_event,
            clock=clock,
            ids=ids,
            max_threads=max_threads,
            create=create,
            owns_loop=True,
        )
        self._loop = _Loop()

    @property
    def url(self) -> str:
        return self._host.url

    @property
    def values(self) -> Values:
        """How values become bytes; register serializers for types of your own here."""
        return self._host.values

    def run(
        self, flow: Flow, inputs: Mapping[str, Any] | None = None, *, run_id: str | None = None
    ) -> RunResult:
        """Run a flow to its end.

        With the id of an unfinished run it continues that one; with the id of a finished one it returns the
        recorded result and runs nothing. Other inputs than the recorded ones are refused.
        """
        return self._loop.call(self._host.run(flow, inputs, run_id=run_id))

    def resume(self, run_id: str, flow: Flow) -> RunResult:
        """Continue a run. One that failed is reopened at the node that failed, with a fresh retry budget."""
        return self._loop.call(self._host.resume(run_id, flow))

    def cancel(self, run_id: str) -> Status:
        """Cancel a run; `running` means that its owner was told and will stop at its next write."""
        return self._loop.call(self._host.cancel(run_id))

    def history(self, run_id: str) -> list[CheckpointRecord]:
        """Return every checkpoint of a run, oldest first, each with the digest that covers it."""
        return self._loop.call(self._host.history(run_id))

    def state(self, run_id: str, at: int | str | None = None) -> RunState:
        """Return the values of a run as they were at a checkpoint (its sequence or id); by default the newest."""
        return self._loop.call(self._host.state(run_id, at))

    def runs(
        self,
        *,
        flow: str | None = None,
        status: Status | str | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> list[RunInfo]:
        """List runs, newest first."""
        return self._loop.call(self._host.runs(flow=flow, status=status, limit=limit, before=before))

    def info(self, run_id: str) -> RunInfo:
        """Return one run's line."""
        return self._loop.call(self._host.info(run_id))

    def close(self) -> None:
        """Release threads and connections; runs under way are left to be resumed."""
        self._loop.call(self._host.close())
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
