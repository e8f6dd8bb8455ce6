"""What is to be done to which runs, as the run that does it is given it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from everstep.engine.query.text import read_query
from everstep.engine.query.tree import OF_TAG, Compare, Every, Op, Query, Some, comparisons_of
from everstep.errors import BadRequest
from everstep.graph.labels import label_name, tags_of
from everstep.model.acts import LONGEST_COMMENT, Act, Known, act_of
from everstep.model.commits import OWN_FLOWS, RunRow, Tag
from everstep.model.shapes import SPEEDS, understood
from everstep.runtime.operations.bulk.verdict import BulkAct, TagChange

LONGEST_REASON = 1000
"""Characters of the reason of a pin."""
_OF: Mapping[BulkAct, tuple[str, ...]] = {
    BulkAct.TAG: ("add", "remove"),
    BulkAct.PIN: ("reason",),
    BulkAct.FORK: ("at", "inputs", "state", "channel", "keep_keys"),
}
"""What an act is given besides the runs."""
DEFAULTS: Mapping[str, Any] = {
    "add": (),
    "remove": (),
    "reason": None,
    "at": None,
    "inputs": None,
    "state": None,
    "channel": None,
    "keep_keys": False,
}


class BulkOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One act on the runs that a query asks for."""

    act: BulkAct
    where: str
    now: datetime
    """What times of the query count from."""
    flows: tuple[str, ...] | None = None
    """Only runs of these flows, whatever the query asks for: who ordered it sees no others."""
    tags: tuple[str, ...] | None = None
    """Only runs with one of these, as `vip` or `team=blue`, likewise."""
    at_most: int | None = None
    per_second: float | None = None
    by: str = ""
    comment: str = ""
    how: Known = Known.CLAIMED
    add: tuple[Tag, ...] = ()
    remove: tuple[str, ...] = ()
    reason: str = ""
    at: int | None = None
    inputs: dict[str, Any] = {}
    state: dict[str, Any] = {}
    channel: dict[str, Any] = {}
    keep_keys: bool = False

    @property
    def change(self) -> TagChange:
        """What it does to tags."""
        return TagChange(self.add, self.remove)

    def query(self) -> Query:
        """Return which runs it is about."""
        parts: list[Query] = [read_query(self.where, self.now)]
        if self.flows is not None:
            parts.append(Compare("flow", Op.IN, self.flows))
        if self.tags is not None:
            parts.append(Some(tuple(_tagged(one) for one in self.tags)))
        return parts[0] if len(parts) == 1 else Every(tuple(parts))

    def leaves_out(self, row: RunRow) -> bool:
        """True of runs of everstep's own flows, such as this, unless the query names their flow or them."""
        if not row.flow_id.startswith(OWN_FLOWS):
            return False
        named = {"flow": row.flow_id, "id": row.run_id}
        asked = comparisons_of(read_query(self.where, self.now))
        return not any(one.op in (Op.IS, Op.IN) and named.get(one.field) in one.values for one in asked)

    def act_of(self, bulk_id: str) -> Act:
        """Return who acts on each run, with a comment that names the run that does it."""
        said = f"{self.comment} " if self.comment else ""
        comment = f"{said[: LONGEST_COMMENT - 200]}(bulk {bulk_id})"
        return Act(self.by or "bulk", comment, self.how)

    def told(self) -> dict[str, Any]:
        """Return it as the input of a run: plain values, which any process can show."""
        plain = msgspec.to_builtins(self, builtin_types=(datetime,))
        assert isinstance(plain, dict)
        plain["now"] = self.now.isoformat()
        return plain | {name: getattr(self, name) for name in ("inputs", "state", "channel") if name in plain}


def _tagged(said: str) -> Compare:
    name, equals, value = said.partition("=")
    return Compare(f"{OF_TAG}{name}", Op.IS, (value,)) if equals else Compare("tag", Op.IS, (name,))


def order_of(said: Mapping[str, Any]) -> BulkOrder:
    """Read the input of a run."""
    return msgspec.convert(dict(said), understood(BulkOrder))


def ordered(
    act: object,
    where: object,
    now: datetime,
    *,
    at_most: object = None,
    per_second: object = None,
    flows: Iterable[str] | None = None,
    tags: Iterable[str] | None = None,
    by: str | None = None,
    comment: str | None = None,
    **options: Any,
) -> BulkOrder:
    """Return an order that was checked, or raise for what is wrong with it."""
    try:
        wanted = BulkAct(act)  # type: ignore[arg-type]  # what it is not is refused
    except ValueError:
        known = ", ".join(BulkAct)
        raise BadRequest(
            f"{act!r:.60} is nothing that can be done to many runs.", fix=f"Use one of {known}."
        ) from None
    if not isinstance(where, str) or not where.strip():
        raise BadRequest(
            "it is not said which runs are meant.",
            fix="Give a query: where='status = failed and flow = orders'; all runs are 'status is set'.",
        )
    given = {**DEFAULTS, **options}
    for name, value in options.items():
        if name not in DEFAULTS:
            raise BadRequest(f"{wanted} takes no {name}.", fix=f"Use one of {', '.join(DEFAULTS)}.")
        if value != DEFAULTS[name] and name not in _OF.get(wanted, ()):
            takes = ", ".join(_OF.get(wanted, ())) or "nothing of the kind"
            raise BadRequest(f"{wanted} takes no {name}.", fix=f"It takes {takes}.")
    signed = act_of(by, comment) or Act()
    order = BulkOrder(
        act=wanted,
        where=where,
        now=now,
        flows=None if flows is None else tuple(sorted(flows)),
        tags=None if tags is None else tuple(sorted(tags)),
        at_most=_at_most(at_most),
        per_second=_per_second(per_second),
        by=str(signed.by),
        comment=signed.comment,
        how=signed.how,
        **_given(wanted, given),
    )
    order.query()  # which raises for what cannot be read
    return order


def _given(act: BulkAct, given: Mapping[str, Any]) -> dict[str, Any]:
    match act:
        case BulkAct.TAG:
            add, remove = tags_of(given["add"]), tuple(label_name(one, "tag") for one in given["remove"])
            if not add and not remove:
                raise BadRequest("there is no tag to add or to take away.", fix="Give add or remove.")
            return {"add": tuple(add), "remove": remove}
        case BulkAct.PIN:
            reason = "pinned on request" if given["reason"] is None else given["reason"]
            if not isinstance(reason, str) or not 0 < len(reason.strip()) <= LONGEST_REASON:
                raise BadRequest(
                    f"the reason is {reason!r:.60}.", fix="Say in a few words why the runs are kept."
                )
            return {"reason": reason}
        case BulkAct.FORK:
            at = given["at"]
            if at is not None and (isinstance(at, bool) or not isinstance(at, int) or at < 1):
                raise BadRequest(
                    f"at is {at!r:.60}.",
                    fix="Give the sequence of a checkpoint; by default it is the newest.",
                )
            edits = {name: dict(given[name] or {}) for name in ("inputs", "state", "channel")}
            return {"at": at, "keep_keys": bool(given["keep_keys"]), **edits}
    return {}


def _at_most(given: object) -> int | None:
    if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 1):
        raise BadRequest(f"at_most is {given!r:.60}.", fix="Give a whole number from 1 on.")
    return given


def _per_second(given: object) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not SPEEDS[0] <= given <= SPEEDS[1]:
        raise BadRequest(
            f"per_second is {given!r:.60}.", fix="Give a number of runs a second, such as 20 or 0.5."
        )
    return float(given)
