"""Every option has its row in the table, and the page of the docs is that table."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everstep import Breaker, Context, Flow, Node, ifelse, parallel, route, wait
from everstep.graph.author.node import Gate
from everstep.graph.author.node_options import NODE_OPTIONS
from everstep.graph.author.options import TABLE, Of, OptionVerdict, Place
from tests.unit.graph.options.option_table import page

PAGE = Path(__file__).parents[4] / "docs/reference/options.md"


def parameters(*functions: Callable[..., Any]) -> set[str]:
    listed = [p for fn in functions for p in inspect.signature(fn).parameters.values()]
    return {p.name for p in listed if p.kind is not p.VAR_KEYWORD} - {"self", "fn"}


def asked(kind: type) -> set[str]:
    """Return what a class offers to those who use it, its attributes included."""
    slots = {name for name in getattr(kind, "__slots__", ()) if not name.startswith("_")}
    own = {
        name
        for name, what in vars(kind).items()
        if not name.startswith("_") and (callable(what) or isinstance(what, property))
    }
    return slots | own


FOR_THE_RUNTIME = {
    "make_step",
    "occurrence",
    "close",
    "marks",
    "asked",
    "checkpoint_request",
    "checkpoint_trigger",
    "ends",
    "used_channel",
    "new_attributes",
}
"""What a context has for those who drive the node, or make steps for it."""

SIGNATURES = {
    Of.NODE: set(NODE_OPTIONS),
    Of.GATE: {*NODE_OPTIONS, *parameters(Gate.__init__, ifelse, route)},
    Of.FLOW: parameters(Flow.__init__),
    Of.AS_NODE: parameters(Flow.as_node),
    Of.MAP: parameters(Node.map_over),
    Of.GROUP: parameters(parallel),
    Of.WAIT: parameters(wait.timer, wait.approval, wait.callback, wait.question, wait.signal, wait.event),
    Of.BREAKER: parameters(Breaker),
    Of.CONTEXT: asked(Context) - FOR_THE_RUNTIME,
}


@pytest.mark.parametrize("of", Of)
def test_every_option_has_a_row_and_every_row_is_an_option(of: Of) -> None:
    assert {option.name for option in TABLE if option.of is of} == SIGNATURES[of]


def test_the_page_of_the_docs_is_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8").endswith(page().strip() + "\n"), (
        "Run `python -m tests.unit.graph.options.option_table` and put what it prints in place of the tables."
    )


def test_what_is_refused_says_why_what_to_do_and_under_which_code() -> None:
    for option in TABLE:
        for refusal in option.refused.values():
            assert refusal.verdict is not OptionVerdict.WORKS
            assert refusal.code.startswith("flow.") and refusal.does and refusal.because
            assert refusal.fix.endswith("."), option


def test_only_calls_are_refused_at_the_call() -> None:
    late = {o.of for o in TABLE for place in Place if o.at(place) is OptionVerdict.AT_CALL}
    assert late == {Of.CONTEXT}
