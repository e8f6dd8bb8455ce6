"""A flow that a store cannot serve is refused before it runs."""

from __future__ import annotations

from typing import Any

import pytest

from everstep import Flow, Host, node, validate, wait
from everstep.errors import ServiceMissing
from everstep.ports.store import Capabilities
from everstep.registry import Opened
from everstep.stores.memory import MemoryStore
from everstep.testing import ManualClock


class Forgetful(MemoryStore):
    """A store that says of itself that it cannot keep waits."""

    capabilities = Capabilities(durable=True, single_writer=True, holds_waits=False)


@node(halts=True)
def own() -> wait.Wait:
    return wait.Wait(kind="own")


@node(output="sent", effects="effectful", on_unknown="stop", idempotency_key="auto")
def careful(x: int) -> int:
    return x


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (wait.timer("later", duration="5s"), "halts"),
        (wait.approval("ok"), "halts"),
        (wait.callback("call"), "halts"),
        (wait.question("why", kind="text"), "halts"),
        (own, "halts"),
        (careful, "stops for an operator"),
    ],
)
def test_a_store_that_keeps_no_waits_says_so_before_the_run(part: Any, said: str) -> None:
    flow = Flow("f", [part], durability="strong")
    clock = ManualClock()
    store = Forgetful(clock)
    with Host(Opened(store, store.artifacts, "forgetful:"), clock=clock) as host:
        found = [d for d in validate(flow, host).errors if d.node == part.name]
        assert [d.code for d in found] == ["DAG-CKPT-003"] and said in found[0].message
        with pytest.raises(ServiceMissing):
            host.run(flow, {"x": 1} if part is careful else {})
        assert host.runs() == []
        assert host.run(Flow("g", [plain_one], durability="strong"), {"x": 1}).status == "completed"
    with Host("none:") as host:
        if part is not careful:
            assert {d.code for d in validate(flow, host).errors} == {"DAG-CKPT-003"}


@node(output="y")
def plain_one(x: int) -> int:
    return x
