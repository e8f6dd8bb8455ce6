"""The id of a request: taken if it is one, made if not, in the response and in log lines."""

from __future__ import annotations

import asyncio
import logging

import httpx
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from everstep import AsyncHost
from everstep.logs import JsonFormatter, PlaceFilter
from everstep.server.app import create_app
from everstep.types import Tracing
from tests.integration.runtime.tracing.traced import plain, provider_to
from tests.integration.server.serving import BEARER, TOKEN
from tests.integration.server.serving import plain as flow


class Kept(logging.Handler):
    """Keeps what was logged, as it stood then."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(PlaceFilter())
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def answered(headers: dict[str, str], tracing: Tracing | None = None) -> httpx.Response:
    """Start a run over HTTP, and have it driven if it is traced."""
    return asyncio.run(_answered({name: value.encode("latin-1") for name, value in headers.items()}, tracing))


async def _answered(headers: dict[str, bytes], tracing: Tracing | None) -> httpx.Response:
    sent = [(n.encode(), v) for n, v in headers.items()] + [
        (n.encode(), v.encode()) for n, v in BEARER.items()
    ]
    async with AsyncHost("memory:", tracing=tracing) as host:
        transport = httpx.ASGITransport(create_app(host, [flow], token=TOKEN))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            body = {"flow": "plain", "inputs": {"x": 1}, "run_id": "h1"}
            response = await client.post("/runs", json=body, headers=sent)
            assert response.status_code == 202
        if tracing is not None:
            await host.resume("h1", flow)
    return response


@pytest.mark.parametrize("given", ["abc-1.2:3_4", "x" * 128])
def test_an_id_that_is_one_comes_back_and_is_in_the_log(given: str) -> None:
    kept, access = Kept(), logging.getLogger("everstep.access")
    access.addHandler(kept)
    access.setLevel(logging.INFO)
    try:
        response = answered({"X-Request-Id": given})
    finally:
        access.removeHandler(kept)
        access.setLevel(logging.NOTSET)
    assert response.headers["x-request-id"] == given
    [record] = kept.records
    assert f'"request_id": "{given}"' in JsonFormatter().format(record)


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "a\tb", "é", '{"a":1}', "-"])
def test_what_is_no_id_is_replaced(given: str) -> None:
    response = answered({"X-Request-Id": given})
    made = response.headers["x-request-id"]
    assert made != given
    assert made.isalnum()
    assert made != (answered({})).headers["x-request-id"]


def test_a_run_is_linked_to_the_request_that_goes_on_with_the_trace_of_its_client() -> None:
    exporter = InMemorySpanExporter()
    client = f"00-{5:032x}-{6:016x}-01"
    tracing = Tracing(tracer_provider=provider_to(exporter))
    response = answered({"traceparent": client}, tracing)
    spans = {span["name"]: span for span in map(plain, exporter.get_finished_spans())}
    request = spans["POST /runs"]
    assert request["parent"] == f"{5:032x}/{6:016x}"
    assert request["attributes"] == {
        "http.request.method": "POST",
        "http.route": "/runs",
        "http.response.status_code": 202,
        "everstep.request_id": response.headers["x-request-id"],
    }
    assert spans["drive plain"]["links"] == {"caller": request["id"]}


@pytest.mark.parametrize(
    "traceparent", ["", "00-0-0-01", f"ff-{5:032x}-{6:016x}-01", f"00-{0:032x}-{6:016x}-01"]
)
def test_a_traceparent_that_names_no_span_begins_a_trace_of_its_own(traceparent: str) -> None:
    exporter = InMemorySpanExporter()
    answered({"traceparent": traceparent}, Tracing(tracer_provider=provider_to(exporter)))
    spans = {span["name"]: span for span in map(plain, exporter.get_finished_spans())}
    assert spans["POST /runs"]["parent"] is None
