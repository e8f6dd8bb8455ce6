"""`Phase` and `ScoredGate`: what a process made of phases is written with."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from everstep.errors import BadRequest, close_matches
from everstep.frontends.phases.contracts import check_contract, check_references
from everstep.frontends.phases.deciding import Thresholds
from everstep.graph.author.flow import Flow
from everstep.graph.author.node import Gate, Node
from everstep.graph.author.node import node as as_node
from everstep.graph.author.node_options import NODE_OPTIONS
from everstep.model.durations import span_of

Functions = Mapping[str, Any]
_NUMBER = re.compile(r"\d{1,6}([._]\d{1,6})?")


class ScoredGate:
    """What follows a phase: a score decides whether it goes on, is done again, or a person is asked.

    From `proceed` on the next phase begins, from `iterate` on the phase is done again, `max_iterations` times
    at most, and below a person decides; with `critical` one always does. Open breakers, critical health and
    scores that go up and down are left to a person too.
    """

    def __init__(
        self,
        score: Callable[..., Any],
        *,
        proceed: float = 80,
        iterate: float = 60,
        max_iterations: int = 3,
        critical: bool = False,
        oscillation: int = 4,
        notify: str | Sequence[str] | None = None,
        timeout: Any = None,
        default: str | None = None,
        retry: Any = None,
    ) -> None:
        if not callable(score) or isinstance(score, type):
            raise BadRequest(
                f"a gate's score is {score!r:.80}.", fix="Give a function that returns a number."
            )
        self.score = score.fn if isinstance(score, Node) else score
        self.node = score if isinstance(score, Node) else Node(score, name="score", retry=retry)
        if self.node.is_gate or self.node.streams or self.node.inner is not None or self.node.halts:
            raise BadRequest(f"{self.node!r} gives no score.", fix="Give a function that returns a number.")
        self.by = Thresholds(proceed, iterate, max_iterations, critical, oscillation)
        self.by.check(getattr(score, "__name__", "score"))
        self.notify = _aliases(notify)
        """Aliases of the host's notifiers, told when a person has to decide."""
        self.timeout = None if timeout is None else span_of(timeout, "a gate's timeout")
        self.default = default
        """What is decided on a timeout."""
        if default is not None and default not in ("proceed", "iterate", "abort"):
            raise BadRequest(f"a gate's default is {default!r}.", fix="Use proceed, iterate or abort.")


class Phase:
    """One phase of a process: a function, a node or a whole flow, with what it takes and gives.

    `takes` and `gives` name values, each with a type or a JSON Schema. A phase whose inputs are wrong is not
    begun; outputs that are wrong are replaced by the schema's defaults, and that is warned of. `refers` says
    which parts of its inputs have to be found in others. Anything else is an option of `@node`.
    """

    def __init__(
        self,
        name: str,
        run: Callable[..., Any] | Node | Flow,
        *,
        number: int | float | str | None = None,
        output: str | Sequence[str] | None = None,
        takes: Mapping[str, Any] | None = None,
        gives: Mapping[str, Any] | None = None,
        refers: Mapping[str, str] | None = None,
        gate: ScoredGate | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise BadRequest(
                f"a phase is called {name!r:.60}.",
                fix="Give it a name such as stress_test: it is a value's too.",
            )
        self.name = name
        self.number = None if number is None else read_number(number, name)
        self.takes = check_contract(takes or {}, f"phase {name!r}: takes")
        self.gives = check_contract(gives or {}, f"phase {name!r}: gives")
        self.refers = check_references(refers or {}, f"phase {name!r}: refers")
        if gate is not None and not isinstance(gate, ScoredGate):
            raise BadRequest(f"phase {name!r}: its gate is {gate!r:.60}.", fix="Give a ScoredGate.")
        self.gate = gate
        self.node, self.flow = self._made(run, output, options)
        """What is called, or the flow that is run."""
        self.outputs = self.node.outputs if self.node is not None else self._flow_outputs(output)
        for given in self.gives.keys() - set(self.outputs):
            raise BadRequest(
                f"phase {name!r} is to give {given!r}, but writes {list(self.outputs)}.",
                fix="Name what it writes with output=.",
            )

    def __repr__(self) -> str:
        return f"<phase {self.name}>"

    def _made(self, run: Any, output: Any, options: dict[str, Any]) -> tuple[Node | None, Flow | None]:
        if isinstance(run, Flow):
            self._refuse_options(options, "is a flow")
            return None, run
        if isinstance(run, Node):
            self._refuse_options(options, "is a node already")
            if isinstance(run, Gate):
                raise BadRequest(f"phase {self.name!r} is the gate {run.name!r}.", fix="Give it as gate=.")
            if run.inner is not None or run.over is not None or run.halts or run.streams:
                return None, Flow(self.name, [run])
            if not run.outputs or output is not None:
                run = run._renamed(_names(output, self.name))
            return run.with_name(self.name), None
        if not callable(run) or isinstance(run, type):
            raise BadRequest(
                f"phase {self.name!r} runs {run!r:.60}.", fix="Give a function, a node or a flow."
            )
        made: Node = as_node(name=self.name, output=_names(output, self.name), **options)(run)
        return (None, Flow(self.name, [made])) if made.streams or made.halts else (made, None)

    def _refuse_options(self, options: Mapping[str, Any], why: str) -> None:
        if options:
            raise BadRequest(
                f"phase {self.name!r} {why}, and cannot be given {', '.join(sorted(options))}.",
                fix="Declare that where it is defined.",
            )

    def _flow_outputs(self, output: Any) -> tuple[str, ...]:
        assert self.flow is not None
        made = self.flow.as_node(name=self.name)
        if output is None:
            return made.outputs
        return made.lift(*_names(output, self.name)).outputs


def read_number(number: Any, name: str) -> str:
    """Return a phase's number as it is written in names: `1`, or `0_5` for 0.5."""
    text = str(number) if not isinstance(number, bool) else ""
    if isinstance(number, float) and number.is_integer():
        text = str(int(number))
    if not _NUMBER.fullmatch(text):
        raise BadRequest(f"phase {name!r}: number is {number!r:.60}.", fix="Give a number such as 1, or 0.5.")
    return text.replace(".", "_")


def phase_of(given: Any, functions: Functions, where: str) -> Phase:
    """Return a phase as it is, or as data describes it with functions by their names."""
    if isinstance(given, Phase):
        return given
    if not isinstance(given, Mapping):
        raise BadRequest(f"{where} is {given!r:.80}.", fix="Give a Phase, or a dict that describes one.")
    told = dict(given)
    for needed in ("name", "run"):
        if needed not in told:
            raise BadRequest(f"{where} has no {needed!r}.", fix="Each phase has a name and what it runs.")
    where = f"{where} ({told['name']!r:.40})"
    told["run"] = _function(told["run"], functions, where)
    if told.get("gate") is not None and not isinstance(told["gate"], ScoredGate):
        told["gate"] = _gate_of(told["gate"], functions, where)
    _check_keys(told, _PHASE_KEYS, where)
    return Phase(**told)


def _gate_of(given: Any, functions: Functions, where: str) -> ScoredGate:
    if not isinstance(given, Mapping) or "score" not in given:
        raise BadRequest(f"{where}: its gate is {given!r:.80}.", fix='Give at least {"score": ...}.')
    told = dict(given)
    _check_keys(told, _GATE_KEYS, f"the gate of {where}")
    told["score"] = _function(told["score"], functions, f"the gate of {where}")
    return ScoredGate(**told)


def _function(given: Any, functions: Functions, where: str) -> Any:
    if not isinstance(given, str):
        return given
    if given not in functions:
        close = close_matches(given, functions, n=1)
        known = ", ".join(sorted(functions)) or "none"
        raise BadRequest(
            f"{where} names the function {given!r:.60}, which is not given.",
            fix=f"Did you mean {close[0]!r}?" if close else f"Given are: {known}.",
        )
    return functions[given]


def _check_keys(told: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    for key in told:
        if key not in known:
            close = close_matches(str(key), known, n=1)
            fix = f"Did you mean {close[0]!r}?" if close else f"Known are {', '.join(sorted(known))}."
            raise BadRequest(f"{where} has {key!r:.60}, which means nothing here.", fix=fix)


def _aliases(notify: Any) -> str | tuple[str, ...] | None:
    if notify is None or isinstance(notify, str):
        return notify
    if not isinstance(notify, Sequence) or not all(isinstance(alias, str) for alias in notify):
        raise BadRequest(f"a gate's notify is {notify!r:.60}.", fix="Give aliases of the host's notifiers.")
    return tuple(notify)


def _names(output: Any, name: str) -> tuple[str, ...]:
    if output is None:
        return (name,)
    names = (output,) if isinstance(output, str) else output
    if (
        not isinstance(names, Sequence)
        or not names
        or not all(isinstance(n, str) and n.isidentifier() for n in names)
    ):
        raise BadRequest(f"phase {name!r}: output is {output!r:.60}.", fix="Give a name, or a list of names.")
    return tuple(names)


_GATE_KEYS = frozenset(ScoredGate.__init__.__annotations__) - {"return"}
_OF_NODES = frozenset(NODE_OPTIONS) - {"inputs", "halts"}
_PHASE_KEYS = (frozenset(Phase.__init__.__annotations__) - {"return", "options"}) | _OF_NODES
