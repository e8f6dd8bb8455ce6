"""Reads the text that Prometheus reads, and takes nothing that it might not take."""

from __future__ import annotations

import re
from typing import NamedTuple

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")

Labels = tuple[tuple[str, str], ...]


class Read(NamedTuple):
    """One family of numbers."""

    kind: str
    help: str
    samples: dict[tuple[str, Labels], float]
    """By what is added to the name, and labels."""


def read(text: str) -> dict[str, Read]:
    """Return families by name; whatever is odd about the text fails."""
    assert text.endswith("\n"), "the last line must end"
    found: dict[str, Read] = {}
    name, about = "", ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, _, about = line.removeprefix("# HELP ").partition(" ")
            assert re.fullmatch(NAME, name), line
            assert about, line
            assert name not in found, f"{name} comes twice"
        elif line.startswith("# TYPE "):
            of, kind = line.removeprefix("# TYPE ").split(" ")
            assert of == name, line
            assert kind in ("counter", "gauge", "histogram"), line
            assert kind != "counter" or name.endswith("_total"), f"{name} is a counter"
            assert kind == "counter" or not name.endswith("_total"), f"{name} is no counter"
            found[name] = Read(kind, about, {})
        else:
            _take(line, name, found[name])
    for name, family in found.items():
        if family.kind == "histogram":
            _check_histogram(name, family)
    return found


def _take(line: str, name: str, family: Read) -> None:
    match = SAMPLE.fullmatch(line)
    assert match is not None, f"no sample: {line}"
    full, inside, number = match.groups()
    suffix = full.removeprefix(name)
    assert full.startswith(name), line
    assert suffix in (("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",)), line
    labels = tuple(_label(text) for text in re.findall(LABEL, inside or ""))
    assert len({label for label, _ in labels}) == len(labels), line
    assert (suffix, labels) not in family.samples, f"twice: {line}"
    value = float(number)
    assert value >= 0 or family.kind == "gauge", line
    family.samples[suffix, labels] = value


def _label(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    unescaped = re.sub(r'\\(\\|"|n)', lambda m: "\n" if m[1] == "n" else m[1], value[1:-1])
    return name, unescaped


def _check_histogram(name: str, family: Read) -> None:
    series: dict[Labels, list[tuple[float, float]]] = {}
    for (suffix, labels), value in family.samples.items():
        if suffix == "_bucket":
            bound = dict(labels)["le"]
            rest = tuple(label for label in labels if label[0] != "le")
            series.setdefault(rest, []).append((float(bound), value))
    for labels, buckets in series.items():
        bounds, counts = zip(*buckets, strict=True)
        assert list(bounds) == sorted(set(bounds)), f"{name}{labels}: buckets out of order"
        assert list(counts) == sorted(counts), f"{name}{labels}: buckets are not cumulative"
        assert bounds[-1] == float("inf"), f"{name}{labels}: no +Inf"
        assert counts[-1] == family.samples["_count", labels], f"{name}{labels}"
        assert ("_sum", labels) in family.samples, f"{name}{labels}: no sum"
