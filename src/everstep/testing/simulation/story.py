"""A schedule that broke a promise, for people: what was broken, what happened, and a test that repeats it.
Apart from what tries schedules, which has no words.
"""

from __future__ import annotations

from everstep.testing.simulation.checks import INVARIANTS
from everstep.testing.simulation.explore import Tried

MOST_LINES = 120


def told(tried: Tried) -> str:
    """Return the story of a schedule, with a test to paste."""
    lines = ["A schedule breaks what durable runs promise.", ""]
    for broken in tried.broken[:10]:
        lines += [f"  {broken.invariant} ({INVARIANTS.get(broken.invariant, '')})", f"    {broken.message}"]
    lines += ["", f"It takes {_many(len(tried.taken))}:", ""]
    lines += [f"  {taken}" for taken in tried.taken] or ["  (nothing goes wrong)"]
    lines += ["", "What happened:", ""]
    shown = tried.lines
    if len(shown) > MOST_LINES:
        left = len(shown) - MOST_LINES
        half = MOST_LINES // 2
        shown = (*shown[:half], f"  … {left} lines …", *shown[-half:])
    lines += [f"  {line}" for line in shown]
    lines += ["", "As a test:", "", *(f"  {line}" for line in test_of(tried))]
    return "\n".join(lines)


def _many(count: int) -> str:
    return "one decision" if count == 1 else f"{count} decisions"


def test_of(tried: Tried) -> list[str]:
    """Return the lines of a test that repeats a schedule."""
    decisions = [f"            {str(taken)!r}," for taken in tried.taken]
    return [
        "def test_this_schedule():",
        "    simulate(",
        "        flow,",
        "        inputs,  # and doubles, answers, store as before",
        f"        seed={tried.seed},",
        "        only=[",
        *decisions,
        "        ],",
        "    )",
    ]


test_of.__test__ = False  # type: ignore[attr-defined]  # it makes tests, and is none
