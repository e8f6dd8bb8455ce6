"""Phases where it gets narrow: odd scores, late mistakes, two reasons for one checkpoint."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pytest

from everstep import Breaker, Context, Host
from everstep.errors import BadRequest, InvalidDelay
from everstep.frontends.phases import contracts
from everstep.phases import Phase, ScoredGate, phases
from everstep.testing import ManualClock


@pytest.mark.parametrize(
    ("score", "kept"), [(np.float64(90.5), 90.5), (np.int64(90), 90), (Decimal("90.5"), 90.5)]
)
def test_any_number_is_a_score(score: Any, kept: float) -> None:
    flow = phases("judged", [Phase("one", lambda: 1, gate=ScoredGate(lambda one: score))])
    with Host("memory:") as host:
        assert host.run(flow, run_id="r").status == "completed"
        (decision,) = host.state("r")["@channel/gate_history"]
    assert (decision["score"], type(decision["score"])) == (kept, type(kept))


@pytest.mark.parametrize("options", [{"timeout": "soon"}, {"timeout": -5}, {"notify": 3}, {"notify": [3]}])
def test_what_a_gate_cannot_ask_with_is_refused_before_it_asks(options: dict[str, Any]) -> None:
    refusal = InvalidDelay if options.get("timeout") == -5 else BadRequest  # as of every negative span
    with pytest.raises(refusal, match=next(iter(options))):
        ScoredGate(lambda one: 1, **options)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strng"},
        {"type": ["string", None]},
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "int"}}}},
        {"anyOf": [{"type": "null"}, {"type": "str"}]},
    ],
)
def test_a_contract_with_a_type_that_holds_nothing_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="JSON Schema does not know"):
        Phase("one", lambda x: 1, takes={"x": schema})


def test_a_phase_that_trips_a_breaker_as_it_ends_has_both_checkpoints() -> None:
    clock = ManualClock()

    def lasts() -> int:
        clock.advance(timedelta(hours=5))
        return 1

    flow = phases(
        "lasting",
        [Phase("one", lasts, gate=ScoredGate(lambda one: 90))],
        breakers=[Breaker("time", duration="4h")],
    )
    with Host("memory:", clock=clock) as host:
        assert host.run(flow, run_id="r").status == "halted"
        told = [host.transfer.checkpoint_as("r", "phases", at=c.sequence) for c in host.checkpoints("r")]
    found = [one["trigger"] for one in told]
    assert found == ["manual", "circuit_breaker", "phase_complete", "escalation"]
    assert all(one["state_snapshot"]["phase_outputs"]["phase_0"] for one in told[1:])


@pytest.mark.parametrize(
    "name", ["lessons", "health", "warnings", "errors", "gate_history", "api_metrics", "fallback_flags"]
)
def test_a_phase_may_be_called_like_a_key_of_the_channel(name: str) -> None:
    stages = [Phase("one", lambda: 1, gate=ScoredGate(lambda one: 90)), Phase(name, lambda one: 7)]
    with Host("memory:") as host:
        assert host.run(phases("named", stages, lessons=["be kind"]), run_id="r").status == "completed"
        told = host.transfer.checkpoint_as("r", "phases")
    assert told["state_snapshot"]["active_lessons"] == ["be kind"]
    assert [one["gate_id"] for one in told["state_snapshot"]["gate_history"]] == ["one.gate"]
    assert told["state_snapshot"]["health_history"] == told["state_snapshot"]["errors_encountered"] == []
    assert told["context_fields"]["api_metrics"] == told["context_fields"]["fallback_flags"] == {}
    assert told["state_snapshot"]["phase_outputs"]["phase_1"][name] == 7


def test_the_exported_shape_stands_whatever_nodes_put_into_the_channel() -> None:
    def careless(ctx: Context) -> int:
        ctx.channel.set("health", {"status": "ok"})
        ctx.channel.set("api_metrics", ["openai"])
        return 1

    with Host("memory:") as host:
        host.run(phases("careless", [Phase("one", careless)]), run_id="r")
        told = host.transfer.checkpoint_as("r", "phases")
    assert told["state_snapshot"]["health_history"] == [{"status": "ok"}]
    assert told["context_fields"]["api_metrics"] == {}


class Note(msgspec.Struct):
    text: str
    stars: int = 3


class Page(msgspec.Struct):
    note: Note
    more: list[Note] = []


@pytest.mark.parametrize(
    ("schema", "given", "corrected", "said"),
    [
        (
            {"properties": {"a": True, "b": False}},
            {"a": 1, "b": 2},
            {"a": 1, "b": 2},
            ["v.b: nothing is expected here; it was left as it is"],
        ),
        (
            {"properties": {"a": {"properties": {"b": {"type": "integer"}}, "default": {"b": 5}}}},
            {"a": {"b": "x"}},
            {"a": {"b": 5}},
            ["v.a.b: expected a whole number, got text; the default {'b': 5} took its place"],
        ),
        (
            {"type": "array", "items": {"type": "integer"}},
            [1, "x"],
            [1, "x"],
            ["v[1]: expected a whole number, got text; it has no default and was left as it is"],
        ),
        (
            msgspec.json.schema(Page),
            {"note": {"text": "a", "stars": "many"}, "more": [{"text": "b", "stars": None}]},
            {"note": {"text": "a", "stars": 3}, "more": [{"text": "b", "stars": 3}]},
            [
                "v.note.stars: expected a whole number, got text; the default 3 took its place",
                "v.more[0].stars: expected a whole number, got null; the default 3 took its place",
            ],
        ),
    ],
)
def test_outputs_are_corrected_as_deep_as_their_schema_goes(
    schema: dict[str, Any], given: Any, corrected: Any, said: list[str]
) -> None:
    assert contracts.corrected(given, schema, "v") == (corrected, said)


@pytest.mark.parametrize(
    ("kind", "value", "is_right"),
    [
        (list[int], ["x"], False),
        (dict[str, list[int]], {"a": [1]}, True),
        (dict[str, list[int]], {"a": ["x"]}, False),
        (tuple[int, str], (1, "x"), True),
        (tuple[int, str], (1, 2), False),
        (tuple[int, ...], (1, 2, 3), True),
        (list[int] | None, None, True),
        (list[int] | None, [None], False),
    ],
)
def test_a_type_holds_for_everything_in_a_value(kind: Any, value: Any, is_right: bool) -> None:
    assert (contracts.faults({"x": kind}, {}, {"x": value}) == []) is is_right


def test_the_last_decision_of_a_person_is_a_checkpoint_too() -> None:
    flow = phases("judged", [Phase("one", lambda: 1, gate=ScoredGate(lambda one: 10))])
    with Host("memory:") as host:
        host.answer(host.run(flow, run_id="r").waits[0].id, "proceed")
        assert host.resume("r", flow).status == "completed"
        found = [checkpoint.trigger for checkpoint in host.checkpoints("r")]
    assert found == [
        "admission",
        "phase_complete",
        "gate_decision",
        "escalation",
        "gate_decision",
        "completed",
    ]
