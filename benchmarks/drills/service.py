"""Drills of the HTTP service: long runs, slow clients, outsiders, a store that is away."""

from __future__ import annotations

import asyncio
import resource
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from statistics import median
from typing import Any

from benchmarks.drills import flows
from benchmarks.drills.kit import (
    FLOWS,
    Drill,
    Found,
    Place,
    PostgresServer,
    Service,
    ms,
    until,
    workers_up,
)
from everstep import AsyncHost, Host

STEPS = 50_000
JSON = {"Accept": "application/json"}
CLIENTS, DEAF, HALF_SENT = 200, 10, 1_200
KEY = "a key of this fleet, long enough"


def long_run(url: str) -> None:
    """Make a run of so many steps, each a record."""
    with Host(url) as host:
        host.run(flows.looping, {"i": 0, "n": STEPS // 2}, run_id="L1")


def served_long_run(here: Place) -> Service:
    return here.serve(here.servers.made("a long run", long_run), "--no-work", "--quiet")


def first_events_of_a_long_run(here: Place) -> Found:
    """The first page of a run of 50,000 steps: alone, and four at once beside a probe of health."""
    service = served_long_run(here)
    path = "/runs/L1/events?limit=1"
    service.ask("GET", path, **JSON)
    before, asked = service.processor(), 20
    for _ in range(asked):
        status, _ = service.ask("GET", path, **JSON)
        assert status == 200
    cost = (service.processor() - before) / asked
    longest = stalled(service, lambda: side_by_side(4, lambda: service.ask("GET", path, **JSON)))
    now = f"{ms(cost)} of processor; four at once: `/healthz` after {ms(longest)} at most"
    return Found(now, cost < 0.1 and longest < 1)


def side_by_side(count: int, work: Callable[[], Any]) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def stalled(service: Service, work: Callable[[], Any]) -> float:
    """Return the longest that a probe took while some work was done."""
    longest, is_over = 0.0, threading.Event()

    def run() -> None:
        work()
        is_over.set()

    thread = threading.Thread(target=run)
    thread.start()
    while True:
        began = time.monotonic()
        service.ask("GET", "/healthz")
        longest = max(longest, time.monotonic() - began)
        if is_over.is_set():
            break
    thread.join()
    return longest


def clients_that_do_not_read(here: Place) -> Found:
    """Ten clients ask for the stream of a run of 50,000 steps and read nothing of it."""
    service = served_long_run(here)
    for _ in range(3):
        service.ask("GET", "/runs/L1/events?limit=100", **JSON)
    before = service.memory()
    with ExitStack() as stack:
        for _ in range(DEAF):
            stack.enter_context(streaming(service, "L1"))
        most = before
        for _ in range(20):
            time.sleep(0.5)
            most = max(most, service.memory())
        longest = stalled(service, lambda: time.sleep(1))
    now = f"{before:.0f} MB grew to {most:.0f} MB; `/healthz` after {ms(longest)} at most"
    return Found(now, most - before < 100 and longest < 1)


def streaming(service: Service, run_id: str) -> socket.socket:
    host, _, port = service.address.removeprefix("http://").partition(":")
    made = socket.create_connection((host, int(port)), timeout=60)
    asked = f"GET /runs/{run_id}/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
    made.sendall(asked.encode())
    return made


def last_lines_of_a_long_run(here: Place) -> Found:
    """`everstep log RUN --last 5` of a run of 50,000 steps, as a process."""
    url = here.servers.made("a long run", long_run)
    most, before = 0.0, resource.getrusage(resource.RUSAGE_CHILDREN)
    shown = here.start("log", "L1", "--last", "5", "--store", url)
    while not shown.has_ended:
        try:
            most = max(most, shown.memory())
        except (FileNotFoundError, ProcessLookupError, ValueError, IndexError):
            break
        time.sleep(0.005)
    shown.process.wait()
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = ended.ru_utime + ended.ru_stime - before.ru_utime - before.ru_stime
    return Found(f"{most:.0f} MB, {ms(took)} of processor", shown.process.returncode == 0 and most < 100)


def clients_of_a_halted_run(here: Place) -> Found:
    """Two hundred clients follow a run that is halted, while other runs are submitted."""
    url = here.postgres()
    service = here.serve(url, "--no-work", "--quiet")
    with Host(url) as host, ExitStack() as stack:
        host.run(flows.asking, {"calls": "calls"}, run_id="H1")
        alone, _ = submitted(url, service)
        for _ in range(CLIENTS):
            stack.enter_context(streaming(service, "H1")).recv(10_000)
        time.sleep(2)
        beside, rate = submitted(url, service)
    now = f"{beside:.0%} of a core while {rate:.0f} runs a second came ({alone:.0%} without those clients)"
    return Found(now, beside < 0.25)


def submitted(url: str, service: Service, seconds: float = 10.0) -> tuple[float, float]:
    """Submit runs for a while; returns how much of a core the service took, and how many came a second."""
    before, began, many = service.processor(), time.monotonic(), 0

    async def submit() -> None:
        nonlocal many
        async with AsyncHost(url) as host:
            while time.monotonic() - began < seconds:
                await host.start(flows.doubling, {"a": 1})
                many += 1
                await asyncio.sleep(0.02)

    asyncio.run(submit())
    took = time.monotonic() - began
    return (service.processor() - before) / took, many / took


def keep_alive(here: Place) -> Found:
    """Requests on a connection that is kept, from the second on."""
    service = here.serve(here.sqlite(), "--no-work", "--quiet")
    connection = service.connection()
    times = []
    for _ in range(300):
        began = time.perf_counter()
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        times.append(time.perf_counter() - began)
    middle = median(times[1:])
    late = sum(one > 0.035 for one in times[1:])
    return Found(f"{ms(middle)} in the middle; {late} of {len(times) - 1} above 35 ms", middle < 0.01)


def half_sent_headers(here: Place) -> Found:
    """1,200 connections that send half a request and stay."""
    service = here.serve(here.sqlite(), "--no-work")
    host, _, port = service.address.removeprefix("http://").partition(":")
    held = []
    try:
        for _ in range(HALF_SENT):
            one = socket.create_connection((host, int(port)), timeout=10)
            with suppress(OSError):  # one more than it takes was closed at once
                one.sendall(b"GET /healthz HTTP/1.1\r\nHost: localh")
            held.append(one)
        reached = until(lambda: answers(service), seconds=60, every=0.2)
        began = time.monotonic()
        until(lambda: all(is_closed(one) for one in held), seconds=40, every=0.5)
        closed = sum(is_closed(one) for one in held)
        took = time.monotonic() - began + reached
    finally:
        for one in held:
            one.close()
    log = len(service.said.encode()) / 1e6
    now = (
        f"answers again after {reached:.0f} s; {closed} of {HALF_SENT} closed after {took:.0f} s; "
        f"{log:.2g} MB of log"
    )
    return Found(now, reached < 20 and closed == HALF_SENT and log < 1)


def answers(service: Service) -> bool:
    try:
        return service.ask("GET", "/healthz")[0] == 200
    except OSError:
        return False


def is_closed(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def addresses_in_errors(here: Place) -> Found:
    """What those without a token read in answers while the database is stopped."""
    server = here.own(PostgresServer)
    url = f"{server.url}?schema=hidden_place"
    with Host(url, key=KEY) as host:
        token = host.run(flows.asking, {"calls": "calls"}).waits[0].token
    service = here.serve(url, "--no-work", "--quiet", EVERSTEP_KEY=KEY)
    server.kill()
    told = [
        service.ask("POST", f"/answers/{token}", {"approved": True}),
        service.ask("GET", f"/w/{token}"),
        service.ask("GET", "/readyz"),
    ]
    secrets = (str(server.port), "127.0.0.1", "hidden_place", "postgres")
    seen = [word for word in secrets if any(word in text for _, text in told)]
    statuses = ", ".join(str(status) for status, _ in told)
    log = "the log has it" if str(server.port) in service.said else "the log lacks it"
    now = f"answers {statuses} say {'nothing of it' if not seen else ' and '.join(seen)}; {log}"
    return Found(now, not seen and all(status == 503 for status, _ in told) and log == "the log has it")


def readiness(here: Place) -> Found:
    """What a load balancer is told while the database is stopped, and when it is back."""
    server = here.own(PostgresServer)
    service = here.serve(server.url, "--no-work", "--quiet")
    before = service.ask("GET", "/readyz")[0]
    server.stop()
    time.sleep(1.1)
    away = service.ask("GET", "/readyz")
    alive = service.ask("GET", "/healthz")[0]
    server.start()
    back = until(lambda: service.ask("GET", "/readyz")[0] == 200)
    now = f"`/readyz` says {before}, then {away[0]}, and 200 again after {ms(back)}; `/healthz` {alive}"
    return Found(now, (before, away[0], alive) == (200, 503, 200) and back < 10)


def resume_with_no_work(here: Place) -> Found:
    """A run that failed is resumed over HTTP at a service that is to drive none."""
    url = here.postgres()
    service = here.serve(url, "--no-work", "--quiet")
    with Host(url) as host:
        host.run(flows.failing, {"a": 1}, run_id="F1")
        status, _ = service.ask("POST", "/runs/F1/resume")
        time.sleep(1)
        left = host.info("F1")
        here.start("worker", f"{FLOWS}:failing", "--store", url)
        workers_up(url)
        driven = until(lambda: host.info("F1").status == "failed", seconds=20)
    now = f"{status}: {left.status.value}, left to workers; one drove it {ms(driven)} after it was up"
    is_left = left.status == "running" and not left.is_driven
    return Found(now, (status, is_left) == (202, True) and driven < 20)


DRILLS = (
    Drill(
        "first-events-of-a-long-run",
        "1 s of processor for one event of 50,000 steps; four at once held `/healthz` for 5 s",
        first_events_of_a_long_run,
    ),
    Drill("clients-that-do-not-read", "10 of them: 132 MB grew to 1.3 GB", clients_that_do_not_read),
    Drill("last-lines-of-a-long-run", "256 MB for the last 5 of 50,000 steps", last_lines_of_a_long_run),
    Drill(
        "clients-of-a-halted-run", "200 of them: half a core while other runs came", clients_of_a_halted_run
    ),
    Drill("keep-alive", "44 ms each", keep_alive),
    Drill("half-sent-headers", "unreachable; none of 1,200 closed in 40 s; 133 MB of log", half_sent_headers),
    Drill("addresses-in-errors", "503 with the address of the database", addresses_in_errors),
    Drill("readiness", "`/healthz` said ok, and there was nothing else to ask", readiness),
    Drill("resume-with-no-work", "drove the run in the service all the same", resume_with_no_work),
)
