"""What is wrong with an IR: the published schema, part by part, and the list of everything found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final, NamedTuple

from everstep.codec.complaints import complaints
from everstep.codec.quick import quick_test
from everstep.errors import EverstepError, IrInvalid
from everstep.graph.ir.names import Json

SCHEMA_FILE: Final = "flow-ir.schema.json"
_PARTS: Final = {"nodes": "node", "edges": "edge", "control_surfaces": "control_surface"}


class Fault(NamedTuple):
    """One thing that is wrong with an IR, and where."""

    code: str
    path: str
    message: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.message} {self.fix}".rstrip()


class Faults:
    """Everything that is wrong, collected before anything is raised."""

    def __init__(self) -> None:
        self.found: list[Fault] = []

    def add(self, code: str, path: str, message: str, fix: str = "") -> None:
        self.found.append(Fault(code, path, message, fix))

    def take(self, error: EverstepError, path: str) -> None:
        """Add what an error says; those of a flow one by one."""
        problems: Any = error.details.get("problems")
        if not problems:
            self.add("ir.bad_value", path, error.message, error.fix)
            return
        for p in problems:
            inside = p.get("path", "$").removeprefix("$")
            self.add(p["code"], path + inside, p["message"], p["fix"])

    def raise_if_any(self, what: str) -> None:
        if self.found:
            said = " ".join(str(fault) for fault in self.found)
            raise IrInvalid(f"{what} cannot be read: {said}", problems=[f._asdict() for f in self.found])


def schema() -> dict[str, Json]:
    """Return the JSON Schema of the Flow IR, as it is published."""
    loaded: dict[str, Json] = json.loads(files(__package__).joinpath(SCHEMA_FILE).read_text("utf-8"))
    return loaded


class Checker:
    """Holds an IR against the schema, one part at a time, so that size has no limit."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        whole = schema()
        parts = whole["$defs"]
        bare = {name: {"type": "array"} for name in _PARTS}
        self._header = {**whole, "properties": {**whole["properties"], **bare}}
        node = {**parts["node"], "properties": {**parts["node"]["properties"], "flow": {"type": "object"}}}
        defs = {**parts, "node": node}
        self._wanted = {part: {"$ref": f"#/$defs/{of}", "$defs": defs} for part, of in _PARTS.items()}
        self._fits = {part: quick_test(wanted) for part, wanted in self._wanted.items()}

    def header(self, ir: Json, path: str) -> bool:
        """Check a flow without its parts; true if nothing is wrong."""
        return self._note(ir, self._header, path)

    def sound(self, ir: Mapping[str, Json], part: str, path: str) -> list[tuple[str, dict[str, Json]]]:
        """Return the sound entries of a list, each with its path, and note what is wrong with the others."""
        listed = [(f"{path}.{part}[{k}]", entry) for k, entry in enumerate(ir.get(part, ()))]
        fits, wanted = self._fits[part], self._wanted[part]
        return [(at, entry) for at, entry in listed if fits(entry) or self._note(entry, wanted, at)]

    def _note(self, value: Json, wanted: Json, path: str) -> bool:
        found = complaints(value, wanted, where=path)
        for said in found:
            at, _, message = said.partition(": ")
            self._faults.add("ir.shape", at, f"{message}.")
        return not found
