"""How runs are found by labels and times, in stores with tables: which index leads to them.

Values go as parameters. A store brings the queries, under the same names; which of them is asked is decided
here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from everstep.engine.query.labels import name_of
from everstep.model.commits import Attribute, LabelKind
from everstep.ports.labels import LabelRange, Search, SearchPage
from everstep.ports.store import RunFilter, RunRow
from everstep.stores.columns import to_int

_BEHIND = 1 << 62
"""Behind every key, and every time."""
_FEW = 20
"""Values of a tag that are looked for one by one."""
STRETCH = 4096
"""Keys side by side, of whose runs it is known together when they began."""
_LEARNT = 16
"""Stretches that a search reads at most, of how many runs they are."""
_INFINITE = float("inf")
_TEXTS, _NUMBERS = LabelRange(), LabelRange(low=-_INFINITE, high=_INFINITE)

Ask = Callable[[str, dict[str, Any]], list[tuple[Any, ...]]]


class Stretches:
    """When runs began, a stretch of keys at a time, as far as searches of this process have read it.

    A listing goes by keys, and a run may have begun before those that came earlier: its clock was wrong, or
    it is from another store. What is known of a stretch holds for good once no run can come into it any more.
    """

    def __init__(self) -> None:
        self._spans: dict[int, tuple[int, int] | None] = {}
        self._settled = 0
        self._oldest = 0
        self._seen = (0, 0)

    @property
    def settled(self) -> int:
        """The key below which no run comes into being; 0 if nothing is known yet."""
        return self._settled

    def settle(self, oldest: int, newest: int, oldest_writer: int, next_writer: int) -> None:
        """Take in which keys runs have, and which transactions that write are under way.

        One of them may have a key and not show its run yet. It is waited for until all have ended that were
        under way when keys had gone past a stretch, and one more.
        """
        if newest < self._settled:  # the store was put back
            self.__init__()  # type: ignore[misc]
        whole = max(0, newest // STRETCH - 1) * STRETCH
        if oldest_writer >= next_writer:
            self._settled = whole
        elif oldest_writer >= self._seen[1]:
            self._settled = max(self._settled, self._seen[0])
            self._seen = (whole, next_writer)
        self._oldest = min(oldest, self._settled)

    def learn(self, first: int, last: int, spans: Mapping[int, tuple[int, int]]) -> None:
        """Keep when the runs of some stretches began: the first and the last of each that has any."""
        for number in range(first, last + 1):
            self._spans[number] = spans.get(number)

    def knows(self, key: int) -> bool:
        """True if it is known when the runs just below a key began."""
        return (key - 1) // STRETCH in self._spans

    def below(self, key: int, since: int, until: int) -> int:
        """Return below which key the next run may stand that began in this time; 0 if there is none."""
        while key > self._oldest:
            number = (key - 1) // STRETCH
            if number not in self._spans:
                return key
            span = self._spans[number]
            if span is not None and span[0] <= until and span[1] >= since:
                return key
            key = number * STRETCH
        return 0


class LabelSearch:
    """One search. Where an index has the wanted runs in their order, it is followed. Else few of them are
    sorted, and of many the newest runs are looked at one by one. Stretches in which none began in time are
    passed over.
    """

    def __init__(
        self,
        sql: Mapping[str, str],
        ask: Ask,
        read: Callable[[tuple[Any, ...]], RunRow],
        way: Callable[[RunFilter], tuple[str, str]],
        stretches: Stretches,
        text: Callable[[str], str] = str,
    ) -> None:
        self._sql = sql
        self._ask = ask
        self._read = read
        self._way = way
        self._stretches = stretches
        self._text = text

    def search(self, wanted: RunFilter, by: Search) -> SearchPage:
        """Return runs that match, newest first."""
        before: int | None = _BEHIND
        if wanted.before is not None:
            before = self._ask(self._sql["key_before"], {"before": self._text(wanted.before)})[0][0]
        since, until = _moment(by.since, -_BEHIND), _moment(by.until, _BEHIND)
        if before and (by.since is not None or by.until is not None):
            before = self._first(before, since, until)
            if 0 < before <= self._stretches.settled and not self._stretches.knows(before):
                return SearchPage([], by.most, self._run_from(before))  # enough was read for a call
        if not before:
            return SearchPage([], 0, None)
        values: dict[str, Any] = {
            "name": by.name,
            "before": before,
            "most": by.most,
            "limit": wanted.limit,
            "since": since,
            "until": until,
            "flow": _some(wanted.flow_id, self._text),
            "id": _some(wanted.run_id, self._text),
            "status": wanted.status.value if wanted.status is not None else None,
            "parent": _some(wanted.parent_run_id, self._text),
            "starter": _some(wanted.started_by, self._text),
            "marked": wanted.marked,
            "pinned": wanted.pinned,
        }
        candidates, fits = self._candidates(wanted, by, values)
        found = [self._read(row) for row in self._ask(self._filled("found", candidates, fits), values)]
        if len(found) == wanted.limit:
            return SearchPage(found, len(found), found[-1].run_id)
        many, last = self._ask(self._filled("looked_at", candidates, fits), values)[0]
        if many < by.most:
            return SearchPage(found, many, None)
        return SearchPage(found, many, self._run_from(self._next(last, since, until)))

    def _run_from(self, key: int) -> str | None:
        """Return behind which run a listing goes on that has come down to a key."""
        found = self._ask(self._sql["run_from_key"], {"key": key}) if key else []
        return found[0][0] if found else None

    def _first(self, before: int, since: int, until: int) -> int:
        """Return where to begin below a key: of old runs behind the newest ones, too, if these are few."""
        settled = self._stretches.settled
        if before > settled > 0 and until < _BEHIND:
            values = {"first": settled, "before": before, "most": 4 * STRETCH}
            many, low, high = self._ask(self._sql["newest_times"], values)[0]
            if many < 4 * STRETCH and (not many or low > until or high < since):
                before = settled
        # A search that finds enough among the newest runs reads no times.
        return self._next(before, since, until) if before <= settled else before

    def _next(self, key: int, since: int, until: int) -> int:
        """Return where to go on below a key, having read of further stretches when their runs began."""
        if since == -_BEHIND and until == _BEHIND:
            return key
        known = self._stretches
        key = known.below(key, since, until)
        if key and not known.knows(key):
            if key > known.settled:
                known.settle(*self._ask(self._sql["keys"], {})[0])
            last = (key - 1) // STRETCH
            if key <= known.settled:
                first = max(0, last - _LEARNT + 1)
                values = {"size": STRETCH, "first": first * STRETCH, "before": (last + 1) * STRETCH}
                spans = self._ask(self._sql["stretches"], values)
                known.learn(first, last, {number: (low, high) for number, low, high in spans})
                key = known.below(key, since, until)
        return key

    def _filled(self, query: str, candidates: str, fits: str) -> str:
        return self._sql[query].replace("{candidates}", candidates).replace("{fits}", fits)

    def _candidates(self, wanted: RunFilter, by: Search, values: dict[str, Any]) -> tuple[str, str]:
        """Return which runs are looked at, and what must hold of each."""
        fits = "TRUE"
        if by.name is not None:
            parts = self._with_tag(by, values) if by.tag else self._with_attribute(by, values)
            if parts:
                return " UNION ".join(parts), fits
            fits = self._sql["has_tag"] if by.tag else self._sql["has_attribute"]
            is_one = len(by.ranges) == 1 and by.ranges[0].text is None
            values["is_any"] = not is_one
            values["low0"], values["high0"] = _span(by.ranges[0] if is_one else _NUMBERS)
        way, condition = self._way(wanted)
        return self._sql["newest"].replace("{way}", way).replace("{condition}", condition), fits

    def _with_tag(self, by: Search, values: dict[str, Any]) -> list[str]:
        """Return queries by an index; none if there is no quick one."""
        texts = [self._text(one.text or "") for one in by.ranges] or self._values_of(by.name)
        if len(texts) > _FEW:
            return [] if self._are_many("count_tags", by) else [self._sql["with_tag"]]
        values |= {f"text{k}": text for k, text in enumerate(texts)}
        parts = [self._sql["with_tag_value"].replace("{k}", str(k)) for k in range(len(texts))]
        return parts or [self._sql["with_tag"]]

    def _values_of(self, name: str | None) -> list[str]:
        """Return the values that a tag has anywhere, or somewhat more than are looked for one by one."""
        found = [row[0] for row in self._ask(self._sql["has_empty_value"], {"name": name})]
        last = ""
        while len(found) <= _FEW:
            last = self._ask(self._sql["next_tag_value"], {"name": name, "last": last})[0][0]
            if last is None:
                break
            found.append(last)
        return found

    def _with_attribute(self, by: Search, values: dict[str, Any]) -> list[str]:
        parts = []
        for k, one in enumerate(by.ranges or (_TEXTS, _NUMBERS)):
            low, high = _span(one)
            values |= {f"low{k}": low, f"high{k}": high}
            if one.text is not None:
                values[f"text{k}"] = self._text(one.text)
                part = "with_text"
            elif one.low is None and one.high is None:
                if self._are_many("count_texts", by):
                    return []
                part = "with_any_text"
            elif low < high and self._are_many("count_numbers", by, low=low, high=high):
                return []
            else:
                part = "with_range" if low < high else "with_number"
            parts.append(self._sql[part].replace("{k}", str(k)))
        return parts

    def _are_many(self, query: str, by: Search, **span: float) -> bool:
        """True if an index leads to more runs than are to be sorted."""
        found = self._ask(self._sql[query], {"name": by.name, "most": by.most + 1, **span})
        return int(found[0][0]) > by.most


def _span(one: LabelRange) -> tuple[float, float]:
    return -_INFINITE if one.low is None else one.low, _INFINITE if one.high is None else one.high


def _moment(at: datetime | None, otherwise: int) -> int:
    found = to_int(at)
    return otherwise if found is None else found


def _some(value: str | None, text: Callable[[str], str]) -> str | None:
    return None if value is None else text(value)


def tally(sql: Mapping[str, str], ask: Ask, field: str, read: Callable[[str], str] = str) -> dict[str, int]:
    """Count all runs by a field, as `SearchingStore.tally` says; those without a label are the rest."""
    if field in ("flow", "tag"):
        return {read(name): many for name, many in ask(sql[f"tally_{field}"], {})}
    what, _, name = field.partition(".")
    found: dict[str, int] = {}
    if what == "tag":
        found = {read(value): many for value, many in ask(sql["tally_tag_values"], {"name": name})}
    else:
        found = {read(text): many for text, many in ask(sql["tally_texts"], {"name": name})}
        for kind, number, many in ask(sql["tally_numbers"], {"name": name}):
            shown = name_of(Attribute(name, LabelKind(kind), number=number))
            found[shown] = found.get(shown, 0) + many
    rest = ask(sql["count_runs"], {})[0][0] - sum(found.values())
    if rest:
        found[""] = found.get("", 0) + rest
    return found
