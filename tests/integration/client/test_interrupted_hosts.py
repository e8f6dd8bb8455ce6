"""A host that is interrupted or closed while it drives: Ctrl-C, `close()`, `sys.exit()`, a deep stack."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import everstep
from everstep import AsyncHost, Flow, Host, Status, node
from everstep.client.lanes import HEADROOM, SENT_AGAIN
from everstep.errors import BadRequest, HostClosed
from everstep.runtime.events import Event

IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
OURS = str(Path(everstep.__file__).parent)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Python's own handler, also where the tests run with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """What asyncio complains of."""
    messages: list[str] = []
    yield messages
    gc.collect()
    messages += [record.getMessage() for record in caplog.records if record.name == "asyncio"]
    assert messages == []


@node(output="b")
def first(a: int) -> int:
    return a + 1


@node(output="c")
async def second(b: int) -> int:
    await asyncio.sleep(0)
    return b + 1


@node(output="d")
def third(c: int) -> int:
    return c + 1


FLOW = Flow("three", [first, second, third], durability="strong")


@node(name="double", output="o")
def double(it: int) -> int:
    return 2 * it


MAP = Flow("map", [double.map_over("it").with_inputs(it="its")], durability="strong")
FLOWS: dict[str, tuple[Flow, dict[str, Any]]] = {
    "chain": (FLOW, {"a": 1}),
    "map": (MAP, {"its": [1, 2, 3]}),
}


class Interrupts:
    """Sends Ctrl-C when so many calls in everstep have begun or returned."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "return", "c_return") and frame.f_code.co_filename.startswith(OURS):
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGINT)


def run_interrupted(host: Host, shape: str, run_id: str, at: int) -> Interrupts:
    flow, inputs = FLOWS[shape]
    interrupts = Interrupts(at)
    try:
        sys.setprofile(interrupts)
        host.run(flow, inputs, run_id=run_id)
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return interrupts


@pytest.mark.usefixtures("ctrl_c", "said")
@pytest.mark.parametrize("shape", list(FLOWS))
@pytest.mark.parametrize("store", ["memory:", "sqlite:///{}/runs.db"], ids=["memory", "sqlite"])
def test_ctrl_c_at_any_moment_leaves_the_run_free_to_go_on(
    quick_folder: Path, store: str, shape: str
) -> None:
    flow, inputs = FLOWS[shape]
    with Host(store.format(quick_folder)) as host:
        host.run(flow, inputs, run_id="warm")
        calls = 10**6 - run_interrupted(host, shape, "counted", 10**6).left
        for at in range(1, calls + 5, 1 if IS_SOAK else max(1, calls // 90)):
            run_interrupted(host, shape, f"r{at}", at)
            assert not any(run.is_driven for run in host.runs(limit=1))
            assert host.run(flow, inputs, run_id=f"r{at}").status is Status.COMPLETED
        assert all(verified.is_sound for verified in host.storage.verify())


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_is_raised_in_the_node_that_it_hits(tmp_path: Path) -> None:
    seen = []

    @node(output="b")
    def slow(a: int) -> int:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            seen.append("in the node")
            raise
        return a

    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        with pytest.raises(KeyboardInterrupt):
            host.run(Flow("f", [slow]), {"a": 1}, run_id="r")
        assert not host.info("r").is_driven
    assert seen == ["in the node"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("at", ["chunk", "step_started"])
def test_ctrl_c_between_two_pieces_of_a_node_does_not_wait_for_its_end(tmp_path: Path, at: str) -> None:
    @node(output="b")
    def slow(a: int) -> Iterator[int]:
        yield a
        time.sleep(20)
        yield a

    def listen(event: Event) -> None:
        if event.kind == at:
            signal.raise_signal(signal.SIGINT)

    began = time.monotonic()
    with Host(f"sqlite:///{tmp_path}/runs.db", on_event=listen) as host:
        with pytest.raises(KeyboardInterrupt):
            host.run(Flow("f", [slow]), {"a": 1}, run_id="r")
        assert time.monotonic() - began < 10
        assert not host.info("r").is_driven
    time.sleep(3 * SENT_AGAIN)  # nothing comes behind it
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_is_not_sent_again_to_a_node_that_cleans_up(tmp_path: Path) -> None:
    cleaned = []

    @node(output="b")
    async def tidy(a: int) -> int:
        asyncio.get_running_loop().call_later(0.01, signal.raise_signal, signal.SIGINT)
        try:
            await asyncio.sleep(20)
        finally:
            time.sleep(3 * SENT_AGAIN)
            cleaned.append(a)
        return a

    with Host(f"sqlite:///{tmp_path}/runs.db") as host, pytest.raises(KeyboardInterrupt):
        host.run(Flow("f", [tidy]), {"a": 1}, run_id="r")
    assert cleaned == [1]


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_an_async_node_that_waits(tmp_path: Path) -> None:
    @node(output="b")
    async def patient(a: int) -> int:
        asyncio.get_running_loop().call_later(0.05, signal.raise_signal, signal.SIGINT)
        await asyncio.sleep(60)
        return a

    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        with pytest.raises(KeyboardInterrupt):
            host.run(Flow("f", [patient], durability="strong"), {"a": 1}, run_id="r")
        assert not host.info("r").is_driven


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_a_notebook_stops_the_run_too(tmp_path: Path) -> None:
    begun, ended = threading.Event(), []

    @node(output="b")
    async def patient(a: int) -> int:
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            for _ in range(2000):  # tidies up for longer than a caller needs that does not wait for it
                await asyncio.sleep(0)
            ended.append(a)
        return a

    def interrupt() -> None:
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    async def cell(host: Host) -> None:
        with pytest.raises(KeyboardInterrupt):
            host.run(Flow("f", [patient], durability="strong"), {"a": 1}, run_id="r")
        assert ended == [1]
        assert not host.info("r").is_driven

    threading.Thread(target=interrupt, daemon=True).start()
    loop = asyncio.new_event_loop()
    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        loop.run_until_complete(cell(host))
    loop.close()


def driven_elsewhere(host: Host, flow: Flow) -> tuple[threading.Thread, list[BaseException]]:
    """Let another thread drive a run of this host."""
    raised: list[BaseException] = []

    def drive() -> None:
        try:
            host.run(flow, {"a": 1}, run_id="r")
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=drive)
    thread.start()
    return thread, raised


def test_closing_a_host_hands_back_the_run_that_another_thread_drives(tmp_path: Path) -> None:
    begun, may_end, made = threading.Event(), threading.Event(), []

    @node(output="b", effects="effectful", idempotency_key="auto")
    def pay(a: int) -> int:
        made.append(a)
        begun.set()
        assert may_end.wait(20)
        return a

    flow = Flow("f", [pay, second, third], durability="strong")
    url = f"sqlite:///{tmp_path}/runs.db"
    host = Host(url)
    thread, raised = driven_elsewhere(host, flow)
    assert begun.wait(20)
    threading.Timer(0.1, may_end.set).start()
    host.close()
    thread.join(20)
    assert [type(error) for error in raised] == [HostClosed]
    with Host(url) as other:
        assert not other.info("r").is_driven
        assert other.resume("r", flow)["d"] == 3
    assert made == [1]  # the effect that was under way is kept


def test_closing_a_host_does_not_wait_for_an_async_node(tmp_path: Path) -> None:
    @node(output="b")
    async def patient(a: int) -> int:
        await asyncio.sleep(60)
        return a

    flow = Flow("f", [patient, second], durability="strong")
    url = f"sqlite:///{tmp_path}/runs.db"
    host = Host(url)
    thread, raised = driven_elsewhere(host, flow)
    with Host(url) as looking:
        while not [run for run in looking.runs() if run.is_driven]:
            threading.Event().wait(0.01)
    host.close()
    thread.join(20)
    assert [type(error) for error in raised] == [HostClosed]
    with pytest.raises(BadRequest, match="closed"):
        host.info("r")


def test_closing_an_async_host_stops_the_runs_of_other_tasks(tmp_path: Path) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        @node(output="b")
        async def patient(a: int) -> int:
            begun.set()
            await asyncio.sleep(60)
            return a

        flow = Flow("f", [patient, second], durability="strong")
        url = f"sqlite:///{tmp_path}/runs.db"
        host = AsyncHost(url)
        task = asyncio.create_task(host.run(flow, {"a": 1}, run_id="r"))
        await begun.wait()
        await host.close()
        with pytest.raises(HostClosed):
            await task
        async with AsyncHost(url) as other:
            assert not (await other.info("r")).is_driven

    asyncio.run(main())


@pytest.mark.parametrize("beside", [0, 2])
@pytest.mark.parametrize("url", ["memory:", "sqlite"])
def test_a_time_limit_around_a_run_ends_it_anywhere_and_nothing_after_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, url: str, beside: int
) -> None:
    """Whatever is being written then, the run goes on from it, and no later await of the caller is hit."""
    flow = Flow("f", [first, second, third, double.with_inputs(it="d")], durability="strong")

    async def limited(host: AsyncHost, run_id: str, turns: int) -> bool:
        async def end(limit: asyncio.Timeout) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            limit.reschedule(asyncio.get_running_loop().time())

        try:
            async with asyncio.timeout(None) as limit:
                ending = asyncio.ensure_future(end(limit))
                await host.run(flow, {"a": 1}, run_id=run_id)
        except TimeoutError:
            return True
        finally:
            ending.cancel()
        return False

    async def work() -> None:
        async with AsyncHost(url if url == "memory:" else f"sqlite:///{tmp_path}/runs.db") as host:
            for turns in itertools.chain(range(40), (40 * 2**more for more in range(1, 20))):
                if turns > 40 and False in cut_off:  # how many turns a run takes depends on the machine
                    break
                others = asyncio.gather(*(host.run(flow, {"a": 1}) for _ in range(beside)))
                cut_off.append(await limited(host, f"r{turns}", turns))
                await others
                for run in (await host.runs())[: beside + 1]:
                    result = await host.resume(run.run_id, flow, at_once=True)
                    assert (result.status, result["o"]) == (Status.COMPLETED, 8)

    cut_off: list[bool] = []
    with caplog.at_level(logging.WARNING, "everstep"):
        asyncio.run(work())
    assert {True, False} == set(cut_off)
    assert not caplog.records


def test_a_node_that_closes_its_own_host_is_told_so() -> None:
    @node(output="b")
    def closes(a: int) -> int:
        host.close()
        return a

    with Host("memory:") as host:
        result = host.run(Flow("f", [closes]), {"a": 1})
        assert result.status is Status.FAILED
        assert "cannot close the host" in str(result.error)


def test_sys_exit_in_two_async_items_comes_out_once(tmp_path: Path) -> None:
    @node(name="leave", output="y")
    async def leave(x: int) -> int:
        await asyncio.sleep(0)
        raise SystemExit(3)

    flow = Flow("b", [leave.map_over("x").with_inputs(x="xs")], durability="strong")
    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        with pytest.raises(SystemExit):
            host.run(flow, {"xs": [1, 2, 3]}, run_id="r")
        assert not host.info("r").is_driven
        assert len(host.runs()) == 1
        host.fleet.counts()


def deep(frames: int, act: Callable[[], Any]) -> Any:
    return act() if frames == 0 else deep(frames - 1, act)


def depth() -> int:
    frame, count = sys._getframe(), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1  # type: ignore[assignment]  # None at the end
    return count


def test_a_call_just_below_the_recursion_limit_says_so_and_does_nothing() -> None:
    with Host("memory:") as host:
        host.run(FLOW, {"a": 1}, run_id="warm")
        room = sys.getrecursionlimit() - depth()
        for left in range(12, HEADROOM, 17):
            with pytest.raises(RecursionError):
                deep(room - left, lambda: host.run(FLOW, {"a": 1}, run_id="r"))
        assert [run.run_id for run in host.runs()] == ["warm"]
        result = deep(room - HEADROOM - 20, lambda: host.run(FLOW, {"a": 1}, run_id="r"))
        assert result["d"] == 4


@pytest.mark.usefixtures("said")
def test_threads_that_look_at_runs_leave_nothing_for_asyncio_to_complain_of() -> None:
    with Host("memory:") as host:
        host.run(FLOW, {"a": 1}, run_id="r")
        barrier = threading.Barrier(4)

        def look() -> None:
            barrier.wait()
            for _ in range(20):
                host.state("r")

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        next(iter(host.events("r")))


def test_a_host_closed_half_way_through_its_events_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), Host("memory:") as host:
        host.run(FLOW, {"a": 1}, run_id="r")
        events = iter(host.events("r"))
        next(events)
    del events
    gc.collect()
    assert caplog.records == []
