"""What a node says of itself, what a registry or a flow says of it, and what follows: its profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from everstep.errors import BadRequest, KeyMissing, NotCheckpointable, NotReplayable
from everstep.graph.author.node import Node
from everstep.model.enums import Determinism, Effects

_FLAGS = ("checkpointable", "replayable", "halts")


class Profile(NamedTuple):
    """How far a node can be checkpointed."""

    checkpointable: bool = True
    """A run can be resumed behind it, and nothing is lost or done twice."""
    replayable: bool = True
    """What it streams can be streamed again, from where it stopped."""
    halts: bool = False
    """It may wait, for a person, a clock or a callback."""
    reason: str = ""
    """Why it is not checkpointable."""

    @classmethod
    def of(cls, node: Node) -> Profile:
        """Return the profile of a node; that of a flow is the worst of its parts."""
        if node.inner is None:
            causes = list(objections(node))
            reason = causes[0][1] if causes else ""
            return cls(not causes, is_replayable(node), node.halts, reason)
        parts = [(n.name, cls.of(n)) for n in node.inner.nodes]
        reasons = [f"{name}: {p.reason}" for name, p in parts if not p.checkpointable]
        return cls(
            not reasons,
            all(p.replayable for _, p in parts),
            any(p.halts for _, p in parts),
            reasons[0] if reasons else "",
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as a registry's entry has it."""
        return self._asdict() if self.reason else {f: getattr(self, f) for f in _FLAGS}


def is_replayable(node: Node) -> bool:
    """True if what the node streams can be streamed again, or if it does not stream."""
    return not node.streams if node.replayable is None else node.replayable


def objections(node: Node) -> Iterator[tuple[str, str]]:
    """Yield why a node is not checkpointable, each with the code of the rule that a strong flow breaks."""
    if node.checkpointable is False:
        yield NotCheckpointable.code, node.reason or "it says so itself"
    if node.effects is Effects.EFFECTFUL and node.idempotency_key is None:
        yield KeyMissing.code, "it is effectful and has no idempotency key"
    if node.streams and not is_replayable(node):
        yield NotReplayable.code, "it is a stream that cannot be replayed"


KNOWN = {
    "": frozenset({*_FLAGS, "reason", "effects", "determinism", "durability", "idempotency"}),
    "durability": frozenset({*_FLAGS, "reason"}),
    "idempotency": frozenset({"key", "scope"}),
}
"""What a flow's own profile of a node may say, at the top and in its sections."""


class Entry(NamedTuple):
    """What a registry or a flow says of a node; none where it says nothing."""

    checkpointable: bool | None = None
    replayable: bool | None = None
    halts: bool | None = None
    reason: str | None = None
    effects: Effects | None = None
    determinism: Determinism | None = None
    idempotency_key: str | None = None

    @classmethod
    def read(cls, given: Mapping[str, Any] | Profile, of: str) -> Entry:
        """Read an entry: `{"durability": {...}, "effects": ..., "idempotency": {"key": ...}}`.

        The fields of `durability` may also stand beside the others.
        """
        if isinstance(given, Profile):
            given = given.to_json()
        if not isinstance(given, Mapping):
            raise BadRequest(f"the profile of {of!r} is {given!r}.", fix="Give a dict.")
        durability, idempotency = (_section(given, name, of) for name in ("durability", "idempotency"))
        known = {**given, **durability}
        for flag in _FLAGS:
            if not isinstance(known.get(flag), (bool, type(None))):
                raise BadRequest(f"{flag} of {of!r} is {known[flag]!r}.", fix="Give true or false.")
        for field, text in (("reason", known.get("reason")), ("idempotency.key", idempotency.get("key"))):
            if text is not None and (not isinstance(text, str) or not text):
                raise BadRequest(f"{field} of {of!r} is {text!r}.", fix="Give text.")
        return cls(
            checkpointable=known.get("checkpointable"),
            replayable=known.get("replayable"),
            halts=known.get("halts"),
            reason=known.get("reason"),
            effects=_word(Effects, given, "effects", of),
            determinism=_word(Determinism, given, "determinism", of),
            idempotency_key=idempotency.get("key"),
        )

    @classmethod
    def own(cls, given: Mapping[str, Any] | Profile, of: str) -> Entry:
        """Read what a flow says of one of its nodes; nothing else may stand in it."""
        entry = cls.read(given, of)
        if isinstance(given, Profile):
            return entry
        for section, known in KNOWN.items():
            for field in given.get(section, ()) if section else given:
                if field not in known:
                    name = f"{section}.{field}" if section else field
                    fix = f"It has {', '.join(sorted(known))}."
                    raise BadRequest(f"the profile of {of!r} has no {name!r}.", fix=fix)
        return entry

    def on(self, node: Node) -> Node:
        """Return the node with what is said here in place of what it said itself."""
        said = {field: value for field, value in self._asdict().items() if value is not None}
        if said.get("halts") is False and node.halts:
            raise BadRequest(
                f"node {node.name!r} halts, and no profile can say that it does not.", fix="Leave out halts."
            )
        return node.saying(**said) if said else node


def _section(given: Mapping[str, Any], name: str, of: str) -> Mapping[str, Any]:
    section = given.get(name, {})
    if not isinstance(section, Mapping):
        raise BadRequest(f"{name} of {of!r} is {section!r}.", fix="Give an object.")
    return section


def _word(kind: Any, given: Mapping[str, Any], field: str, of: str) -> Any:
    word = given.get(field)
    if word is None:
        return None
    try:
        return kind(word)
    except ValueError:
        known = ", ".join(repr(str(k)) for k in kind)
        raise BadRequest(f"{field} of {of!r} is {word!r}.", fix=f"Use one of {known}.") from None


class Registry:
    """What is known of nodes that are defined elsewhere, by id.

    An entry is JSON: `{"id": "external.feed", "durability": {"checkpointable": false, "reason": "..."}}`,
    with `effects`, `determinism` and `idempotency` if they are known. Fields that mean nothing here are kept.
    A node's id is the one it was registered with, or `module:name` of its function; `module.name` will do.
    """

    def __init__(self, entries: Iterable[Mapping[str, Any]] = ()) -> None:
        self._raw: dict[str, dict[str, Any]] = {}
        self._entries: dict[str, Entry] = {}
        self._nodes: dict[str, Node] = {}
        self._things: dict[str, Any] = {}
        listed = list(entries)
        for entry in listed:
            self.add(entry)
        if len(self._raw) < len(listed):
            twice = next(name for name, times in Counter(e["id"] for e in listed).items() if times > 1)
            raise BadRequest(f"the registry has two entries for {twice!r}.", fix="Drop one.")

    @classmethod
    def from_json(cls, text: str | bytes) -> Registry:
        """Read a registry from JSON: a list of entries."""
        try:
            entries = msgspec.json.decode(text)
        except (msgspec.DecodeError, TypeError, RecursionError) as error:
            raise BadRequest(f"the registry is no JSON: {error}.", fix="Give a list of entries.") from None
        if not isinstance(entries, list):
            raise BadRequest(f"the registry is {type(entries).__name__}.", fix="Give a list of entries.")
        return cls(entries)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the entries as they were given."""
        return list(self._raw.values())

    def add(self, entry: Mapping[str, Any]) -> None:
        """Add an entry, or put it in the place of the one with its id."""
        name = entry.get("id") if isinstance(entry, Mapping) else None
        if not isinstance(name, str) or not name:
            raise BadRequest(f"{entry!r} has no id.", fix='Give {"id": "package.name", ...}.')
        self._entries[name] = Entry.read(entry, name)
        self._raw[name] = dict(entry)

    def node(self, id_: str, fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Turn a function into the node with this id, as `@node` does; what the entry says holds for it.

        A node that was made before gets this id.
        """

        def make(f: Callable[..., Any]) -> Node:
            if isinstance(f, Node):
                if options:
                    named = ", ".join(options)
                    raise BadRequest(f"node {f.name!r} has its options already.", fix=f"Leave out {named}.")
                made = self.known(f._copy(identifier=id_))
            else:
                made = self.known(Node(f, identifier=id_, **options))
            self._nodes[id_] = made
            return made

        return make if fn is None else make(fn)

    def put(self, id_: str, thing: Any) -> None:
        """Keep what else `Flow.from_ir` may ask for by this id: a function, a probe, a class, a flow."""
        self._things[id_] = thing

    def known(self, node: Node) -> Node:
        """Return the node with what its entry says, or as it is if there is none."""
        dotted = node.identifier or node.id.replace(":", ".", 1)
        entry = self._entries.get(node.id) or self._entries.get(dotted)
        return node if entry is None else entry.on(node)

    def find(self, name: str) -> Node | None:
        """Return the node that was registered with this id."""
        return self._nodes.get(name)

    def get(self, name: str) -> Any:
        """Return the node, or what else was put here with this id, as `Flow.from_ir` asks for it."""
        return self._nodes.get(name, self._things.get(name))

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._nodes or name in self._things

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        return self._raw[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._raw, *self._nodes, *self._things]))

    def __len__(self) -> int:
        return len({*self._raw, *self._nodes, *self._things})
