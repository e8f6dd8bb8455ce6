"""A JSON Schema as a quick test of values.

A test that says yes is to be believed. One that says no may not have understood the schema, or the value may
be deep; then `complaints` has the word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Json = Any
"""None, a bool, a number, text, a list of these, or a dict of text and these."""
Test = Callable[[Json], bool]

_DEEPEST: Final = 20
"""How often a test may go through references before it leaves the value to `complaints`."""
_SAYS_NOTHING: Final = frozenset({"$schema", "$id", "$defs", "title", "description", "default"})
_KINDS: Final[Mapping[str, frozenset[type]]] = {
    "null": frozenset({type(None)}),
    "boolean": frozenset({bool}),
    "integer": frozenset({int}),
    "number": frozenset({float}),
    "string": frozenset({str}),
    "array": frozenset({list}),
    "object": frozenset({dict}),
}
"""The classes of a JSON type. A whole number is left to `complaints` where any number will do."""


def quick_test(schema: Json) -> Test:
    """Return a test of values: true only if `complaints` would find nothing, save that size has no limit."""
    return _Maker(schema).test(schema)


class _Maker:
    """Makes the tests of one schema, each once."""

    def __init__(self, root: Json) -> None:
        self._root = root
        self._known: dict[str, Test] = {}
        self._depth = 0

    def test(self, schema: Json) -> Test:
        if schema is True or schema == {}:
            return _yes
        if not isinstance(schema, dict):
            return _no
        tests: list[Test] = []
        said = schema.keys() - _SAYS_NOTHING
        for keywords, make in _MAKERS:
            if not said.isdisjoint(keywords):
                tests.append(make(self, schema))
                said -= keywords
        if said:
            return _no
        return tests[0] if len(tests) == 1 else _all(tests)

    def reference(self, schema: dict[str, Json]) -> Test:
        ref = schema["$ref"]
        if not isinstance(ref, str) or not ref.startswith("#/$defs/") or "~" in ref:
            return _no

        def follow(value: Json) -> bool:
            if self._depth >= _DEEPEST:
                return False
            if ref not in self._known:
                found = self._root.get("$defs", {}).get(ref.removeprefix("#/$defs/"))
                self._known[ref] = self.test(found)
            self._depth += 1
            try:
                return self._known[ref](value)
            finally:
                self._depth -= 1

        return follow

    def kind(self, schema: dict[str, Json]) -> Test:
        given = schema["type"]
        listed = given if isinstance(given, list) else [given]
        if not listed or not all(isinstance(kind, str) and kind in _KINDS for kind in listed):
            return _no
        kinds = frozenset[type]().union(*(_KINDS[kind] for kind in listed))
        return lambda value: type(value) in kinds

    def choice(self, schema: dict[str, Json]) -> Test:
        options = [schema["const"]] if "const" in schema else schema["enum"]
        if not isinstance(options, list) or not all(type(option) in (str, int) for option in options):
            return _no
        texts = frozenset(option for option in options if type(option) is str)
        numbers = frozenset(option for option in options if type(option) is int)
        return lambda value: value in texts if type(value) is str else type(value) is int and value in numbers

    def union(self, schema: dict[str, Json]) -> Test:
        choices = schema["anyOf"]
        if not isinstance(choices, list):
            return _no
        tests = [self.test(choice) for choice in choices]
        return lambda value: any(test(value) for test in tests)

    def tagged(self, schema: dict[str, Json]) -> Test:
        rule = schema.get("discriminator")
        name, mapping = (rule.get("propertyName"), rule.get("mapping")) if isinstance(rule, dict) else ("", 0)
        if "oneOf" not in schema or not isinstance(name, str) or not isinstance(mapping, dict):
            return _no
        tests = {tag: self.reference({"$ref": ref}) for tag, ref in mapping.items()}

        def fits(value: Json) -> bool:
            tag = value.get(name) if type(value) is dict else None
            return type(tag) is str and tests.get(tag, _no)(value)

        return fits

    def size(self, schema: dict[str, Json]) -> Test:
        bounds = [schema.get(keyword, 0) for keyword in ("minLength", "minItems", "minimum")]
        if not all(type(bound) is int for bound in bounds):
            return _no
        letters, items, least = bounds
        has_least = "minimum" in schema

        def fits(value: Json) -> bool:
            if type(value) is str:
                return bool(len(value) >= letters)
            if type(value) is list:
                return bool(len(value) >= items)
            return not has_least or type(value) not in (int, float) or bool(value >= least)

        return fits

    def items(self, schema: dict[str, Json]) -> Test:
        if isinstance(schema["items"], list):
            return _no
        test = self.test(schema["items"])
        return lambda value: type(value) is not list or all(test(item) for item in value)

    def fields(self, schema: dict[str, Json]) -> Test:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            return _no
        tests = {name: self.test(part) for name, part in properties.items()}
        needed = frozenset(name for name in required if isinstance(name, str))
        rest = self.test(schema.get("additionalProperties", True))

        def fits(value: Json) -> bool:
            if type(value) is not dict:
                return True
            if not needed <= value.keys():
                return False
            for name, item in value.items():  # noqa: SIM110  all() takes twice the time
                if not tests.get(name, rest)(item):
                    return False
            return True

        return fits


def _all(tests: list[Test]) -> Test:
    first, *others = tests
    second = _all(others) if len(others) > 1 else others[0]
    return lambda value: first(value) and second(value)


def _yes(value: Json) -> bool:
    return True


def _no(value: Json) -> bool:
    return False


_MAKERS: Final[tuple[tuple[frozenset[str], Callable[[_Maker, dict[str, Json]], Test]], ...]] = (
    (frozenset({"type"}), _Maker.kind),
    (frozenset({"$ref"}), _Maker.reference),
    (frozenset({"enum", "const"}), _Maker.choice),
    (frozenset({"anyOf"}), _Maker.union),
    (frozenset({"oneOf", "discriminator"}), _Maker.tagged),
    (frozenset({"minLength", "minItems", "minimum"}), _Maker.size),
    (frozenset({"items"}), _Maker.items),
    (frozenset({"properties", "required", "additionalProperties"}), _Maker.fields),
)
