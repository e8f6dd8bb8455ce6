"""The order in which nodes are listed: each after those it waits for, found without looking at all pairs."""

from __future__ import annotations

import random

import pytest

from everstep import END, Flow, Node, node, route
from everstep.graph.compile.plan import Plan
from everstep.graph.draw.outline import _upstream_first


def body(**given: int) -> int:
    return 1


def by_looking_at_all(plan: Plan) -> list[int]:
    left = set(range(len(plan.nodes)))
    order: list[int] = []
    while left:
        pending = sum(1 << i for i in left)
        free = [i for i in sorted(left) if not plan.blockers[i] & pending & ~(1 << i)] or [min(left)]
        order += free
        left.difference_update(free)
    return order


@pytest.mark.parametrize("seed", range(20))
def test_the_order_is_that_of_the_dependencies(seed: int) -> None:
    chance = random.Random(seed)
    names = [f"n{k}" for k in range(30)]
    nodes: list[Node] = []
    for k, name in enumerate(names):
        reads = ["start", *chance.sample(names[:k], min(k, chance.randrange(3)))]
        nodes.append(Node(body, name=name, output=name, inputs=reads))
    back = route(chance.choice(names), END, name="back", inputs=[chance.choice(names)])(lambda **given: END)
    chance.shuffle(nodes)
    plan = Flow("any", [*nodes, back], max_steps=1000).plan
    assert _upstream_first(plan) == by_looking_at_all(plan)


class Counted(list[int]):
    """Counts how often one of its entries is looked at."""

    looks = 0

    def __getitem__(self, place: int) -> int:  # type: ignore[override]  # no slices here
        self.looks += 1
        return super().__getitem__(place)


def test_a_long_chain_is_looked_through_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    @node(output="v")
    def step(u: int) -> int:
        return u

    chain = [step.with_name(f"s{k}").with_inputs(u=f"v{k}").with_outputs(f"v{k + 1}") for k in range(200)]
    plan = Flow("chain", chain).plan
    blockers = Counted(plan.blockers)
    monkeypatch.setattr(plan, "blockers", blockers)
    assert _upstream_first(plan) == list(range(200))
    assert blockers.looks <= 2 * 200
