"""What watches the service itself and its store: health, metrics, and the description of the API."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from everstep.model.leases import RELEASE
from everstep.runtime.metrics.exposition import CONTENT_TYPE
from everstep.server.callers import seen_by
from everstep.server.endpoint import Service
from everstep.server.shapes import Health, Me, Readiness
from everstep.server.wire import HEADERS, answer


async def healthz(service: Service, request: Request) -> Response:
    """Say that the service answers, and nothing else."""
    return answer(Health())


async def store(service: Service, request: Request) -> Response:
    """Say how the store is, and what it keeps."""
    return answer(await service.looked_over.seen(service.host, service.flows.values()))


async def me(service: Service, request: Request) -> Response:
    """Say who asks, and what they may do."""
    caller = seen_by(request)
    return answer(
        Me(
            name=caller.name,
            role=caller.role,
            acts=not caller.looks_only,
            flows=None if caller.flows is None else sorted(caller.flows),
            tags=None if caller.tags is None else sorted(caller.tags),
            release=RELEASE,
            acts_as="" if caller.name else service.acts_as,
            can_log_out=caller.by_cookie,
        )
    )


async def readyz(service: Service, request: Request) -> Response:
    """Say whether requests can be served: the store answers, and the service is not about to stop."""
    reason = "stopping" if service.stopping.is_set() else await service.probe.what_is_wrong(service.host)
    if reason is None:
        return answer(Readiness(status="ready", reason=service.access.problem))
    return answer(Readiness(status="not ready", reason=reason), 503, {"Retry-After": "1"})


async def metrics(service: Service, request: Request) -> Response:
    """Give the metrics in the text form of Prometheus."""
    service.metrics.is_stale = service.access.problem is not None
    text = await service.host.fleet.metrics() + service.metrics.text()
    return Response(text, headers={**HEADERS, "Content-Type": CONTENT_TYPE})


async def openapi(service: Service, request: Request) -> Response:
    """Give the OpenAPI document."""
    return answer(service.document)
