"""Tags and attributes of runs, as stores keep them and find runs by them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

import msgspec

from everstep.model.acts import AuditRow
from everstep.model.commits import MOST_LABELS, LabelKind, Labels, Tag, Tagging
from everstep.ports.store import RunFilter, RunRow


@runtime_checkable
class LabelStore(Protocol):
    """A store that keeps tags and attributes. Every method is one atomic act.

    Attributes come with puts (`Commit.attributes`), and a run's first tags with its admission.
    """

    async def labels(self, run_ids: Sequence[str]) -> Mapping[str, Labels]:
        """Return the labels of these runs, by id, each by name; a run without any may be left out."""

    async def tag(
        self,
        run_id: str,
        *,
        add: Sequence[Tag] = (),
        remove: Collection[str] = (),
        most: int = MOST_LABELS,
        head: int | None = None,
        audit: AuditRow | None = None,
    ) -> Tagging:
        """Change the tags of a run, ended or not, as `engine.query.labels.tagged` says; it needs no lease.

        With `head`, only while its newest record has that sequence.
        """


class LabelRange(msgspec.Struct, frozen=True, kw_only=True):
    """Values that a label may have: one text, or numbers from one to another, both included."""

    text: str | None = None
    kinds: tuple[LabelKind, ...] = ()
    """What the numbers are."""
    low: float | None = None
    high: float | None = None


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to look for by an index."""

    tag: bool = False
    """True if it is a tag that is looked for, not an attribute."""
    name: str | None = None
    """The label that they have; none looks at runs whatever labels they have."""
    ranges: tuple[LabelRange, ...] = ()
    """It is in one of these; none at all lets it be anything."""
    since: datetime | None = None
    """Only runs that began then or later."""
    until: datetime | None = None
    """Only runs that began then or earlier."""
    most: int = 5000
    """Runs that are looked at."""


class SearchPage(msgspec.Struct, frozen=True):
    """What a search has found."""

    rows: list[RunRow]
    looked_at: int
    """Runs that were looked at."""
    following: str | None
    """The run up to which it has come; none if there is no more."""


@runtime_checkable
class SearchingStore(Protocol):
    """A store that finds runs by labels and times with an index."""

    async def search(self, wanted: RunFilter, by: Search) -> SearchPage:
        """Return runs that match both, newest first. It may say more than `by` wants, and never less."""

    async def tally(self, field: str) -> dict[str, int]:
        """Count all runs by `flow`, by `tag`, by the values of `tag.NAME` or of `attribute.NAME`.

        Runs without that label are under an empty text, but for `tag`.
        """
