"""Spans of OpenTelemetry: one per drive, linked to the drive before it and to the caller, and inside it one
per attempt at a node and per durable call. Only its API is used; which SDK listens is for the program to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec
from opentelemetry import context, trace
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)

from everstep.model.enums import Status as RunStatus
from everstep.model.records import RESULT, ErrorInfo
from everstep.ports.tracing import ANSWER, CALLER, DRIVE, Tracing, read, written
from everstep.runtime.live.log_text import without_secrets

LONGEST_VALUE = 4096
"""Characters of an attribute that shows values."""
_FAILED = StatusCode.ERROR
Attributes = dict[str, str | int | bool]


class Tracer:
    """Makes the spans of a host."""

    def __init__(self, given: Tracing) -> None:
        self.values = given.values
        self._tracer = trace.get_tracer("everstep", tracer_provider=given.tracer_provider)

    def caller(self) -> str:
        """Return the span that is current here as a `traceparent`; empty if there is none."""
        return _written(trace.get_current_span())

    def caller_note(self) -> dict[str, str] | None:
        """Return what a run is told at its admission that others will drive."""
        caller = self.caller()
        return {CALLER: caller} if caller else None

    def begin(
        self, flow: str, run_id: str, epoch: int, before: Mapping[str, str] | None
    ) -> tuple[DriveTrace | None, dict[str, str] | None]:
        """Begin the root span of a drive; returns it, and what its records are to say.

        Without an SDK its context is not valid, and no step is traced.
        """
        here, known = self.caller(), before or {}
        caller = known.get(CALLER) or here
        links = _links(("drive", known.get(DRIVE)), ("caller", caller), ("resumed_by", here))
        about: Attributes = {"everstep.run_id": run_id, "everstep.flow": flow, "everstep.epoch": epoch}
        # A root of its own: a run lives for weeks, and a span that waited for it would never end.
        root = self._tracer.start_span(f"drive {flow}", context.Context(), attributes=about, links=links)
        now = _written(root)
        note = {name: text for name, text in ((CALLER, caller), (DRIVE, now)) if text}
        if not now:
            return None, note if before is None and note else None
        begun = DriveTrace(self._tracer, root, about, values=self.values)
        begun.mark_begin(flow, links)
        return begun, note

    def note_answer(
        self, run_id: str, path: str, kind: str, opened_in: Mapping[str, str]
    ) -> dict[str, str] | None:
        """Make the span of an answer, linked to the drive that opened the wait; returns what that is to say.

        The span of the caller is what encloses it. Without an SDK, it is the one that is noted.
        """
        about: Attributes = {"everstep.run_id": run_id, "everstep.node": path, "everstep.wait_kind": kind}
        span = self._tracer.start_span(
            f"answer {path}", attributes=about, links=_links(("opened", opened_in.get(DRIVE)))
        )
        span.end()
        here = _written(span)
        return {**opened_in, ANSWER: here} if here else None

    @contextmanager
    def request(self, method: str, traceparent: str | None) -> Iterator[Request]:
        """Surround a request to the service, as a part of the trace that its client names."""
        around = context.get_current()
        found = read(traceparent)
        if found is not None:
            around = trace.set_span_in_context(NonRecordingSpan(_context(found)), around)
        span = self._tracer.start_span(method, around, kind=SpanKind.SERVER)
        # Without an SDK, the span of the client is current, so that it is the caller of what is begun here.
        token = context.attach(trace.set_span_in_context(span, around))
        try:
            yield Request(span, method)
        finally:
            context.detach(token)
            span.end()


class Request:
    """The span of a request."""

    def __init__(self, span: Span, method: str) -> None:
        self._span = span
        self._method = method

    def answered(self, route: str, status: int, request_id: str) -> None:
        """Note what came of it."""
        span = self._span
        span.update_name(f"{self._method} {route}")
        span.set_attributes({"http.request.method": self._method})
        span.set_attributes({"http.route": route})
        span.set_attributes({"http.response.status_code": status})
        span.set_attributes({"everstep.request_id": request_id})
        if status >= 500:
            span.set_status(Status(_FAILED))


class DriveTrace:
    """The spans of one drive."""

    def __init__(self, tracer: trace.Tracer, root: Span, about: Attributes, *, values: bool) -> None:
        self._tracer = tracer
        self._root = root
        self._about = about
        self._values = values
        self.traceparent = _written(root)

    def mark_begin(self, flow: str, links: list[Link]) -> None:
        """Make a span of no length, which says what led here if the process dies and the root never ends."""
        around = trace.set_span_in_context(self._root, context.Context())
        self._tracer.start_span(f"begin {flow}", around, attributes=self._about, links=links).end()

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the root span current."""
        token = context.attach(trace.set_span_in_context(self._root))
        try:
            yield
        finally:
            context.detach(token)

    def end(self, status: RunStatus, error: ErrorInfo | None) -> None:
        """End the root span as its drive ended."""
        self._root.set_attributes({"everstep.status": status.value})
        if error is not None:
            self._root.set_status(Status(_FAILED, _said(error)))
        self._root.end()

    def fail(self, error: BaseException, info: ErrorInfo) -> None:
        """End the root span of a drive that was stopped: its run goes on elsewhere, or later."""
        _record(self._root, error, info)
        self._root.set_attributes({"everstep.status": "stopped"})
        self._root.end()

    def settled(self, path: str, kind: str, notes: Mapping[str, str], seconds: float) -> None:
        """Note that a wait was settled that the run goes on with."""
        about: Attributes = {**self._about, "everstep.node": path, "everstep.wait_kind": kind}
        links = _links(("opened", notes.get(DRIVE)), ("answer", notes.get(ANSWER)))
        around = trace.set_span_in_context(self._root, context.Context())
        span = self._tracer.start_span(f"wait {path}", around, attributes=about, links=links)
        span.set_attributes({"everstep.waited_seconds": round(seconds, 3)})
        span.end()

    @contextmanager
    def attempt(self, node: str, path: str, visit: int, attempt: int, given: object) -> Iterator[AttemptSpan]:
        """Make the span of an attempt at a node current while its code runs."""
        about = self._at(path, visit, attempt)
        with self._spanning(f"node {node}", about, given) as span:
            yield span

    @contextmanager
    def unit(self, name: str, path: str, visit: int, attempt: int, given: object) -> Iterator[AttemptSpan]:
        """Make the span of an attempt at a durable call current while its code runs."""
        about = self._at(path, visit, attempt)
        plain = name.removeprefix(RESULT).partition("=")[0]  # a key would make each of them a name of its own
        about["everstep.step"] = plain
        with self._spanning(f"step {plain}", about, given) as span:
            yield span

    def _at(self, path: str, visit: int, attempt: int) -> Attributes:
        return {**self._about, "everstep.node": path, "everstep.visit": visit, "everstep.attempt": attempt}

    @contextmanager
    def _spanning(self, name: str, about: Attributes, given: object) -> Iterator[AttemptSpan]:
        raw = self._tracer.start_span(name, attributes=about)
        span = AttemptSpan(raw, values=self._values and raw.is_recording())
        span.show(given, "everstep.arguments")
        token = context.attach(trace.set_span_in_context(raw))
        try:
            yield span
        except BaseException as error:
            span.fail(error, ErrorInfo(type(error).__name__, str(error)))
            raise
        finally:
            context.detach(token)
            raw.end()


class AttemptSpan:
    """The span of an attempt at a node, or at a durable call of one."""

    def __init__(self, span: Span, *, values: bool) -> None:
        self._span = span
        self._values = values

    def complete(self, returned: object) -> None:
        """Note that it returned something."""
        self._span.set_attributes({"everstep.status": RunStatus.COMPLETED.value})
        self.show(returned, "everstep.result")

    def halt(self) -> None:
        """Note that it waits."""
        self._span.set_attributes({"everstep.status": RunStatus.HALTED.value})

    def fail(self, error: BaseException, info: ErrorInfo) -> None:
        """Note what it raised."""
        self._span.set_attributes({"everstep.status": RunStatus.FAILED.value})
        _record(self._span, error, info)

    def show(self, value: object, name: str) -> None:
        """Put a value into an attribute, if that was asked for: without what its name says is a secret."""
        if not self._values:
            return
        try:
            text = msgspec.json.encode(value, enc_hook=repr).decode()
        except (TypeError, ValueError, RecursionError):
            text = repr(value)
        self._span.set_attributes({name: without_secrets(text[:LONGEST_VALUE])})


def _record(span: Span, error: BaseException, info: ErrorInfo) -> None:
    """Record an exception without secrets; what is ours of its traceback is left out."""
    attributes = {
        "exception.type": info.type,
        "exception.message": without_secrets(info.message),
        "exception.stacktrace": "\n".join(map(without_secrets, info.traceback.splitlines())),
    }
    if isinstance(error, Exception):
        span.add_event("exception", attributes)
    span.set_status(Status(_FAILED, _said(info)))


def _said(info: ErrorInfo) -> str:
    return without_secrets(f"{info.type}: {info.message}")


def _links(*named: tuple[str, str | None]) -> list[Link]:
    """Return links to these spans, each once, with what it is to the span that has them."""
    found: dict[tuple[int, int, int], str] = {}
    for name, traceparent in named:
        place = read(traceparent)
        if place is not None:
            found.setdefault(place, name)
    return [Link(_context(place), {"everstep.link": name}) for place, name in found.items()]


def _context(place: tuple[int, int, int]) -> SpanContext:
    trace_id, span_id, flags = place
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))


def _written(span: Span) -> str:
    found = span.get_span_context()
    return written(found.trace_id, found.span_id, found.trace_flags) if found.is_valid else ""
