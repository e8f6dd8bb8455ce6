"""What the service counts, as Prometheus reads it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal

from everstep.client.guards import Counts
from everstep.model.ledger import BreakerState

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds in seconds."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counts requests by route, method and status, and how long they took by route."""

    def __init__(self) -> None:
        self._requests: Counter[Labels] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests[("method", method), ("route", route), ("status", str(status))] += 1
        buckets = self._buckets.setdefault(route, [0] * (len(BUCKETS) + 1))
        buckets[bisect_left(BUCKETS, seconds)] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]  # a Counter may hold floats

    def text(self, counts: Counts, breakers: Mapping[str, str], *, is_stale: bool = False) -> str:
        """Return everything, with what the store counts and how shared breakers stand."""
        lines = [
            *_gauge("everstep_runs", "Runs by status.", "status", counts.runs),
            *_gauge("everstep_open_waits", "Open waits by kind.", "kind", counts.waits),
            *_head(
                "everstep_breakers", "gauge", "Shared breakers by name and state: 1 for the one it is in."
            ),
            *(
                f"everstep_breakers{_labels((('breaker', name), ('state', state.value)))} {state == now:d}"
                for name, now in sorted(breakers.items())
                for state in BreakerState
            ),
            *_counter("everstep_spent_total", "Spent by runs driven here.", "name", counts.spent),
            *_counter("everstep_budget_warnings_total", "Budgets nearly spent.", "budget", counts.warnings),
            *_counter("everstep_breaker_trips_total", "Breakers that opened.", "breaker", counts.trips),
            *_head(
                "everstep_tokens_stale",
                "gauge",
                "1 if the file of tokens cannot be used as it is now, and counts as it was before.",
            ),
            f"everstep_tokens_stale {is_stale:d}",
            *_head("everstep_http_requests_total", "counter", "Requests by method, route and status."),
            *(
                f"everstep_http_requests_total{_labels(labels)} {count}"
                for labels, count in sorted(self._requests.items())
            ),
            *_head("everstep_http_request_seconds", "histogram", "How long requests took, by route."),
            *self._histogram(),
        ]
        return "\n".join(lines) + "\n"

    def _histogram(self) -> Iterator[str]:
        name = "everstep_http_request_seconds"
        for route, counts in sorted(self._buckets.items()):
            total = 0
            for bound, count in zip([*map(str, BUCKETS), "+Inf"], counts, strict=True):
                total += count
                yield f"{name}_bucket{_labels((('route', route), ('le', bound)))} {total}"
            yield f"{name}_sum{_labels((('route', route),))} {self._seconds[route]:.6f}"
            yield f"{name}_count{_labels((('route', route),))} {total}"


def _gauge(name: str, help_text: str, label: str, values: Mapping[str, int]) -> Iterator[str]:
    yield from _head(name, "gauge", help_text)
    for key, value in sorted(values.items()):
        yield f"{name}{_labels(((label, key),))} {value}"


def _counter(name: str, help_text: str, label: str, values: Mapping[str, int | Decimal]) -> Iterator[str]:
    yield from _head(name, "counter", help_text)
    for key, value in sorted(values.items()):
        yield (
            f"{name}{_labels(((label, key),))} {value:f}"
            if isinstance(value, Decimal)
            else (f"{name}{_labels(((label, key),))} {value}")
        )


def _head(name: str, kind: str, help_text: str) -> list[str]:
    return [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
