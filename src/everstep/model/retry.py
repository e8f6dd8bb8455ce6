"""How often, how soon and for which errors a node is tried again."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta
from typing import Final, Literal, get_args

from everstep.errors import BadRequest
from everstep.model.durations import Span, seconds_of

RetryPreset = Literal["none", "standard", "aggressive", "linear", "patient"]


class Retry:
    """A retry policy: `times` attempts more than the first, with growing pauses between them.

    `on` limits it to these exceptions; any other fails the step at once. The pause before attempt n+1 is
    `first * factor ** (n - 1)`, at most `most` (a minute, or `first` if that is longer);
    `jitter` spreads it by up to that share either way. Another attempt at a node keeps the durable calls that
    are recorded; `units="fresh"` makes it begin without them.
    """

    __slots__ = ("factor", "first", "jitter", "most", "on", "times", "units")

    def __init__(
        self,
        times: int,
        *,
        first: Span = 0.2,
        factor: float = 2.0,
        most: Span | None = None,
        jitter: float = 0.5,
        on: type[BaseException] | Iterable[type[BaseException]] = Exception,
        units: Literal["keep", "fresh"] = "keep",
    ) -> None:
        self.times = times
        self.units = units
        if units not in ("keep", "fresh"):
            raise BadRequest(f"retry units is {units!r}.", fix="Use keep or fresh.")
        self.first = _pause(first, "first")
        self.factor = factor
        self.most = max(60.0, self.first) if most is None else _pause(most, "most")
        self.jitter = jitter
        self.on = (on,) if isinstance(on, type) else tuple(on)
        if isinstance(times, bool) or not isinstance(times, int) or times < 0:
            raise BadRequest(f"retry times is {times!r}.", fix="Give a whole number from 0 on.")
        if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in self.on):
            raise BadRequest(f"retry on is {on!r}.", fix="Give an exception class, or several in a tuple.")
        if self.first > self.most:
            raise BadRequest(
                f"the first pause ({self.first:g} s) is longer than the longest ({self.most:g} s)."
            )
        if not (
            self.first >= 0 and self.most >= 0 and factor > 0 and 0 <= jitter <= 1
        ):  # NaN is none of them
            raise BadRequest("a retry policy has a negative pause or a jitter outside 0..1.")

    def __repr__(self) -> str:
        pauses = f"first={self.first}, factor={self.factor}, most={self.most}, jitter={self.jitter}"
        return f"Retry({self.times}, {pauses})"

    def pause(self, failures: int, chance: float) -> timedelta:
        """Return the pause after the given number of failed attempts; `chance` in [0, 1) picks the jitter."""
        try:
            plain = min(self.first * self.factor ** (failures - 1), self.most)
        except OverflowError:
            plain = self.most if self.first else 0.0
        return timedelta(seconds=plain * (1 + self.jitter * (2 * chance - 1)))

    @classmethod
    def of(cls, wanted: int | RetryPreset | Retry | None) -> Retry:
        """Read a number of retries, a preset's name, or pass a policy on."""
        match wanted:
            case None:
                return cls(0)
            case Retry():
                return wanted
            case bool():
                pass
            case int():
                return cls(wanted)
            case str() if wanted in _PRESETS:
                return _PRESETS[wanted]
        known = ", ".join(map(repr, get_args(RetryPreset)))
        raise BadRequest(f"retry is {wanted!r}.", fix=f"Use a number, a Retry, or one of {known}.")


def _pause(given: Span, what: str) -> float:
    """Return a pause in seconds; that without end is a limit that is never reached."""
    return given if given == math.inf and isinstance(given, float) else seconds_of(given, what, least=0)


_PRESETS: Final[dict[RetryPreset, Retry]] = {
    "none": Retry(0),
    "standard": Retry(4, first=0.2),
    "aggressive": Retry(4, first=0.5),
    "linear": Retry(2, first=0.5, factor=1.0),
    "patient": Retry(2, first=2.0, factor=3.0),
}
