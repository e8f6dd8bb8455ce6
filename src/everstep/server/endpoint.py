"""What one line of the route table says, and what a handler is given."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from everstep.client.host import AsyncHost
from everstep.client.queries import Parameter, parameters_of
from everstep.graph.author.flow import Flow
from everstep.server.access.admission import Access
from everstep.server.access.roles import Principal, Reach, Role
from everstep.server.looked_over import LookedOver
from everstep.server.metrics import Metrics
from everstep.server.probe import Probe
from everstep.server.schemas import FLAG, TEXT, Schema, Shape

MAX_BODY = 1 << 20
QUESTIONS = 8
"""Workers answer before they drive anything else, so clients could keep them from that."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """What the handlers share."""

    host: AsyncHost
    flows: Mapping[str, Flow]
    """By the name that `POST /runs` uses."""
    access: Access
    """Whom to let in."""
    base_url: str = ""
    """Where browsers find the service; empty if that was not said."""
    acts_as: str = ""
    """Who acts in a browser of this machine; empty if that was not said."""
    works: bool = True
    """False if it leaves all runs to workers, and drives none itself."""
    max_body: int = MAX_BODY
    keep_alive: float = 15.0
    """Seconds after which a silent stream of events says that it lives."""
    metrics: Metrics = field(default_factory=Metrics)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the service shuts down, so that streams end."""
    document: dict[str, Any] = field(default_factory=dict)
    """The OpenAPI document."""
    probe: Probe = field(default_factory=Probe)
    looked_over: LookedOver = field(default_factory=LookedOver)
    questions: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, QUESTIONS))
    """Lets so many be asked of workers at a time."""


class Guard(StrEnum):
    """Who may call an endpoint."""

    BEARER = "bearer"
    """Those whose role is enough: by a bearer token, or by the header of a proxy."""
    TOKEN = "token"
    """The token of a wait, which is in the path."""
    NONE = "none"
    """Anyone; it tells nothing."""


PRINCIPAL = "everstep.principal"
"""Where the scope of a request says who it comes from."""


REFUSED = "everstep.refused"
"""Where the scope of a request has the error of which a page has told already."""


def caller_of(request: Request) -> Principal | None:
    """Return who a request comes from; none where the token of a wait is the credential, or nothing is."""
    found: Principal | None = request.scope.get(PRINCIPAL)
    return found


Handler = Callable[[Service, Request], Awaitable[Response]]


@dataclass(frozen=True)
class Query:
    """A parameter behind the question mark."""

    name: str
    schema: dict[str, Any]
    description: str
    is_required: bool = False


def queries_of(shape: type[Struct], most: int) -> tuple[Query, ...]:
    """Return the parameters that a struct stands for; numbers go up to `most`."""
    return tuple(Query(one.name, _schema(one, most), one.description) for one in parameters_of(shape))


def _schema(one: Parameter, most: int) -> Schema:
    if isinstance(one.default, bool):
        return FLAG
    if isinstance(one.default, int):
        return {"type": "integer", "minimum": one.least, "maximum": most, "default": one.default}
    if one.choices:
        return {"type": "string", "enum": list(one.choices)}
    if one.is_many:
        return {"type": "array", "items": TEXT}
    return TEXT if one.pattern is None else {"type": "string", "pattern": one.pattern}


@dataclass(frozen=True)
class Body:
    """What an endpoint takes."""

    shape: Shape
    required: bool = True
    media: str = "application/json"


@dataclass(frozen=True)
class Answer:
    """What an endpoint gives: by media type the shape of the body; nothing for an empty one."""

    description: str
    content: Mapping[str, Shape] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One line of the route table."""

    method: str
    path: str
    name: str
    """The operation id of the OpenAPI document."""
    summary: str
    handler: Handler
    answers: Mapping[int, Answer]
    guard: Guard = Guard.BEARER
    role: Role | None = None
    """The least role that may call it; of one that says none only admins may, and a test fails."""
    act: str = ""
    """What the audit log calls what it does; empty if it only tells of something."""
    reach: Reach = Reach.STORE
    """What it tells of or acts on: what tokens for some flows may call follows from that."""
    cuts_itself: bool = False
    """True if its handler leaves values out of what is no struct, or there are none in that."""
    is_public: bool = True
    """False keeps it out of the OpenAPI document."""
    errors: tuple[int, ...] = ()
    """Statuses besides those that its guard, its body and the store may give."""
    query: tuple[Query, ...] = ()
    body: Body | None = None
    looks_back: bool = False
    """True if its run may be named as of a checkpoint: A17@3."""
    is_signed: bool = False
    """True if headers may say who sends it, and why."""
    errors_in: str = "application/json"
    """The media type of its errors; a page for people shows them as a page."""
