"""The options of nodes and flows, from the IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, cast

from everstep.errors import BadRequest, EverstepError
from everstep.graph.author.node import Node
from everstep.graph.author.node_options import NODE_OPTIONS, Spelling
from everstep.graph.check.hints import UNKNOWN
from everstep.graph.ir.names import Json
from everstep.graph.ir.registry import LookUp
from everstep.graph.limits import Limit
from everstep.model.durability import Durability, DurabilityMode, Interval
from everstep.model.durations import span_of
from everstep.model.retention import Retention
from everstep.model.retry import Retry

FOR_FUNCTIONS: Final = tuple(spec.ir for spec in NODE_OPTIONS.values() if spec.of_functions)
"""Fields of a node that only a function of one's own has."""


Read = Callable[["Options", Json], Any]


class Options:
    """Reads the options of one node."""

    def __init__(self, look_up: LookUp, alias: str, path: str) -> None:
        self._look_up = look_up
        self._alias = alias
        self._path = path

    def read(self, ir: Mapping[str, Json], base: Node | None) -> dict[str, Any]:
        """Return the options of `Node`: as the IR says, else as the registry's node has them."""
        found: dict[str, Any] = {}
        for option, spec in NODE_OPTIONS.items():
            section, _, field = spec.ir.rpartition(".")
            said = ir.get(section, {}) if section else ir
            if field and field in said:
                try:
                    found[option] = READERS[spec.form](self, said[field])
                except EverstepError as error:
                    self._look_up.faults.take(error, f"{self._path}.{spec.ir}")
            elif field and base is not None:
                found[option] = getattr(base, option)
        return found

    def answer(self, ir: Json) -> Any:
        """Return what an answer must be: a type, a JSON Schema, or anything."""
        if ir is None or "schema" in ir:
            return None if ir is None else ir["schema"]
        return self._look_up.type(ir["type"], f"{self._alias}/answer", f"{self._path}.answer")

    def _key(self, ir: Json) -> Any:
        if ir is None or "key" in ir:
            return None if ir is None else ir["key"]
        place, path = f"{self._alias}/idempotency", f"{self._path}.idempotency.function"
        return self._look_up.function(ir["function"], place, path)

    def _probe(self, ir: Json) -> Any:
        if ir is None:
            return None
        return self._look_up.function(ir, f"{self._alias}/probe", f"{self._path}.probe")

    def _undo(self, ir: Json) -> Any:
        if ir is None:
            return None
        return self._look_up.function(ir, f"{self._alias}/undo", f"{self._path}.undo")

    def _retry(self, ir: Json) -> Retry:
        if ir is None:
            return Retry.of(None)
        names = {"first_s": "first", "factor": "factor", "most_s": "most", "jitter": "jitter"}
        pauses: dict[str, Any] = {option: float(ir[field]) for field, option in names.items() if field in ir}
        if "on" in ir:
            kinds = [
                self._look_up.type(kind, f"{self._alias}/retry/{k}", f"{self._path}.retry.on[{k}]")
                for k, kind in enumerate(ir["on"])
            ]
            pauses["on"] = tuple(kind for kind in kinds if kind is not UNKNOWN)
        return Retry(ir["times"], **pauses, units=ir.get("units", "keep"))


READERS: Final[Mapping[Spelling, Read]] = {
    Spelling.PLAIN: lambda _, ir: ir,
    Spelling.WORD: lambda _, ir: ir,
    Spelling.NAMES: lambda _, ir: ir,
    Spelling.SECONDS: lambda _, ir: None if ir is None else float(ir),
    Spelling.FUNCTION: Options._probe,
    Spelling.LIMIT: lambda _, ir: None if ir is None else Limit.of_wire(ir),
    Spelling.UNDO: Options._undo,
    Spelling.KEY: Options._key,
    Spelling.RETRY: Options._retry,
    Spelling.ANSWER: Options.answer,
}
"""How a value of each form is read; what it may be is checked by the node."""


def durability_from_ir(ir: Json) -> Durability:
    """Read how a flow wants to be kept: a mode's name, or an object."""
    if isinstance(ir, str):
        return Durability.of(cast(DurabilityMode, ir))
    given: dict[str, Any] = {
        field: ir[field]
        for field in ("mode", "flush", "retry_on_lease_conflict", "max_resume_attempts", "on_store_failure")
        if field in ir
    }
    if "blob_threshold_bytes" in ir:
        given["blob_threshold"] = ir["blob_threshold_bytes"]
    for field in ("checkpoint_ttl", "retain_completed_for", "lease_ttl"):
        if ir.get(field) is not None:
            given[field] = _span(ir[field], field)
    return Durability(interval=_interval(ir.get("checkpoint_interval")), **given)


def retention_from_ir(ir: Json) -> Retention | None:
    """Read how long runs of a flow are kept; none leaves it to the host."""
    if ir is None:
        return None
    given = {field: value for field, value in ir.items() if value is not None}
    spans = ("keep_for", "completed_for", "abandoned_for", "tombstones_for")
    return Retention.of_wire(given | {field: _span(given[field], field) for field in spans if field in given})


def _interval(ir: Json) -> Interval:
    if ir is None or isinstance(ir, int):
        return ir
    steps, time = ir.get("steps"), ir.get("time")
    span = None if time is None else _span(time, "checkpoint_interval")
    if steps is None or span is None:
        return span if steps is None else int(steps)
    return steps, span


def _span(ir: Json, what: str) -> timedelta:
    try:
        return span_of(timedelta(milliseconds=ir) if not isinstance(ir, str) else ir, what)
    except OverflowError:
        raise BadRequest(f"{what} is {ir!r:.40}, which is too long.", fix="Leave it out.") from None
