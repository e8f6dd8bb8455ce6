"""A traced run in several processes: `python -m tests.integration.runtime.tracing.traced URL FILE DAY DO`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from everstep import Flow, Host, node, wait
from everstep.errors import LeaseLost
from everstep.testing import ManualClock
from everstep.types import Tracing


def id_of(trace_id: int, span_id: int) -> str:
    return f"{trace_id:032x}/{span_id:016x}"


class ToFile(SpanExporter):
    """Writes each span that ends as a line of JSON, which outlives the process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with self.path.open("a", encoding="utf-8") as out:
            for span in spans:
                out.write(json.dumps(plain(span)) + "\n")
        return SpanExportResult.SUCCESS


def plain(span: ReadableSpan) -> dict[str, Any]:
    """Return what tests look at of a span."""
    assert span.context is not None
    return {
        "name": span.name,
        "id": id_of(span.context.trace_id, span.context.span_id),
        "parent": id_of(span.parent.trace_id, span.parent.span_id) if span.parent is not None else None,
        "links": {
            str((link.attributes or {})["everstep.link"]): id_of(link.context.trace_id, link.context.span_id)
            for link in span.links
        },
        "attributes": dict(span.attributes or {}),
        "status": span.status.status_code.name,
        "events": [{"name": event.name, **(event.attributes or {})} for event in span.events],
    }


def provider_to(exporter: SpanExporter) -> TracerProvider:
    """Return a provider that hands every span that ends to an exporter."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def crashes(name: str) -> bool:
    return os.environ.get("CRASH_IN") == name


@node(output="a")
def price(x: int) -> int:
    return x


@node(output="b")
def pack(a: int) -> int:
    if crashes("pack"):
        os._exit(9)
    return a


@node(output="c")
def label(b: int) -> int:
    if crashes("label"):
        os._exit(9)
    return b


@node(output="d")
def load(c: int) -> int:
    if crashes("load"):
        os._exit(9)
    return c


IS_HELD, GO_ON = Event(), Event()


@node(output="e")
def drive_off(d: int) -> int:
    if not IS_HELD.is_set():
        IS_HELD.set()
        GO_ON.wait(30)
    return d


@node(output="sent")
def send(ok: wait.ApprovalOutput, e: int) -> bool:
    return ok.approved and e == 1


parcel = Flow(
    "parcel",
    [price, pack, label, load, drive_off, wait.approval("ok", context="e", timeout="9d"), send],
    durability="strong",
)


def main(url: str, spans: str, days: str, act: str) -> None:
    provider = provider_to(ToFile(Path(spans)))
    tracer, tracing = provider.get_tracer("shop"), Tracing(tracer_provider=provider)

    def host(later: timedelta = timedelta()) -> Host:
        clock = ManualClock()
        clock.advance(timedelta(days=int(days)) + later)
        return Host(url, clock=clock, tracing=tracing)

    if act == "start":
        with host() as shop, tracer.start_as_current_span("checkout"):
            shop.start(parcel, {"x": 1}, run_id="p1")
    elif act == "answer":
        with host() as shop, tracer.start_as_current_span("boss"):
            shop.answer(shop.waits("p1")[0].id, {"approved": True})
    elif act == "take over":
        taken_over(host)
    else:
        with host() as shop:
            print(shop.resume("p1", parcel).status.value)


def taken_over(host: Any) -> None:
    """Let a host lose the run to another while its node is under way: both live."""
    lost: list[str] = []

    def slowly() -> None:
        with host() as slow:
            try:
                slow.resume("p1", parcel)
            except LeaseLost as error:
                lost.append(error.code)

    thread = Thread(target=slowly)
    thread.start()
    assert IS_HELD.wait(30)
    with host(timedelta(hours=1)) as quick:
        print(quick.resume("p1", parcel).status.value)
    GO_ON.set()
    thread.join()
    print(*lost)


if __name__ == "__main__":
    main(*sys.argv[1:])
