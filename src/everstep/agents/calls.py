"""Which call of an agent is which, so that a later life of its node knows it again, and how it is made."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any, TypedDict
from uuid import NAMESPACE_OID, uuid5

from everstep.errors import BadRequest
from everstep.graph.author.context import Context, Keep, OnChange, UnitOptions
from everstep.graph.author.waits import approval
from everstep.model.durations import Span, seconds_of
from everstep.model.outputs import ApprovalOutput
from everstep.model.retry import Retry, RetryPreset
from everstep.steps import MARKS

log = logging.getLogger("everstep")
Costs = Callable[[Any], Mapping[str, Any]]
"""Says what `ctx.spend` is to count for a model call, given what the framework says of its usage."""
KEY_HEADER = "Idempotency-Key"
_MAKING: ContextVar[tuple[Context, str] | None] = ContextVar("everstep_agent_call", default=None)
"""The node that a call is being made for, and the call's idempotency key."""
_NOT_IN_A_NAME = re.compile(r"[/@#=$]")
_DIGEST = 8


class StepOptions(TypedDict, total=False):
    """How calls of one sort are made: the options of `ctx.step`."""

    retry: int | RetryPreset | Retry | None
    timeout: Span | None
    effects: str
    on_change: OnChange
    keep: Keep


def checked(options: StepOptions | None, what: str) -> StepOptions:
    """Return options that steps can be made with; others are refused where they are given, not by a call."""
    if options is None:
        return StepOptions()
    known = StepOptions.__annotations__
    if not isinstance(options, Mapping) or options.keys() - known.keys():
        raise BadRequest(f"{what} is {options!r:.80}.", fix=f"Give a dict with any of {', '.join(known)}.")
    UnitOptions.of(**options)
    return options


def checked_span(timeout: Span | None) -> Span | None:
    """Return how long waits may take, if that is a span of time."""
    if timeout is not None:
        seconds_of(timeout, "timeout")
    return timeout


class Calls:
    """The calls of one run of an agent, each with a key of its own.

    A tool call has the id that the model gave it, and may be asked for again: once to be told that it needs
    an approval, once with it. All of them are named after the agent, by the name that it had when the run
    began: one that is renamed meanwhile calls nothing again, and that it was is said.
    """

    def __init__(self, token: str, agent: str, made_of: Mapping[str, Any]) -> None:
        self._token = token
        self._agent = agent
        self._made_of = {"name": agent, **made_of}
        self._is_known = False
        self._lock = asyncio.Lock()
        self._asked: Counter[tuple[str, str]] = Counter()

    @classmethod
    def of(cls, context: Context, agent: str, made_of: Mapping[str, Any], question: Any) -> Calls:
        """Return those of a run that begins.

        In the node's own task, runs are told apart by their order. Tasks that the node makes come in another
        order the next time, so there it is the question that counts, and the order among equal ones.
        """
        what = "" if is_in_order() else f"{agent} {digest(repr(question))}"
        return cls.known_as(context, what, agent, made_of)

    @classmethod
    def known_as(cls, context: Context, what: str, agent: str, made_of: Mapping[str, Any]) -> Calls:
        """Return those of a run that begins and is told apart by a text, and by order among equal ones."""
        return cls(f"{what} {context.occurrence(f'agent {what}')}", agent, made_of)

    def inside(self, what: str, agent: str, made_of: Mapping[str, Any]) -> Calls:
        """Return those of a run that one of these calls begins."""
        return Calls(self._key("run", what), agent, made_of)

    async def make(
        self,
        context: Context,
        name: str,
        fn: Callable[[], Awaitable[Any]],
        options: StepOptions,
        *,
        call_id: str = "",
        asked: Any = None,
    ) -> Any:
        """Make a call as a step of the node, or take it from the records.

        `asked` is what the call is about: if it differs in a later life, that is said.
        """

        async def call(_: Any, idempotency_key: str) -> Any:
            token = _MAKING.set((context, idempotency_key))
            try:
                return await fn()
            finally:
                _MAKING.reset(token)

        key = self._key(name, call_id)
        await self._begin(context)
        name = named(f"{self._agent}.{name}")
        return await context.step(name, call, asked, key=key, **options)

    def wait_name(self, tool: str, call_id: str) -> str:
        """Return what a wait for a tool call is called: no other call has the same answer."""
        return named(f"{tool}-{digest(self._key('wait', call_id), size=4)}")

    async def _begin(self, context: Context) -> None:
        """Note of which make the agent is, or learn of which it was when its run began."""
        async with self._lock:
            if self._is_known:
                return
            made_of = self._made_of
            recorded = await context.step("agent", _itself, made_of, key=self._token, effects="pure")
            changed = [name for name in made_of if made_of[name] != recorded.get(name)]
            if changed:
                log.warning(
                    "agent %r of node %r is another than when its run began: its %s changed. What it has "
                    "called is kept, and what comes now is called as it is today.",
                    *(recorded["name"], context.path, ", ".join(changed)),
                )
            self._agent = recorded["name"]
            self._is_known = True

    def _key(self, name: str, call_id: str) -> str:
        self._asked[name, call_id] += 1
        return f"{self._token} {call_id} {self._asked[name, call_id]}"


def is_in_order() -> bool:
    """Return whether this is the node's own task, in which its code comes in the same order every time."""
    running = MARKS.get()
    return running is not None and asyncio.current_task() is running.task


async def _itself(made_of: dict[str, Any]) -> dict[str, Any]:
    return made_of


def with_key(headers: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return headers that have the key of the call that is being made, unless they have one already."""
    given, making = dict(headers or {}), _MAKING.get()
    if making is None or any(name.lower() == KEY_HEADER.lower() for name in given):
        return given
    return {**given, KEY_HEADER: making[1]}


async def spend(costs: Costs | None, usage: Any) -> None:
    """Have the run count what the model call that is being made has cost."""
    making = _MAKING.get()
    if costs is not None and usage is not None and making is not None:
        amounts = costs(usage)
        if amounts:
            await making[0].spend(**amounts)


def digest(text: str, *, size: int = _DIGEST) -> str:
    """Return a short text that stands for another."""
    return blake2b(text.encode(), digest_size=size).hexdigest()


def stable_id(context: Context, what: str) -> str:
    """Return a UUID for something in a visit to a node: the same one in every life."""
    return str(uuid5(NAMESPACE_OID, f"{context.run_id} {context.path} {context.visit} {what}"))


def named(name: str) -> str:
    """Return a name as steps and waits may have it."""
    return _NOT_IN_A_NAME.sub("_", name)


def missing(what: str, extra: str, error: ImportError) -> BadRequest:
    """Return what to say if a framework is not there, or is older than what is needed of it."""
    is_old = not isinstance(error, ModuleNotFoundError)
    return BadRequest(
        f"this needs {what}, and what is installed is older ({error})." if is_old else f"this needs {what}.",
        fix=f"Install it with: pip install 'everstep[{extra}]'",
    )


async def approved(
    context: Context, calls: Calls, tool: str, call_id: str, arguments: Any, timeout: Span | None
) -> ApprovalOutput:
    """Wait for a person to approve a tool call, or to reject it."""
    found: ApprovalOutput = await context.wait(
        approval(
            calls.wait_name(tool, call_id),
            prompt=f"Run {tool}?",
            context={"tool": tool, "arguments": arguments},
            timeout=timeout,
        )
    )
    return found
