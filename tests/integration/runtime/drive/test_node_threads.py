"""Sync nodes on threads that outlive their time limit."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from everstep import END, AsyncHost, Flow, Host, Status, ifelse, node
from everstep.runtime.drive.node_threads import NodeThreads
from everstep.runtime.system import RealSystem

PROGRAM = textwrap.dedent(
    """
    import sys, threading
    from everstep import Flow, Host, node

    @node(output="y", timeout=0.1)
    def stuck(x: int) -> int:
        threading.Event().wait()

    with Host(f"sqlite:///{sys.argv[1]}/runs.db") as host:
        result = host.run(Flow("f", [stuck], durability="strong"), {"x": 1}, run_id="r")
    print(result.error.code)
    """
)


def test_a_program_ends_although_a_node_of_it_never_does(tmp_path: Path) -> None:
    program = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "node.timeout\n"
    assert "never ended" in ended.stderr


def test_nodes_that_never_end_take_no_threads_from_others(tmp_path: Path) -> None:
    never = threading.Event()

    @node(output="y", timeout=0.05)
    def stuck(x: int) -> int:
        never.wait()
        return x

    @node(output="y", timeout=20)
    def quick(x: int) -> int:
        return x

    with Host(f"sqlite:///{tmp_path}/runs.db", max_threads=1) as host:
        for _ in range(3):
            assert host.run(Flow("stuck", [stuck]), {"x": 1}).status is Status.FAILED
        assert host.run(Flow("quick", [quick]), {"x": 1})["y"] == 1
    never.set()


def test_a_node_runs_although_all_those_before_it_never_end_and_others_had_to_queue() -> None:
    threads, may_end, never = NodeThreads(2, RealSystem()), threading.Event(), threading.Event()
    queued = [threads.submit(may_end.wait) for _ in range(6)]
    may_end.set()
    assert all(call.result(20) for call in queued)
    begun = threading.Barrier(3)

    def get_stuck() -> None:
        begun.wait(20)
        never.wait()

    stuck = [threads.submit(get_stuck) for _ in range(2)]
    begun.wait(20)
    for call in stuck:
        threads.give_up(call)
    assert threads.submit(lambda: "done").result(20) == "done"
    never.set()
    threads.shutdown()


def test_threads_are_made_as_they_are_wanted_and_used_again() -> None:
    threads = NodeThreads(2, RealSystem())
    first = threads.submit(threading.get_ident).result(20)
    assert threads.submit(lambda: 7).result(20) == 7
    barrier = threading.Barrier(2)
    both = [threads.submit(barrier.wait, 20) for _ in range(2)]
    assert sorted(done.result(20) for done in both) == [0, 1]
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 // 0).result(20)
    assert isinstance(first, int)
    threads.shutdown()
    with pytest.raises(RuntimeError):
        threads.submit(int)


def test_one_that_was_given_up_on_and_ends_after_all_leaves_its_place_to_the_other() -> None:
    threads, may_end = NodeThreads(1, RealSystem()), threading.Event()
    stuck = threads.submit(may_end.wait, 20)
    waiting = threads.submit(lambda: 1)
    while not stuck.running():
        threading.Event().wait(0.001)
    threads.give_up(stuck)
    assert waiting.result(20) == 1
    may_end.set()
    assert stuck.result(20)
    assert [threads.submit(lambda: 2).result(20) for _ in range(3)] == [2, 2, 2]
    threads.shutdown()


def test_sync_nodes_one_after_the_other_share_a_few_threads() -> None:
    names = set[str]()

    @node(output="i")
    def count(i: int) -> int:
        names.add(threading.current_thread().name)
        return i + 1

    @ifelse(when_true="count", when_false=END)
    def more(i: int) -> bool:
        return i < 500

    async def run() -> None:
        async with AsyncHost("memory:") as host:
            assert (await host.run(Flow("loop", [count >> more], entry="count", max_steps=2000), {"i": 0}))[
                "i"
            ] == 500

    asyncio.run(run())
    assert len(names) < 12
