"""Families of numbers as text, in the form that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]
Kind = Literal["counter", "gauge", "histogram"]


class Sample(NamedTuple):
    """One number: what is added to the name of its family, its labels, and its value as text."""

    suffix: str
    labels: Labels
    value: str


class Family(NamedTuple):
    """Numbers of one name."""

    name: str
    kind: Kind
    help: str
    samples: Sequence[Sample]


def one(value: float | None) -> list[Sample]:
    """Return a number without labels; nothing if it is not known."""
    return [] if value is None else [Sample("", (), spelled(value))]


def spelled(value: object) -> str:
    """Return a number as it is written: whole ones without a point."""
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def written(families: Iterable[Family]) -> str:
    """Return the text of some families, each with what it means and what kind it is."""
    return "".join(f"{line}\n" for family in families for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help}"
    yield f"# TYPE {family.name} {family.kind}"
    for sample in family.samples:
        yield f"{family.name}{sample.suffix}{_braces(sample.labels)} {sample.value}"


def _braces(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
