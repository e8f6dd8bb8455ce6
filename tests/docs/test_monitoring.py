"""The page on monitoring, the alerts and the board name metrics that exist, with labels they have."""

from __future__ import annotations

import json
import re
from importlib import import_module
from typing import Any

import pytest

from everstep.server.metrics import Metrics
from tests.architecture.sources import ROOT

yaml: Any = import_module("yaml")

PAGE = (ROOT / "docs/how-to/monitor.md").read_text(encoding="utf-8")
FOLDER = ROOT / "examples/monitoring"
METRICS: dict[str, dict[str, Any]] = json.loads(
    (ROOT / "tests/golden/metrics/host.json").read_text(encoding="utf-8")
)
HTTP = {
    "everstep_http_requests_total": {"kind": "counter", "labels": ["method", "route", "status"]},
    "everstep_http_request_seconds": {"kind": "histogram", "labels": ["route"]},
    "everstep_tokens_stale": {"kind": "gauge", "labels": []},
}
KNOWN = {**METRICS, **HTTP}
WORDS = {"by", "on", "and", "or", "unless", "without", "ignoring", "group_left", "bool", "offset"}
GIVEN = {"le", "job", "instance"}
"""Labels that Prometheus adds, or histograms have."""


def rules() -> list[dict[str, Any]]:
    said = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))
    return [rule for group in said["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((FOLDER / "grafana.json").read_text(encoding="utf-8"))["panels"]
    return found


def queries() -> list[str]:
    return [rule["expr"] for rule in rules()] + [t["expr"] for panel in panels() for t in panel["targets"]]


def metrics_in(query: str) -> set[str]:
    """Return the metrics that a query reads, without what histograms add to their names."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\bby \([^)]*\)', " ", query)
    names = set(re.findall(r"\b([a-z_]\w*)\b(?!\s*\()", bare)) - WORDS
    return {name if name in KNOWN else re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


def labels_in(query: str) -> set[str]:
    grouped = re.findall(r"\bby \(([^)]*)\)", query)
    matched = re.findall(r'(\w+)(?:=~|!~|!=|=)"', query)
    return {label.strip() for part in grouped for label in part.split(",")} | set(matched)


def test_the_service_has_these_metrics_of_requests() -> None:
    assert {family.name: family.kind for family in Metrics().families()} == {
        name: about["kind"] for name, about in HTTP.items()
    }


def test_every_metric_has_a_row_with_its_kind_and_labels() -> None:
    rows = {
        name: (kind, re.findall(r"`(\w+)`", labels))
        for name, kind, labels in re.findall(
            r"^\| `(\w+)` \| (\w+) \|([^|]*)\| [^|]+ \|$", PAGE, re.MULTILINE
        )
    }
    assert rows == {name: (about["kind"], about["labels"]) for name, about in KNOWN.items()}


@pytest.mark.parametrize("query", queries())
def test_a_query_reads_metrics_that_exist_by_labels_they_have(query: str) -> None:
    assert query.count("(") == query.count(")")
    used = metrics_in(query)
    assert used
    assert used <= KNOWN.keys()
    has = GIVEN.union(*(KNOWN[name]["labels"] for name in used))
    assert labels_in(query) <= has
    for name in used:
        is_rated = re.search(rf"(rate|increase)\({name}", query) is not None
        if KNOWN[name]["kind"] == "histogram":
            assert re.search(rf"{name}_(bucket|sum|count)", query)
        assert not is_rated or KNOWN[name]["kind"] != "gauge", f"{name} goes up and down"


def test_the_board_shows_every_metric() -> None:
    shown = {name for panel in panels() for target in panel["targets"] for name in metrics_in(target["expr"])}
    assert shown == KNOWN.keys()


def test_panels_do_not_lie_on_each_other() -> None:
    cells = [
        (x, y)
        for panel in panels()
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_every_alert_says_what_it_means_and_is_on_the_page() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "warn")
        assert rule["annotations"].keys() == {"summary", "description"}
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))
        assert f"`{rule['alert']}`" in PAGE
