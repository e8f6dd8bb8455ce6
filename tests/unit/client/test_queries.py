"""A listing is asked for in the same words everywhere."""

from __future__ import annotations

import inspect

import click

from everstep import AsyncHost
from everstep.cli.commands.fleet.audit import audit
from everstep.cli.commands.fleet.durations import durations
from everstep.cli.commands.runs.list import runs
from everstep.cli.commands.waits.notices import notices
from everstep.client.audit import AuditQuery
from everstep.client.groups.fleet import FleetCalls
from everstep.client.groups.notices import NoticeCalls
from everstep.client.queries import DurationsQuery, NoticesQuery, RunConditions, RunsQuery, parameters_of
from everstep.engine.query.tree import ARGUMENTS
from everstep.server.routes import ENDPOINTS

ASKED = {one.name: one.default for one in parameters_of(AuditQuery)}
TIMED = {one.name: one.default for one in parameters_of(DurationsQuery)}
KNOWN = {one.name: one.default for one in parameters_of(RunsQuery)}


def test_python_takes_what_the_query_says() -> None:
    taken = inspect.signature(AsyncHost.runs).parameters
    own = {name: p.default for name, p in taken.items() if name not in ("self", "more")}
    assert own | dict.fromkeys(ARGUMENTS) == KNOWN
    assert list(RunConditions.__annotations__) == list(ARGUMENTS)


def test_a_shell_takes_what_the_query_says() -> None:
    options = {p.name: p for p in runs.params if isinstance(p, click.Option)}
    assert KNOWN.keys() <= options.keys()
    assert [p.help for p in runs.params if isinstance(p, click.Option) and p.name in KNOWN] == [
        one.description for one in parameters_of(RunsQuery)
    ]


def test_http_takes_what_the_query_says() -> None:
    [endpoint] = [e for e in ENDPOINTS if e.name == "list_runs"]
    assert [(q.name, q.description) for q in endpoint.query] == [
        (one.name, one.description) for one in parameters_of(RunsQuery)
    ]


def test_the_audit_log_is_asked_for_in_the_same_words_everywhere() -> None:
    taken = inspect.signature(FleetCalls.audit).parameters
    assert {name: p.default for name, p in taken.items() if name != "self"} == ASKED
    assert {p.name for p in audit.params} >= ASKED.keys() - {"run_id"}
    [endpoint] = [e for e in ENDPOINTS if e.name == "read_audit"]
    assert [(q.name, q.description) for q in endpoint.query] == [
        (one.name, one.description) for one in parameters_of(AuditQuery)
    ]


def test_notices_are_asked_for_in_the_same_words_everywhere() -> None:
    asked = {one.name: one.default for one in parameters_of(NoticesQuery)}
    taken = inspect.signature(NoticeCalls.find).parameters
    assert {name: p.default for name, p in taken.items() if name != "self"} == asked
    assert {p.name for p in notices.params} >= asked.keys() - {"run_id"}
    [endpoint] = [e for e in ENDPOINTS if e.name == "list_notices"]
    assert [(q.name, q.description) for q in endpoint.query] == [
        (one.name, one.description) for one in parameters_of(NoticesQuery)
    ]


def test_durations_are_asked_for_in_the_same_words_everywhere() -> None:
    taken = inspect.signature(FleetCalls.durations).parameters
    assert {name: p.default for name, p in taken.items() if name != "self"} == TIMED
    assert {p.name for p in durations.params} >= TIMED.keys()
    [endpoint] = [e for e in ENDPOINTS if e.name == "durations"]
    assert [q.name for q in endpoint.query] == list(TIMED)
