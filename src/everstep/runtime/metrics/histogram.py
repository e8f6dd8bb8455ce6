"""How often something took how long. Apart from the meter: the service measures its requests by it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from everstep.runtime.metrics.exposition import Labels, Sample, spelled


class Histogram:
    """Counts by upper bounds, and the sum of what was counted."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def samples(self, labels: Labels = ()) -> Iterator[Sample]:
        """Yield the buckets, each with what is in those below it, then sum and count."""
        seen = 0
        for bound, count in zip([*map(spelled, self._bounds), "+Inf"], self.counts, strict=True):
            seen += count
            yield Sample("_bucket", (*labels, ("le", bound)), str(seen))
        yield Sample("_sum", labels, spelled(self.total))
        yield Sample("_count", labels, str(seen))
