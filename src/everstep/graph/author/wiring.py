"""Control edges as expressions: `a >> (b | c) >> d`.

A node may be in several flows, so the operators never touch nodes: they build expressions, and `flatten`
reads nodes, edges and joins from them. Python binds `>>` tighter than `|`: `a >> b | c` is `(a >> b) | c`,
two branches; to run `a` before both, write `a >> (b | c)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from everstep.errors import BadRequest, close_matches

JoinKind = Literal["all", "any", "quorum", "first_success"]
PolicyKind = Literal["strict", "best_effort", "critical", "at_least", "first_success", "quorum", "rule"]
Rule = Callable[[dict[str, str]], bool]
"""Gets member names and "completed", "failed", "skipped" or "cancelled"; true if the group succeeded."""


class Wired:
    """Something that can stand in a wiring expression: a node, a chain or a group."""

    __slots__ = ()

    name: str

    def __rshift__(self, then: Wired | list[Any] | tuple[Any, ...]) -> Chain:
        """Run `then` after this; a list is a group."""
        return Chain((self, _part(then)))

    def __rrshift__(self, before: list[Any] | tuple[Any, ...]) -> Chain:
        return Chain((_part(before), self))

    def __or__(self, other: Wired) -> Group:
        """Run both, neither before the other: `a | b | c` is one group of three."""
        return Group((*_alternatives(self), *_alternatives(other)))


class Policy(Struct, frozen=True):
    """When a group has succeeded, and which failures it tolerates."""

    kind: PolicyKind
    names: tuple[str, ...] = ()
    """The members that must succeed (critical)."""
    count: int = 0
    """How many must succeed (at_least, quorum); a quorum of 0 is the majority, and a group fills it in."""
    rule: Rule | None = None


class Join(Struct, frozen=True):
    """When what follows a group may start."""

    kind: JoinKind
    count: int = 0
    """How many successes it waits for (quorum); 0 is the majority, and a group fills it in."""


PolicyLike = Policy | Literal["strict", "best_effort", "first_success", "quorum"] | Rule
JoinLike = Join | Policy | JoinKind


class Chain(Wired):
    """Parts that run one after the other."""

    __slots__ = ("leaves", "name", "parts")

    def __init__(self, parts: Iterable[Wired], *, name: str = "") -> None:
        flat: list[Wired] = []
        for part in parts:
            flat.extend(part.parts if isinstance(part, Chain) else (_checked(part),))
        if not flat:
            raise BadRequest("a chain has no parts.", fix="Give at least one node.")
        self.parts: tuple[Wired, ...] = tuple(flat)
        self.leaves: tuple[Wired, ...] = tuple(leaf for part in flat for leaf in _leaves(part))
        self.name = _checked_name(name, "chain")
        if len(set(map(id, self.leaves))) < len(self.leaves):
            _check_visits(self)

    def __repr__(self) -> str:
        return " >> ".join(map(_show, self.parts))

    def with_name(self, name: str) -> Chain:
        """Return the chain under a name, by which a group's policy knows it."""
        return Chain(self.parts, name=name)


class Group(Wired):
    """Members that run side by side: when what follows may start, and when the group has succeeded.

    A policy of `first_success` or a quorum brings the join of the same name, and the other way round.
    """

    __slots__ = ("_given", "join", "leaves", "members", "name", "policy")

    def __init__(
        self,
        members: Iterable[Wired],
        *,
        join: JoinLike | None = None,
        policy: PolicyLike | None = None,
        name: str = "",
    ) -> None:
        self.members = tuple(_part(m) for m in members)
        if not self.members:
            raise BadRequest("a group has no members.", fix="Give at least one node.")
        self.leaves: tuple[Wired, ...] = tuple(leaf for m in self.members for leaf in _leaves(m))
        self.name = _checked_name(name, "group")
        self._given = (join, policy)
        self.join, self.policy = resolved_rules(
            _join_of(join), _policy_of(policy), [_name_of(m) for m in self.members]
        )
        _check_members(self)

    def __repr__(self) -> str:
        shown = " | ".join(map(_show, self.members))
        if not self.needs_join:
            return f"({shown})"
        return f"({shown}, join={_spell(self.join)}, policy={_spell(self.policy)})"

    @property
    def needs_join(self) -> bool:
        """False if waiting for every member and failing with any of them is all it says."""
        return not (self.join.kind == "all" and self.policy.kind == "strict")

    def with_policy(self, policy: PolicyLike) -> Group:
        """Return the group with another policy: `(a | b).with_policy("best_effort")`."""
        return Group(self.members, join=self._given[0], policy=policy, name=self.name)

    def with_join(self, join: JoinLike) -> Group:
        """Return the group with another join: `(a | b).with_join("any")`."""
        return Group(self.members, join=join, policy=self._given[1], name=self.name)

    def with_name(self, name: str) -> Group:
        """Return the group under a name, which is its join's name too."""
        return Group(self.members, join=self._given[0], policy=self._given[1], name=name)


class MemberSpec(Struct, frozen=True):
    """One branch of a join."""

    name: str
    """Its name in outcomes."""
    nodes: tuple[str, ...]
    """All its nodes."""
    last: tuple[str, ...]
    """Where it ends: its last nodes, or the join of an inner group."""


class JoinSpec(Struct, frozen=True):
    """The place where a group's branches meet, if it is more than a set of edges."""

    name: str
    members: tuple[MemberSpec, ...]
    join: Join
    policy: Policy


class Layout(Struct, frozen=True):
    """What a list of nodes and expressions says."""

    nodes: tuple[Wired, ...]
    """Each node once, in order of appearance; what is no node stays among them, for the flow to report."""
    edges: tuple[tuple[str, str], ...]
    """Control edges between names of nodes and joins, each once."""
    joins: tuple[JoinSpec, ...]
    """Inner joins before those around them."""


def chain(*parts: Wired | list[Any] | tuple[Any, ...], name: str = "") -> Chain:
    """Run the parts one after the other; `chain(a, b, c)` is `a >> b >> c`."""
    return Chain([_part(p) for p in parts], name=name)


def parallel(
    *members: Wired | list[Any] | tuple[Any, ...],
    policy: PolicyLike | None = None,
    join: JoinLike | None = None,
    name: str = "",
) -> Group:
    """Run the members side by side; an inner group stays one member.

    policy  "strict" (default: any failure fails the run), "best_effort" (at least one must succeed),
            `critical(...)`, `at_least(n)`, "first_success", "quorum" or `quorum(k)`, or a function that gets
            each member's name and outcome and says whether the group succeeded
    join    "all" (default), "any", "first_success", "quorum" or `quorum(k)`: when what follows may start
    """
    return Group([_part(m) for m in members], join=join, policy=policy, name=name)


def critical(*members: str | Wired) -> Policy:
    """These members must succeed, the failures of others are tolerated."""
    if not members or not all(isinstance(m, Wired) or (isinstance(m, str) and m) for m in members):
        raise BadRequest(f"critical got {members!r}.", fix="Give members of the group, or their names.")
    names = (m if isinstance(m, str) else _name_of(m) for m in members)
    return Policy("critical", names=tuple(dict.fromkeys(names)))


def at_least(count: int) -> Policy:
    """So many members must succeed, the failures of others are tolerated."""
    return Policy("at_least", count=_whole(count, "at_least"))


def quorum(count: int | None = None) -> Policy:
    """Go on as soon as so many members have succeeded, by default the majority. A policy, and a join."""
    return Policy("quorum", count=0 if count is None else _whole(count, "quorum"))


def resolved_rules(join: Join | None, policy: Policy | None, members: Sequence[str]) -> tuple[Join, Policy]:
    """Return join and policy of a group as they imply each other, or raise what is wrong with them."""
    agreed = _agree(_sized(join, len(members)), _sized(policy, len(members)))
    _check_critical(agreed[1], members)
    return agreed


def flatten(items: Iterable[Any] | Wired | Layout) -> Layout:
    """Read nodes, control edges and joins from nodes and expressions; a layout is handed on."""
    if isinstance(items, Layout):
        return items
    nodes: dict[int, Any] = {}
    edges: dict[tuple[str, str], None] = {}
    joins: dict[str, JoinSpec] = {}
    for item in (items,) if isinstance(items, Wired) else items:
        for leaf in _leaves(item):
            nodes.setdefault(id(leaf), leaf)
        if isinstance(item, (Chain, Group)):
            _wire(item, edges, joins)
    for leaf in nodes.values():
        if isinstance(leaf, Wired) and leaf.name in joins:
            raise BadRequest(
                f"a node and a join are both called {leaf.name!r}.", fix="Name the group: with_name(...)."
            )
    return Layout(tuple(nodes.values()), tuple(edges), tuple(joins.values()))


def _wire(part: Wired, edges: dict[tuple[str, str], None], joins: dict[str, JoinSpec]) -> tuple[str, ...]:
    """Collect the edges and joins of a part and return where it ends."""
    if isinstance(part, Chain):
        ends: tuple[str, ...] = ()
        for each in part.parts:
            edges.update(dict.fromkeys((a, b) for a in ends for b in _starts(each)))
            ends = _wire(each, edges, joins)
        return ends
    if not isinstance(part, Group):
        return (part.name,)
    lasts = [_wire(m, edges, joins) for m in part.members]
    if not part.needs_join:
        return tuple(dict.fromkeys(end for last in lasts for end in last))
    spec = JoinSpec(
        _name_of(part),
        tuple(
            MemberSpec(_name_of(m), tuple(dict.fromkeys(leaf.name for leaf in _leaves(m))), last)
            for m, last in zip(part.members, lasts, strict=True)
        ),
        part.join,
        part.policy,
    )
    if joins.setdefault(spec.name, spec) != spec:
        raise BadRequest(f"two joins are called {spec.name!r}.", fix="Name one group: with_name(...).")
    edges.update(dict.fromkeys((end, spec.name) for last in lasts for end in last))
    return (spec.name,)


def _starts(part: Wired) -> tuple[str, ...]:
    if isinstance(part, Chain):
        return _starts(part.parts[0])
    if isinstance(part, Group):
        return tuple(dict.fromkeys(start for m in part.members for start in _starts(m)))
    return (part.name,)


def _leaves(part: Any) -> tuple[Any, ...]:
    return part.leaves if isinstance(part, (Chain, Group)) else (part,)


def _name_of(part: Wired) -> str:
    """Return the name by which outcomes and joins know a part."""
    if isinstance(part, Chain):
        return part.name or _name_of(part.parts[-1])
    if isinstance(part, Group):
        names = [_name_of(m) for m in part.members]
        whole = "join_" + "_".join(names)
        return part.name or (whole if len(whole) <= 64 else f"join_{names[0][:40]}_and_{len(names) - 1}_more")
    return part.name


def _alternatives(part: Wired) -> tuple[Wired, ...]:
    """Return the members of a group that says nothing beyond them, so that `|` is associative."""
    if isinstance(part, Group) and not part.name and part._given == (None, None):
        return part.members
    return (_checked(part),)


def _part(given: Any) -> Wired:
    return Group(given) if isinstance(given, (list, tuple)) else _checked(given)


def _checked(given: Any) -> Wired:
    if isinstance(given, Wired):
        return given
    fix = "Decorate the function with @node." if callable(given) else "Wire nodes, chains, groups and lists."
    raise BadRequest(f"{given!r:.80} cannot be wired.", fix=fix)


def _checked_name(name: Any, what: str) -> str:
    if not isinstance(name, str):
        raise BadRequest(f"a {what}'s name is {name!r}.", fix="Give text.")
    return name


def _whole(count: Any, what: str) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise BadRequest(f"{what} got {count!r}.", fix="Give a whole number of at least 1.")
    return count


def _policy_of(given: Any) -> Policy | None:
    if given is None or isinstance(given, Policy):
        return given
    if given in ("strict", "best_effort", "first_success", "quorum"):
        return Policy(given)
    if callable(given) and not isinstance(given, (Wired, type)):
        return Policy("rule", rule=given)
    known = '"strict", "best_effort", "first_success", "quorum", critical(...), at_least(n), quorum(k)'
    raise BadRequest(f"a group's policy is {given!r}.", fix=f"Use {known} or a function of the outcomes.")


def _join_of(given: Any) -> Join | None:
    if given is None or isinstance(given, Join):
        return given
    if isinstance(given, Policy) and given.kind in ("quorum", "first_success"):
        return Join("quorum" if given.kind == "quorum" else "first_success", given.count)
    if isinstance(given, str) and given in get_args(JoinKind):
        return Join(given)  # type: ignore[arg-type]  # it is one of the kinds
    raise BadRequest(
        f"a group's join is {given!r}.", fix='Use "all", "any", "first_success", "quorum" or quorum(k).'
    )


def _sized(given: Any, members: int) -> Any:
    """Fill in a majority, and refuse a count that the group can never reach."""
    if given is None:
        return None
    if given.count > members:
        raise BadRequest(
            f"{_spell(given)} of a group of {members} can never be reached.", fix=f"Give at most {members}."
        )
    is_open = given.kind == "quorum" and given.count == 0
    return replace(given, count=members // 2 + 1) if is_open else given


def _agree(join: Join | None, policy: Policy | None) -> tuple[Join, Policy]:
    """Let join and policy imply each other, and refuse pairs that contradict each other."""
    if join is None:
        if policy is None:
            return Join("all"), Policy("strict")
        if policy.kind == "quorum" or policy.kind == "first_success":
            return Join(policy.kind, policy.count), policy
        return Join("all"), policy
    if policy is None:
        if join.kind == "quorum" or join.kind == "first_success":
            return join, Policy(join.kind, count=join.count)
        return join, Policy("strict")
    fix = _contradiction(join, policy)
    if fix:
        raise BadRequest(f"join={_spell(join)} contradicts policy={_spell(policy)}.", fix=fix)
    return join, policy


def _contradiction(join: Join, policy: Policy) -> str:
    """Return how to fix a pair that cannot both hold, or nothing."""
    if (join.kind, join.count) == (policy.kind, policy.count):
        return ""
    if policy.kind == "first_success":
        return "Drop join=: the policy goes on at the first success, or wait for all with 'best_effort'."
    if policy.kind == "quorum":
        return f"Drop join=: the policy brings its own, or wait for all with at_least({policy.count})."
    if join.kind == "first_success" or join.kind == "quorum":
        return "Drop policy=: the join brings its own and tolerates the other failures."
    if join.kind == "any" and policy.kind == "at_least" and policy.count > 1:
        return f"Use quorum({policy.count}), which goes on after so many successes."
    if join.kind == "any" and policy.kind == "rule":
        return "Drop join=: a function judges all outcomes, so all must be there."
    return ""


def _check_visits(chain: Chain) -> None:
    """Refuse a chain two parts of which hold the same node; the branches of one part may meet."""
    seen: set[int] = set()
    for part in chain.parts:
        for leaf in _leaves(part):
            if id(leaf) in seen:
                back = f"[..., last >> {leaf.name}]"
                fix = f"Let the way back be an edge of its own, and a gate in the loop end it: {back}."
                raise BadRequest(f"a chain comes to {leaf.name!r} twice.", fix=fix)
        seen.update(id(leaf) for leaf in _leaves(part))


def _check_members(group: Group) -> None:
    by_name: dict[str, Wired] = {}
    seen: set[int] = set()
    for member in group.members:
        name = _name_of(member)
        if id(member) in seen:
            raise BadRequest(f"a group has {name!r} twice.", fix="Name it once; it runs once.")
        seen.add(id(member))
        twin = by_name.setdefault(name, member)
        # Two nodes of one name are the flow's to report, whose message says more.
        are_nodes = not isinstance(twin, (Chain, Group)) and not isinstance(member, (Chain, Group))
        if twin is not member and group.needs_join and not are_nodes:
            raise BadRequest(
                f"two members of a group are called {name!r}, so their outcomes cannot be told apart.",
                fix="Name a branch: chain(..., name=...).",
            )


def _check_critical(policy: Policy, members: Sequence[str]) -> None:
    for name in policy.names:
        if name not in members:
            close = close_matches(name, members, n=1)
            fix = f"Did you mean {close[0]!r}?" if close else f"Its members are {', '.join(members)}."
            raise BadRequest(f"critical names {name!r}, which is no member of the group.", fix=fix)


def _spell(rule: Join | Policy) -> str:
    if rule.count:
        return f"{rule.kind}({rule.count})"
    if isinstance(rule, Policy) and rule.names:
        return f"critical({', '.join(map(repr, rule.names))})"
    return repr(rule.kind)


def _show(part: Wired) -> str:
    return f"({part!r})" if isinstance(part, Chain) else repr(part) if isinstance(part, Group) else part.name
