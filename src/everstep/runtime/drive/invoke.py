"""Calling user code: sync, async and generators, with a time limit, and what came of it."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from types import CoroutineType, GeneratorType
from typing import Any, Protocol

import msgspec

from everstep.engine.keys import automatic_key
from everstep.engine.scope import Scope
from everstep.errors import BadRequest, EverstepError, NodeTimeout
from everstep.graph.author.channel import Channel
from everstep.graph.author.context import Context, Leave, Says
from everstep.graph.author.node import Node
from everstep.graph.author.options import Refusal
from everstep.graph.author.streams import opened
from everstep.graph.author.wait_options import Wait
from everstep.model.acts import Act
from everstep.model.enums import Trigger
from everstep.model.ledger import BreakerAt, Guarded
from everstep.model.records import ErrorInfo, QueuedTask
from everstep.model.waits import WaitOpened
from everstep.runtime.drive.node_threads import NodeThreads

OnChunk = Callable[[Any], None]


class Stream(Protocol):
    """Keeps what one attempt at a node yields."""

    chunks: list[Any]
    """Everything the stream has yielded, in this attempt and before."""

    def take(self, chunk: Any, cursor: str | None) -> bool:
        """Take what was yielded; false if it was kept before. Called wherever the node runs."""

    def end(self) -> None:
        """Note that the stream is over."""


class Around(Protocol):
    """Surrounds one attempt at a node: keeps what it logs, says where its log lines come from, traces it."""

    is_on: bool
    """True once it was entered."""

    def entered(self, call: Call) -> AbstractContextManager[None]:
        """Return what lasts as long as the node runs, on its thread or in its task."""

    def unit(
        self, name: str, occurrence: int, attempt: int, given: Any
    ) -> AbstractContextManager[Callable[[Any], None]]:
        """Return what lasts as long as one attempt at a durable call of it, and is told of its result."""


class OpensContext(Protocol):
    """Makes the context of a node that asks for it while it runs."""

    def open_context(self, call: Call) -> Context:
        """Return the context of a call, made now unless it is. May be called from any thread."""


_NOT_YET = datetime.max.replace(tzinfo=UTC)


class Call(msgspec.Struct, eq=False):
    """One attempt at a node: what it was given, and in the end what it returned or raised."""

    scope: Scope
    index: int
    node: Node
    visit: int
    attempt: int
    kwargs: dict[str, Any]
    reads: dict[str, int]
    key: str | None = None
    context: Context | None = None
    opens: OpensContext | None = None
    """What makes its context once it is asked for, if the program has loaded what may ask."""
    returned: Any = None
    decision: tuple[str, ...] | None = None
    error: Exception | None = None
    started_at: datetime = _NOT_YET
    ended_at: datetime = _NOT_YET
    queued: tuple[QueuedTask, ...] = ()
    """The visits it asked for, once its answer is read."""
    task: int | None = None
    """The queued task it answers."""
    goto: bool = False
    is_dropped: bool = False
    """True if its result is not wanted any more."""
    running: asyncio.Task[None] | None = None
    thread: Future[None] | None = None
    """The thread that makes it, if it has a time limit."""
    halt: WaitOpened | None = None
    """What it waits for, if it returned that."""
    asks: Wait | None = None
    """What it waits for without having been made."""
    is_made: bool = True
    """False if it failed before the node was called."""
    is_again: bool = False
    """True if it is to be made once more."""
    skipped: str = ""
    """Why what it was to undo is left as it is, if a person said so."""
    is_held: bool = False
    """True if it was left between two of its durable calls, as the run is paused: it never reported."""
    answers: WaitOpened | None = None
    """The wait that is settled with it."""
    message: str = ""
    """The signal or event that it answers with, by its id."""
    act: Act | None = None
    """Who settled that wait, and why."""
    prolong: Callable[[], None] | None = None
    """Lets its time limit begin anew, while it has one; may be called from any thread."""
    stream: Stream | None = None
    """What keeps its chunks as they come, if it goes on where it stopped."""
    guards: Guarded | None = None
    """What a person's answer does to the guards."""
    news: tuple[Trigger, dict[str, Any] | None] | None = None
    """Why it is written at once: what it cost or how it failed made a guard speak up."""
    drafts: tuple[Any, ...] | None = None
    """What it gave, once that is encoded."""
    around: Around | None = None
    """What surrounds it, if its flow, its host or its program asks for that."""
    given_up_on: Call | None = None
    """The call that this one reports as too late."""
    units: Any = None
    """Its durable calls, if it has made some."""
    waits_at: str = ""
    """The place in the node that it was left at, to wait there, such as `$ok@1`."""
    settled: Any = None
    """How the wait at such a place was settled, if this takes its answer."""
    late: Exception | None = None
    """What is raised at that place, as no answer came in time."""

    def beat(self) -> None:
        """Let the time limit begin anew."""
        if self.prolong is not None:
            self.prolong()

    @property
    def path(self) -> str:
        return self.scope.path_of(self.index)

    def given_up(self, error: Exception) -> Call:
        """Return this call as failed, apart from the thread that may still finish it."""
        late = Call(self.scope, self.index, self.node, self.visit, self.attempt, {}, self.reads)
        late.key, late.started_at, late.error, late.task = self.key, self.started_at, error, self.task
        late.is_dropped, late.given_up_on, self.is_dropped = self.is_dropped, self, True
        late.units = self.units
        return late

    def trigger(self, wanted: Trigger) -> Trigger:
        """Return why its checkpoint is taken: for what the node said, if it asked for one, else as wanted."""
        said = self.context.checkpoint_trigger if self.context is not None else None
        return wanted if said is None or (said is Trigger.MANUAL and wanted is not said) else said

    def why_halted(self) -> tuple[Trigger, dict[str, Any] | None]:
        """Return why the checkpoint is taken that says that it waits, and what that tells of."""
        if self.context is None or self.context.checkpoint_request is None:
            return Trigger.HALT, None
        return self.trigger(Trigger.MANUAL), self.checkpoint_metadata()

    def checkpoint_metadata(self) -> dict[str, Any]:
        """Return the metadata of the checkpoint the node asked for, with what everstep adds."""
        asked = self.context.checkpoint_request if self.context is not None else None
        elapsed = (self.ended_at - self.started_at).total_seconds()
        return {"node": self.path, "visit": self.visit, "elapsed": elapsed, **(asked or {})}


def give_context(
    call: Call,
    run_id: str,
    key_run: str,
    path: str,
    visit: int,
    channel: Callable[[], Channel] | None,
    emit: Callable[[dict[str, Any]], None] | None = None,
    cursor: str | None = None,
    says: Says | None = None,
    *,
    is_resumed: bool = False,
    breakers: Mapping[str, BreakerAt] | None = None,
    refused: Mapping[str, Refusal] | None = None,
) -> None:
    """Hand a node its context; a visit without a key of its own gets the automatic one.

    `key_run` is the run whose id goes into keys: a fork may keep those of the run it comes from.
    """
    key = call.key or automatic_key(key_run, path, visit)
    call.context = Context(
        run_id,
        call.node.name,
        visit,
        call.attempt,
        key,
        path=path,
        neighbours=call.scope.plan,
        channel=channel,
        emit=emit,
        beat=call.beat,
        cursor=cursor,
        says=says,
        is_resumed=is_resumed,
        breakers=breakers,
        refused=refused,
    )
    if call.node.context_param is not None:
        call.kwargs[call.node.context_param] = call.context


class Running(msgspec.Struct, eq=False):
    """What says which node runs here: all that is made for a node that never asks for its context."""

    call: Call | None
    context: Context | None
    task: asyncio.Task[Any] | None = None
    """That of an async node, unlike those that it makes: in it, what it does comes in the same order."""

    def open(self) -> Context | None:
        """Return the context of the node; none for a node that has none. One that is over is refused."""
        call = self.call
        if self.context is None and call is not None and call.opens is not None:
            self.context = call.opens.open_context(call)
        if self.context is None and call is None:
            raise BadRequest(
                "the node that this was begun by is over.",
                fix="Await all that a node begins before it returns.",
            )
        return self.context


class YieldedItems:
    """What a generator has yielded."""

    def __init__(self, call: Call, on_chunk: OnChunk | None) -> None:
        self._stream = call.stream
        self._on_chunk = on_chunk
        self._chunks: list[Any] = []

    def take(self, chunk: Any) -> None:
        """Take the next one, and emit it unless it was kept before."""
        value, cursor = opened(chunk)
        if self._stream is None:
            self._chunks.append(value)
        elif not self._stream.take(value, cursor):
            return
        if self._on_chunk is not None:
            self._on_chunk(value)

    def end(self) -> list[Any]:
        """Return all of them, once the generator has ended."""
        if self._stream is None:
            return self._chunks
        self._stream.end()
        return self._stream.chunks


def call_here(call: Call, on_chunk: OnChunk | None) -> None:
    """Call a sync node on this thread."""
    if call.around is not None and not call.around.is_on:
        with call.around.entered(call):
            call_here(call, on_chunk)
        return
    marks = Context.marks
    if marks is not None:
        running = Running(call, call.context)
        marked = marks.set(running)
    try:
        returned = call.node.fn(**call.kwargs)
        if type(returned) is GeneratorType:
            collected = YieldedItems(call, on_chunk)
            for chunk in returned:
                collected.take(chunk)
            returned = collected.end()
        call.returned = returned
    except asyncio.CancelledError as error:  # out of a loop of its own; we were not cancelled
        call.error = RuntimeError(f"node {call.node.name!r} was cancelled from within: {error!r}")
    except Exception as error:
        call.error = error
    except (Leave, BaseExceptionGroup) as error:
        _leave(call, error)
    finally:
        if marks is not None:
            marks.reset(marked)
            running.call = None  # what the node leaves behind must not hold what it was given
    if call.units is not None:
        call.units.at_rest_blocking()
        call.units.conclude()


async def call_async(call: Call, on_chunk: OnChunk | None) -> None:
    """Await an async node on this loop."""
    if call.around is not None and not call.around.is_on:
        with call.around.entered(call):
            await call_async(call, on_chunk)
        return
    late = False
    try:
        if call.node.timeout is None:
            call.returned = await _await(call, on_chunk)
        else:
            async with asyncio.timeout(call.node.timeout) as limit:
                call.prolong = _prolonging(limit, call.node.timeout)
                call.returned = await _await(call, on_chunk)
    except TimeoutError as error:
        late = call.node.timeout is not None and limit.expired()
        call.error = too_late(call.node) if late else error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        call.error = RuntimeError(f"node {call.node.name!r} was cancelled from within: {error!r}")
    except Exception as error:
        call.error = error
    except (Leave, BaseExceptionGroup) as error:
        _leave(call, error)
    if call.units is not None:
        if not late:
            await call.units.at_rest()
        call.units.conclude()


def _leave(call: Call, error: BaseException) -> None:
    """Note that a node was left for a wait inside it; raises what is nothing of the kind."""
    if call.units is None or not (
        isinstance(error, Leave) or (isinstance(error, BaseExceptionGroup) and error.subgroup(Leave))
    ):
        raise error
    call.units.is_left = True


async def _await(call: Call, on_chunk: OnChunk | None) -> Any:
    marks = Context.marks
    if marks is not None:
        running = Running(call, call.context, asyncio.current_task())
        marked = marks.set(running)
    try:
        returned = call.node.fn(**call.kwargs)
        if type(returned) is CoroutineType:
            return await returned
        if inspect.isasyncgen(returned):
            collected = YieldedItems(call, on_chunk)
            async for chunk in returned:
                collected.take(chunk)
            return collected.end()
        return await returned if inspect.isawaitable(returned) else returned
    finally:
        if marks is not None:
            marks.reset(marked)
            running.call = None  # what the node leaves behind must not hold what it was given


DOORS = frozenset({call_here.__code__, _await.__code__})
"""The frames under which the code of nodes runs."""


async def call_in_thread(call: Call, pool: NodeThreads, on_chunk: OnChunk | None) -> None:
    """Call a sync node on a thread of the pool. After a time-out the thread is left to finish alone."""
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    if call.node.timeout is None:
        await loop.run_in_executor(pool, context.run, call_here, call, on_chunk)
        return
    # The time limit is the node's own: waiting for a free thread does not count.
    began: asyncio.Future[None] = loop.create_future()

    def work() -> None:
        loop.call_soon_threadsafe(_resolve, began)
        call_here(call, on_chunk)

    call.thread = pool.submit(context.run, work)
    future = asyncio.wrap_future(call.thread)
    await asyncio.wait([began, future], return_when=asyncio.FIRST_COMPLETED)
    deadline = loop.time() + call.node.timeout

    def prolong() -> None:
        nonlocal deadline
        deadline = loop.time() + (call.node.timeout or 0.0)

    call.prolong = prolong
    while (left := deadline - loop.time()) > 0:
        done, _ = await asyncio.wait([future], timeout=left)
        if done:
            return
    pool.give_up(call.thread)
    raise Overdue(call.thread, too_late(call.node))


def _prolonging(limit: asyncio.Timeout, seconds: float) -> Callable[[], None]:
    """Return what lets a time limit of this loop begin anew, from any thread."""
    loop = asyncio.get_running_loop()

    def renew() -> None:
        if not limit.expired():
            limit.reschedule(loop.time() + seconds)

    return lambda: None if loop.is_closed() else soon(loop, renew)


def soon(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    """Do something on a loop: at once if this is its thread, else as soon as it comes to it."""
    if asyncio._get_running_loop() is loop:
        act()
    else:
        loop.call_soon_threadsafe(act)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def call_anywhere(call: Call, pool: NodeThreads) -> None:
    """Call a node wherever its kind wants to be called."""
    if call.node.is_async:
        await call_async(call, None)
    else:
        await call_in_thread(call, pool, None)


class Overdue(Exception):
    """A thread outlived its node's time limit; its result will be dropped."""

    def __init__(self, thread: Future[None], error: NodeTimeout) -> None:
        super().__init__(str(error))
        self.thread = thread
        self.error = error


def too_late(node: Node) -> NodeTimeout:
    return NodeTimeout(
        f"node {node.name!r} took longer than {node.timeout:g} s.", fix="Raise timeout= or make it faster."
    )


class InnerFailed(EverstepError):
    """Carries the error of a node inside an atomic flow to the flow's own step."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message)
        self.info = info


def describe_error(error: BaseException) -> ErrorInfo:
    """Return what is kept of an exception, whatever it is; tracebacks show the user's own code."""
    if isinstance(error, InnerFailed):
        return error.info
    if isinstance(error, EverstepError):
        # Behind some of ours is an exception of the user's own.
        trace = _clean(_trace(error.__cause__, set())) if error.shows_cause and error.__cause__ else ""
        return ErrorInfo(
            type=type(error).__name__, message=_clean(str(error)), code=error.code, traceback=trace
        )
    return ErrorInfo(type=type(error).__name__, message=_text(error), traceback=_clean(_trace(error, set())))


def _trace(error: BaseException, seen: set[int]) -> str:
    seen.add(id(error))
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    text = f"{_trace(before, seen)}\n" if before is not None and id(before) not in seen else ""
    begun = error.__traceback__
    while begun is not None and _is_ours(begun.tb_frame.f_code.co_filename):  # what is left out is not read
        begun = begun.tb_next
    own = [f for f in traceback.extract_tb(begun) if not _is_ours(f.filename)]
    text += "".join(traceback.format_list(own)) + f"{type(error).__name__}: {_text(error)}\n"
    for member in getattr(error, "exceptions", ()):
        if isinstance(member, BaseException) and id(member) not in seen:
            text += "  | " + _trace(member, seen).replace("\n", "\n  | ").rstrip("| ")
    return text


def _text(error: BaseException) -> str:
    try:
        return _clean(str(error))
    except Exception:  # an exception may be anything, even one that cannot be printed
        return "(it cannot be printed)"


def _clean(text: str) -> str:
    """Replace what is no valid text, such as the surrogates of an odd file name."""
    return text.encode("utf-8", "backslashreplace").decode()


_HERE = Path(__file__).parents[1]
_OURS = (str(_HERE), str(_HERE.parent / "engine"))


def _is_ours(filename: str) -> bool:
    return filename.startswith(_OURS)
