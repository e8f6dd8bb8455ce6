"""Drills of workers: runs that kill them, groups that are full, clocks that differ."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter

from benchmarks.drills import flows
from benchmarks.drills.kit import (
    FLOWS,
    Drill,
    Found,
    Place,
    PostgresServer,
    Program,
    lines,
    sql,
    until,
    workers_up,
)
from everstep import Durability, Host

NEIGHBOURS, STEP = 6, 60.0
TRIALS, GROUPS, IN_A_GROUP = 10, 3, 4
AT_ONCE = 32
BEHIND = 3600
WITH_ANOTHER_CLOCK = f"""
import sys
from datetime import UTC, datetime, timedelta
from everstep.runtime.system import SystemClock
SystemClock.now = staticmethod(lambda: datetime.now(UTC) - timedelta(seconds={BEHIND}))
from everstep.cli.main import main
sys.exit(main())
"""


def crashing_neighbour(here: Place) -> Found:
    """One run ends its process after a second, six others take a minute; a supervisor restarts the worker."""
    url, calls = here.postgres(), here.folder / "calls"
    names = [f"neighbour-{n}" for n in range(NEIGHBOURS)]
    with Host(url) as host:
        for name in (names[0], "killer", *names[1:]):
            given = {"name": name, "seconds": STEP, "calls": str(calls)}
            host.start(flows.holding, given, run_id=name)
        words = ("worker", f"{FLOWS}:holding", "--store", url, "--concurrency", "8")
        starts: list[Program] = []

        def is_over() -> bool:
            if not starts or starts[-1].has_ended:
                starts.append(here.start(*words))
            return all(host.info(name).status.value not in ("running", "halted") for name in names)

        took = until(is_over, seconds=10 * STEP, every=0.2)
        ended = Counter(host.info(name).status.value for name in names)
        killer = host.info("killer").status.value
    called = Counter(lines(calls))
    most = max(called[name] for name in names)
    now = (
        f"{ended['completed']} of 6 neighbours completed, after {took:.0f} s and {len(starts)} starts; "
        f"each of their steps ran {most} times at most; the run that crashes is {killer}, tried alone"
    )
    return Found(now, ended == {"completed": NEIGHBOURS} and most <= 3)


def once_with_full_groups(here: Place) -> Found:
    """Twelve runs in three groups of which one each may run: a worker that ends when nothing is due."""
    left = []
    for _ in range(TRIALS):
        url = here.postgres()
        with Host(url) as host:
            for n in range(GROUPS * IN_A_GROUP):
                host.start(flows.grouped, {"seconds": 0.002}, group=f"group {n % GROUPS}")
            done = here.call("worker", f"{FLOWS}:grouped", "--store", url, "--once")
            assert done.returncode == 0, done.stderr
            left.append(len(host.runs(status="running")))
    return Found(f"left {max(left)} at most, in {TRIALS} trials", not any(left))


def skewed(here: Place, url: str, *words: str) -> Program:
    return here.run(sys.executable, "-c", WITH_ANOTHER_CLOCK, *words, "--store", url)


def skewed_worker(here: Place) -> Found:
    """A worker an hour behind opens an approval that has half an hour; another is right."""
    url = here.postgres()
    calls = str(here.folder / "calls")
    behind = skewed(here, url, "worker", f"{FLOWS}:asking")
    workers_up(url)
    with Host(url) as host:
        host.start(flows.asking, {"calls": calls}, run_id="A1")
        assert until(lambda: host.info("A1").status == "halted") < 60, behind.said
        here.start("worker", f"{FLOWS}:asking", "--store", url)
        workers_up(url, 2)
        is_open = until(lambda: host.info("A1").status != "halted", seconds=5) == float("inf")
        ((left,),) = sql(
            url, "SELECT due_at / 1e6 - extract(epoch FROM clock_timestamp()) FROM {schema}.waits"
        )
        waiting = host.waits(run_id="A1")[0]
        host.answer(waiting.id, {"approved": True}) if is_open else None
        completed = until(lambda: host.info("A1").status == "completed", seconds=20) < 20
        told = "clock skew" in behind.said
        listed = [one for one in host.fleet.workers() if abs(one.skew_seconds) > BEHIND - 60]
    minutes = float(left) / 60
    now = (
        f"waits, {minutes:.0f} minutes left by the server's clock; "
        f"the answer {'counts' if completed else 'did not count'}; "
        f"the worker {'says at its start' if told else 'does not say'} that its clock is behind, "
        f"`workers` {'too' if listed else 'does not'}"
    )
    return Found(now, is_open and 29 < minutes < 31 and completed and told and len(listed) == 1)


def uptime_of_a_skewed_worker(here: Place) -> Found:
    """How long a worker has been up, as another machine with another clock shows it."""
    url = here.postgres()
    here.start("worker", f"{FLOWS}:doubling", "--store", url)
    skewed(here, url, "worker", f"{FLOWS}:doubling")
    workers_up(url, 2)
    plain = here.call("workers", "--store", url).stdout
    other = skewed(here, url, "workers")
    other.process.wait(60)
    shown = [*ups(plain), *ups(other.said)]
    return Found(
        f"shows {', '.join(shown)}", len(shown) == 4 and all(re.fullmatch(r"\d+s", up) for up in shown)
    )


def ups(listing: str) -> list[str]:
    """Return what stands in the column `up`."""
    header, *rows = [line for line in listing.splitlines() if line.strip()]
    place = header.index("  up  ") + 2
    return [row[place:].split("  ")[0] for row in rows]


def connections_of_a_worker(here: Place) -> Found:
    """A worker that drives as many runs as it has room for."""
    url = here.postgres()
    worker = here.start("worker", f"{FLOWS}:resting", "--store", url)
    workers_up(url)
    with Host(url) as host:
        for _ in range(AT_ONCE):
            host.start(flows.resting, {"seconds": 6.0})
    query = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )
    most = 0
    for _ in range(60):
        most = max(most, sql(url, query)[0][0])
        if until(lambda: worker.said.count("completed") >= AT_ONCE, seconds=0.1) < 1:
            break
    assert until(lambda: worker.said.count("completed") >= AT_ONCE) < 60
    return Found(f"{most} connections at most, {AT_ONCE} runs at once", most <= 5)


def log_lines_of_a_worker(here: Place) -> Found:
    """What a worker says to stderr of a store that is away for a moment, as text and with `--json`."""
    server = here.own(PostgresServer)
    kinds = {"text": (), "json": ("--json",)}
    started = {
        kind: here.start("worker", f"{FLOWS}:failing", "--store", server.url, *options)
        for kind, options in kinds.items()
    }
    workers_up(server.url, len(kinds))
    server.stop()
    until(lambda: all("unavailable" in worker.log for worker in started.values()), seconds=20)
    server.start()
    until(lambda: all("answers again" in worker.log for worker in started.values()), seconds=5)
    for worker in started.values():
        worker.end()
    said = {kind: worker.log.splitlines() for kind, worker in started.items()}
    warned = [line for line in said["text"] if not line.startswith(NOTICES)]
    bare = [line for line in warned if not is_dated(line)]
    bare += [line for line in said["json"] if not has_fields(line)]
    now = (
        f"{len(warned)} lines of text and {len(said['json'])} with --json, {len(bare)} without time or level"
    )
    return Found(
        now + (f": {bare[0]}" if bare else ""), len(warned) > 0 and len(said["json"]) > 0 and not bare
    )


NOTICES = ("driving ", "stop with ", "stopping", "worker claimed ")
"""What a worker says to the person at the terminal."""


def has_fields(line: str) -> bool:
    try:
        return {"time", "level"} <= set(json.loads(line))
    except ValueError:
        return False


def is_dated(line: str) -> bool:
    return re.match(r"\d{4}-\d\d-\d\d[T ][\d:,.]+ (WARNING|ERROR) ", line) is not None


def lease_ttl_as_text(here: Place) -> Found:
    """A lease of six seconds, written as everywhere else."""
    ttl = Durability("strong", lease_ttl="6s").lease_ttl
    return Found(f"{ttl}", "6" in str(ttl))


DRILLS = (
    Drill(
        "crashing-neighbour",
        "all 7 runs abandoned after 17 s and 12 starts; each neighbour's step had run 11 times",
        crashing_neighbour,
    ),
    Drill("once-with-full-groups", "left 9 of 12 runs, in 10 of 10 trials", once_with_full_groups),
    Drill(
        "skewed-worker", "rejected at once, as if its half hour were over; nothing was said", skewed_worker
    ),
    Drill("uptime-of-a-skewed-worker", "`workers` showed up -1d 23h", uptime_of_a_skewed_worker),
    Drill("connections-of-a-worker", "10 connections", connections_of_a_worker),
    Drill(
        "log-lines-of-a-worker",
        "warnings and errors were bare text, without time or level, also with --json",
        log_lines_of_a_worker,
    ),
    Drill("lease-ttl-as-text", 'refused: lease_ttl took no "6s"', lease_ttl_as_text),
)
