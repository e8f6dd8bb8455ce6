"""What is to be done to a store so that it is as this everstep wants it."""

from __future__ import annotations

import msgspec

from everstep.model.shapes import shown


class UpgradeStep(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is to be done to a store, or was done just now."""

    name: str
    """`7` or `9, later part` of a numbered schema, `side tables`, `rights`."""
    what: str
    locks: str
    """How long others may have to wait meanwhile."""


class StoreUpgrade(msgspec.Struct, frozen=True, kw_only=True):
    """How a store stands, and what of it was brought up to date, or would be."""

    url: str
    """Where it is, without a password."""
    kind: str
    version: int | None
    """The version of its tables before; none if it has no numbered ones, or is not there yet."""
    newest: int | None
    """The version that this everstep brings them to."""
    runs: int | None = None
    """About how many runs it has, where that is known at once."""
    steps: tuple[UpgradeStep, ...] = ()
    roles: tuple[str, ...] = ()
    """Roles besides the owner that use the tables: what is added can be used by them, too."""
    dry_run: bool = False
    note: str = ""

    @shown
    def is_current(self) -> bool:
        """True if there was nothing to do."""
        return not self.steps
