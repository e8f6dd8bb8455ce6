"""What runs side by side: threads that exit, locks of calls that are no longer awaited."""

from __future__ import annotations

import threading
import time

import pytest

from everstep import Context, Flow, Host, Retry, node, parallel


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_exiting_in_one_of_several_threads_ends_the_call_and_not_the_run(
    host: Host, kind: type[BaseException]
) -> None:
    exits = [True]

    @node(output="y")
    def work(x: int) -> int:
        if x == 1 and exits:
            raise kind(3)
        return x * 2

    flow = Flow("f", [work.map_over("x")], durability="strong")
    with pytest.raises(kind):
        host.run(flow, {"x": [0, 1, 2, 3]}, run_id="r")
    exits.clear()
    assert host.resume("r", flow)["y"] == [0, 2, 4, 6]


def test_a_node_that_took_too_long_lets_go_of_its_locks(host: Host) -> None:
    ends = threading.Event()

    @node(timeout=0.3, retry=Retry(1, first=0))
    def slow(ctx: Context) -> int:
        with ctx.channel.lock("k", timeout=20):
            if ctx.attempt == 1:
                ends.wait(20)
            return ctx.attempt

    @node
    def other(ctx: Context) -> int:
        time.sleep(0.1)
        with ctx.channel.lock("k", timeout=10):
            return 1

    result = host.run(Flow("f", [slow, other], channel={"k": int}, durability="strong"))
    ends.set()
    assert (result["other.__result__"], result["slow.__result__"]) == (1, 2)


def test_a_branch_that_was_called_off_takes_no_lock(host: Host) -> None:
    is_won, has_tried = threading.Event(), threading.Event()

    @node
    def win() -> None:
        pass

    @node
    def lose(ctx: Context) -> None:
        is_won.wait(20)
        try:
            with ctx.channel.lock("k"):
                pass
        finally:
            has_tried.set()

    @node
    def after(ctx: Context) -> int:
        is_won.set()
        has_tried.wait(20)
        with ctx.channel.lock("k", timeout=1):
            return 1

    flow = Flow("f", parallel(win, lose, policy="first_success") >> after, durability="strong")
    assert host.run(flow)["after.__result__"] == 1
