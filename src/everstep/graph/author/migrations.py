"""What a run does when its flow has changed: small rules, registered on the flow with `migrations=[...]`.

Users import them from `everstep.migrate`. Names of nodes and values inside inner flows are written with the
nodes around them, `rag/draft`, without visits or items.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from everstep.errors import BadRequest

Kind = Literal["rename_node", "rename_value", "upcast", "add_value", "drop_node", "accept", "skip"]


@dataclass(frozen=True, slots=True)
class Migration:
    """One rule. It applies only where what it names is found."""

    kind: Kind
    name: str
    to: str = ""
    fn: Callable[[Any], Any] | None = None
    value: Any = None
    versions: frozenset[str] | None = None
    """The versions of the flow whose runs it is for; none for all."""
    reruns: bool = False

    @property
    def place(self) -> str:
        """The inner flow it is about, as a path of nodes; empty for the flow itself."""
        return self.name.rpartition("/")[0]

    @property
    def local(self) -> str:
        """The name inside that flow."""
        return self.name.rpartition("/")[2]

    def __str__(self) -> str:
        more = f", {self.to!r}" if self.to else ""
        return f"{self.kind}({self.name!r}{more})"


def checked_rules(flow: str, rules: object) -> tuple[Migration, ...]:
    """Return the rules of a flow, or raise `BadRequest` if something else is among them."""
    listed = tuple(rules) if isinstance(rules, Iterable) and not isinstance(rules, str) else (rules,)
    for rule in listed:
        if not isinstance(rule, Migration):
            raise BadRequest(
                f"{rule!r} is no migration of flow {flow!r}.",
                fix="Write migrations=[migrate.rename_node(...), ...].",
            )
    return listed


def rename_node(old: str, new: str) -> Migration:
    """A node has another name now; what is recorded of it counts for the new one."""
    return _renaming("rename_node", old, new)


def rename_value(old: str, new: str) -> Migration:
    """A value has another name now."""
    return _renaming("rename_value", old, new)


def upcast(name: str, fn: Callable[[Any], Any], *, versions: Iterable[str] | None = None) -> Migration:
    """A value is of another form now: `fn` gets the recorded one and returns the new one.

    `versions` are the versions of the flow whose runs still have the old form. Without them it is called for
    every run that is migrated, so it must leave a value alone that is of the new form already.
    """
    if not callable(fn) or inspect.iscoroutinefunction(fn):
        raise BadRequest(
            f"upcast({name!r}) needs a plain function, not {fn!r}.", fix="Write upcast(name, fn)."
        )
    listed = None if versions is None else frozenset([versions] if isinstance(versions, str) else versions)
    return Migration("upcast", _name(name), fn=fn, versions=listed)


def add_value(name: str, value: Any) -> Migration:
    """The flow reads a value that its runs did not begin with: this one, where there is none."""
    return Migration("add_value", _name(name), value=value)


def drop_node(name: str) -> Migration:
    """A node that runs have finished, or were about to run, is gone for good. What it wrote stays."""
    return Migration("drop_node", _name(name))


def accept(name: str, *, reruns: bool = False) -> Migration:
    """A node that runs have finished, or are about to run, may have changed its inputs and outputs.

    A finished one stays finished; if the new wiring would run it again, only `reruns` allows that.
    """
    return Migration("accept", _name(name), reruns=reruns)


def skip(name: str) -> Migration:
    """A new node is not started in runs that are under way, unless something still to come leads to it."""
    return Migration("skip", _name(name))


def _name(name: object) -> str:
    if not isinstance(name, str) or not name or "@" in name or "#" in name:
        raise BadRequest(
            f"{name!r} is not the name of a node or value.",
            fix="Write draft, or rag/draft; no visits or items.",
        )
    return name


def _renaming(kind: Kind, old: str, new: str) -> Migration:
    rule = Migration(kind, _name(old), to=_name(new))
    head, _, local = new.rpartition("/")
    if local == rule.local or (head and head != rule.place):
        raise BadRequest(
            f"{kind}({old!r}, {new!r}) moves nothing, or out of its flow.",
            fix="Give another name in the same flow.",
        )
    return rule
