"""How often the service was asked for what, and how long that took. Apart from the metrics of its host."""

from __future__ import annotations

from collections import Counter

from everstep.runtime.metrics.exposition import Family, Labels, Sample, written
from everstep.runtime.metrics.histogram import Histogram

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds in seconds."""


class Metrics:
    """Counts requests by route, method and status, and how long they took by route."""

    def __init__(self) -> None:
        self._requests: Counter[Labels] = Counter()
        self._seconds: dict[str, Histogram] = {}
        self.is_stale = False
        """True while the file of tokens cannot be used as it is."""

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests[("method", method), ("route", route), ("status", str(status))] += 1
        self._seconds.setdefault(route, Histogram(BUCKETS)).observe(seconds)

    def families(self) -> list[Family]:
        """Return what was counted, by name."""
        return [
            Family(
                "everstep_http_requests_total",
                "counter",
                "Requests by method, route and status.",
                [Sample("", labels, str(count)) for labels, count in sorted(self._requests.items())],
            ),
            Family(
                "everstep_http_request_seconds",
                "histogram",
                "How long requests took, by route.",
                [
                    sample
                    for route, kept in sorted(self._seconds.items())
                    for sample in kept.samples((("route", route),))
                ],
            ),
            Family(
                "everstep_tokens_stale",
                "gauge",
                "1 if the file of tokens cannot be used as it is now, and counts as it was before.",
                [Sample("", (), f"{self.is_stale:d}")],
            ),
        ]

    def text(self) -> str:
        """Return what was counted, as Prometheus reads it."""
        return written(self.families())
