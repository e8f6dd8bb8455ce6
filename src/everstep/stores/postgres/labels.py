"""The tables of tags and attributes. Apart from the others, as most runs have none."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from everstep.engine.query.labels import tagged
from everstep.errors import StateCorrupted
from everstep.model.commits import Attribute, LabelKind, Labels, Tag, Tagging
from everstep.model.enums import Status
from everstep.ports.labels import Search, SearchPage
from everstep.ports.store import RunFilter
from everstep.stores.label_search import LabelSearch, Stretches, tally
from everstep.stores.postgres.address import PostgresAddress
from everstep.stores.postgres.columns import read_text, run_row, text
from everstep.stores.postgres.connections import Connection, as_of_now, rows
from everstep.stores.postgres.schema import read_queries

_NAME = re.compile(r"(?<!:):([a-z_]+[0-9]*)")
_TYPES: dict[type, str] = {int: "bigint", float: "double precision", str: "text", bool: "boolean"}


class PostgresLabels:
    """The tags and attributes of every run."""

    def __init__(self, at: PostgresAddress) -> None:
        self._sql = read_queries(at, "labels.sql")
        self._stretches = Stretches()

    def tag(
        self, db: Connection, run_id: str, add: Sequence[Tag], remove: Collection[str], most: int
    ) -> Tagging:
        """Change the tags of a run."""
        with db.transaction():
            found = rows(db, self._sql["lock_run"], (text(run_id),))
            if not found:
                return Tagging.UNKNOWN_RUN
            key = found[0][0]
            there = [Tag(name, read_text(value)) for name, value in rows(db, self._sql["tags_of"], (key,))]
            wanted = tagged(there, add, remove, most)
            if wanted is None:
                return Tagging.FULL
            gone = {tag.name for tag in set(there) - set(wanted)}  # taken away, or with another value now
            if gone:
                db.execute(self._sql["drop_tags"], (key, sorted(gone)))
            if new := sorted(set(wanted) - set(there), key=lambda tag: tag.name):
                values = ([tag.name for tag in new], [text(tag.value) for tag in new])
                db.execute(self._sql["set_tags"], (key, *values))
            return Tagging.TAGGED

    def labels(self, db: Connection, run_ids: Sequence[str]) -> dict[str, Labels]:
        """Return the labels of runs that have any."""
        tags: dict[str, list[Tag]] = {}
        undoing: dict[str, str] = {}
        found: dict[str, list[Attribute]] = {}
        asked = ([text(run_id) for run_id in run_ids],)
        for run_id, name, kind, value, number in rows(db, self._sql["labels"], asked):
            run = read_text(run_id)
            if name is None:
                undoing[run] = read_text(value)
                continue
            if kind is None:
                tags.setdefault(run, []).append(Tag(name, read_text(value)))
                continue
            try:
                one = Attribute(name, LabelKind(kind), None if value is None else read_text(value), number)
            except ValueError as error:
                raise StateCorrupted(f"an attribute of run {run!r} was altered: {error}.") from error
            found.setdefault(run, []).append(one)
        return {
            run: Labels(tuple(tags.get(run, ())), tuple(found.get(run, ())), undoing.get(run, ""))
            for run in tags.keys() | found.keys() | undoing.keys()
        }

    def search(self, db: Connection, wanted: RunFilter, by: Search) -> SearchPage:
        """Return runs that match, newest first."""

        def ask(query: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
            return rows(db, *_numbered(query, values))

        with as_of_now(db):
            db.execute(self._sql["look_up"])
            page = LabelSearch(self._sql, ask, run_row, _way, self._stretches, text).search(wanted, by)
        following = None if page.following is None else read_text(page.following)
        return SearchPage(page.rows, page.looked_at, following)

    def tally(self, db: Connection, field: str) -> dict[str, int]:
        """Count all runs by a field."""
        return tally(self._sql, lambda query, values: rows(db, *_numbered(query, values)), field, read_text)


def _way(wanted: RunFilter) -> tuple[str, str]:
    """Return by what runs are sorted before their keys, and what leads to the fewest of them.

    No run but those of a flow, or a status, is between it and itself. Said like this only the index that has
    them together can sort them; else the server may look for them among all runs, as if they lay everywhere.
    """
    if wanted.run_id is not None:
        return "", "run_id = :id"
    if wanted.parent_run_id is not None:
        return "", "parent_run_id = :parent"
    if wanted.started_by is not None:
        starter = "split_part(started_by, ' ', 1)"
        found = f"({starter}, run_key) < (:starter, :before) AND {starter} >= :starter"
        return f"{starter} DESC, ", f"started_by IS NOT NULL AND {found}"
    if wanted.marked or wanted.pinned:
        return "", "needs_repair IS NOT NULL" if wanted.marked else "pinned IS NOT NULL"
    if wanted.status not in (None, Status.COMPLETED):
        return "status DESC, ", "(status, run_key) < (:status, :before) AND status >= :status"
    if wanted.flow_id is not None:
        return "flow_id DESC, ", "(flow_id, run_key) < (:flow, :before) AND flow_id >= :flow"
    return "", "TRUE"


def _numbered(query: str, values: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """Return a query with numbers in place of names, as the server takes it, and its values in order."""
    order: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        name = found[1]
        kind = _TYPES.get(type(values[name]), "text")
        return f"${order.setdefault(name, len(order) + 1)}::{kind}"

    numbered = _NAME.sub(number, query)
    return numbered, tuple(values[name] for name in order)
