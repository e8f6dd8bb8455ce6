"""The OpenAPI document says what the service does, and the service does what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.core.failures import FailureGroup
from schemathesis.openapi.checks import JsonSchemaError, UndefinedStatusCode

from everstep import AsyncHost, Breaker, Flow
from everstep.server.openapi import document
from everstep.server.routes import ENDPOINTS
from tests.integration.server.listening import listening
from tests.integration.server.serving import (
    BEARER,
    TOKEN,
    ask_text,
    expense,
    failing,
    paid,
    plain,
)

EXAMPLES = 10
SEED = 20_260

KNOWN: dict[str, list[str]] = {
    "run_id": ["done", "broken"],
    "wait_id": [],
    "token": [],
    "breaker": ["mail"],
}
"""Things that are there, so that the generated requests meet more than 404."""


async def prepare(host: AsyncHost) -> None:
    await host.run(plain, {"x": 1}, run_id="done")
    await host.run(failing, {"x": 1}, run_id="broken")
    fragile = Flow("fragile", failing.nodes, breakers=[Breaker("mail", failures=1, shared=True)])
    await host.run(fragile, {"x": 1}, run_id="tripped")
    for name in ("done", "broken"):
        await host.fork(name)  # so that they stay there, whoever wants them erased
    for k in range(20):
        flow = (expense, paid, ask_text)[k % 3]
        waiting = (await host.run(flow, {"amount": k} if flow is expense else {})).waits[0]
        KNOWN["wait_id"].append(waiting.id)
        KNOWN["token"].append(waiting.token or "")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with listening(tmp_path_factory.mktemp("api"), prepare) as address:
        yield address


STRICT = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)

WHATEVER_IT_ASKS = ["answer_wait", "answer_by_token", "answer_on_page", "start_run", "resume_run"]
"""What these take depends on the wait or the flow, which no schema can say; so 400 and 422 are answers."""


def loaded(mode: str) -> schemathesis.BaseSchema:
    expected = {"expected-statuses": ["2xx", "400", "401", "404", "409", "422"]}
    operations = [
        {"include-operation-id": name, "checks": {"positive_data_acceptance": expected}}
        for name in WHATEVER_IT_ASKS
    ]
    auth = {"openapi": {"bearer": {"bearer": TOKEN}}}
    config = {"seed": SEED, "generation": {"mode": mode}, "auth": auth, "operations": operations}
    api = document(ENDPOINTS, base_url="", has_token=True)
    return schemathesis.openapi.from_dict(api, config=schemathesis.Config.from_dict(config))


anything = loaded("all")
sensible = loaded("positive")


@sensible.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any]:
    """Let most requests be for something that is there."""
    return {name: _known(name, value) for name, value in (path_parameters or {}).items()}


def _known(name: str, value: Any) -> Any:
    number = sum(map(ord, str(value)))
    return KNOWN[name][number % len(KNOWN[name])] if number % 4 else value


@anything.parametrize()
@STRICT
def test_anything_sent_is_answered_as_documented(case: schemathesis.Case[Any], address: str) -> None:
    case.call_and_validate(base_url=address, timeout=10)


@sensible.parametrize()
@STRICT
def test_what_is_there_is_answered_as_documented(case: schemathesis.Case[Any], address: str) -> None:
    case.call_and_validate(base_url=address, timeout=10)


def test_an_answer_that_is_not_documented_is_found(address: str) -> None:
    api = document(ENDPOINTS, base_url="", has_token=True)
    del api["paths"]["/runs/{run_id}"]["get"]["responses"]["404"]
    lacking = schemathesis.openapi.from_dict(api)
    case = lacking["/runs/{run_id}"]["GET"].Case(path_parameters={"run_id": "nope"})
    with pytest.raises(FailureGroup) as found:
        case.call_and_validate(base_url=address, headers=BEARER, timeout=10)
    assert [type(error) for error in found.value.exceptions] == [UndefinedStatusCode]


def test_an_answer_with_a_field_too_many_is_found(address: str) -> None:
    api = json.loads(json.dumps(document(ENDPOINTS, base_url="", has_token=True)))
    del api["components"]["schemas"]["ShownRun"]["properties"]["is_driven"]
    api["components"]["schemas"]["ShownRun"]["required"].remove("is_driven")
    lacking = schemathesis.openapi.from_dict(api)
    case = lacking["/runs/{run_id}"]["GET"].Case(path_parameters={"run_id": "done"})
    with pytest.raises(FailureGroup) as found:
        case.call_and_validate(base_url=address, headers=BEARER, timeout=10)
    assert {type(error) for error in found.value.exceptions} == {JsonSchemaError}


def test_every_public_endpoint_is_in_the_document_and_no_private_one() -> None:
    api = document(ENDPOINTS, base_url="https://flows.example", has_token=True)
    listed = {(m.upper(), path) for path, methods in api["paths"].items() for m in methods}
    assert listed == {(e.method, e.path) for e in ENDPOINTS if e.is_public}
    assert [(e.method, e.path) for e in ENDPOINTS if not e.is_public] == [("POST", "/resume")]
    assert api["servers"] == [{"url": "https://flows.example"}]


def test_operations_have_names_of_their_own() -> None:
    assert len({e.name for e in ENDPOINTS}) == len(ENDPOINTS)


def test_every_schema_is_used_and_every_use_has_one() -> None:
    api = document(ENDPOINTS, base_url="", has_token=True)
    used = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(api)))
    assert used == api["components"]["schemas"].keys()
