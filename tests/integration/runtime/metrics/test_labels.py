"""Labels are what flows declare, and there is a limit to them."""

from __future__ import annotations

from typing import Any

import pytest

from everstep import Flow, Host, Retry, node
from everstep.runtime.metrics import meter
from everstep.runtime.metrics.exposition import Family, Sample, written
from tests.integration.runtime.metrics.exposition_text import Read, read
from tests.integration.runtime.metrics.test_every_metric import number


@node(output="sizes")
def sizes() -> list[int]:
    return list(range(40))


@node(output="double")
def double(size: int) -> int:
    return 2 * size


@node(output="total")
def add(sizes: list[int]) -> int:
    return sum(sizes)


def labels_of(told: dict[str, Read], name: str, label: str) -> set[str]:
    return {value for _, labels in told[name].samples for key, value in labels if key == label}


def test_items_and_visits_are_no_labels() -> None:
    inner = Flow("inner", [double])
    mapping = Flow("mapping", [sizes, inner.as_node().map_over("size").with_inputs(size="sizes")])
    with Host("memory:", metrics=True) as host:
        host.run(mapping)
        told = read(host.fleet.metrics())
    assert labels_of(told, "everstep_steps_ended_total", "node") == {"sizes", "inner", "inner/double"}
    ended = number(told, "everstep_steps_ended_total", node="inner/double", status="completed")
    assert ended == number(told, "everstep_steps_started_total", node="inner/double") == 40


@pytest.mark.parametrize("durability", ["nested", "atomic"])
def test_steps_inside_an_atomic_flow_are_counted_like_any(durability: Any) -> None:
    left = {"failures": 2}

    @node(output="tried", retry=Retry(3, first=0))
    def stumble(double: int) -> int:
        if left["failures"]:
            left["failures"] -= 1
            raise ConnectionError("down")
        return double

    deep = Flow("deep", [stumble])
    inner = Flow("inner", [double, deep.as_node()])
    each = inner.as_node(durability=durability).map_over("size").with_inputs(size="sizes")
    with Host("memory:", metrics=True) as host:
        host.run(Flow("mapping", [sizes, each]))
        told = read(host.fleet.metrics())
    many = {"sizes": 1, "inner": 1 + 40, "inner/double": 40, "inner/deep": 40, "inner/deep/stumble": 42}
    started = {
        dict(labels)["node"]: value
        for (_, labels), value in told["everstep_steps_started_total"].samples.items()
    }
    assert started == many
    for name, times in many.items():
        assert number(told, "everstep_steps_ended_total", node=name) == times
    assert number(told, "everstep_steps_ended_total", node="inner/deep/stumble", status="retrying") == 2
    assert number(told, "everstep_step_seconds", node="inner/double") == 40


def test_what_begins_is_what_ends_where_nothing_fails() -> None:
    with Host("memory:", metrics=True) as host:
        host.run(Flow("one", [sizes, add]))
        told = read(host.fleet.metrics())
    assert number(told, "everstep_steps_started_total") == number(told, "everstep_steps_ended_total") == 2


def test_more_nodes_and_flows_than_there_is_room_for_share_a_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "MOST_FLOWS", 2)
    monkeypatch.setattr(meter, "MOST_NODES", 4)
    with Host("memory:", metrics=True) as host:
        for k in range(6):
            host.run(Flow(f"flow-{k}", [sizes]))
        told = read(host.fleet.metrics())
    assert labels_of(told, "everstep_runs_started_total", "flow") == {"flow-0", "flow-1", "other"}
    assert number(told, "everstep_runs_started_total") == 6
    assert number(told, "everstep_steps_ended_total", flow="other") == 4
    flows_and_nodes = {labels for _, labels in told["everstep_steps_started_total"].samples}
    assert len(flows_and_nodes) <= 4


def test_names_that_people_choose_cannot_break_the_text() -> None:
    odd = 'a"b\\c\nd} 1'
    family = Family("runs_total", "counter", "Runs.", [Sample("", (("flow", odd),), "1")])
    assert read(written([family]))["runs_total"].samples == {("", (("flow", odd),)): 1}
