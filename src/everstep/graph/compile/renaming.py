"""An old plan in the words of a new one: which node and which value is called what now."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from everstep.graph.author.channel import RESULT_SUFFIX
from everstep.graph.author.migrations import Migration
from everstep.graph.compile.plan import Plan
from everstep.model.records import UNIT

_NAME = re.compile(r"[^@#]+")


class RenamedScope:
    """One flow of the old plan. Names are those of the old plan, mapped to those of the new one."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.nodes: dict[str, str | None] = {name: name for name in plan.paths}
        """None for a node that was dropped."""
        self.values: dict[str, str] = {name: name for name in dict.fromkeys([*plan.readers, *plan.writers])}
        self.children = {plan.paths[i]: RenamedScope(child.plan) for i, child in plan.children.items()}
        self.new: Plan | None = None
        """The same flow in the new plan; none if it is gone."""
        self.was: dict[str, str] = {}
        """What the nodes of the new plan were called, once every rule has been applied."""

    def old_name(self, new: str) -> str | None:
        """Return what a node was called."""
        return next((old for old, name in self.nodes.items() if name == new), None)

    def paths_in(self, old: str) -> Iterator[tuple[str, str]]:
        """Yield the path of a node and of all that is kept inside it, as it was and as it is now."""
        new = self.nodes[old]
        if new is None:
            return
        yield old, new
        if old in self.children:
            inside = self.children[old]
            for name in inside.nodes:
                for was, now in inside.paths_in(name):
                    yield f"{old}/{was}", f"{new}/{now}"

    def shape(self, old: str) -> dict[str, Any]:
        """Return the shape of a node in the words of the new plan, without what is inside it."""
        shape = {**self.plan.nodes[self.plan.index[old]].describe(), "name": self.nodes[old]}
        shape.pop("flow", None)
        values, node = self.value, self._node
        shape["inputs"] = [[values(source), required] for source, required in shape["inputs"]]
        shape["outputs"] = [values(name) for name in shape["outputs"]]
        if "targets" in shape:
            shape["targets"] = [node(name) for name in shape["targets"]]
        if "group" in shape:
            shape["group"] = self._group(shape["group"])
        child = self.children.get(old)
        if child is not None:
            for key in ("params", "inner_outputs", "select"):
                if key in shape:
                    shape[key] = [child.value(name) for name in shape[key]]
            if "select" in shape:
                shape["select"].sort()
            if "exports" in shape:
                shape["exports"] = {child.value(k): values(v) for k, v in shape["exports"].items()}
            if "over" in shape:
                params, *rest = shape["over"]
                shape["over"] = [[child.value(name) for name in params], *rest]
        return shape

    def value(self, name: str) -> str:
        """Return what a value is called now; one that no node knows keeps its name."""
        return self.values.get(name, name)

    def _node(self, name: str) -> str:
        return self.nodes.get(name) or name

    def _group(self, group: dict[str, Any]) -> dict[str, Any]:
        kind, names, count = group["policy"]
        return {
            **group,
            "members": [
                [self._node(name), [self._node(n) for n in nodes], [self._node(n) for n in last]]
                for name, nodes, last in group["members"]
            ],
            "policy": [kind, [self._node(n) for n in names], count],
        }

    def in_edges(self) -> dict[str, set[tuple[str, str, str]]]:
        """Return what leads to each node, in the words of the new plan."""
        return {
            self._node(to): {
                (kind, self._node(by), self.value(via) if via else "") for kind, by, via in edges
            }
            for to, edges in edges_of(self.plan).items()
        }


def edges_of(plan: Plan) -> dict[str, set[tuple[str, str, str]]]:
    """Return what leads to each node of a plan: how, from which node, through which value."""
    found: dict[str, set[tuple[str, str, str]]] = {name: set() for name in plan.paths}
    for name, readers in plan.wakes.items():
        for w in plan.writers.get(name, ()):
            for r in readers:
                found[plan.paths[r]].add(("value", plan.paths[w], name))
    for w, node in enumerate(plan.nodes):
        for target in getattr(node, "targets", ()):
            if target in found:
                found[target].add(("gate", plan.paths[w], ""))
    for w, targets in plan.follows.items():
        for t in targets:
            found[plan.paths[t]].add(("edge", plan.paths[w], ""))
    return found


class Renaming:
    """The old plan of a run and what the rules of the new flow make of its names.

    A rename applies only if its source is no longer there: a name that came back later means something else.
    """

    def __init__(self, old: Plan, new: Plan, rules: Iterable[Migration], version: str) -> None:
        self.root = RenamedScope(old)
        self.new = new
        self.applied: list[Migration] = []
        self.clashes: list[str] = []
        """Why some rules cannot apply."""
        self.accepted: dict[str, bool] = {}
        """Changed nodes that are taken as they are, and whether they may run again."""
        self.skipped: set[str] = set()
        self.casts: dict[str, Migration] = {}
        self.gifts: dict[str, Any] = {}
        self.places: dict[str, RenamedScope] = {}
        """The flows of the old plan by their paths in the new one."""
        for rule in rules:
            if rule.versions is None or version in rule.versions:
                self._apply(rule)
        self._meet(self.root, new)

    def _apply(self, rule: Migration) -> None:
        if rule.kind == "accept":
            self.accepted[rule.name] = rule.reruns or self.accepted.get(rule.name, False)
        elif rule.kind == "skip":
            self.skipped.add(rule.name)
        elif rule.kind == "upcast":
            self.casts[rule.name] = rule
        elif rule.kind == "add_value":
            self.gifts[rule.name] = rule.value
        else:
            self._rename(rule)

    def _rename(self, rule: Migration) -> None:
        place, new = self._find(rule.place)
        if place is None:
            return
        names: dict[str, Any] = place.values if rule.kind == "rename_value" else place.nodes
        sources = [old for old, name in names.items() if name == rule.local]
        if not sources or (new is not None and rule.local in _known(new, rule.kind)):
            return
        if rule.kind == "drop_node":
            place.nodes[sources[0]] = None
        else:
            to = rule.to.rpartition("/")[2]
            if any(name == to for name in names.values()):
                self.clashes.append(f"{rule}: the run's flow has {to!r} already")
                return
            names[sources[0]] = to
            if rule.kind == "rename_node":
                _follow(place, sources[0], rule.local, to)
        self.applied.append(rule)

    def _find(self, path: str) -> tuple[RenamedScope | None, Plan | None]:
        """Return the flow at a path in today's words, and its like in the new plan."""
        place: RenamedScope | None = self.root
        new: Plan | None = self.new
        for name in path.split("/") if path else ():
            old = place.old_name(name) if place is not None else None
            place = place.children.get(old) if place is not None and old is not None else None
            new = _inner(new, name)
        return place, new

    def _meet(self, place: RenamedScope, new: Plan | None, path: str = "") -> None:
        place.new = new
        place.was = {name: old for old, name in place.nodes.items() if name is not None}
        self.places[path] = place
        for old, child in place.children.items():
            name = place.nodes[old]
            if name is not None:
                self._meet(child, _inner(new, name), f"{path}/{name}" if path else name)

    def place(self, path: str) -> RenamedScope | None:
        """Return the flow at a recorded path such as `rag@2#7`; none if it is in no plan."""
        place: RenamedScope | None = self.root
        for name in _names(path):
            place = place.children.get(name) if place is not None else None
        return place

    def path(self, path: str) -> str | None:
        """Return a recorded path in the words of the new plan; none if a node on it was dropped."""
        place: RenamedScope | None = self.root
        parts: list[str] = []
        for segment in path.split("/"):
            old = _plain(segment)
            name = place.nodes.get(old) if place is not None else None
            if name is None:
                return None
            parts.append(name + segment[len(old) :])
            place = place.children.get(old) if place is not None else None
        return "/".join(parts)

    def prefix(self, prefix: str) -> str | None:
        """Return what the names of a flow's values begin with now; none if it was dropped."""
        path = self.path(prefix[:-1]) if prefix else ""
        return None if path is None else f"{path}/" if path else ""

    def value(self, prefix: str, name: str) -> tuple[str, str] | None:
        """Return where a value lies now, by what its name begins with and its local name; none if nowhere."""
        if prefix.startswith(UNIT):  # of the durable calls of a visit under way
            visit = self.path(prefix[len(UNIT) : -1])
            return None if visit is None else (f"{UNIT}{visit}/", name)
        if prefix[:1] == "@":
            return prefix, name
        new, place = self.prefix(prefix), self.place(prefix[:-1])
        if new is None or place is None:
            return None
        local, number, rest = name.partition("#")
        return new, place.value(local) + number + rest

    def gifts_at(self, prefix: str) -> dict[str, Any]:
        """Return the values that are given to a flow, by local name; the prefix is in today's words."""
        path = plain_path(prefix[:-1])
        return {
            name.rpartition("/")[2]: value
            for name, value in self.gifts.items()
            if name.rpartition("/")[0] == path
        }


def plain_path(path: str) -> str:
    """Return a path as rules name it: without visits and items."""
    return "/".join(_names(path))


def _names(path: str) -> Iterator[str]:
    return (_plain(segment) for segment in path.split("/")) if path else iter(())


def _plain(segment: str) -> str:
    found = _NAME.match(segment)
    return found[0] if found is not None else segment


def _inner(plan: Plan | None, name: str) -> Plan | None:
    child = plan.children.get(plan.index.get(name, -1)) if plan is not None else None
    return child.plan if child is not None else None


def _known(plan: Plan, kind: str) -> Iterable[str]:
    return {*plan.readers, *plan.writers} if kind == "rename_value" else plan.index


def _follow(place: RenamedScope, old: str, before: str, after: str) -> None:
    """A node has another name: so have its result, and joins that are called after their members."""
    if before + RESULT_SUFFIX in place.values.values():
        for name, now in place.values.items():
            if now == before + RESULT_SUFFIX:
                place.values[name] = after + RESULT_SUFFIX
    for j in place.plan.meetings:
        join = place.plan.paths[j]
        members = [m.name for m in place.plan.meetings[j].members]
        if old in members and place.nodes[join] == "join_" + "_".join(_now(place, members, old, before)):
            place.nodes[join] = "join_" + "_".join(_now(place, members, old, after))


def _now(place: RenamedScope, members: Iterable[str], old: str, name: str) -> list[str]:
    return [name if m == old else place.nodes.get(m) or m for m in members]
