"""Records that a service keeps opened: known ones are not read again, and nothing else changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from everstep import END, AsyncHost, Flow, node, route
from everstep.client.looking.opened import OpenedRecords, keep_opened
from everstep.errors import RunErased, RunNotFound, StateCorrupted
from everstep.runtime.history import history
from tests.integration.runtime.integrity.vandals import InSqlite


@node(output="n")
def up(n: int) -> int:
    return n + 1


@route("up", END)
def again(n: int, top: int) -> str:
    return END if n >= top else "up"


counting = Flow("counting", [up, again], entry="up", durability="strong", max_steps=1000)


async def seen(host: AsyncHost, run_id: str) -> list[int]:
    """Return by which objects the records of a run are held."""
    return [id(record.steps) for record in await history(host._runs.reader, run_id)]


def test_known_records_are_not_opened_again_and_new_ones_are(tmp_path: Path) -> None:
    async def look() -> None:
        async with AsyncHost(f"sqlite:///{tmp_path}/runs.db") as host:
            await host.run(counting, {"n": 0, "top": 5}, run_id="A")
            keep_opened(host)
            first, second = await seen(host, "A"), await seen(host, "A")
            assert first == second and len(set(first)) == len(first)
            told = await host.debug.nodes("A")
            await host.fork("A", at=4, inputs={"top": 9})
            assert await host.debug.nodes("A") == told
            for run in [one.run_id for one in await host.runs()]:
                await host.resume(run, counting)
                fresh = AsyncHost(f"sqlite:///{tmp_path}/runs.db")
                async with fresh:
                    assert await fresh.debug.nodes(run) == await host.debug.nodes(run)
                    assert await fresh.debug.edges(run) == await host.debug.edges(run)
                    assert await fresh.debug.timeline(run) == await host.debug.timeline(run)

    asyncio.run(look())


def test_a_record_that_was_changed_is_found_out_though_it_was_known(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"

    async def look() -> None:
        async with AsyncHost(f"sqlite:///{path}") as host:
            keep_opened(host)
            await host.run(counting, {"n": 0, "top": 5}, run_id="A")
            known = await seen(host, "A")
            body = InSqlite(path).body("A", 3)
            InSqlite(path).write("A", 3, body[:-4] + bytes(4))
            with pytest.raises(StateCorrupted):
                await seen(host, "A")
            InSqlite(path).write("A", 3, body)
            assert await seen(host, "A") == known

    asyncio.run(look())


def test_a_run_that_is_erased_is_gone_though_its_records_were_known(tmp_path: Path) -> None:
    async def look() -> None:
        async with AsyncHost(f"sqlite:///{tmp_path}/runs.db") as host:
            keep_opened(host)
            await host.run(counting, {"n": 0, "top": 5}, run_id="A")
            await host.debug.nodes("A")
            await host.retention.erase("A")
            for look in (host.debug.nodes, host.debug.timeline, host.debug.edges, host.debug.steps):
                with pytest.raises((RunErased, RunNotFound)):
                    await look("A")

    asyncio.run(look())


def test_no_more_is_kept_than_was_said_and_what_was_used_last_stays(tmp_path: Path) -> None:
    async def look() -> None:
        async with AsyncHost(f"sqlite:///{tmp_path}/runs.db") as host:
            await host.run(counting, {"n": 0, "top": 9}, run_id="A")
            links = await host._runs.reader.lineage.get(await host._runs.reader.row("A"))
            sizes = [len(link.stored.body) for link in links]
            kept = host._runs.reader.lineage.kept = OpenedRecords(sum(sizes[-3:]))
            await host.debug.nodes("A")
            assert len(kept) == 3
            before = None
            for link in await host._runs.reader.lineage.get(await host._runs.reader.row("A")):
                place = ("A", link.stored.checkpoint_id, True)
                is_kept = kept.find(place, link.stored.body, before) is not None
                assert is_kept == (link.sequence > len(links) - 3), link.sequence
                before = link.unseal(before if link.sequence > 1 else b"").digest

    asyncio.run(look())
