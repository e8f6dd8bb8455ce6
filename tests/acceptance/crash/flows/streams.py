"""Streams that are killed between two chunks: with cursors, replayed, and in the items of a map."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial

from everstep import Chunk, Context, node
from tests.acceptance.crash.scenarios import AT_ONCE, Bodies, Parts, Scenario

ROWS = 4


def chunk_path(path: str, n: int) -> str:
    """Return how the trace and the judge call a chunk of a stream, from 1 on."""
    return f"{path}/chunk-{n}"


def stream_parts(body: Bodies, before: int = 7) -> Parts:
    """A stream with cursors that fails once on its way, and one without that is replayed.

    `before` are the puts up to where the second begins: under `partial` the end of the first has none.
    """

    @node(output="rows", replayable=True, keep_every=1, retry=AT_ONCE)
    def read(table: str, ctx: Context) -> Iterator[Chunk[list[object]]]:
        with body("read", ctx):
            for n in range(int(ctx.cursor or 0) + 1, ROWS + 1):
                if n == 3 and ctx.attempt == 1:
                    raise ConnectionError("the first attempt always ends here")
                with body.killer.body(chunk_path("read", n), visit=1):
                    pass
                yield Chunk([table, n], f"{n}")
                body.wait_for(f"after put {n + 1 + (n > 2)}")

    @node(output="letters", replayable=True, keep_every=2)
    async def spell(rows: list[list[object]]) -> AsyncIterator[str]:
        with body("spell"):
            for n, row in enumerate(rows, 1):
                rows.append([])
                yield f"{row}"
                if n % 2 == 0:
                    await body.wait_for_async(f"after put {before + n // 2}")
                if n == ROWS:
                    break

    @node(output="total")
    def count(letters: list[str]) -> int:
        with body("count"):
            return sum(map(len, letters))

    return [read, spell, count]


def mapped_parts(body: Bodies) -> Parts:
    """Items that are streams, one after the other."""

    @node(output="rows", replayable=True, keep_every=1)
    def read(table: str, ctx: Context) -> Iterator[Chunk[str]]:
        item = int(ctx.path.partition("#")[2])
        with body("read", ctx):
            for n in range(int(ctx.cursor or 0) + 1, 3):
                with body.killer.body(chunk_path(ctx.path, n), visit=1):
                    pass
                yield Chunk(f"{table}{n}", f"{n}")
                body.wait_for(f"after put {1 + item * 3 + n}")

    @node(output="all")
    def join(rows: list[list[str]]) -> str:
        with body("join"):
            return ",".join(word for row in rows for word in row)

    return [read.map_over("table", max_concurrency=1), join]


STREAMING = {
    "stream": Scenario(stream_parts, {"table": "t"}, "strong"),
    "stream-partial": Scenario(partial(stream_parts, before=6), {"table": "t"}, "partial"),
    "stream-map": Scenario(mapped_parts, {"table": ["a", "b"]}, "strong"),
}
