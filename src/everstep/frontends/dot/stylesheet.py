"""Style sheets: which model a node uses, by its id, its classes, its shape, or at all.

`* { llm_model: small } .code { llm_model: large; reasoning_effort: high } #review { llm_provider: "other" }`
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from everstep.frontends.dot.resolve import ResolvedNode
from everstep.frontends.dot.source import MOST_SAID, Passage, Problem, raise_for

PROPERTIES: Final = ("llm_model", "llm_provider", "reasoning_effort", "max_tokens", "temperature")
DEFAULT_SHAPE: Final = "box"

Selects = Literal["all", "shape", "class", "id"]
_RANKS: Final = {"all": 0, "shape": 1, "class": 2, "id": 3}
"""The higher one wins; of two alike the later rule."""
_MARKS: Final[dict[str, Selects]] = {"*": "all", "": "shape", ".": "class", "#": "id"}

_BLANK: Final = re.compile(r"(?:\s++|/\*.*?\*/)*+", re.DOTALL)
_SELECTOR: Final = re.compile(r"\*|([.#]?)([\w-]++(?:\.[\w-]++)*+)")
_PROPERTY: Final = re.compile(r"[A-Za-z_][\w.-]*+")
_VALUE: Final = re.compile(
    r"""("(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+')|([^\s;{}"'](?:[^;{}"'\n]*+))""", re.DOTALL
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_CLOSING: Final = re.compile("[;}]")


class Declaration(msgspec.Struct, frozen=True, gc=False):
    """`property: value`."""

    property: str
    value: str
    at: int


class Rule(msgspec.Struct, frozen=True, gc=False):
    """A selector and what holds for the nodes it selects."""

    selects: Selects
    name: str
    declarations: tuple[Declaration, ...]
    at: int


class StyleSheet(msgspec.Struct, frozen=True):
    """The rules of a style sheet in their order."""

    rules: tuple[Rule, ...]
    warnings: tuple[Problem, ...] = ()
    """Properties that nothing here knows."""
    by_selector: Mapping[tuple[str, str], Mapping[str, tuple[int, str]]] = {}
    """For each selector its properties, each with the number of the rule that had the last word."""

    def properties(
        self, id_: str, *, shape: str = DEFAULT_SHAPE, classes: Iterable[str] = ()
    ) -> dict[str, str]:
        """Return what holds for a node: `*`, then its shape, its classes and its id; later rules win."""
        selectors = (("all", ""), ("shape", shape), *(("class", name) for name in classes), ("id", id_))
        won: dict[str, tuple[int, int, str]] = {}
        for selects, name in selectors:
            for key, (number, value) in self.by_selector.get((selects, name), {}).items():
                claim = (_RANKS[selects], number, value)
                won[key] = max(won.get(key, claim), claim)
        return {key: value for key, (_, _, value) in won.items()}

    def of(self, node: ResolvedNode, *, known: Iterable[str] = PROPERTIES) -> dict[str, str]:
        """Return what holds for a node of a pipeline; an attribute of its own wins."""
        shape = node.attributes.text("shape", DEFAULT_SHAPE)
        found = self.properties(node.id, shape=shape, classes=node.classes)
        own: Mapping[str, str] = {
            k: node.attributes[k].plain for k in (*found, *known) if k in node.attributes
        }
        return {**found, **own}


def is_inline(text: str) -> bool:
    """Say whether an attribute holds a style sheet, and not the name of a file with one."""
    return "{" in text or not text.strip()


def parse_stylesheet(text: str | Passage) -> StyleSheet:
    """Read a style sheet; `DotError` with everything that is wrong with it, each with its place."""
    passage = Passage(text) if isinstance(text, str) else text
    reader = _Reader(passage)
    rules = reader.rules()
    raise_for(reader.found, reader.found[0].file if reader.found else "", "the style sheet")
    by_selector: dict[tuple[str, str], dict[str, tuple[int, str]]] = {}
    for number, rule in enumerate(rules):
        held = by_selector.setdefault((rule.selects, rule.name), {})
        held.update((d.property, (number, d.value)) for d in rule.declarations)
    return StyleSheet(tuple(rules), tuple(reader.warnings), by_selector)


class _Wrong(Exception):
    """A rule cannot be read; the problem is noted."""


class _Reader:
    def __init__(self, passage: Passage) -> None:
        self._passage = passage
        self._text = passage.text
        self._at = 0
        self.found: list[Problem] = []
        self.warnings: list[Problem] = []

    def rules(self) -> list[Rule]:
        rules = []
        while self._skip() < len(self._text) and len(self.found) < MOST_SAID:
            start = self._at
            if self._text.startswith("/*", start):
                self._wrong("this comment is never closed.", "Close it with `*/`.")
                break
            try:
                rules.append(self._rule())
            except _Wrong:
                end = self._text.find("}", max(start, self._at))
                self._at = end + 1 if end >= 0 else len(self._text)
        return rules

    def _rule(self) -> Rule:
        at = self._at
        selector = _SELECTOR.match(self._text, at)
        if selector is None:
            raise self._wrong(
                f"expected a selector, found {self._said()}.", "Write `*`, `shape`, `.class` or `#id`."
            )
        self._at = selector.end()
        selects, name = ("all", "") if selector[0] == "*" else (_MARKS[selector[1]], selector[2])
        if self._next() != "{":
            fix = "A rule has one selector: write `.class { property: value; }`."
            raise self._wrong(f"expected `{{` after `{_cut(selector[0])}`, found {self._said()}.", fix)
        self._at += 1
        declarations = []
        while self._next() != "}":
            if self._next() == ";":
                self._at += 1
                continue
            declarations.append(self._declaration())
            if self._next() not in ("}", ";"):
                raise self._wrong(
                    f"expected `;` or `}}`, found {self._said()}.", "End each property with `;`."
                )
        self._at += 1
        return Rule(selects, name, tuple(declarations), at)

    def _declaration(self) -> Declaration:
        at = self._at
        found = _PROPERTY.match(self._text, at)
        if found is None:
            raise self._wrong(f"expected a property, found {self._said()}.", "Write `property: value;`.")
        name = found[0]
        self._at = found.end()
        if self._next() != ":":
            raise self._wrong(
                f"expected `:` after `{_cut(name)}`, found {self._said()}.", "Write `property: value;`."
            )
        self._at += 1
        self._skip()
        value = _VALUE.match(self._text, self._at)
        if value is None:
            raise self._wrong(
                f"expected a value for `{_cut(name)}`, found {self._said()}.", "Write `property: value;`."
            )
        self._at = value.end()
        if name not in PROPERTIES and len(self.warnings) < MOST_SAID:
            said, fix = (
                f"`{_cut(name)}` is no property that is used here.",
                f"Known are {', '.join(PROPERTIES)}.",
            )
            self.warnings.append(self._passage.problem(at, "style.property", said, fix, severity="warning"))
        said = _ESCAPE.sub(r"\1", value[1][1:-1]) if value[1] else value[2].strip()
        return Declaration(name, said, at)

    def _skip(self) -> int:
        blank = _BLANK.match(self._text, self._at)
        self._at = blank.end() if blank else self._at
        return self._at

    def _next(self) -> str:
        """Return the next character that says something; empty at the end."""
        self._skip()
        return self._text[self._at : self._at + 1]

    def _said(self) -> str:
        return f"`{self._next()}`" if self._next() else "the end of the style sheet"

    def _wrong(self, message: str, fix: str) -> _Wrong:
        self.found.append(self._passage.problem(self._at, "style.syntax", message, fix))
        return _Wrong()


def _cut(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
