"""Spans of attempts and durable calls: what they enclose, what they say, and when there are none."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from everstep import AsyncContext, AsyncHost, Flow, Host, Retry, node
from everstep.errors import BadRequest
from everstep.types import Tracing
from tests.integration.runtime.tracing.traced import plain, provider_to


class Seen:
    """The spans that a provider was given, by their names."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = provider_to(self.exporter)

    def __getitem__(self, name: str) -> dict[str, Any]:
        [found] = [span for span in map(plain, self.exporter.get_finished_spans()) if span["name"] == name]
        return found

    def names(self) -> list[str]:
        return [span.name for span in self.exporter.get_finished_spans()]


@pytest.fixture
def seen() -> Seen:
    return Seen()


def test_spans_of_user_code_lie_in_those_of_its_node_also_on_threads(seen: Seen) -> None:
    mine = seen.provider.get_tracer("mine")

    @node(output="a")
    def left(x: int) -> int:
        with mine.start_as_current_span("in left"):
            return x

    @node(output="b", timeout="30s")
    def right(x: int) -> int:
        with mine.start_as_current_span("in right"):
            return x

    @node(output="c")
    async def both(a: int, b: int, ctx: AsyncContext) -> int:
        def search(by: int) -> int:
            with mine.start_as_current_span(f"in search {by}"):
                return by

        async def fetch() -> int:
            with mine.start_as_current_span("in fetch"):
                return 1

        found = await asyncio.gather(ctx.step("search", search, 5), ctx.step("fetch", fetch))
        with mine.start_as_current_span("in both"):
            return a + b + sum(found)

    with Host("memory:", tracing=Tracing(tracer_provider=seen.provider)) as host:
        host.run(Flow("pair", [left, right, both]), {"x": 1})
    parents = {name: seen[name]["parent"] for name in ("in left", "in right", "in both")}
    assert parents == {f"in {name}": seen[f"node {name}"]["id"] for name in ("left", "right", "both")}
    assert seen["in search 5"]["parent"] == seen["step search"]["id"]
    assert seen["in fetch"]["parent"] == seen["step fetch"]["id"]
    assert seen["step search"]["parent"] == seen["node both"]["id"]
    assert seen["node both"]["parent"] == seen["drive pair"]["id"]


def test_an_attempt_says_where_it_is_and_how_it_ended(seen: Seen) -> None:
    calls: list[int] = []

    @node(output="y", retry=Retry(1, first=0.01))
    def flaky(password: str) -> int:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError(f"no answer with password={password}")
        return 2

    with Host("memory:", tracing=Tracing(tracer_provider=seen.provider)) as host:
        host.run(Flow("calls", [flaky]), {"password": "opensesame"}, run_id="c1")
    first, second = [s for s in map(plain, seen.exporter.get_finished_spans()) if s["name"] == "node flaky"]
    assert first["attributes"] == {
        "everstep.run_id": "c1",
        "everstep.flow": "calls",
        "everstep.epoch": 1,
        "everstep.node": "flaky",
        "everstep.visit": 1,
        "everstep.attempt": 1,
        "everstep.status": "failed",
    }
    assert (first["status"], second["status"]) == ("ERROR", "UNSET")
    [event] = first["events"]
    assert (event["name"], event["exception.type"]) == ("exception", "ValueError")
    assert event["exception.message"] == "no answer with password=…"
    assert second["attributes"]["everstep.attempt"] == 2
    assert "opensesame" not in repr([plain(span) for span in seen.exporter.get_finished_spans()])


def test_values_are_in_attributes_only_if_asked_for(seen: Seen) -> None:
    @node(output="y")
    def double(x: int, token: str) -> int:
        return 2 * x

    flow = Flow("double", [double])
    with Host("memory:", tracing=Tracing(values=True, tracer_provider=seen.provider)) as host:
        host.run(flow, {"x": 21, "token": "s3cr3t-of-mine"})
    about = seen["node double"]["attributes"]
    assert about["everstep.arguments"] == '{"x":21,"token":…}'
    assert about["everstep.result"] == "42"


def test_a_failed_run_ends_its_drive_with_an_error(seen: Seen) -> None:
    @node(output="y")
    def broken(x: int) -> int:
        raise RuntimeError("no way")

    with Host("memory:", tracing=Tracing(tracer_provider=seen.provider)) as host:
        assert host.run(Flow("broken", [broken]), {"x": 1}).status.value == "failed"
    assert seen["drive broken"]["status"] == "ERROR"
    assert seen["drive broken"]["attributes"]["everstep.status"] == "failed"


def test_without_tracing_records_say_nothing_of_it(seen: Seen) -> None:
    @node(output="y")
    def double(x: int) -> int:
        return 2 * x

    flow = Flow("double", [double])
    with Host("memory:") as host, seen.provider.get_tracer("mine").start_as_current_span("caller"):
        host.run(flow, {"x": 1}, run_id="r1")
        assert [record.metadata for record in host.history("r1")] == [None] * len(host.history("r1"))
    assert seen.names() == ["caller"]


def test_a_host_that_does_not_trace_loads_nothing_of_opentelemetry() -> None:
    program = (
        "import sys; from everstep import Host, Flow, node\n"
        "@node(output='y')\ndef double(x: int) -> int: return 2 * x\n"
        "with Host('memory:') as host: host.run(Flow('double', [double]), {'x': 1})\n"
        "print([name for name in sys.modules if 'opentelemetry' in name or 'tracing' in name])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_without_an_sdk_no_step_is_traced_and_the_caller_is_kept() -> None:
    calls: list[str] = []

    @node(output="y")
    def double(x: int) -> int:
        calls.append(str(trace.get_current_span().get_span_context().is_valid))
        return 2 * x

    caller = trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=True))
    flow = Flow("double", [double])
    with Host("memory:", tracing=Tracing(tracer_provider=trace.NoOpTracerProvider())) as host:
        with trace.use_span(caller):
            host.run(flow, {"x": 1}, run_id="r1")
        said = host.history("r1")[0].metadata
    assert said == {"@trace": {"caller": f"00-{1:032x}-{2:016x}-00"}}
    assert calls == ["True"]  # the caller's, which no span of ours stands before


@pytest.mark.parametrize("word", ["yes please", "2"])
def test_a_word_in_the_environment_that_means_nothing_is_refused(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERSTEP_TRACING", word)
    with pytest.raises(BadRequest, match="EVERSTEP_TRACING"):
        AsyncHost("memory:")


def test_the_environment_turns_tracing_on(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERSTEP_TRACING", "1")
    with Host("memory:") as host:
        assert host.run(Flow("none", [_same]), {"x": 1}).status.value == "completed"
    monkeypatch.setenv("EVERSTEP_TRACING", "0")
    with Host("memory:", tracing=Tracing(tracer_provider=seen.provider)) as host:
        host.run(Flow("none", [_same]), {"x": 1})
    assert "drive none" in seen.names()


@node(output="y")
def _same(x: int) -> int:
    return x
