"""What nodes log and print, kept with their steps."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from typing import Any

import msgspec
import pytest

from everstep import AsyncContext, Context, Flow, Host, KeyRing, Retry, node
from everstep.errors import RunNotFound
from everstep.ports.live import KeptLog, LogPlace
from everstep.runtime.live.bodies import Bound
from everstep.runtime.live.log_text import HALF, LogText, without_secrets
from everstep.runtime.live.step_logs import LoggedText
from everstep.wait import Wait

pytestmark = pytest.mark.servers
log = logging.getLogger("tests.step_logs")


@node(output="one")
def speaks(n: int) -> int:
    print("hello", n)
    print("to stderr", file=sys.stderr)
    log.warning("careful with %s", "this")
    return n


def texts(host: Host, run_id: str) -> dict[str, str]:
    return {one.node: one.text for one in host.debug.logs(run_id)}


def test_what_a_node_prints_and_logs_is_kept_with_its_step(host: Host, capsys: Any) -> None:
    host.run(Flow("speaking", [speaks], logs=True), {"n": 7}, run_id="A1")
    [kept] = host.debug.logs("A1/speaks")
    assert (kept.node, kept.visit, kept.attempt, kept.epoch, kept.omitted) == ("speaks", 1, 1, 1, 0)
    lines = kept.text.splitlines()
    assert lines[:2] == ["hello 7", "to stderr"]
    assert lines[2].endswith("WARNING tests.step_logs: careful with this")
    assert len(lines) == 3
    assert "hello 7" in capsys.readouterr().out, "it goes where it went before, too"


def test_a_call_of_a_logger_whose_arguments_do_not_fit_fails_no_node(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # those of pytest raise

    class Odd:
        def __str__(self) -> str:
            raise ValueError("no text")

    @node(output="one")
    def logs_oddly(n: int) -> int:
        log.warning("%d of %s", "one", n)
        log.warning("careful with %s", Odd())
        log.warning("fine")
        return n

    assert host.run(Flow("speaking", [logs_oddly], logs=True), {"n": 7}, run_id="A1")["one"] == 7
    [kept] = host.debug.logs("A1/logs_oddly")
    assert "--- Logging error ---" in kept.text
    assert "WARNING tests.step_logs: fine" in kept.text


def test_what_a_listener_says_is_in_no_log(url: str) -> None:
    @node(output="out")
    def works(n: int, ctx: Context) -> int:
        ctx.emit("word", n=n)
        return ctx.step("add", lambda: n + 1)

    with Host(url, on_event=lambda event: print("heard", event.kind)) as host:
        host.run(Flow("working", [works], logs=True), {"n": 7}, run_id="A1")
        assert host.debug.logs("A1") == []


def test_nothing_is_kept_or_caught_unless_the_flow_asks(host: Host) -> None:
    streams = sys.stdout, sys.stderr
    host.run(Flow("speaking", [speaks]), {"n": 7}, run_id="A1")
    assert host.debug.logs("A1") == []
    host.run(Flow("speaking", [speaks], logs=True), {"n": 7}, run_id="A2")
    assert (sys.stdout, sys.stderr) == streams, "nothing stays in their place"
    assert not [h for h in logging.getLogger().handlers if type(h).__module__.startswith("everstep")]


def test_nodes_that_run_at_once_are_kept_apart(host: Host) -> None:
    meet = threading.Barrier(3, timeout=30)

    def threaded(name: str) -> Any:
        @node(name=name, output=f"out_{name}")
        def speak(n: int) -> int:
            for k in range(20):
                if k % 5 == 0:
                    meet.wait()
                print(f"{name} {k}")
            return n

        return speak

    def tasked(name: str) -> Any:
        @node(name=name, output=f"out_{name}")
        async def speak(n: int) -> int:
            async def one(k: int) -> None:
                await asyncio.sleep(0)
                print(f"{name} {k}")

            await asyncio.gather(*(one(k) for k in range(20)))
            await asyncio.to_thread(print, f"{name} in a thread")
            return n

        return speak

    threads, tasks = ("a", "b", "c"), ("x", "y", "z")
    flow = Flow("at_once", [*map(threaded, threads), *map(tasked, tasks)], logs=True)
    host.run(flow, {"n": 1}, run_id="A1").raise_for_status()
    kept = texts(host, "A1")
    for name in threads:
        assert kept[name].splitlines() == [f"{name} {k}" for k in range(20)]
    for name in tasks:
        assert sorted(kept[name].splitlines()) == sorted(
            [*(f"{name} {k}" for k in range(20)), f"{name} in a thread"]
        )


def test_lines_of_calls_on_threads_of_one_node_are_whole(host: Host) -> None:
    meet = threading.Barrier(3, timeout=30)

    def look(n: int) -> int:
        print("call", end=" ")
        meet.wait()  # each has begun its line
        print(n)
        meet.wait()
        print("over", n, end="")
        return n

    @node(output="found")
    async def agent(n: int, ctx: AsyncContext) -> list[int]:
        return await asyncio.gather(*(ctx.step("look", look, k, key=k) for k in range(n)))

    host.run(Flow("at_once", [agent], logs=True), {"n": 3}, run_id="A1").raise_for_status()
    lines = texts(host, "A1")["agent"].splitlines()
    assert sorted(lines) == [*(f"call {k}" for k in range(3)), *(f"over {k}" for k in range(3))]


def test_each_attempt_has_its_log_and_only_the_newest_are_kept(host: Host) -> None:
    @node(retry=Retry(14, first=0))
    def tries(n: int) -> int:
        seen.append(1)
        print("try", len(seen))
        if len(seen) < 15:
            raise ConnectionError
        return n

    seen: list[int] = []
    host.run(Flow("trying", [tries], logs=True), {"n": 1}, run_id="A1").raise_for_status()
    kept = host.debug.logs("A1")
    assert [one.attempt for one in kept] == list(range(6, 16))
    assert [one.text for one in kept] == [f"try {k}\n" for k in range(6, 16)]


def entered_twice(host: Host, words: int) -> Flow:
    """Return a flow whose first node is left for a wait, and entered again while the second still runs."""
    again = threading.Event()

    @node(halts=True, output="answer")
    def asks(n: int, ctx: Context) -> str:
        entries.append(1)
        print("entry", len(entries))
        for k in range(words):
            print(f"{len(entries)} {k:06d} " + "x" * 100)
        if len(entries) == 2:
            again.set()
        return str(ctx.wait(Wait(kind="text")))

    @node(output="busy")
    def answers(n: int) -> bool:
        while not (opened := host.waits("A1")):
            time.sleep(0.005)
        host.answer(opened[0].id, "yes")
        return again.wait(20)

    entries: list[int] = []
    return Flow("entering", [asks, answers], logs=True)


def test_a_node_that_waited_goes_on_with_its_log_where_it_is_entered_again(host: Host) -> None:
    result = host.run(entered_twice(host, 0), {"n": 1}, run_id="A1").raise_for_status()
    assert (result["busy"], result["answer"]) == (True, "yes"), "it was entered again by the same owner"
    [kept] = host.debug.logs("A1/asks")
    assert (kept.visit, kept.attempt, kept.epoch, kept.text) == (1, 1, 1, "entry 1\nentry 2\n")
    logs = host._host._services.live.logs()
    assert logs is not None and not logs._left, "nothing is held for a drive that has ended"


@pytest.mark.stores("memory")
def test_the_entries_of_a_visit_share_the_bound_of_one_log(host: Host) -> None:
    host.run(entered_twice(host, 1000), {"n": 1}, run_id="A1").raise_for_status()
    [kept] = host.debug.logs("A1/asks")
    lines = kept.text.splitlines()
    assert lines[0] == "entry 1" and lines[-1].startswith("2 000999 ")
    assert len(kept.text.encode()) < 2 * HALF + 200
    assert kept.omitted + len(kept.text.encode()) > 2 * 1000 * 110


@pytest.mark.stores("memory")
def test_an_entry_under_another_owner_has_a_log_of_its_own(host: Host) -> None:
    @node(halts=True, output="answer")
    def asks(n: int, ctx: Context) -> str:
        print("entered")
        said = str(ctx.wait(Wait(kind="text")))
        print("heard", said)
        return said

    flow = Flow("asking", [asks], logs=True)
    host.run(flow, {"n": 1}, run_id="A1")
    logs = host._host._services.live.logs()
    assert logs is not None and not logs._left
    host.answer(host.waits("A1")[0].id, "yes")
    host.resume("A1", flow).raise_for_status()
    kept = [(one.epoch, one.text) for one in host.debug.logs("A1")]
    assert kept == [(1, "entered\n"), (2, "entered\nheard yes\n")]


def test_of_a_long_log_head_and_tail_are_kept(host: Host) -> None:
    @node
    def talks(n: int) -> int:
        for k in range(n):
            print(f"{k:06d} " + "x" * 100)
        return n

    host.run(Flow("talking", [talks], logs=True), {"n": 5000}, run_id="A1").raise_for_status()
    [kept] = host.debug.logs("A1")
    lines = kept.text.splitlines()
    assert lines[0].startswith("000000 ")
    assert lines[-1].startswith("004999 ")
    assert len(kept.text.encode()) < 2 * HALF + 200
    assert kept.omitted + len(kept.text.encode()) > 5000 * 108 - 200
    assert f"… {kept.omitted:,} bytes left out …" in lines


@pytest.mark.parametrize("before", [0, 5000])
def test_a_line_that_has_not_ended_counts_in_bytes_too(host: Host, before: int) -> None:
    @node
    def talks(n: int) -> int:
        for _ in range(n):
            print("x" * 30)
        print("\N{SNOWMAN}" * (HALF - 1) + "!", end="")
        return n

    host.run(Flow("talking", [talks], logs=True), {"n": before}, run_id="A1").raise_for_status()
    [kept] = host.debug.logs("A1")
    assert len(kept.text.encode()) < 2 * HALF + 200
    assert kept.text.endswith("\N{SNOWMAN}!")
    assert kept.omitted + len(kept.text.encode()) > before * 31 + 3 * HALF - 200


def kept_of(*said: str) -> str:
    text = LogText(threading.Lock())
    for one in said:
        text.add(one)
    return "…".join(map(str, text.kept()))


def test_lines_around_a_long_one_are_kept() -> None:
    text = LogText(threading.Lock())
    for line in ("before\n", "x" * 100_000, "\n", "behind\n", "and last\n"):
        text.add(line)
    head, omitted, tail = text.kept()
    assert head.startswith("before\nxxx") and tail.endswith("xxx\nbehind\nand last\n")
    assert 31 * 1024 < len(head) <= HALF and 31 * 1024 - 300 < len(tail) <= HALF
    assert len(head) + omitted + len(tail) == 7 + 100_001 + 7 + 9


@pytest.mark.parametrize("shift", [*range(-24, 3), -300, -256, -255, 20])
@pytest.mark.parametrize(
    "secret",
    [
        "password=hunter2hunter2",
        'api_key: "hun ter2 hunter2"',
        "et_hunter2hunter2hunter2",
        "Authorization: Bearer hunter2hunter2",
        "password" + " " * 600 + "= hunter2",
        "token=" + "hunter2" * 20_000,
        'secret="' + "hunter2 " * 20_000 + '"',
        "et_" + "hunter2" * 20_000,
    ],
    ids=range(8),
)
def test_a_secret_in_a_line_that_is_kept_in_parts_is_left_out(secret: str, shift: int) -> None:
    line = "." * (HALF + shift - 1) + " " + secret + " and more"
    for size in (HALF + 1, 4099, 64 * 1024):
        said = [line[k : k + size] for k in range(0, len(line), size)]
        kept = kept_of("begun\n", *said, "\nlast\n")
        assert "hunter" not in kept and "ter2" not in kept, (shift, size)
        assert "… and more" in kept and "last\n" in kept


@pytest.mark.parametrize(
    "word", ["x", "token", "token ", 'token="', "et_", "password" + " " * 1000, "=", "a=b,"]
)
def test_a_long_line_that_comes_in_parts_is_looked_through_once(word: str) -> None:
    line = (word * 100_000)[:100_000]
    text = LogText(threading.Lock())
    began = time.process_time()
    for k in range(0, len(line), 5_000):
        text.add(line[k : k + 5_000])
    assert time.process_time() - began < 4  # from each of its letters anew: minutes


def test_half_a_character_is_spelled_out() -> None:
    text = LogText(threading.Lock())
    text.add("found caf\udce9\n")
    assert text.kept() == ("found caf\\udce9\n", 0, "")


def test_secrets_are_left_out_and_what_is_kept_is_encrypted_like_values(url: str) -> None:
    @node
    def leaks(n: int) -> int:
        print("password =", "hunter2", "and tokens: 1500")
        log.warning('{"api_key": "abc def", "x": 1} Authorization: Bearer xyz')
        return n

    keys = KeyRing({"k1": b"k" * 32})
    with Host(url, encrypt=keys) as host:
        host.run(Flow("leaking", [leaks], logs=True), {"n": 1}, run_id="A1").raise_for_status()
        [kept] = host.debug.logs("A1")
        [raw] = host._host._services.live.ring.read_logs("A1")
    assert "password = … and tokens: 1500" in kept.text
    assert "hunter2" not in kept.text
    assert '{"api_key": …, "x": 1} Authorization: Bearer …' in kept.text
    assert b"tokens" not in raw.body


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("token=abc", "token=…"),
        ("DB_PASSWORD: 's3 cret' ok", "DB_PASSWORD: … ok"),
        ("used 12 tokens, cost=3", "used 12 tokens, cost=3"),
        ("see et_abcdefghijklmnopqrstu", "see et_…"),
        ("X-Api-Key: abc", "X-Api-Key: …"),
        ('{"password": "a\\"b c"}', '{"password": …}'),
        ('"{\\"password\\": \\"abc\\"}"', '"{\\"password\\": …}"'),
    ],
)
@pytest.mark.stores("memory")
def test_what_its_name_says_is_a_secret_is_hidden(host: Host, line: str, kept: str) -> None:
    assert without_secrets(line) == kept


@pytest.mark.parametrize("word", ["x", "token", "token ", 'token="', "et_", "password" + " " * 1000])
def test_a_line_of_one_long_word_is_looked_through_once(word: str) -> None:
    line = (word * 60_000)[:60_000]
    began = time.process_time()
    without_secrets(line)
    assert time.process_time() - began < 1  # from each of its letters anew: a quarter of a minute


def test_the_log_of_a_step_is_found_that_no_record_tells_of(host: Host) -> None:
    @node
    def dies(n: int) -> int:
        return n

    flow = Flow("speaking", [speaks, dies], logs=True)
    host.run(flow, {"n": 7}, run_id="A1").raise_for_status()
    services = host._host._services
    for path, visit in (("speaks", 2), ("dies", 2), ("gone", 1)):  # as a process leaves it that was killed
        place = LogPlace("A1", path, visit, 2, 1)
        body = msgspec.json.encode(LoggedText(f"{path} {visit}\n", 0, ""))
        services.live.ring.write_logs([KeptLog(place, Bound.log(place).closed(services.codecs, body))])
    assert [one.text for one in host.debug.logs("A1/speaks")] == ["speaks 2\n"]
    [first] = host.debug.logs("A1/speaks@1")
    assert first.text.startswith("hello 7\n")
    assert [one.text for one in host.debug.logs("A1/dies")] == ["dies 2\n"]
    assert host.debug.logs("A1/dies@1") == []
    assert [one.text for one in host.debug.logs("A1/gone")] == ["gone 1\n"]
    with pytest.raises(RunNotFound, match="no part 'nowhere'"):
        host.debug.logs("A1/nowhere")


def test_logs_are_erased_with_their_run(host: Host) -> None:
    host.run(Flow("speaking", [speaks], logs=True), {"n": 7}, run_id="A1")
    host.retention.erase("A1")
    assert host._host._services.live.ring.read_logs("A1") == []


def test_what_the_listener_of_a_host_prints_is_no_word_of_a_step(url: str) -> None:
    @node
    def emits(n: int, ctx: Context) -> int:
        print("mine")
        ctx.emit("said")
        return n

    with Host(url, on_event=lambda event: print("a listener prints", event.kind)) as host:
        host.run(Flow("emitting", [emits], logs=True), {"n": 1}, run_id="A1").raise_for_status()
        assert texts(host, "A1") == {"emits": "mine\n"}
