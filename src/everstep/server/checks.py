"""What stands in a path or behind the question mark, checked before anybody looks for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request

from everstep.client.audit import AuditQuery
from everstep.client.queries import RUN_ID as RUN_ID
from everstep.client.queries import CountQuery, DurationsQuery, NoticesQuery, RunsQuery
from everstep.errors import BadRequest, FlowNotFound, RunNotFound, TokenInvalid, WaitNotFound
from everstep.graph.author.flow import Flow
from everstep.graph.check.structure import NAME
from everstep.model.waits import WaitStatus
from everstep.server.bodies import cut
from everstep.server.endpoint import Query, queries_of
from everstep.server.schemas import FLAG, TEXT

_INSIDE = r"(/[^/\x00-\x1f]{1,200}){0,20}"
PART = RUN_ID + _INSIDE
"""A run, or a part of one; in a path each slash of it is written %2F."""
ADDRESS = RUN_ID + "(@[0-9]{1,10})?" + _INSIDE
"""Either of them, as of a checkpoint, too. Where that is not taken the host says so."""
WAIT_ID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
NOTICE_ID = r"[A-Za-z0-9._-]{1,128}-[0-9]{1,18}(\.[0-9]{1,9})?"
TOKEN = r"et_[A-Za-z0-9_-]{43}"
EVENT_ID = r"[0-9]{1,10}\.[0-9]{1,9}(~[0-9]{1,19}\.[0-9]{1,12})?"
CHANGE_ID = r"[0-9a-f]{8}\.[0-9]{1,18}"
CHECKPOINT = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9]{1,10}"

EVENT_NAME = r"[\s\S]{1,200}"
"""In a path percent-encoded, slashes and all."""
FLOW_NAME = NAME.pattern
BREAKER_NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,79}"

SLASH = "%2F"
"""How the application leaves a slash that a client encoded: it is no end of a segment."""

MOST = 1000
"""How many lines a listing gives at most."""

RUNS = queries_of(RunsQuery, MOST)
"""What `GET /runs` may be asked."""
AUDIT = queries_of(AuditQuery, MOST)
"""What `GET /audit` may be asked."""
NOTICES = queries_of(NoticesQuery, MOST)
"""What `GET /notices` may be asked."""
COUNT = queries_of(CountQuery, MOST)
"""What `GET /counts` may be asked."""
DURATIONS = queries_of(DurationsQuery, MOST)
"""What `GET /durations` may be asked."""
DRAWING = (
    Query("open", {"type": "array", "items": TEXT}, "The inner flows whose nodes are shown, by path."),
    Query("around", TEXT, "Of a flow too large to be shown, the node whose neighbourhood is."),
    Query("all", FLAG, "Show the nodes of all inner flows."),
)
"""What `GET /runs/{run_id}/drawing` may be asked."""
NEWEST = Query(
    "newest",
    {"type": "integer", "minimum": 1, "maximum": MOST},
    "Read only so many checkpoints, the newest.",
)
"""How much of a long run is read."""
WAIT_STATUSES = [status.value for status in WaitStatus]


def run_id_of(request: Request) -> str:
    """Return the run in the path, or the part of one."""
    run_id: str = request.path_params["run_id"].replace(SLASH, "/")
    if not re.fullmatch(ADDRESS, run_id):
        raise RunNotFound(f"{cut(run_id)} is not a run id.", fix="List the runs: GET /runs")
    return run_id


STEP = r"[^/\x00-\x1f]{1,200}" + _INSIDE
"""The address of a step; in a path each slash of it is written %2F."""


def address_of(request: Request) -> str:
    """Return the address of a step in the path."""
    address: str = request.path_params["address"].replace(SLASH, "/")
    if not re.fullmatch(STEP, address):
        raise RunNotFound(f"{cut(address)} is not the address of a step.", fix="Write draft@2 or check#7.")
    return address


def drawn_as(asked: dict[str, Any]) -> dict[str, Any]:
    """Return how a picture is to be, as a host takes it."""
    names = {"open": "opened", "around": "around", "all": "all_open"}
    found = {names[name]: value for name, value in asked.items()}
    if "opened" in found:  # no name has a comma
        found["opened"] = [path for paths in found["opened"] for path in paths.split(",")]
    return found


def event_of(request: Request) -> str:
    """Return the name of the event in the path, as the client encoded it: it may hold anything."""
    raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
    try:
        return unquote(raw.partition(b"?")[0].rpartition(b"/")[2].decode("ascii"), errors="strict")
    except UnicodeDecodeError:
        raise BadRequest("the name of the event is not UTF-8.", fix="Percent-encode it.") from None


def wait_id_of(request: Request) -> str:
    """Return the wait id in the path. What is none is not repeated: it may be a token."""
    wait_id: str = request.path_params["wait_id"]
    if not re.fullmatch(WAIT_ID, wait_id):
        raise WaitNotFound("this is not the id of a wait.", fix="List the waits: GET /waits")
    return wait_id


def token_of(request: Request) -> str:
    """Return the token in the path."""
    token: str = request.path_params["token"]
    if not re.fullmatch(TOKEN, token):
        raise TokenInvalid("this is not a token.", fix="Use the link as you got it.")
    return token


def flow_named(flows: Mapping[str, Flow], name: object) -> Flow:
    """Return the flow of that name, if the service has it."""
    if isinstance(name, str) and name in flows:
        return flows[name]
    shown = cut(name) if isinstance(name, str) else "of that name"
    raise FlowNotFound(
        f"there is no flow {shown} here.", fix=f"There is {', '.join(sorted(flows)) or 'none at all'}."
    )


def check_query(request: Request, known: Sequence[Query]) -> None:
    """Refuse unknown parameters and doubled ones: a filter that does not count would give too much."""
    names = [query.name for query in known]
    many = {query.name for query in known if query.schema.get("type") == "array"}
    for name in request.query_params:
        if name not in names:
            shown = ", ".join(names) or "none"
            raise BadRequest(f"there is no parameter {cut(name)} here.", fix=f"There is {shown}.")
        if name not in many and len(request.query_params.getlist(name)) > 1:
            raise BadRequest(f"the parameter {name} is there twice.", fix="Say it once.")


def asked_in(request: Request, queries: Iterable[Query]) -> dict[str, Any]:
    """Return the parameters that a request gives, each checked and as Python has it."""
    found: dict[str, Any] = {}
    for query in queries:
        if query.name not in request.query_params:
            continue
        match query.schema:
            case {"type": "boolean"}:
                found[query.name] = one_of(request, query.name, ["true", "false"]) == "true"
            case {"type": "integer"}:
                found[query.name] = limit_of(request, query.name)
            case {"type": "array"}:
                found[query.name] = request.query_params.getlist(query.name)
            case {"enum": known}:
                found[query.name] = one_of(request, query.name, known)
            case {"pattern": form}:
                found[query.name] = matching(request, query.name, form)
            case _:
                found[query.name] = request.query_params[query.name]
    return found


def one_of(request: Request, name: str, known: list[str]) -> str | None:
    """Return a parameter that must be one of a few words; none if it was left out."""
    value = request.query_params.get(name)
    if value is not None and value not in known:
        raise BadRequest(f"{name} is {cut(value)}.", fix=f"Use one of {', '.join(known)}.")
    return value


def matching(request: Request, name: str, pattern: str) -> str | None:
    """Return a parameter of a fixed form; none if it was left out."""
    value = request.query_params.get(name)
    if value is not None and not re.fullmatch(pattern, value):
        raise BadRequest(f"{name} is {cut(value)}.", fix="Use one that the service gave out.")
    return value


DEFAULT_LIMIT = 100
"""How many lines a listing gives unless it is told otherwise."""


def limit_of(request: Request, name: str = "limit", default: int = DEFAULT_LIMIT) -> int:
    """Return how many lines are wanted, or of how many runs something is told."""
    text = request.query_params.get(name, str(default))
    if not re.fullmatch("[0-9]{1,6}", text) or not 1 <= int(text) <= MOST:
        raise BadRequest(f"{name} is {cut(text)}.", fix=f"Use a number from 1 to {MOST}.")
    return int(text)
