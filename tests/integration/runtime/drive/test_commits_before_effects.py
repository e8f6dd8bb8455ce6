"""What is durable when an effect is made: everything that led to it, in every mode that writes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everstep import END, Done, Durability, Flow, Host, ifelse, node, wait
from everstep.types import Registry

KEYED: dict[str, Any] = {"effects": "effectful", "idempotency_key": "auto"}
MODES = {
    "partial": Durability("partial"),
    "strong": Durability("strong"),
    "every 100 steps": Durability("strong", interval=100),
    "every hour": Durability("strong", interval=timedelta(hours=1)),
    "before effects": Durability("strong", flush="before_effects"),
}


class Witness:
    """Sees from outside what the store has of a run while one of its nodes is at work."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/runs.db"
        self.seen: dict[str, list[str]] = {}

    def look(self, at: str) -> None:
        with Host(self.url) as host:
            self.seen[at] = [step.path for record in host.history("r") for step in record.steps][1:]

    def run(self, flow: Flow, **inputs: Any) -> list[list[str]]:
        """Run a flow and return the steps of its checkpoints, without the first."""
        with Host(self.url) as host:
            host.run(flow, inputs, run_id="r")
            return [[step.path for step in record.steps] for record in host.history("r")[1:]]


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    return Witness(tmp_path)


@node(output="a")
def guess(x: int) -> int:
    return x + 1


@ifelse(when_true="ship", when_false=END)
def toss(a: int) -> bool:
    return True


def shipping(witness: Witness, name: str = "ship", **options: Any) -> Any:
    @node(output="parcel", name=name, **(options or KEYED))
    def ship(a: int) -> int:
        witness.look(name)
        return a

    return ship


@node(output="z")
def rest(parcel: int) -> int:
    return parcel


@pytest.mark.parametrize("durability", MODES.values(), ids=MODES)
def test_what_led_to_an_effect_is_in_the_store_when_it_is_made(
    witness: Witness, durability: Durability
) -> None:
    witness.run(Flow("f", [guess, toss, shipping(witness), rest], durability=durability), x=1)
    assert witness.seen["ship"] == ["guess", "toss"]


@pytest.mark.parametrize(
    "options",
    [
        {"effects": "effectful"},
        {"idempotency_key": "auto"},
        {"effects": "pure", "idempotency_key": "order-{a}"},
        {"idempotency_key": lambda a: f"order-{a}"},
        {"destructive": True},
        {**KEYED, "probe": lambda a: Done(a)},
        {**KEYED, "on_unknown": "stop"},
    ],
    ids=["effectful", "auto key", "template", "function", "destructive", "probe", "stop"],
)
def test_whatever_declares_an_effect_is_called_when_its_inputs_are_durable(
    witness: Witness, options: dict[str, Any]
) -> None:
    flow = Flow("f", [guess, shipping(witness, **options), rest])
    checkpoints = witness.run(flow, x=1)
    assert witness.seen["ship"][0] == "guess"
    assert ["ship"] in checkpoints  # and what it came to is written at once


def test_the_steps_before_an_effect_share_one_checkpoint(witness: Witness) -> None:
    pure = [node(output=f"v{k + 1}", inputs=[f"v{k}"], name=f"n{k}")(lambda **v: 1) for k in range(5)]
    flow = Flow("f", [*pure, shipping(witness).with_inputs(a="v5"), rest])
    assert witness.run(flow, v0=1) == [[f"n{k}" for k in range(5)], ["ship"], ["rest"]]


def test_effects_that_start_together_share_the_checkpoint_before_them(witness: Witness) -> None:
    def key(a: int) -> str:
        return f"key-{a}"

    effects = [
        shipping(witness, "one").with_outputs("p1"),
        shipping(witness, "two", **KEYED, on_unknown="stop").with_outputs("p2"),
        shipping(witness, "three", effects="effectful", idempotency_key=key).with_outputs("p3"),
    ]
    first, *_ = witness.run(Flow("f", [guess, *effects], max_concurrency=3), x=1)
    assert first == ["guess", "two", "three"]


def test_an_effect_whose_inputs_are_written_costs_no_checkpoint_before_it(witness: Witness) -> None:
    flow = Flow(
        "f", [shipping(witness), shipping(witness, "again").with_inputs(a="parcel").with_outputs("z")]
    )
    assert witness.run(flow, a=1) == [["ship"], ["again"]]


def test_a_built_in_wait_needs_no_checkpoint_before_its_own(witness: Witness) -> None:
    assert witness.run(Flow("f", [guess >> wait.approval("ok")]), x=1) == [["guess", "ok"]]


@pytest.mark.parametrize("said", [{"skip_on_resume": True}, {"replayable": False}], ids=str)
def test_what_is_not_to_be_made_twice_is_written_as_soon_as_it_is_made(
    witness: Witness, said: dict[str, Any]
) -> None:
    @node(output="parcel", **said)
    def ask(a: int) -> int:
        return a

    assert witness.run(Flow("f", [guess, ask, rest]), x=1) == [["guess", "ask"], ["rest"]]


def test_a_flow_read_from_its_ir_is_written_as_often(witness: Witness) -> None:
    flow = Flow("f", [guess, guess.with_name("b").with_inputs(x="a").with_outputs("parcel"), rest])
    here = Registry()
    for f in (guess, rest):
        here.put(f.id, f.fn)
    assert witness.run(Flow.from_ir(flow.to_ir(), here), x=1) == [["guess", "b", "rest"]]


# -- atomic flows -----------------------------------------------------------------------------------------


def paying(witness: Witness) -> Any:
    @node(output="b")
    def look_up(a: int) -> int:
        witness.look("look_up")
        return a

    @node(output="paid", **KEYED)
    def pay(b: int) -> int:
        witness.look("pay")
        return b

    @node(output="parcel")
    def note(paid: int) -> int:
        return paid

    return Flow("m", [look_up, pay, note]).as_node(durability="atomic").lift("parcel")


@pytest.mark.parametrize("durability", MODES.values(), ids=MODES)
def test_an_atomic_flow_with_an_effect_is_written_before_it_opens_and_when_it_is_done(
    witness: Witness, durability: Durability
) -> None:
    flow = Flow("f", [guess, paying(witness), rest], durability=durability)
    assert witness.run(flow, x=1) == [["guess"], ["m"], ["rest"]]
    assert witness.seen["look_up"] == ["guess"]


def test_an_atomic_flow_without_an_effect_costs_no_checkpoint(witness: Witness) -> None:
    quiet = Flow("m", [guess, toss_nothing]).as_node(durability="atomic").lift("parcel")
    assert witness.run(Flow("f", [quiet, rest]), x=1) == [["m", "rest"]]


@node(output="parcel")
def toss_nothing(a: int) -> int:
    return a


@pytest.mark.parametrize("mode", ["partial", "every 100 steps"])
def test_each_item_of_a_map_of_atomic_flows_with_an_effect_is_written_when_it_is_done(
    witness: Witness, mode: str
) -> None:
    @node(output="a")
    def listed(x: int) -> list[int]:
        return [x, x]

    @node(output="n")
    def count(all: list[int]) -> int:
        return len(all)

    items = paying(witness).map_over("a", max_concurrency=1)
    flow = Flow("f", [listed, items.with_outputs("all"), count], durability=MODES[mode])
    assert witness.run(flow, x=1) == [["listed", "m"], ["m#0"], ["m#1", "m"], ["count"]]


def test_an_effect_in_an_atomic_flow_deep_inside_counts_too(witness: Witness) -> None:
    deep = Flow("outer", [Flow("mid", [paying(witness)]).as_node()]).as_node(durability="atomic")
    flow = Flow("f", [guess, deep.lift("parcel"), rest])
    assert witness.run(flow, x=1) == [["guess"], ["outer"], ["rest"]]
