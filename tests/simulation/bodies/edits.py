"""Random bodies whose code is changed at random while runs are under way.

A body is a row of calls, some of them made at once. Each life of the process has the next version of it:
calls are renamed, moved, put in, taken out, given other arguments, or made into something else. What a call
gives says which call it was made for, so a value that comes under another name is seen at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from hashlib import blake2b
from inspect import isawaitable
from random import Random
from typing import Any, NamedTuple

from everstep import AsyncContext, Context, Flow, Retry, node, wait
from everstep.codec.values import ordered_bytes
from everstep.errors import StepChanged
from everstep.graph.author.node import Node
from everstep.testing.simulation.hub import current_thread
from everstep.testing.simulation.process import SimProcess

NAMES = ("a", "a", "b", "c", "now", "sleep", "inbox-a")
"""Few, so that edits bring one call where another was; those of `ctx.now` and its like among them."""
FORMS = (*("call",) * 8, "now", "ask", "approve", "sleep", "inbox")
REACTIONS = (*("warn",) * 4, "fail", "again")
MOST_STAGES = 7


class Ask(NamedTuple):
    """A line of a body, that asks for something durable."""

    form: str
    name: str
    key: int | None = None
    argument: int = 0
    on_change: str = "warn"
    fails: bool = False
    is_pure: bool = False
    seconds: float = 0.0


Stage = tuple[Ask, ...]
"""Calls that are made at once, or one that is not."""
Version = tuple[Stage, ...]


class Writer:
    """Writes a body and changes it, as it follows from a seed."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)
        self.edits: Counter[str] = Counter()
        """How often each kind of change was made."""

    def version(self) -> Version:
        return tuple(self._stage() for _ in range(self._chance.randint(3, MOST_STAGES)))

    def _stage(self) -> Stage:
        if self._chance.random() < 0.25:
            return _apart([self._ask("call", self._chance.randint(1, 3)) for _ in range(3)])
        return (self._ask(self._chance.choice(FORMS)),)

    def _ask(self, form: str, key: int | None = None) -> Ask:
        chance = self._chance
        return Ask(
            form,
            chance.choice(NAMES),
            key if key is not None or chance.random() < 0.8 else chance.randint(1, 3),
            chance.choice((0, 0, 0, 1)),
            chance.choice(REACTIONS),
            fails=chance.random() < 0.15,
            is_pure=chance.random() < 0.2,
            seconds=chance.choice((0.0, 0.0, 0.01, 0.3)),
        )

    def changed(self, version: Version) -> Version:
        """Return the next version of a body."""
        stages = list(version)
        for _ in range(self._chance.choice((0, 1, 1, 2, 3))):
            kind = self._chance.choice(list(_EDITS))
            at = self._chance.randrange(len(stages)) if stages else 0
            if stages or kind == "add":
                self.edits[kind] += 1
                _EDITS[kind](self, stages, at)
        return tuple(stages)

    def _replace(self, stages: list[Stage], at: int, **given: Any) -> None:
        stage = list(stages[at])
        which = self._chance.randrange(len(stage))
        stage[which] = stage[which]._replace(**given)
        stages[at] = _apart(stage)

    def _rename(self, stages: list[Stage], at: int) -> None:
        self._replace(stages, at, name=self._chance.choice(NAMES))

    def _give_key(self, stages: list[Stage], at: int) -> None:
        self._replace(stages, at, key=self._chance.randint(1, 3))

    def _give_argument(self, stages: list[Stage], at: int) -> None:
        self._replace(stages, at, argument=self._chance.randint(0, 3))

    def _make_into(self, stages: list[Stage], at: int) -> None:
        if len(stages[at]) == 1:
            self._replace(stages, at, form=self._chance.choice(FORMS))

    def _react(self, stages: list[Stage], at: int) -> None:
        self._replace(stages, at, on_change=self._chance.choice(REACTIONS))

    def _let_fail(self, stages: list[Stage], at: int) -> None:
        self._replace(stages, at, fails=self._chance.random() < 0.5)

    def _move(self, stages: list[Stage], at: int) -> None:
        stages.insert(self._chance.randrange(len(stages)), stages.pop(at))

    def _add(self, stages: list[Stage], at: int) -> None:
        stages.insert(at, self._stage())

    def _remove(self, stages: list[Stage], at: int) -> None:
        del stages[at]


_EDITS: dict[str, Callable[[Writer, list[Stage], int], None]] = {
    "rename": Writer._rename,
    "key": Writer._give_key,
    "argument": Writer._give_argument,
    "form": Writer._make_into,
    "reaction": Writer._react,
    "failure": Writer._let_fail,
    "move": Writer._move,
    "add": Writer._add,
    "remove": Writer._remove,
}
EDITS = frozenset(_EDITS)


def _apart(asked: list[Ask]) -> Stage:
    """Return what may be under way at the same time: no two of one name and key."""
    return tuple({(one.name, one.key): one for one in asked}.values())


class Came(NamedTuple):
    """What a line of a body came to."""

    label: str
    ask: Ask
    given: int | None = None
    """The argument with which it was made; none of what has none."""
    is_refused: bool = False
    """True if it is recorded with other arguments, or as something else, and the body heard so."""


class Entry:
    """One time that a body was entered, and what it saw."""

    def __init__(self, life: int) -> None:
        self.life = life
        self.asked: list[tuple[str, Ask]] = []
        """All that it asked for, and by what each is known."""
        self.came: list[Came] = []
        self.is_whole = False
        """True once the body has come to its end."""
        self.wrong: list[str] = []
        self._counts: dict[str, int] = {}

    def label(self, ask: Ask) -> str:
        """Return by what this call is known, which is counted here as the page says that it is."""
        label = self._label(ask)
        self.asked.append((label, ask))
        return label

    def _label(self, ask: Ask) -> str:
        name = {"now": "now", "sleep": "sleep", "inbox": f"inbox-{ask.name}"}.get(ask.form, ask.name)
        if ask.form != "call" or ask.key is None:
            count = self._counts[name] = self._counts.get(name, 0) + 1
            return f"${name}@{count}"
        return f"${name}={digest(ask.key)}@1"

    def take(self, label: str, ask: Ask, value: Any) -> None:
        """Note what a call gave, and whether that is its own."""
        given = None
        if ask.form == "call":
            made_for, _, argument = str(value).rpartition("|")
            if made_for != label:
                self.wrong.append(f"{label} was given {value!r}")
                return
            given = int(argument)
        elif not _FITS[ask.form](value, label):
            self.wrong.append(f"{label}, a {ask.form}, was given {value!r}")
        self.came.append(Came(label, ask, given))

    def refuse(self, label: str, ask: Ask) -> None:
        self.came.append(Came(label, ask, is_refused=True))


def digest(value: object) -> str:
    data = ordered_bytes(value)
    assert data is not None
    return blake2b(data, digest_size=8).hexdigest()


_FITS: dict[str, Callable[[Any, str], bool]] = {
    "now": lambda value, _: isinstance(value, datetime),
    "ask": lambda value, label: value == f"answer to {label}",
    "approve": lambda value, label: value.comment == f"answer to {label}",
    "sleep": lambda value, _: value is None,
    "inbox": lambda value, _: value == [],
}


class Edited:
    """A node whose body is another one in each life of its process."""

    def __init__(self, seed: int, lives: int) -> None:
        writer = Writer(seed)
        versions = [writer.version()]
        for _ in range(lives):
            versions.append(writer.changed(versions[-1]))
        self.versions = versions
        self.edits = writer.edits
        self.entries: list[Entry] = []
        """Of one world, in the order in which the body was entered."""

    def flow(self, *, is_async: bool) -> Flow:
        return Flow("edited", [self._node_async() if is_async else self._node()])

    def with_keys(self) -> Iterator[tuple[str, Ask]]:
        """Yield the calls that are known by keys: they may stand in a body more than once."""
        for ask in asks_of(self.versions):
            if ask.form == "call" and ask.key is not None:
                yield f"${ask.name}={digest(ask.key)}@1", ask

    def _enter(self) -> tuple[Entry, Version]:
        thread = current_thread()
        assert thread is not None and isinstance(thread.owner, SimProcess)
        life = thread.owner.life
        entry = Entry(life)
        self.entries.append(entry)
        return entry, self.versions[min(life, len(self.versions)) - 1]

    def _node(self) -> Node:
        @node(output="came_to", halts=True)
        def agent(x: int, ctx: Context) -> int:
            entry, version = self._enter()
            for ask in asks_of([version]):
                label = entry.label(ask)
                try:
                    value = _made(ctx, ask, label, is_async=False)
                except ValueError as error:
                    entry.take(label, ask, error.args[0])
                except StepChanged:
                    entry.refuse(label, ask)
                else:
                    entry.take(label, ask, value)
            entry.is_whole = True
            return len(entry.came)

        return agent

    def _node_async(self) -> Node:
        @node(output="came_to", halts=True)
        async def agent(x: int, ctx: AsyncContext) -> int:
            entry, version = self._enter()

            async def take(ask: Ask) -> None:
                label = entry.label(ask)
                try:
                    made = _made(ctx, ask, label, is_async=True)
                    value = await made if isawaitable(made) else made
                except ValueError as error:
                    entry.take(label, ask, error.args[0])
                except StepChanged:
                    entry.refuse(label, ask)
                else:
                    entry.take(label, ask, value)

            for first, *more in filter(None, version):
                if more:
                    await asyncio.gather(take(first), *map(take, more))
                else:
                    await take(first)
            entry.is_whole = True
            return len(entry.came)

        return agent


def _made(ctx: Any, ask: Ask, label: str, *, is_async: bool) -> Any:
    """Do what a line of a body says: its value in a sync node, what to await in an async one."""
    if ask.form == "now":
        return ctx.now()
    if ask.form == "sleep":
        return ctx.sleep(2)
    if ask.form == "inbox":
        return ctx.inbox(ask.name)
    if ask.form == "ask":
        return ctx.wait(wait.question(ask.name, kind="text", context=label))
    if ask.form == "approve":
        return ctx.wait(wait.approval(ask.name, context=label))

    def call(argument: int) -> str:
        if ask.fails:
            raise ValueError(f"{label}|{argument}")
        return f"{label}|{argument}"

    async def soon(argument: int) -> str:
        await asyncio.sleep(ask.seconds)
        return call(argument)

    return ctx.step(
        ask.name,
        soon if is_async and ask.seconds else call,
        ask.argument,
        key=ask.key,
        retry=Retry(1, first=0, jitter=0),
        effects="pure" if ask.is_pure else "effectful",
        on_change=ask.on_change,
    )


def asks_of(versions: list[Version]) -> Iterator[Ask]:
    """Yield every line of every version."""
    for version in versions:
        for stage in version:
            yield from stage
