"""The page about HTTP lists what the service has."""

from __future__ import annotations

import re

from everstep.server.metrics import Metrics
from everstep.server.openapi import MEANINGS
from everstep.server.routes import ENDPOINTS
from tests.architecture.sources import ROOT

PAGE = (ROOT / "docs/reference/http.md").read_text(encoding="utf-8")


def test_every_endpoint_is_listed_with_who_may_call_it() -> None:
    rows = re.findall(r"^\| ([A-Z]+) \| `([^`]+)` \| (\w+) \| (\w*) ?\|", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted((e.method, e.path, e.guard.value, e.role or "") for e in ENDPOINTS)


def test_every_parameter_is_shown() -> None:
    for endpoint in ENDPOINTS:
        [row] = re.findall(
            rf"^\| {endpoint.method} \| `{re.escape(endpoint.path)}` \|.*$", PAGE, re.MULTILINE
        )
        section = PAGE.split("## Events")[1] if endpoint.path.endswith("/events") else row
        missing = [q.name for q in endpoint.query if f"{q.name}=" not in section and q.name != "limit"]
        assert missing == [], endpoint.path


def test_every_status_of_an_error_is_explained() -> None:
    rows = {int(status) for status in re.findall(r"^\| (\d{3}) \|", PAGE, re.MULTILINE)}
    assert rows == {*MEANINGS, 405}


def test_every_metric_is_named() -> None:
    assert {f"`{family.name}`" in PAGE for family in Metrics().families()} == {True}
