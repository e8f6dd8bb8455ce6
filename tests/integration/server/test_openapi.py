"""The OpenAPI document says what the service does, and the service does what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from everstep import AsyncHost, Breaker, Flow
from everstep.server.openapi import document
from everstep.server.routes import ENDPOINTS
from tests.integration.server.listening import listening
from tests.integration.server.serving import ask_text, expense, failing, paid, plain

OPERATIONS = [(endpoint.method, endpoint.path) for endpoint in ENDPOINTS if endpoint.is_public]


@pytest.fixture(scope="module")
def requests() -> Any:
    """The module that makes requests, imported as late as this."""
    return import_module("tests.integration.server.openapi_requests")


@pytest.fixture(scope="module")
def address(requests: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    async def prepare(host: AsyncHost) -> None:
        await host.run(plain, {"x": 1}, run_id="done")
        await host.run(failing, {"x": 1}, run_id="broken")
        fragile = Flow("fragile", failing.nodes, breakers=[Breaker("mail", failures=1, shared=True)])
        await host.run(fragile, {"x": 1}, run_id="tripped")
        await host.run(Flow("telling", failing.nodes, notify="ops"), {"x": 1}, run_id="telling")
        [notice] = await host.notices.find()
        requests.KNOWN["notice_id"].append(notice.id)
        await host.schedules.create(plain, "nightly", every="1h", inputs={"x": 1})
        for name in ("done", "broken"):
            await host.fork(name)  # so that they stay there, whatever is erased
        for k in range(20):
            flow = (expense, paid, ask_text)[k % 3]
            waiting = (await host.run(flow, {"amount": k} if flow is expense else {})).waits[0]
            requests.KNOWN["wait_id"].append(waiting.id)
            requests.KNOWN["token"].append(waiting.token or "")

    with listening(tmp_path_factory.mktemp("api"), prepare) as address:
        yield address


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_anything_sent_is_answered_as_documented(requests: Any, address: str, method: str, path: str) -> None:
    requests.check("all", method, path, address)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_what_is_there_is_answered_as_documented(requests: Any, address: str, method: str, path: str) -> None:
    requests.check("positive", method, path, address)


def test_an_answer_that_is_not_documented_is_found(requests: Any, address: str) -> None:
    api = document(ENDPOINTS, base_url="", has_token=True)
    del api["paths"]["/runs/{run_id}"]["get"]["responses"]["404"]
    assert requests.faults(api, "nope", address) == {"UndefinedStatusCode"}


def test_an_answer_with_a_field_too_many_is_found(requests: Any, address: str) -> None:
    api = json.loads(json.dumps(document(ENDPOINTS, base_url="", has_token=True)))
    del api["components"]["schemas"]["ShownRun"]["properties"]["is_driven"]
    api["components"]["schemas"]["ShownRun"]["required"].remove("is_driven")
    assert requests.faults(api, "done", address) == {"JsonSchemaError"}


def test_every_public_endpoint_is_in_the_document_and_no_private_one() -> None:
    api = document(ENDPOINTS, base_url="https://flows.example", has_token=True)
    listed = {(m.upper(), path) for path, methods in api["paths"].items() for m in methods}
    assert listed == {(e.method, e.path) for e in ENDPOINTS if e.is_public}
    private = [(e.method, e.path) for e in ENDPOINTS if not e.is_public]
    assert [one for one in private if one[1] != "/" and "/ui/" not in one[1]] == [("POST", "/resume")]
    assert api["servers"] == [{"url": "https://flows.example"}]


def test_operations_have_names_of_their_own() -> None:
    assert len({e.name for e in ENDPOINTS}) == len(ENDPOINTS)


def test_every_schema_is_used_and_every_use_has_one() -> None:
    api = document(ENDPOINTS, base_url="", has_token=True)
    used = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(api)))
    assert used == api["components"]["schemas"].keys()
