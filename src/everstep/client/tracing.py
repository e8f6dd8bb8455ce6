"""Opens what makes the spans of a host. Apart from the host, as only those load it that trace."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from everstep.errors import BadRequest
from everstep.ports.tracing import Tracing, tracing_around, tracing_of
from everstep.runtime.services import Services

if TYPE_CHECKING:
    from everstep.runtime.tracing.spans import Tracer


def tracer_of(said: bool | Tracing | None, environ: Mapping[str, str]) -> Tracer | None:
    """Return what makes the spans of a host: as it is told, else as the environment says."""
    given = tracing_around(environ) if said is None else tracing_of(said)
    if given is None:
        return None
    try:
        spans = import_module("everstep.runtime.tracing.spans")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "opentelemetry":
            raise
        raise BadRequest(
            "tracing needs the package opentelemetry-api, which is not installed.",
            fix="Install it with: pip install 'everstep[otel]'",
        ) from error
    tracer: Tracer = spans.Tracer(given)
    return tracer


class Hosts(Protocol):
    """A host, as far as it is asked here."""

    _services: Services


def tracer_in(host: Hosts) -> Tracer | None:
    """Return what makes the spans of a host; none if it does not trace."""
    return host._services.tracing
