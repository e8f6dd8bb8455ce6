"""A flow that keeps nothing does not drive runs that are recorded, and its values are not encoded."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from everstep import Flow, Host, Status, node
from everstep.errors import DurabilityOff
from everstep.model.compat import Compatibility

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
        raise ConnectionError("nobody is there")
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
    told = host.compat("new", flow)
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
