"""Drills of a store that has no room, no connection or no server for a while."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from benchmarks.drills import flows
from benchmarks.drills.kit import (
    FLOWS,
    Drill,
    Found,
    Place,
    PostgresServer,
    ValkeyServer,
    lines,
    ms,
    sql,
    until,
)
from everstep import Host

EFFECTS, AWAY = 20, 8.0
SIZE = 400_000
HUGE = 1_200_000_000


def without_room(
    here: Place, url: str, fill: Callable[[], Any], empty: Callable[[], Any], says: str
) -> Found:
    """Let a worker make effects whose records the store cannot take for a while."""
    calls, gate = here.folder / "calls", here.folder / "go"
    with Host(url) as host:
        for n in range(EFFECTS):
            given = {"name": f"p{n}", "calls": str(calls), "size": SIZE, "until": str(gate)}
            host.start(flows.paying, given, run_id=f"p{n}")
        worker = here.start("worker", f"{FLOWS}:paying", "--store", url)
        assert until(lambda: len(lines(calls)) == EFFECTS) < 60, worker.said
        fill()
        gate.touch()
        is_full = until(lambda: says in worker.said, seconds=30) < 30
        time.sleep(AWAY)
        empty()
        took = until(lambda: all(info.status == "completed" for info in host.runs(limit=EFFECTS)), seconds=60)
        ended = Counter(info.status.value for info in host.runs(limit=EFFECTS))
    made = Counter(line.split()[0] for line in lines(calls))
    keys = len(set(lines(calls)))
    now = (
        f"each of {EFFECTS} effects ran {max(made.values())} time{'s' * (max(made.values()) > 1)}, "
        f"{ended['completed']} runs completed {ms(took)} after there was room again"
    )
    whole = ended == {"completed": EFFECTS} and keys == EFFECTS
    return Found(now, is_full and whole and max(made.values()) == 1 and not worker.has_ended)


@contextmanager
def small_disk(size: str) -> Iterator[Path]:
    """Mount a disk with hardly any room; only root can."""
    folder = Path(tempfile.mkdtemp(prefix="everstep-small-disk-"))
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        subprocess.run(words, check=True, capture_output=True)
        (folder / "space").mkdir(mode=0o700)
        yield folder
    finally:
        subprocess.run(["umount", folder], capture_output=True)
        folder.rmdir()


def full_disk(here: Place) -> Found:
    """The disk of PostgreSQL is full while the steps of 20 effects end."""
    disk = here.stack.enter_context(small_disk("64m"))
    server = here.own(PostgresServer)
    disk.chmod(0o755)
    sql(server.url, f"CREATE TABLESPACE small LOCATION '{disk}/space'")
    sql(server.url, "ALTER ROLE postgres SET default_tablespace = 'small'")
    filler = disk / "filler"

    def fill() -> None:
        with filler.open("wb") as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
                    file.flush()
            except OSError:
                return

    try:
        return without_room(here, f"{server.url}?schema=everstep", fill, filler.unlink, "is full")
    finally:
        server.kill()


def full_memory(here: Place) -> Found:
    """Redis is at its limit of memory while the steps of 20 effects end."""
    server = here.own(ValkeyServer)
    with redis.Redis(port=server.port) as admin:
        return without_room(
            here,
            server.url,
            lambda: admin.config_set("maxmemory", "1mb"),
            lambda: admin.config_set("maxmemory", "0"),
            "maxmemory",
        )


def too_many_connections(here: Place) -> Found:
    """The role of a worker has no connection left when it starts, and has some later."""
    server = here.own(PostgresServer)
    url = server.url.replace("postgres@", "crowded@") + "?schema=everstep"
    sql(
        f"{server.url}?schema=everstep",
        "CREATE ROLE crowded LOGIN",
        "CREATE SCHEMA {schema} AUTHORIZATION crowded",
    )
    with Host(url) as host:
        host.start(flows.doubling, {"a": 1}, run_id="C1")
    sql(server.url, "ALTER ROLE crowded CONNECTION LIMIT 0")
    worker = here.start("worker", f"{FLOWS}:doubling", "--store", url)
    told = until(lambda: "no connection left" in worker.said, seconds=15) < 15
    time.sleep(2)
    stayed = not worker.has_ended
    sql(server.url, "ALTER ROLE crowded CONNECTION LIMIT -1")
    drove = until(lambda: "completed" in worker.said, seconds=30)
    now = (
        f"{'says that no connection is left' if told else 'does not say what it is'}, "
        f"{'stays' if stayed else 'ends'}, drives {ms(drove)} after there was one"
    )
    wrong = "password" in worker.said or "login" in worker.said
    return Found(now, told and stayed and drove < 30 and not wrong)


def huge_value(here: Place) -> Found:
    """A node returns a value of 1.2 GB, more than PostgreSQL takes."""
    url = here.postgres()
    with Host(url) as host:
        host.start(flows.filming, {"size": HUGE}, run_id="H1")
    began = time.monotonic()
    worker = here.call("worker", f"{FLOWS}:filming", "--once", "--store", url)
    took = time.monotonic() - began
    with Host(url) as host:
        info = host.info("H1")
    shown = here.told("show", "H1", "--store", url)
    text = str((shown.get("error") or {}).get("message"))
    said = "out of reach" in worker.stderr + worker.stdout
    now = f"{info.status.value} after {took:.0f} s: {text[:110]}"
    return Found(now, info.status == "failed" and "at most" in text and not said and took < 50)


def store_down_at_boot(here: Place) -> Found:
    """A worker and a service start before their database does."""
    server = here.own(PostgresServer)
    url = f"{server.url}?schema=everstep"
    with Host(url) as host:
        host.start(flows.doubling, {"a": 1}, run_id="B1")
    server.stop()
    worker = here.start("worker", f"{FLOWS}:doubling", "--store", url)
    words = ("--flow", str(FLOWS), "--no-auth", "--port", "0", "--no-work", "--store", url)
    service = here.start("serve", *words)
    both = (worker, service)
    told = until(lambda: all("store unavailable" in one.said for one in both), seconds=40) < 40
    stayed = not any(one.has_ended for one in both)
    server.start()
    drove = until(lambda: "completed" in worker.said, seconds=30)
    listens = until(lambda: "listening at" in service.said, seconds=30)
    now = (
        f"both {'say so' if told else 'say nothing'} and {'wait' if stayed else 'end'}; the worker drives "
        f"{ms(drove)} after the database is there"
    )
    return Found(now, told and stayed and drove < 30 and listens < 30)


def artifacts_of_an_erased_run(here: Place) -> Found:
    """A run with a large value is erased an hour after it ended."""
    url = here.postgres()
    with Host(url) as host:
        host.run(flows.filming, {"size": 4_000_000}, run_id="E1")
        before = kept(url)
        # Put lately, it could be what another run is about to name, and would stay.
        sql(url, f"UPDATE {{schema}}.artifacts SET touched_at = touched_at - {3600 * 10**6}")
        host.retention.erase("E1")
        after = kept(url)
    return Found(f"{before:.1f} MB of artifacts before, {after:.1f} MB after", before > 3 and after < 0.1)


def kept(url: str) -> float:
    ((size,),) = sql(url, "SELECT coalesce(sum(length(content)), 0) FROM {schema}.artifacts")
    return float(size) / 1e6


DRILLS = (
    Drill("full-disk", "20 effects ran 3 times each: finished steps were thrown away", full_disk),
    Drill("full-memory", "20 effects ran twice each", full_memory),
    Drill("too-many-connections", "told as a wrong password, and the worker ended", too_many_connections),
    Drill("huge-value", "sent again for 50 s, then: out of reach", huge_value),
    Drill("store-down-at-boot", "the worker ended at once", store_down_at_boot),
    Drill("artifacts-of-an-erased-run", "stayed until a later `gc`", artifacts_of_an_erased_run),
)
