"""Roles, what an endpoint reaches, and who a request comes from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from everstep.server.access.sessions import Session


class Role(StrEnum):
    """What a caller may do; each may do what those before it may."""

    VIEWER = "viewer"
    """Sees runs, nodes, steps and waits, and no values."""
    READER = "reader"
    """Sees values, too."""
    APPROVER = "approver"
    """Answers waits, too."""
    OPERATOR = "operator"
    """Starts runs and acts on them, too."""
    ADMIN = "admin"
    """Removes runs for good, too."""

    def includes(self, other: Role) -> bool:
        """Say whether a caller of this role may do what one of the other may."""
        return _ORDER.index(self) >= _ORDER.index(other)


_ORDER = tuple(Role)


class Reach(StrEnum):
    """What an endpoint tells of, or acts on: so it is known what a token for some flows may call."""

    NOTHING = "nothing"
    """No run."""
    RUN = "run"
    """The run in its path."""
    WAIT = "wait"
    """The wait in its path."""
    FLOWS = "flows"
    """Runs of any flow: its handler leaves out what the caller does not see."""
    STORE = "store"
    """All there is: only for tokens without a restriction."""


class Ordered(Protocol):
    """An act on many runs, as far as it is kept from some."""

    @property
    def flows(self) -> Collection[str] | None: ...

    @property
    def tags(self) -> Collection[str] | None: ...


def _is_within(some: Collection[str] | None, seen: Collection[str] | None) -> bool:
    return seen is None or (some is not None and set(some) <= set(seen))


@dataclass(frozen=True, kw_only=True)
class Principal:
    """Who a request comes from."""

    name: str = ""
    """Empty where the credential belongs to no name."""
    role: Role
    flows: frozenset[str] | None = None
    """The flows whose runs it sees and acts on; none for all."""
    tags: frozenset[str] | None = None
    """Of those, only runs that have one of these tags, as `vip` or `team=blue`; none for all."""
    by_proxy: bool = False
    """True if a proxy names it: then a browser may send what its user does not mean."""
    by_cookie: bool = False
    """True if a browser that has logged in sends it: then it must be our own page that acts."""
    looks_only: bool = False
    """True if it may see what its role says, and do nothing."""
    session: Session | None = None
    """What its cookie says, if it sent one."""
    credential: str = ""
    """By what the table of credentials knows it again: a digest, never the token."""

    @property
    def is_restricted(self) -> bool:
        """True if it sees some runs only."""
        return self.flows is not None or self.tags is not None

    def sees(self, flow: str, tags: Mapping[str, str] | None) -> bool:
        """Say whether it sees a run of a flow with these tags; they count only if it sees some tags only."""
        if not self.sees_flow(flow):
            return False
        if self.tags is None:
            return True
        said = (tags or {}).items()
        return any(name in self.tags or f"{name}={value}" in self.tags for name, value in said)

    def sees_flow(self, flow: str) -> bool:
        """Say whether there may be runs of a flow that it sees."""
        return self.flows is None or flow in self.flows

    def sees_within(self, ordered: Ordered) -> bool:
        """Say whether it sees all runs that an act on many may reach."""
        return _is_within(ordered.flows, self.flows) and _is_within(ordered.tags, self.tags)

    def of_those(self, flows: Iterable[str]) -> list[str]:
        """Return the flows among some that it sees."""
        return [flow for flow in flows if self.sees_flow(flow)]


ANYONE = Principal(role=Role.ADMIN)
"""Who calls a service without names: the holder of its only token, or this machine's user."""
