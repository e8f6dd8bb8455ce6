"""The tables of tags and attributes. Apart, as most runs have none. The caller holds the connection."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import apsw
import msgspec

from everstep.engine.query.labels import tagged
from everstep.errors import StateCorrupted
from everstep.model.commits import Attribute, LabelKind, Labels, Tag, Tagging
from everstep.ports.labels import Search, SearchPage
from everstep.ports.store import RunFilter
from everstep.stores.label_search import LabelSearch, Stretches, tally
from everstep.stores.sqlite.columns import run_row
from everstep.stores.sqlite.database import Queries, rows, transact
from everstep.stores.sqlite.listing import way_of
from everstep.stores.sqlite.side_tables import SideTables

_HERE = Path(__file__).parent


@cache
def _queries() -> Queries:
    return Queries((_HERE / "labels.sql").read_text())


class SqliteLabels:
    """The tags and attributes of every run."""

    def __init__(self, db: apsw.Connection, side: SideTables) -> None:
        self._db = db
        self._sql = _queries()
        self._side = side
        self._stretches = Stretches()

    def set(self, key: int, tags: Iterable[Tag], attributes: Iterable[Attribute]) -> None:
        """Keep labels of a run; the caller has begun a transaction."""
        self._side.need()
        for tag in tags:
            self._db.execute(self._sql["set_tag"], (key, tag.name, tag.value))
        for one in attributes:
            kept = (key, one.name, one.kind.value, one.text, one.number)
            self._db.execute(self._sql["set_attribute"], kept)

    def set_undoing(self, key: int, said: str) -> None:
        """Keep what a run says of undoing; the caller has begun a transaction."""
        self._side.need()
        self._db.execute(self._sql["set_undoing"], (key, said))

    def tag(self, key: int, add: Sequence[Tag], remove: Collection[str], most: int) -> Tagging:
        """Change the tags of a run; in a transaction of its own."""
        if not self._side.are_there() and not add:
            return Tagging.TAGGED
        self._side.need()
        there = [Tag(*row) for row in rows(self._db, self._sql["tags_of"], (key,))]
        wanted = tagged(there, add, remove, most)
        if wanted is None:
            return Tagging.FULL
        for gone in {tag.name for tag in there} - {tag.name for tag in wanted}:
            self._db.execute(self._sql["drop_tag"], (key, gone))
        self.set(key, set(wanted) - set(there), ())
        return Tagging.TAGGED

    def labels(self, run_ids: Sequence[str]) -> dict[str, Labels]:
        """Return the labels of runs that have any."""
        if not self._side.are_there():
            return {}
        asked = (msgspec.json.encode(list(run_ids)).decode(),)
        tags: dict[str, list[Tag]] = {}
        undoing: dict[str, str] = {}
        for run_id, name, value in rows(self._db, self._sql["tags"], asked):
            if name is None:
                undoing[run_id] = value
            else:
                tags.setdefault(run_id, []).append(Tag(name, value))
        found: dict[str, list[Attribute]] = {}
        for run_id, name, kind, text, number in rows(self._db, self._sql["attributes"], asked):
            try:
                found.setdefault(run_id, []).append(Attribute(name, LabelKind(kind), text, number))
            except ValueError as error:
                raise StateCorrupted(f"an attribute of run {run_id!r} was altered: {error}.") from error
        return {
            run_id: Labels(tuple(tags.get(run_id, ())), tuple(found.get(run_id, ())), undoing.get(run_id, ""))
            for run_id in tags.keys() | found.keys() | undoing.keys()
        }

    def search(self, wanted: RunFilter, by: Search) -> SearchPage:
        """Return runs that match, newest first."""
        if (by.name is not None or wanted.started_by is not None) and not self._side.are_there():
            return SearchPage([], 0, None)
        search = LabelSearch(self._sql, self._ask, run_row, _way, self._stretches)
        return transact(self._db, lambda: search.search(wanted, by), begin="BEGIN")  # all as of one moment

    def tally(self, field: str) -> dict[str, int]:
        """Count all runs by a field."""
        if field != "flow" and not self._side.are_there():
            many = rows(self._db, self._sql["count_runs"])[0][0]
            return {"": many} if many and field != "tag" else {}
        return tally(self._sql, self._ask, field)

    def _ask(self, query: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        return rows(self._db, query, values)


def _way(wanted: RunFilter) -> tuple[str, str]:
    """Return the index that leads to the fewest other runs, if it must be named, and what it asks for."""
    index, condition = way_of(wanted)
    for number, name in _NAMED.items():
        condition = condition.replace(number, name)
    return f"INDEXED BY {index}" if index else "", condition


_NAMED = {"?1": ":flow", "?2": ":id", "?3": ":status", "?6": ":parent", "?9": ":starter"}
