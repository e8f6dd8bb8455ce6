"""Requests that schemathesis makes of the OpenAPI document, and what it finds wrong with their answers.

A module of its own, which tests import when they run: schemathesis takes seconds to load and to think of
requests, and every process of a test run collects the tests.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import load_all_checks
from schemathesis.core.failures import FailureGroup
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.python._constants.orchestrator import make_constants_value_source

from everstep.server.openapi import document
from everstep.server.routes import ENDPOINTS
from tests.integration.server.serving import BEARER, TOKEN

EXAMPLES = 100 if os.environ.get("EVERSTEP_SOAK") == "1" else 4
SEED = 20_260

PATIENCE = {"/changes": 0.5}
"""Seconds for a stream that ends only with its reader, as far as it is read."""

KNOWN: dict[str, list[str]] = {
    "run_id": ["done", "broken", "nightly"],
    "wait_id": [],
    "token": [],
    "notice_id": [],
    "breaker": ["mail"],
    "event": ["paid"],
    "address": ["add", "explode"],
    "flow": ["plain", "asking"],
}
"""Things that are there, so that the generated requests meet more than 404."""

STRICT = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)

WHATEVER_IT_ASKS = [
    "answer_wait",
    "answer_by_token",
    "answer_on_page",
    "start_run",
    "resume_run",
    "show_state",
    "list_edges",
    "list_runs",
    "bulk",
    "count_runs",
    "durations",
    "bulk",
    "tag_run",
    "pause_flow",
    "unpause_flow",
    "bulk",
    "read_audit",
    "bulk",
    "fork_run",
    "settle_effect",
    "undo_run",
    "fire_wait",
    "compare_runs",
    "show_step",
    "list_checkpoints",
    "list_values",
    "fetch_value",
    "create_schedule",
    "change_schedule",
    "backfill_schedule",
]
"""What these take depends on the wait, the flow, how the run stands or, for a checkpoint given twice, another
parameter, or is a language, a time or a label, which no schema can say; so 400 and 422 are answers."""


@cache
def loaded(mode: str) -> tuple[schemathesis.BaseSchema, FeedbackSources]:
    expected = {"expected-statuses": ["2xx", "400", "401", "404", "409", "422"]}
    operations = [
        {"include-operation-id": name, "checks": {"positive_data_acceptance": expected}}
        for name in WHATEVER_IT_ASKS
    ]
    auth = {"openapi": {"bearer": {"bearer": TOKEN}}}
    config = {"seed": SEED, "generation": {"mode": mode}, "auth": auth, "operations": operations}
    api = document(ENDPOINTS, base_url="", has_token=True)
    schema = schemathesis.openapi.from_dict(api, config=schemathesis.Config.from_dict(config))
    if mode == "positive":
        schema.hook(map_path_parameters)
    load_all_checks()
    return schema, FeedbackSources(constants_value_source=make_constants_value_source(schema))


def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any]:
    """Let most requests be for something that is there."""
    return {name: _known(name, value) for name, value in (path_parameters or {}).items()}


def _known(name: str, value: Any) -> Any:
    number = sum(map(ord, str(value)))
    return KNOWN[name][number % len(KNOWN[name])] if number % 4 else value


@STRICT
def answered_as_documented(case: schemathesis.Case[Any], address: str) -> None:
    case.call_and_validate(base_url=address, timeout=PATIENCE.get(case.path, 10))


def check(mode: str, method: str, path: str, address: str) -> None:
    """Send requests for an endpoint, sensible ones (`positive`) or `all`; raise for a wrong answer."""
    schema, feedback = loaded(mode)
    ask = build_operation_test(
        config=schema.config,
        operation=schema[path][method],
        test_func=answered_as_documented,
        given_kwargs={},
        feedback=feedback,
    )
    ask(address=address)


def faults(api: dict[str, Any], run_id: str, address: str) -> set[str]:
    """Return what is wrong with the answer to a request for one run, if a document is to be believed."""
    lacking = schemathesis.openapi.from_dict(api)
    case = lacking["/runs/{run_id}"]["GET"].Case(path_parameters={"run_id": run_id})
    with pytest.raises(FailureGroup) as found:
        case.call_and_validate(base_url=address, headers=BEARER, timeout=10)
    return {type(error).__name__ for error in found.value.exceptions}
