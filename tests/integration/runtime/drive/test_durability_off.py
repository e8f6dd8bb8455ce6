"""A flow that keeps nothing does not drive runs that are recorded, and its values are not encoded."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from everstep import Context, Flow, Host, Status, node
from everstep.errors import DurabilityOff
from everstep.model.compat import Compatibility
from everstep.model.enums import ValueForm

KEYED: dict[str, Any] = {"effects": "effectful", "idempotency_key": "auto"}
MADE: list[int] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    MADE.clear()


@node(output="paid", **KEYED)
def pay(x: int) -> int:
    MADE.append(x)
    return x


@node(output="sent", **KEYED)
def ship(paid: int) -> int:
    MADE.append(-paid)
    if len(MADE) < 3:
        raise ConnectionError("no one is there")
    return paid


STRONG = Flow("f", [pay, ship], durability="strong")
PARTIAL = Flow("f", [pay, ship])
OFF = Flow("f", [pay, ship], durability="off")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with a run that was recorded, and failed."""
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url) as host:
        assert host.run(STRONG, {"x": 1}, run_id="r").status is Status.FAILED
        host.start(STRONG, {"x": 1}, run_id="new")
    return url


@pytest.fixture(params=["the flow says off", "the host keeps nothing"])
def off(request: pytest.FixtureRequest, url: str) -> Any:
    """A host and a flow with which nothing would be kept."""
    if request.param == "the flow says off":
        host, flow = Host(url), OFF
    else:
        host, flow = Host(url, max_durability_mode="off"), PARTIAL
    with host:
        yield host, flow


def test_a_recorded_run_is_not_resumed_by_a_flow_that_keeps_nothing(off: tuple[Host, Flow]) -> None:
    host, flow = off
    with pytest.raises(DurabilityOff, match="keeps nothing here"):
        host.resume("r", flow)
    assert MADE == [1, -1]
    assert host.info("r").status is Status.FAILED
    assert host.resume("r", STRONG).status is Status.COMPLETED if flow is OFF else True


@pytest.mark.parametrize("inputs", [None, {"x": 1}], ids=str)
def test_a_recorded_run_is_not_run_by_a_flow_that_keeps_nothing(
    off: tuple[Host, Flow], inputs: dict[str, Any] | None
) -> None:
    host, flow = off
    with pytest.raises(DurabilityOff, match="run 'new' is recorded"):
        host.run(flow, inputs, run_id="new")
    assert MADE == [1, -1]


def test_what_a_recorded_run_came_to_is_shown_by_any_flow(off: tuple[Host, Flow]) -> None:
    host, flow = off
    assert host.run(flow, run_id="r").status is Status.FAILED
    assert MADE == [1, -1]


def test_compat_says_that_a_flow_that_keeps_nothing_cannot_go_on(off: tuple[Host, Flow]) -> None:
    host, flow = off
    told = host.versions.compat("new", flow)
    assert (told.verdict, told.code) == (Compatibility.REFUSED, "durability.off")
    assert host.explain("new", flow).compat.verdict is Compatibility.REFUSED


def test_a_worker_drives_no_flow_that_keeps_nothing(
    off: tuple[Host, Flow], caplog: pytest.LogCaptureFixture
) -> None:
    host, flow = off
    with pytest.raises(DurabilityOff, match="flow 'f' keeps nothing here"):
        host.work([flow], until_idle=True)
    assert MADE == [1, -1]
    if flow is OFF:
        with caplog.at_level(logging.WARNING, "everstep"):
            host.work([flow, Flow("other", [pay])], until_idle=True)
        assert "flow 'f' keeps nothing here" in caplog.text
        assert MADE == [1, -1]


def test_a_strong_run_may_go_on_as_a_partial_one(url: str) -> None:
    with Host(url) as host:
        assert host.resume("r", PARTIAL).status is Status.COMPLETED


# -- values that cannot be stored ------------------------------------------------------------------------


class Socket:
    """What lives in memory only."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.lock = threading.Lock()


@node(output="socket")
def connect(port: int) -> Socket:
    return Socket(port)


@node(output="seen")
def listen(socket: Socket) -> int:
    return socket.port


@pytest.mark.parametrize("url", ["memory:", "none:"])
def test_values_that_nothing_is_kept_of_need_not_be_storable(url: str) -> None:
    inner = Flow("inner", [connect, listen]).as_node()
    flow = Flow("f", [inner.map_over("port")], durability="off" if url == "memory:" else "partial")
    with Host(url) as host:
        result = host.run(flow, {"port": [1, 2]})
    assert result["seen"] == [1, 2]
    assert [type(s) for s in result["socket"]] == [Socket, Socket]


def test_what_is_in_a_channel_that_nothing_is_kept_of_need_not_be_storable() -> None:
    @node(output="a")
    def put(ctx: Context) -> int:
        ctx.channel.set("socket", Socket(7))
        ctx.channel.check("socket", Socket(8))
        ctx.channel.append("words", ["good"])
        ctx.channel.prepend("words", ["first"])
        ctx.channel.atomic_add("count", 2)
        return 1

    @node(output="b")
    def spoil(a: int, ctx: Context) -> int:
        ctx.channel["words"][0].append("spoiled")
        ctx.channel.append("words", [])
        ctx.channel.prepend("words", ["zeroth"])
        ctx.channel.atomic_add("count", 3)
        return a

    @node(output="port")
    def take(b: int, ctx: Context) -> int:
        return int(ctx.channel["socket"].port)

    with Host("none:") as host:
        result = host.run(Flow("f", [put, spoil, take]))
    assert result["port"] == 7
    assert result.channel["words"] == [["zeroth"], ["first"], ["good"], []]
    assert result.channel["count"] == 5


def test_nodes_that_nothing_is_kept_of_do_not_share_lists() -> None:
    @node(output="a")
    def spoil(words: list[list[str]]) -> int:
        words[0].append("spoiled")
        return len(words)

    @node(output="b")
    def look(words: list[list[str]], a: int) -> list[str]:
        return words[0]

    words = [["good"]]
    with Host("none:") as host:
        assert host.run(Flow("f", [spoil, look]), {"words": words})["b"] == ["good"]
    assert words == [["good"]]


def test_a_node_that_cannot_be_checkpointed_does_not_fail_its_run(tmp_path: Path) -> None:
    feed = connect.saying(checkpointable=False, reason="it holds a connection")
    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        assert host.run(Flow("f", [feed, listen]), {"port": 7}, run_id="r")["seen"] == 7
        steps = {step.path: step for record in host.history("r") for step in record.steps}
        assert steps["connect"].writes[0].form is ValueForm.TRANSIENT
        assert steps["listen"].writes[0].is_inline
        mapped = Flow("g", [feed.map_over("port"), node(output="n")(len_of)])
        assert host.run(mapped, {"port": [1, 2]})["n"] == 2


def len_of(socket: list[Socket]) -> int:
    return sum(isinstance(one, Socket) for one in socket)


def test_what_a_node_that_cannot_be_checkpointed_returns_is_kept_if_it_can_be() -> None:
    with Host("memory:") as host:
        plain = node(output="a", checkpointable=False, reason="a feed")(lambda: 7)
        host.run(Flow("f", [plain.with_name("plain")]), run_id="r")
        assert host.state("r")["a"] == 7


@pytest.mark.parametrize("shape", ["plain", "map", "effectful"])
def test_a_run_goes_on_behind_a_node_that_cannot_be_checkpointed_as_far_as_that_can_be(
    tmp_path: Path, shape: str
) -> None:
    calls: list[int] = []

    @node(output="socket", checkpointable=False, reason="it holds a connection")
    def open_it(port: int) -> Socket:
        calls.append(port)
        return Socket(port)

    def use(socket: Any) -> int:
        if len(calls) < 2 + (shape == "map"):
            raise ConnectionError("gone")
        return 1

    made = {"plain": open_it, "map": open_it.map_over("port"), "effectful": open_it.saying(**KEYED)}[shape]
    flow = Flow("f", [made, node(output="n")(use)])
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url) as host:
        given = [1, 2] if shape == "map" else 1
        assert host.run(flow, {"port": given}, run_id="r").status is Status.FAILED
    with Host(url) as host:
        result = host.resume("r", flow)
    if shape == "plain":
        assert (result.status, calls) == (Status.COMPLETED, [1, 1])
    else:
        assert result.status is Status.FAILED
        assert result.error is not None
        assert "is not called again (it holds a connection)" in result.error.message
        assert len(calls) == len(given) if isinstance(given, list) else 1
