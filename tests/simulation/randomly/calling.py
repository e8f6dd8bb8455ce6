"""Random flows whose nodes also make durable calls, wait between them, listen for signals and events, stream,
and have people vote.

Apart from the flows of `tests.unit.properties`, whose worlds send no signals and simulate no calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from everstep import AsyncContext, Chunk, Context, Node, Retry, chain, wait
from tests.unit.properties.flows import PARTS, Built, Part, Scene, total, touch


def called(before: int, k: int) -> int:
    """What a durable call gives."""
    return (before * 31 + k) % 997


async def called_soon(before: int, k: int) -> int:
    """The same, later: those behind it come first."""
    await asyncio.sleep(0.002 * (7 - k))
    return called(before, k)


def refused(before: int) -> int:
    raise LookupError(f"nothing is known of {before}")


class Calling(Built):
    """A flow made from a design, durable calls included."""

    def add(self, scene: Scene, part: Part) -> None:
        (CALLS.get(part.kind) or PARTS[part.kind])(self, scene, part)

    # -- nodes --------------------------------------------------------------------------------------------

    def _made(self, work: Callable[..., Any], number: int, reads: list[str], part: Part) -> Node:
        effects = part.body.effects
        return Node(
            work,
            name=f"n{number}",
            inputs=reads,
            output=f"v{number}",
            effects=effects,
            idempotency_key="auto" if effects == "effectful" else None,
            retry=Retry(3, first=1, jitter=0.5, on=ConnectionError),
        )

    def in_turn(self, scene: Scene, reads: list[str], part: Part) -> Node:
        """Return a node with one call after the other."""
        number, log, body, op = self._next(), self.log, part.body, None if scene.is_quiet else part.body.op
        options: dict[str, Any] = {"effects": "pure"} if part.variant == 1 else {}

        def work(ctx: Context, **values: Any) -> int:
            log.note(ctx, number)
            taken = [(total(list(values.values())) * 31 + number) % 997]
            for k in range(1 + part.count):
                key = k if part.variant == 2 else None
                taken.append(ctx.step("call", called, taken[-1], k, key=key, **options))
                if k == 0 and ctx.attempt <= body.failures:
                    raise ConnectionError(f"attempt {ctx.attempt}")
            if part.variant == 3:
                try:
                    ctx.step("refused", refused, taken[-1])
                except LookupError as error:
                    taken.append(ctx.step("told", len, str(error)))
            touch(ctx, op, taken[-1])
            return total(taken) % 997

        return self._made(work, number, reads, part)

    def at_once(self, scene: Scene, reads: list[str], part: Part) -> Node:
        """Return a node with calls side by side, and one behind them."""
        number, log, body, op = self._next(), self.log, part.body, None if scene.is_quiet else part.body.op

        async def work(ctx: AsyncContext, **values: Any) -> int:
            log.note(ctx, number)
            taken = (total(list(values.values())) * 31 + number) % 997
            fn = called if part.variant == 1 else called_soon
            calls = (ctx.step("call", fn, taken, k, key=k) for k in range(2 + part.count))
            found = await asyncio.gather(*calls)
            if ctx.attempt <= body.failures:
                raise ConnectionError(f"attempt {ctx.attempt}")
            touch(ctx, op, taken)
            return await ctx.step("more", called, total(list(found)), 0)

        return self._made(work, number, reads, part)

    def midway(self, scene: Scene, reads: list[str], part: Part) -> Node:
        """Return a node that waits between two calls: for a person, a while, or a signal."""
        number, log, body = self._next(), self.log, part.body

        def asked(found: int) -> Any:
            if part.count == 0:
                return wait.signal(f"note{number}")
            if part.count == 3:
                return wait.event(f"news{number}")
            if part.count == 1:
                return wait.approval("ok", context=found)
            return wait.question("ask", kind="text", answer_type=int, context=found)

        def came(said: Any) -> int:
            return int(said.approved) if isinstance(said, wait.ApprovalOutput) else int(said)

        def work(ctx: Context, **values: Any) -> int:
            log.note(ctx, number)
            found = ctx.step("begin", called, total(list(values.values())), number)
            said = came(ctx.wait(asked(found)))
            if ctx.attempt <= body.failures:
                raise ConnectionError(f"attempt {ctx.attempt}")
            if part.variant == 2:
                ctx.sleep(timedelta(hours=1))
            return ctx.step("end", called, said, found)

        async def work_soon(ctx: AsyncContext, **values: Any) -> int:
            log.note(ctx, number)
            found = await ctx.step("begin", called_soon, total(list(values.values())), 1)
            said = came(await ctx.wait(asked(found)))
            if ctx.attempt <= body.failures:
                raise ConnectionError(f"attempt {ctx.attempt}")
            if part.variant == 3:
                await ctx.sleep(timedelta(hours=1))
            return await ctx.step("end", called, said, found)

        made = self._made(work_soon if part.variant % 2 else work, number, reads, part)
        made.halts = True
        return made


# -- parts ------------------------------------------------------------------------------------------------

Making = Callable[[Calling, Scene, "list[str]", Part], Node]


def _alone(make: Making) -> Callable[[Calling, Scene, Part], None]:
    """Return a part that is one such node. Nothing is kept inside an atomic flow, so there it is plain."""

    def add(built: Calling, scene: Scene, part: Part) -> None:
        reads = list(dict.fromkeys(scene.pick(k) for k in part.reads))
        if scene.is_quiet:
            built._plain(scene, reads, part.body)
            return
        made = make(built, scene, reads, part)
        scene.wired.append(made)
        scene.gives(made.outputs[0])

    return add


def _over(built: Calling, scene: Scene, part: Part) -> None:
    """A map over a node that makes calls."""
    if scene.is_quiet:
        built.over(scene, part)
        return
    source, name = built._list_for(scene, part), f"i{built._next()}"
    make = Calling.at_once if part.variant % 2 else Calling.in_turn
    made = make(built, scene, [name], part).with_inputs(**{name: source})
    scene.wired.append(made.map_over(name, max_concurrency=1 + part.variant))
    scene.gives_list(made.outputs[0])
    if scene.is_chain:
        built._plain(scene, [made.outputs[0]], part.body)


def _hears(built: Calling, scene: Scene, part: Part) -> None:
    """A node that waits for a signal."""
    _listens(built, scene, part, lambda number: wait.signal(f"note{number}", output=f"v{number}"))


def _expects(built: Calling, scene: Scene, part: Part) -> None:
    """A node that waits for an event."""
    _listens(built, scene, part, lambda number: wait.event(f"news{number}", output=f"v{number}"))


def _listens(built: Calling, scene: Scene, part: Part, waits: Callable[[int], Node]) -> None:
    source = scene.pick(part.reads[0])
    if scene.is_quiet:
        built._plain(scene, [source], part.body)
        return
    number = built._next()
    first = built.node(scene, [source], part.body)
    scene.wired.append(chain(first, waits(number)))
    scene.gives(first.outputs[0])
    scene.gives(f"v{number}")


def _votes(built: Calling, scene: Scene, part: Part) -> None:
    """An approval that counts votes, and a node that makes a number of it."""
    source = scene.pick(part.reads[0])
    if scene.is_quiet:
        built._plain(scene, [source], part.body)
        return
    number, reader, log = built._next(), built._next(), built.log
    approvers = ["ann", "bob", "cleo"] if part.variant % 2 else None
    asked = wait.approval(
        f"n{number}", context=source, output=f"v{number}", approvers=approvers, quorum=1 + part.count % 3
    )

    def unpack(ctx: Context, **values: Any) -> int:
        log.note(ctx, reader)
        return total([int(value.approved) for value in values.values()]) % 997

    scene.wired += [asked, Node(unpack, name=f"n{reader}", inputs=[f"v{number}"], output=f"v{reader}")]
    scene.gives(f"v{reader}")


def _streams(built: Calling, scene: Scene, part: Part) -> None:
    """A node that yields a list piece by piece, and goes on where it was."""
    reads = list(dict.fromkeys(scene.pick(k) for k in part.reads))
    if scene.is_quiet:
        built._plain(scene, reads, part.body)
        return
    number, log, body = built._next(), built.log, part.body

    def pieces(ctx: Context, **values: Any) -> Iterator[Any]:
        log.note(ctx, number)
        first = total(list(values.values()))
        for k in range(int(ctx.cursor or 0), 2 + part.count):
            if k == 1 and ctx.attempt <= body.failures:
                raise ConnectionError(f"attempt {ctx.attempt}")
            yield Chunk(called(first, k), str(k + 1))

    made = Node(
        pieces,
        name=f"n{number}",
        inputs=reads,
        output=f"v{number}",
        replayable=True,
        keep_every=1 + part.variant % 2,
        retry=Retry(3, first=1, jitter=0.5, on=ConnectionError),
    )
    scene.wired.append(made)
    scene.gives_list(made.outputs[0])
    if scene.is_chain:
        built._plain(scene, [made.outputs[0]], part.body)


CALLS: Mapping[str, Callable[[Calling, Scene, Part], None]] = {
    "calls": _alone(Calling.in_turn),
    "calls at once": _alone(Calling.at_once),
    "waits midway": _alone(Calling.midway),
    "calls in items": _over,
    "hears": _hears,
    "expects": _expects,
    "votes": _votes,
    "streams": _streams,
}
