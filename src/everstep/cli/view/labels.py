"""How tags and attributes look on a terminal."""

from __future__ import annotations

from datetime import datetime

from everstep.cli.view.text import moment, one_line
from everstep.model.commits import AttributeValue
from everstep.results import RunInfo


def tags_said(info: RunInfo) -> str:
    """Write the tags of a run on one line: `team=blue, vip`."""
    pairs = (info.tags or {}).items()
    return one_line(", ".join(f"{name}={value}" if value else name for name, value in pairs))


def attributes_said(info: RunInfo) -> str:
    """Write the attributes of a run on one line: `customer=7, total=12.5`."""
    return one_line(", ".join(f"{name}={_said(value)}" for name, value in (info.attributes or {}).items()))


def _said(value: AttributeValue) -> str:
    if isinstance(value, datetime):
        return moment(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
