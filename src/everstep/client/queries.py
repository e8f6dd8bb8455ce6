"""Which runs a listing shows: what `host.runs`, `everstep runs` and `GET /runs` take, each said once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Protocol,
    TypedDict,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import Meta, Struct
from msgspec.structs import FieldInfo, fields

from everstep.on_demand import on_demand
from everstep.runtime.run_ids import RUN_ID as RUN_IDS

if TYPE_CHECKING:
    from everstep.engine.query.text import field_of, query_of
    from everstep.engine.query.tree import comparisons_of
    from everstep.ports.labels import LabelStore
    from everstep.runtime.services import Services
else:
    field_of = on_demand("everstep.engine.query.text:field_of")
    query_of = on_demand("everstep.engine.query.text:query_of")
    comparisons_of = on_demand("everstep.engine.query.tree:comparisons_of")

RUN_ID = RUN_IDS.pattern
RunStatus = Literal["running", "completed", "failed", "halted", "cancelled", "abandoned"]
RunName = Annotated[str, Meta(pattern=f"^({RUN_ID})$")]


_SINCE = "at this time or later: -7d, 2026-01-31, or a moment"


class RunsQuery(Struct, frozen=True, kw_only=True):
    """Which runs to list, newest first; a test compares it with the signature of `host.runs`."""

    where: Annotated[
        str | None, Meta(description="Only those that a query asks for: status = failed and started > -2d")
    ] = None
    flow: Annotated[str | None, Meta(description="Only of this flow.")] = None
    status: Annotated[RunStatus | None, Meta(description="Only with this status.")] = None
    version: Annotated[str | None, Meta(description="Only of this version of their flow.")] = None
    id_prefix: Annotated[str | None, Meta(description="Only those whose id begins so.")] = None
    group: Annotated[str | None, Meta(description="Only of this group.")] = None
    owner: Annotated[str | None, Meta(description="Only those that this process drives.")] = None
    parent: Annotated[RunName | None, Meta(description="Only forks of this run.")] = None
    started_by: Annotated[RunName | None, Meta(description="Only those that nodes of this run started.")] = (
        None
    )
    waiting: Annotated[str | None, Meta(description="Only those that wait for this kind: approval.")] = None
    waiting_at: Annotated[str | None, Meta(description="Only those that wait at this node.")] = None
    error: Annotated[str | None, Meta(description="Only those that failed with this in the error.")] = None
    error_code: Annotated[str | None, Meta(description="Only those that failed with this code.")] = None
    undoing: Annotated[
        str | None, Meta(description="Only those that undo what they did (undoing), or did: complete.")
    ] = None
    started_since: Annotated[str | None, Meta(description=f"Only those that began {_SINCE}.")] = None
    started_until: Annotated[str | None, Meta(description="Only those that began before this time.")] = None
    ended_since: Annotated[str | None, Meta(description=f"Only those that ended {_SINCE}.")] = None
    ended_until: Annotated[str | None, Meta(description="Only those that ended before this time.")] = None
    changed_since: Annotated[str | None, Meta(description=f"Only those that changed {_SINCE}.")] = None
    changed_until: Annotated[
        str | None, Meta(description="Only those whose last change was before this time.")
    ] = None
    needs_repair: Annotated[bool, Meta(description="Only damaged runs, which workers leave alone.")] = False
    paused: Annotated[bool, Meta(description="Only runs that are paused, each by itself.")] = False
    pinned: Annotated[bool, Meta(description="Only runs that are pinned.")] = False
    tag: Annotated[tuple[str, ...], Meta(description="Only with this tag, as NAME or NAME=VALUE.")] = ()
    attribute: Annotated[
        tuple[str, ...], Meta(description="Only with this attribute, as NAME=VALUE or NAME.")
    ] = ()
    labels: Annotated[bool, Meta(description="Show tags and attributes of each run.")] = False
    limit: Annotated[int, Meta(ge=1, description="At most so many.")] = 100
    before: Annotated[RunName | None, Meta(description="Go on after this run of the list.")] = None


class RunConditions(TypedDict, total=False):
    """What `host.runs` takes besides its own arguments, for checkers and editors: fields of a query."""

    version: str | None
    id_prefix: str | None
    group: str | None
    owner: str | None
    started_by: str | None
    waiting: str | None
    waiting_at: str | None
    error: str | None
    error_code: str | None
    undoing: str | None
    started_since: str | datetime | None
    started_until: str | datetime | None
    ended_since: str | datetime | None
    ended_until: str | datetime | None
    changed_since: str | datetime | None
    changed_until: str | datetime | None


class BulkOptions(TypedDict, total=False):
    """What `host.fleet.bulk` takes besides the act and the query, for checkers and editors."""

    at_most: int | None
    """Stop after so many runs."""
    per_second: float | None
    """Act on no more runs a second."""
    sample: int
    """Runs that a dry run shows."""
    flows: Iterable[str] | None
    """Only runs of these flows, whatever the query asks for."""
    tags: Iterable[str] | None
    """Only runs with one of these tags, `vip` or `team=blue`, whatever the query asks for."""
    add: Iterable[str] | Mapping[str, str]
    """Tags that `tag` adds."""
    remove: Iterable[str]
    """Tags that `tag` takes away."""
    reason: str | None
    """Why `pin` keeps runs."""
    at: int | None
    """The checkpoint from which `fork` goes on; by default the newest of each run."""
    inputs: Mapping[str, Any] | None
    """What `fork` changes, as in `host.fork`."""
    state: Mapping[str, Any] | None
    channel: Mapping[str, Any] | None
    keep_keys: bool
    by: str | None
    comment: str | None


def check_query(asked: Mapping[str, Any], now: datetime) -> None:
    """Raise for what is wrong with what a listing asks for, whatever runs there are."""
    query_of(asked.get("where"), asked.get("tag", ()), asked.get("attribute", ()), now, asked)


def fields_of(asked: Mapping[str, Any], now: datetime) -> set[str]:
    """Return the fields that a listing or a count asks for."""
    query = query_of(asked.get("where"), asked.get("tag", ()), asked.get("attribute", ()), now, asked)
    found = {one.field for one in comparisons_of(query)}
    return found | (set() if asked.get("by") is None else {field_of(asked["by"])})


class Hosts(Protocol):
    """A host, as far as it is asked here."""

    _services: Services


async def tags_of_runs(host: Hosts, run_ids: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
    """Return the tags of runs by their ids, with their values; one that has none may be left out."""
    names, store = list(run_ids), host._services.store
    if not names or not store.capabilities.has_labels:
        return {}
    found = await cast("LabelStore", store).labels(names)
    return {run_id: {tag.name: tag.value for tag in labels.tags} for run_id, labels in found.items()}


class CountQuery(Struct, frozen=True, kw_only=True):
    """Which runs to count, and by what; a test compares it with the signature of `host.fleet.count`."""

    by: Annotated[
        str,
        Meta(description="What tells them apart: status, flow, group, tag, tag.NAME, attribute.NAME, ..."),
    ] = "status"
    where: Annotated[str | None, Meta(description="Only those that a query asks for.")] = None
    tag: Annotated[tuple[str, ...], Meta(description="Only with this tag, as NAME or NAME=VALUE.")] = ()
    attribute: Annotated[
        tuple[str, ...], Meta(description="Only with this attribute, as NAME=VALUE or NAME.")
    ] = ()
    before: Annotated[RunName | None, Meta(description="Count on after this run.")] = None


class DurationsQuery(Struct, frozen=True, kw_only=True):
    """Of which runs to tell the times; a test compares it with the signature of `host.fleet.durations`."""

    flow: Annotated[str | None, Meta(description="Only of this flow.")] = None
    where: Annotated[str | None, Meta(description="Only those that a query asks for: started > -1d")] = None
    newest: Annotated[int, Meta(ge=1, description="Of so many runs, at most 1,000.")] = 200


class Parameter(NamedTuple):
    """One thing that a query may say, for those who ask for it on a command line or over HTTP."""

    name: str
    default: Any
    description: str
    choices: tuple[str, ...] = ()
    pattern: str | None = None
    least: int | None = None
    is_many: bool = False


def parameters_of(shape: type[Struct]) -> list[Parameter]:
    """Return what the fields of a query stand for."""
    hints = get_type_hints(shape, include_extras=True)
    return [_parameter(field, hints[field.name]) for field in fields(shape)]


def _parameter(field: FieldInfo, hint: Any) -> Parameter:
    inner, about = get_args(hint)
    kind = next((part for part in get_args(inner) if part is not NoneType), inner)
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    pattern = get_args(kind)[1].pattern if get_origin(kind) is Annotated else None
    is_many = get_origin(inner) is tuple
    return Parameter(field.name, field.default, about.description, choices, pattern, about.ge, is_many)


NoticeStates = Literal["pending", "sent", "dead"]


class NoticesQuery(Struct, frozen=True, kw_only=True):
    """Which notices to list; a test compares it with the signature of `host.notices.find`."""

    state: Annotated[
        NoticeStates | None,
        Meta(description="Only those to be sent, those sent, or dead letters."),
    ] = None
    run_id: Annotated[RunName | None, Meta(description="Only of this run.")] = None
    limit: Annotated[int, Meta(ge=1, description="At most so many.")] = 100
    before: Annotated[
        Annotated[str, Meta(pattern="^([0-9]{1,18})$")] | None,
        Meta(description="Go on behind the notice with this number."),
    ] = None
