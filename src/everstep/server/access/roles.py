"""Roles, what an endpoint reaches, and who a request comes from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


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


@dataclass(frozen=True, kw_only=True)
class Principal:
    """Who a request comes from."""

    name: str = ""
    """Empty where the credential belongs to no name."""
    role: Role
    flows: frozenset[str] | None = None
    """The flows whose runs it sees and acts on; none for all."""
    by_proxy: bool = False
    """True if a proxy names it: then a browser may send what its user does not mean."""
    credential: str = ""
    """By what the table of credentials knows it again: a digest, never the token."""

    @property
    def is_restricted(self) -> bool:
        """True if it sees some runs only."""
        return self.flows is not None

    def sees(self, flow: str) -> bool:
        """Say whether it sees runs of a flow: whatever else may restrict a token is to be asked here, too."""
        return self.flows is None or flow in self.flows

    def of_those(self, flows: Iterable[str]) -> list[str]:
        """Return the flows among some that it sees."""
        return [flow for flow in flows if self.sees(flow)]


ANYONE = Principal(role=Role.ADMIN)
"""Who calls a service without names: the holder of its only token, or this machine's user."""
