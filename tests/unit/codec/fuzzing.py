"""What can happen to bytes: cut short, bits flipped, parts swapped with others, replaced, repeated.

`EVERSTEP_SOAK=1` tries many more, others each time; `--hypothesis-seed=N` tries the same ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

MANY = 2_000
"""How often chance alone is tried where that is fast."""
IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"


def tries(count: int) -> Callable[[Any], Any]:
    return settings(
        max_examples=count * (50 if IS_SOAK else 1),
        derandomize=not IS_SOAK,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@st.composite
def damaged(draw: st.DrawFn, whole: bytes, others: tuple[bytes, ...] = ()) -> bytes:
    """Return bytes that differ from `whole`, and what was not touched of it."""
    kind = draw(st.sampled_from(["flip", "flip", "cut", "set", "splice", "repeat", "insert", "random"]))
    at = draw(st.integers(0, max(0, len(whole) - 1)))
    end = min(len(whole), at + draw(st.integers(1, 40)))
    if kind == "flip" and whole:
        made = whole[:at] + bytes([whole[at] ^ (1 << draw(st.integers(0, 7)))]) + whole[at + 1 :]
    elif kind == "cut":
        made = whole[:at]
    elif kind == "set":
        made = whole[:at] + draw(st.binary(min_size=end - at, max_size=end - at)) + whole[end:]
    elif kind == "splice" and others:
        other = draw(st.sampled_from(others))
        made = whole[:at] + other[draw(st.integers(0, len(other))) :]
    elif kind == "repeat":
        made = whole[:end] + whole[at:]
    elif kind == "insert":
        made = whole[:at] + draw(st.binary(min_size=1, max_size=20)) + whole[at:]
    else:
        made = draw(st.binary(max_size=200))
    return made if made != whole else whole[:-1]


def spoiled(chance: Random, whole: bytes, others: tuple[bytes, ...] = ()) -> bytes:
    """Return bytes that differ from `whole`; a thousand of them take no time."""
    at = chance.randrange(len(whole))
    end = min(len(whole), at + chance.randrange(1, 40))
    other = chance.choice(others or (whole,))
    made = chance.choice(
        (
            lambda: whole[:at] + bytes([whole[at] ^ (1 << chance.randrange(8))]) + whole[at + 1 :],
            lambda: whole[:at],
            lambda: whole[:at] + chance.randbytes(end - at) + whole[end:],
            lambda: whole[:at] + other[chance.randrange(len(other)) :],
            lambda: whole[:end] + whole[at:],
            lambda: whole[:at] + chance.randbytes(3) + whole[at:],
            lambda: chance.randbytes(chance.randrange(100)),
        )
    )()
    return made if made != whole else whole[:-1]


def anything(depth: int = 3) -> st.SearchStrategy[Any]:
    """Return what msgpack and JSON can hold, odd numbers and long names included."""
    leaf = (
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**64 - 1)
        | st.floats(allow_nan=False)
        | st.text(max_size=8)
        | st.sampled_from(
            ["@inputs", "@fork", "@start", "a", "a#1", "a@2/b", "completed", "halted", "@wait/x"]
        )
        | st.binary(max_size=8)
    )
    return st.recursive(
        leaf,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
        max_leaves=depth * 4,
    )
