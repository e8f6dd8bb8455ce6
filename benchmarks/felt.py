"""What users feel: how long they wait for everstep, at the middle (p50) and near the worst (p99).

    python benchmarks/felt.py [--store URL] [--away MS] [--only start,answer] [--rounds 100] [--json]

    start      from `host.start` until the first call in a worker that waits for work
    answer     from an answer until the call behind the wait, in another process
    boot       from the start of a worker's process until it claims its first run
    stall      how long a web application's event loop stands still while it drives 20 runs at once
    slow       the same on a disk whose syncs take 5 ms (made so by strace)
    await      1,000 runs in one worker that await something: memory of each, lag of the loop
    share      four processes that commit to one SQLite file
    takeover   from `kill -9` of a worker, and from its SIGSTOP, until another calls the step again
    interrupt  from Ctrl-C until `everstep run` has ended
    shutdown   from SIGTERM until a worker with 32 runs has ended
    request    a request on a connection that is kept, to `everstep serve`

Every part begins with an empty SQLite file, unless --store names a server, whose database should be one for
measuring. Times are of the wall clock: measure on a quiet machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from far import far

from everstep import AsyncHost, Flow, Host, node, wait

ME = str(Path(__file__).resolve())
SYNC_MS = 5
AWAITING, LOADED, SHARING, REQUESTS = 1_000, 32, 4, 20


@node(output="lag")
def lag(sent: float) -> float:
    return time.time() - sent


@node(output="lag")
def lag_of_answer(paid: wait.CallbackOutput) -> float:
    return time.time() - float(paid.payload["sent"])


@node(output="x")
async def tick(x: int) -> int:
    await asyncio.sleep(0.002)
    return x + 1


@node(output="x")
async def rest(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return 1


@node(output="at")
def mark(path: str, seconds: float) -> float:
    """Say when it was called, and stay."""
    at = time.time()
    with Path(path).open("a", encoding="ascii") as calls:
        calls.write(f"{at!r}\n")
    time.sleep(seconds)
    return at


@node(output="times")
def stamp(times: list[float]) -> list[float]:
    return [*times, time.perf_counter()]


def repeated(name: str, link: Any, value: str, count: int) -> Flow:
    return Flow(
        name,
        [
            link.with_name(f"s{k}").with_inputs(**{value: f"{value}{k}"}).with_outputs(f"{value}{k + 1}")
            for k in range(count)
        ],
        durability="strong",
    )


started = Flow("started", [lag])
answered = Flow("answered", [wait.callback("paid", timeout="1d"), lag_of_answer])
ticking = repeated("ticking", tick, "x", 20)
resting = Flow("resting", [rest])
marking = Flow("marking", [mark])
stamping = repeated("stamping", stamp, "times", 50)


class Place:
    """Where a part keeps its runs."""

    def __init__(self, folder: str, store: str | None) -> None:
        self.folder = Path(folder)
        self.url = store or f"sqlite:///{folder}/runs.db"

    @contextlib.contextmanager
    def worker(self, flow: str, *options: str) -> Iterator[subprocess.Popen[str]]:
        """Give a worker of one flow that has looked around and waits for work."""
        process = self.spawn("worker", f"{ME}:{flow}", "--json", *options)
        try:
            with Host(self.url) as host:
                while not host.fleet.workers():
                    time.sleep(0.01)
            yield process
        finally:
            end(process)

    def spawn(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "everstep", *command, "--store", self.url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if command[0] == "serve" else subprocess.DEVNULL,
            text=True,
        )


def end(process: subprocess.Popen[str], sent: signal.Signals = signal.SIGTERM) -> float:
    """Send a signal, and return the seconds until the process has ended."""
    began = time.perf_counter()
    if process.poll() is None:
        process.send_signal(sent)
    process.communicate(timeout=120)
    return time.perf_counter() - began


def lines(stream: IO[str] | None) -> Iterator[dict[str, Any]]:
    assert stream is not None
    for line in stream:
        yield json.loads(line)


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    at = {f"p{p}": ordered[min(len(ordered) - 1, len(ordered) * p // 100)] for p in (50, 99)}
    return {name: round(1000 * value, 1) for name, value in at.items()} | {"of": len(ordered)}


def start(place: Place, rounds: int) -> dict[str, Any]:
    with place.worker("started"), Host(place.url) as host:
        ids = []
        for _ in range(rounds):
            ids.append(host.start(started, {"sent": time.time()}).run_id)
            time.sleep(0.05)
        return percentiles([_output(host, run_id) for run_id in ids])


def answer(place: Place, rounds: int) -> dict[str, Any]:
    with place.worker("answered"), Host(place.url) as host:
        ids = [host.run(answered).run_id for _ in range(rounds)]
        for run_id in ids:
            (open_wait,) = host.waits(run_id)
            host.answer(open_wait.id, {"sent": time.time()})
            time.sleep(0.05)
        return percentiles([_output(host, run_id) for run_id in ids])


def _output(host: Host, run_id: str) -> float:
    while not host.info(run_id).ended_at:
        time.sleep(0.01)
    return float(host.state(run_id)["lag"])


def boot(place: Place, rounds: int) -> dict[str, Any]:
    taken = []
    for _ in range(max(5, rounds // 10)):
        with Host(place.url) as host:
            host.start(started, {"sent": 0.0})
        began = time.perf_counter()
        process = place.spawn("worker", f"{ME}:started", "--once", "--json")
        for told in lines(process.stdout):
            if told.get("event") == "claimed":
                taken.append(time.perf_counter() - began)
        process.wait()
    return percentiles(taken)


def stall(place: Place, rounds: int) -> dict[str, Any]:
    return asyncio.run(_stall(place.url, rounds))


async def _stall(url: str, rounds: int) -> dict[str, Any]:
    async with AsyncHost(url) as host:
        await host.run(ticking, {"x0": 0})  # the modules are loaded
        with Lag() as seen:
            await asyncio.gather(*(_serve(host, rounds) for _ in range(REQUESTS)))
    return seen.told()


async def _serve(host: AsyncHost, rounds: int) -> None:
    for _ in range(max(1, rounds // REQUESTS)):
        await host.run(ticking, {"x0": 0})


class Lag:
    """How late an event loop comes back to one who sleeps for a millisecond."""

    def __enter__(self) -> Lag:
        self.seconds: list[float] = []
        self._task = asyncio.ensure_future(self._watch())
        return self

    async def _watch(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            self.seconds.append(time.perf_counter() - before - 0.001)

    def __exit__(self, *_: object) -> None:
        self._task.cancel()

    def told(self) -> dict[str, Any]:
        return percentiles(self.seconds) | {"longest": round(1000 * max(self.seconds), 1)}


def slow(place: Place, rounds: int) -> dict[str, Any]:
    tracer = shutil.which("strace")
    if tracer is None:
        return {"not measured": "strace is not installed"}
    inject = f"inject=fsync,fdatasync:delay_exit={SYNC_MS * 1000}"
    command = [tracer, "-f", "-qq", "--seccomp-bpf", "-e", "trace=fsync,fdatasync", "-e", inject]
    ours = [sys.executable, ME, "--inside", "stall", "--rounds", str(rounds), "--store", place.url]
    done = subprocess.run([*command, "-o", "/dev/null", *ours], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def awaiting(place: Place, rounds: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, ME, "--inside", "await", "--store", place.url],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def await_inside(place: Place, rounds: int) -> dict[str, Any]:
    return asyncio.run(_await(place.url))


async def _await(url: str) -> dict[str, Any]:
    async with AsyncHost(url) as host:
        await asyncio.gather(*(host.run(resting, {"seconds": 0.01}) for _ in range(10)))
        for _ in range(AWAITING):
            await host.start(resting, {"seconds": 15.0})
        before = rss()
        worker = host.worker([resting], concurrency=AWAITING)
        with Lag() as whole:
            task = asyncio.ensure_future(worker.run(until_idle=True))
            await asyncio.sleep(10)
            with Lag() as steady:
                await asyncio.sleep(3)
            each = (rss() - before) / AWAITING
            await task
    told = {"kB a run": round(each / 1000, 1)} | steady.told()
    return told | {f"{name} with their start and end": whole.told()[name] for name in ("p99", "longest")}


def rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def share(place: Place, rounds: int) -> dict[str, Any]:
    if not place.url.startswith("sqlite"):
        return {"not measured": "of SQLite files only"}
    with Host(place.url):
        pass
    command = [sys.executable, ME, "--inside", "share", "--rounds", str(rounds), "--store", place.url]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(SHARING)]
    gaps = [gap for process in processes for gap in json.loads(process.communicate()[0])]
    return percentiles(gaps) | {"longest": round(1000 * max(gaps), 1)}


def share_inside(place: Place, rounds: int) -> list[float]:
    """Return the times from one call to the next: a commit, and what is around it."""
    gaps: list[float] = []
    with Host(place.url) as host:
        for _ in range(max(1, rounds // 10)):
            times = host.run(stamping, {"times0": []})["times50"]
            gaps += [after - before for before, after in itertools.pairwise(times)]
    return gaps


def takeover(place: Place, rounds: int) -> dict[str, Any]:
    found = {}
    for sent in (signal.SIGKILL, signal.SIGSTOP):
        calls = place.folder / f"calls-{sent.name}"
        with Host(place.url) as host, place.worker("marking") as first:
            run_id = host.start(marking, {"path": str(calls), "seconds": 2.0}).run_id
            while not calls.exists():
                time.sleep(0.01)
            second = place.spawn("worker", f"{ME}:marking")
            while len(host.fleet.workers()) < 2:
                time.sleep(0.01)
            at = time.time()
            first.send_signal(sent)
            while len(again := calls.read_text().split()) < 2:
                time.sleep(0.01)
            first.send_signal(signal.SIGKILL)
            found[f"{sent.name}, s"] = round(float(again[1]) - at, 2)
            while not host.info(run_id).ended_at:
                time.sleep(0.05)
            end(second)
    return found


def interrupt(place: Place, rounds: int) -> dict[str, Any]:
    taken = []
    for k in range(5):
        calls = place.folder / f"calls-{k}"
        process = place.spawn("run", f"{ME}:marking", "-i", f"path={calls}", "-i", "seconds=60")
        while not calls.exists():
            time.sleep(0.01)
        time.sleep(0.2)
        taken.append(end(process, signal.SIGINT))
    return percentiles(taken)


def shutdown(place: Place, rounds: int) -> dict[str, Any]:
    taken = []
    for _ in range(5):
        with Host(place.url) as host, place.worker("ticking") as process:
            for _ in range(20 * LOADED):
                host.start(ticking, {"x0": 0})
            taken.append(end(process))
            host.work([ticking], until_idle=True)
    return percentiles(taken)


def request(place: Place, rounds: int) -> dict[str, Any]:
    process = place.spawn("serve", "--no-auth", "--port", "0", "--quiet")
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        if "//" not in said:
            return {"not measured": said.strip() or "everstep serve did not start"}
        address = said.split("//")[1].split(",")[0]
        connection = http.client.HTTPConnection(address)
        taken = []
        for _ in range(rounds):
            began = time.perf_counter()
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            taken.append(time.perf_counter() - began)
        return percentiles(taken[1:])
    finally:
        end(process)


PARTS: dict[str, tuple[Callable[[Place, int], dict[str, Any]], str]] = {
    "start": (start, "p50 20 ms, p99 100 ms on PostgreSQL"),
    "answer": (answer, ""),
    "boot": (boot, "500 ms"),
    "stall": (stall, ""),
    "slow": (slow, "longest 10 ms"),
    "await": (awaiting, "50 kB a run, p99 20 ms"),
    "share": (share, ""),
    "takeover": (takeover, ""),
    "interrupt": (interrupt, "1,000 ms"),
    "shutdown": (shutdown, ""),
    "request": (request, ""),
}
INSIDE: dict[str, Callable[[Place, int], Any]] = {
    "stall": stall,
    "await": await_inside,
    "share": share_inside,
}


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--store", help="a server to measure on [default: SQLite files]")
    options.add_argument("--away", type=float, metavar="MS", help="put that server so far away")
    options.add_argument("--only", default=",".join(PARTS), help="parts, with commas between them")
    options.add_argument("--rounds", type=int, default=100)
    options.add_argument("--json", action="store_true")
    options.add_argument("--inside", choices=INSIDE, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.inside:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(INSIDE[given.inside](Place(folder, given.store), given.rounds)))
        return
    if given.away is not None and given.store is None:
        options.error("--away needs a server: name it with --store")
    with (
        far(given.store, given.away)
        if given.away is not None
        else contextlib.nullcontext(given.store) as store
    ):
        measure(options, given, store)


def measure(options: argparse.ArgumentParser, given: argparse.Namespace, store: str | None) -> None:
    chosen = given.only.split(",")
    if unknown := set(chosen) - set(PARTS):
        options.error(f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    for name in chosen:
        part, wanted = PARTS[name]
        with tempfile.TemporaryDirectory() as folder:
            found = part(Place(folder, store), given.rounds)
        if given.json:
            print(json.dumps({"part": name, **found}), flush=True)
        else:
            told = ", ".join(f"{key} {value}" for key, value in found.items())
            print(f"{name:10} {told:60} {f'wanted: {wanted}' if wanted else ''}", flush=True)


if __name__ == "__main__":
    main()
