"""DOT text to its syntax tree; whatever is wrong with it is found in one go.
Apart from what its tree means.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, cast

from everstep.frontends.dot.lexer import END, Tokens
from everstep.frontends.dot.source import Limits, Problems, Source
from everstep.frontends.dot.tree import (
    Attribute,
    Defaults,
    EdgeStatement,
    End,
    Graph,
    NodeRef,
    NodeStatement,
    Statement,
    Subgraph,
    Value,
)
from everstep.graph.draw.graphviz import KEYWORDS, string_text

_DURATION: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d)")
_NAMES: Final = frozenset({"word", "number", "string", "html"})
_VALUES: Final = _NAMES | {"dotted", "mixed"}
_ARROWS: Final = frozenset({"->", "--"})
_QUOTE: Final = "Put it in quotes if it is a name or a value."


class _Wrong(Exception):
    """A statement cannot be read; the problem is noted."""


class _Body:
    """The inside of a pair of braces, as far as it was read."""

    def __init__(self, brace: int) -> None:
        self.brace = brace
        self.statements: list[Statement] = []


def parse(text: str | bytes, file: str = "", *, limits: Limits | None = None) -> Graph:
    """Return the syntax tree of a DOT text, or raise `DotError` with everything that is wrong with it."""
    limits = limits or Limits()
    source = _source(text, file)
    problems = Problems(source)
    if len(source.text) > limits.characters:
        said = f"the text has {len(source.text):,} characters, more than {limits.characters:,}."
        problems.add(0, "dot.limit", said, "Split the pipeline, or keep long texts in files.")
        problems.raise_if_any()
    graph = _Parser(source, problems, limits).graph()
    problems.raise_if_any()
    return graph


def _source(text: str | bytes, file: str) -> Source:
    if isinstance(text, str):
        return _checked(Source(text, file))
    try:
        return Source(text.decode("utf-8"), file)
    except UnicodeDecodeError as error:
        source = Source(text.decode("utf-8", errors="replace"), file)
        problems = Problems(source)
        at = len(text[: error.start].decode("utf-8"))
        problems.add(
            at, "dot.encoding", f"byte 0x{text[error.start]:02x} is not UTF-8.", "Save the file as UTF-8."
        )
        problems.raise_if_any()
        raise


def _checked(source: Source) -> Source:
    """Refuse half a character, which could be kept nowhere."""
    try:
        source.text.encode()
    except UnicodeEncodeError as error:
        problems = Problems(source)
        said = f"U+{ord(source.text[error.start]):04X} is half a character."
        problems.add(error.start, "dot.encoding", said, "Remove it, or read the text as UTF-8.")
        problems.raise_if_any()
    return source


class _Parser:
    def __init__(self, source: Source, problems: Problems, limits: Limits) -> None:
        self._source = source
        self._text = source.text
        self._problems = problems
        self._limits = limits
        tokens = Tokens(source, problems, limits.tokens)
        self._kinds, self._starts, self._ends = tokens.kinds, tokens.starts, tokens.ends
        self._after_junk = tokens.after_junk
        self._i = 0
        self._was_cut = bool(problems.found) and problems.found[-1].code == "dot.unclosed"

    def graph(self) -> Graph:
        at = self._starts[0]
        is_strict = self._took("strict")
        kind = self._kinds[self._i]
        if kind == "graph":
            fix = "Write `digraph`, and `->` between nodes."
            self._note("dot.undirected", "a pipeline is a directed graph, and this one is not.", fix)
        elif kind != "digraph":
            self._note(
                "dot.syntax", f"expected `digraph`, found {self._said()}.", "Begin with `digraph name {`."
            )
            self._problems.raise_if_any()
        self._i += 1
        name = self._graph_name()
        if self._kinds[self._i] != "{":
            self._note("dot.syntax", f"expected `{{`, found {self._said()}.", "Write `digraph name {`.")
            self._problems.raise_if_any()
        body = self._opened()
        self._run(body)
        if self._kinds[self._i] != END:
            fix = "Remove it, or a `}` too many before it."
            self._note(
                "dot.syntax", f"{self._said()} stands after the end of the digraph; a file has one.", fix
            )
        return Graph(name, is_strict, tuple(body.statements), at, self._source)

    def _graph_name(self) -> Value | None:
        """Read what the digraph is called; after a mistake in it, go on with its body."""
        try:
            return self._value() if self._kinds[self._i] in _NAMES else None
        except _Wrong:
            while self._kinds[self._i] not in ("{", END):
                self._i += 1
            if self._kinds[self._i] == END:
                self._problems.raise_if_any()
            return None

    def _run(self, outermost: _Body) -> None:
        """Read a body and those inside it; a stack of our own, so that nesting cannot exhaust Python's."""
        stack = [self._body(outermost)]
        while stack:
            inner = next(stack[-1], None)
            if inner is None:
                stack.pop()
                continue
            if len(stack) > self._limits.depth:
                said = f"more than {self._limits.depth} subgraphs inside one another."
                self._problems.add(inner.brace, "dot.limit", said, "Nest them less deeply.")
                self._problems.raise_if_any()
            stack.append(self._body(inner))

    def _body(self, body: _Body) -> Iterator[_Body]:
        """Read up to the closing brace; yield each body inside, to be read before going on."""
        kinds = self._kinds
        while True:
            kind = kinds[self._i]
            if kind == "}":
                self._i += 1
                return
            if kind == END or self._problems.are_enough:
                self._i = len(kinds) - 1
                if not self._was_cut:
                    said = "this `{` is never closed."
                    self._problems.add(body.brace, "dot.unclosed", said, "Close it with `}`.")
                return
            if kind == ";":
                self._i += 1
                continue
            start = self._i
            try:
                if kind in _NAMES and kinds[self._i + 1] in ("[", ";", "}"):
                    body.statements.append(self._lone_node())
                else:
                    yield from self._statement(body, kind)
            except _Wrong:
                self._recover(start)

    def _lone_node(self) -> NodeStatement:
        ref = NodeRef(self._value())
        return NodeStatement((ref,), self._attributes(), ref.name.at)

    def _statement(self, body: _Body, kind: str) -> Iterator[_Body]:
        if kind in ("node", "edge", "graph"):
            body.statements.append(self._defaults(cast(Literal["graph", "node", "edge"], kind)))
        elif kind in _VALUES and self._is_assigned():
            body.statements.append(self._attribute())
        else:
            yield from self._ends_and_arrows(body)

    def _is_assigned(self) -> bool:
        i = self._i + 1
        while self._kinds[i] == "+" and self._kinds[i + 1] == "string":
            i += 2
        return self._kinds[i] == "="

    def _defaults(self, kind: Literal["graph", "node", "edge"]) -> Defaults:
        at = self._starts[self._i]
        self._i += 1
        if self._kinds[self._i] != "[":
            fix = f'Write `{kind} [key=value]`; a node of that name is `"{kind}"`.'
            raise self._wrong(f"expected `[` after `{kind}`, found {self._said()}.", fix)
        return Defaults(kind, self._attributes(), at)

    def _ends_and_arrows(self, body: _Body) -> Iterator[_Body]:
        at = self._starts[self._i]
        ends: list[End] = []
        arrows: list[int] = []
        while True:
            if self._kinds[self._i] in ("{", "subgraph"):
                name = self._subgraph_name()
                began = self._starts[self._i] if name is None else name.at
                inner = self._opened()
                yield inner
                ends.append(Subgraph(name, tuple(inner.statements), began))
            else:
                ends.append(self._nodes(bool(arrows)))
            if self._kinds[self._i] not in _ARROWS:
                break
            if self._kinds[self._i] == "--":
                self._note("dot.undirected", "`--` joins nodes without a direction.", "Write `->`.")
            arrows.append(self._starts[self._i])
            self._i += 1
        attributes = self._attributes()
        if arrows:
            body.statements.append(EdgeStatement(tuple(ends), tuple(arrows), attributes, at))
        elif isinstance(only := ends[0], Subgraph):
            body.statements.append(only)
        else:
            body.statements.append(NodeStatement(only, attributes, at))

    def _subgraph_name(self) -> Value | None:
        if not self._took("subgraph"):
            return None
        name = self._value() if self._kinds[self._i] in _NAMES else None
        if self._kinds[self._i] != "{":
            said = f"expected `{{` after `subgraph`, found {self._said()}."
            raise self._wrong(said, "Write `subgraph name { ... }`.")
        return name

    def _opened(self) -> _Body:
        brace = self._starts[self._i]
        self._i += 1
        return _Body(brace)

    def _nodes(self, is_after_arrow: bool) -> tuple[NodeRef, ...]:
        refs = [self._node_ref(is_after_arrow)]
        while self._kinds[self._i] == ",":
            self._i += 1
            refs.append(self._node_ref(True))
        return tuple(refs)

    def _node_ref(self, is_wanted: bool) -> NodeRef:
        kind = self._kinds[self._i]
        if kind not in _NAMES:
            wanted = "a node" if is_wanted else "a statement"
            raise self._wrong(f"expected {wanted}, found {self._said()}.", self._name_fix(kind))
        name = self._value()
        if self._kinds[self._i] != ":":
            return NodeRef(name)
        port: list[str] = []
        while self._kinds[self._i] == ":" and len(port) < 2:
            self._i += 1
            if self._kinds[self._i] not in _NAMES:
                raise self._wrong(f"expected a port after `:`, found {self._said()}.", _QUOTE)
            port.append(self._value().text)
        return NodeRef(name, ":".join(port))

    def _name_fix(self, kind: str) -> str:
        token = self._text[self._starts[self._i] : self._ends[self._i]][:40]
        if kind in KEYWORDS or kind in ("dotted", "mixed"):
            return f'Write `"{token}"` if it is the name of a node.'
        return "Write `node [key=value]`, `node -> node`, or `key=value`."

    def _attributes(self) -> tuple[Attribute, ...]:
        """Read any number of lists in brackets, or none."""
        kinds = self._kinds
        if kinds[self._i] != "[":
            return ()
        found: list[Attribute] = []
        while kinds[self._i] == "[":
            opened = self._starts[self._i]
            self._i += 1
            while kinds[self._i] != "]":
                if kinds[self._i] in "{}" or kinds[self._i] == END or self._is_next_statement():
                    if not self._was_cut:
                        said = "this `[` is never closed."
                        self._problems.add(opened, "dot.unclosed", said, "Close it with `]`.")
                    return tuple(found)
                try:
                    found.append(self._attribute())
                    if kinds[self._i] in (",", ";"):
                        self._i += 1
                except _Wrong:
                    self._recover_in_list()
            self._i += 1
        return tuple(found)

    def _is_next_statement(self) -> bool:
        """Say whether a new line begins with what can be no attribute, but a statement."""
        i = self._i
        return (
            self._kinds[i] in _NAMES | KEYWORDS
            and self._kinds[i + 1] in ("[", "->", "--", "{", ";")
            and self._is_first_on_line(i)
        )

    def _attribute(self) -> Attribute:
        if self._kinds[self._i] not in _VALUES:
            raise self._wrong(f"expected an attribute, found {self._said()}.", "Write `key=value`.")
        key = self._value()
        if self._kinds[self._i] != "=":
            self._refuse_split_word(self._i - 1)
            said = f"expected `=` and a value after `{_short(key.text)}`, found {self._said()}."
            raise self._wrong(said, "Write `key=value`.")
        self._i += 1
        if self._kinds[self._i] not in _VALUES:
            raise self._wrong(f"expected a value for `{_short(key.text)}`, found {self._said()}.", _QUOTE)
        return Attribute(key, self._value())

    def _value(self) -> Value:
        """Take a name or a value; the token is one of `_VALUES`."""
        i = self._i
        kind, start, end = self._kinds[i], self._starts[i], self._ends[i]
        self._i = i + 1
        if kind == "word" or kind == "dotted":
            return Value(self._text[start:end], "word", start, end)
        if kind == "string":
            if self._kinds[i + 1] == "+":
                return self._joined(i)
            return Value(string_text(self._text[start + 1 : end - 1]), "string", start, end)
        if kind == "html":
            return Value(self._text[start + 1 : end - 1], "html", start, end)
        raw = self._text[start:end]
        if kind == "mixed" and not _DURATION.fullmatch(raw):
            self._i = i
            self._refuse_split_word(i)
            said = f"`{_short(raw)}` is neither a number nor a name."
            raise self._wrong(said, f'Write `"{_short(raw)}"`, or leave a space.')
        return Value(raw, "number" if kind == "number" else "word", start, end)

    def _refuse_split_word(self, i: int) -> None:
        """Raise if a token stands so close to the one before that both are meant as one: `gpt-4o`, `v1.2`."""
        if self._ends[i - 1] == self._starts[i] and self._kinds[i - 1] in ("word", "dotted", "number"):
            raw = _short(self._text[self._starts[i - 1] : self._ends[i]])
            self._i = i
            raise self._wrong(f"`{raw}` is neither a number nor a name.", f'Write `"{raw}"`.')

    def _joined(self, i: int) -> Value:
        """Take strings with `+` between them."""
        first, parts = i, [self._raw_string(i)]
        while self._kinds[i + 1] == "+":
            i += 2
            if self._kinds[i] != "string":
                self._i = i
                raise self._wrong(
                    f"expected a string after `+`, found {self._said()}.", "Only strings can be joined."
                )
            parts.append(self._raw_string(i))
        self._i = i + 1
        return Value("".join(parts), "string", self._starts[first], self._ends[i])

    def _raw_string(self, i: int) -> str:
        return string_text(self._text[self._starts[i] + 1 : self._ends[i] - 1])

    def _took(self, kind: str) -> bool:
        if self._kinds[self._i] != kind:
            return False
        self._i += 1
        return True

    def _note(self, code: str, message: str, fix: str) -> None:
        self._problems.add(self._starts[self._i], code, message, fix)

    def _wrong(self, message: str, fix: str) -> _Wrong:
        is_told = self._i in self._after_junk or self._i - 1 in self._after_junk
        if not is_told and not (self._was_cut and self._kinds[self._i] == END):
            self._note("dot.syntax", message, fix)
        return _Wrong()

    def _said(self) -> str:
        """Name the token at hand."""
        kind = self._kinds[self._i]
        if kind == END:
            return "the end of the text"
        return f"`{_short(self._text[self._starts[self._i] : self._ends[self._i]])}`"

    def _is_first_on_line(self, i: int) -> bool:
        between = self._text[self._ends[i - 1] : self._starts[i]] if i else "\n"
        return "\n" in between or "\r" in between

    def _recover(self, start: int) -> None:
        """Go on after the next `;`, or before a brace or the next line that begins outside brackets."""
        kinds = self._kinds
        if self._i == start:
            self._i += kinds[start] not in ("}", END)
        depth = 0
        while kinds[self._i] not in ("{", "}", END):
            kind = kinds[self._i]
            if depth <= 0 and (kind == ";" or self._is_first_on_line(self._i)):
                return
            depth += (kind == "[") - (kind == "]")
            self._i += 1

    def _recover_in_list(self) -> None:
        """Go on after the next separator, or before the end of the list or the next line."""
        kinds = self._kinds
        start = self._i
        while kinds[self._i] not in ("]", "{", "}", END):
            if self._i > start and self._is_first_on_line(self._i):
                return
            self._i += 1
            if kinds[self._i - 1] in (",", ";"):
                return


def _short(text: str) -> str:
    shown = "".join(c if c.isprintable() else " " for c in text[:41])
    return shown if len(text) <= 40 else shown[:37] + "..."
