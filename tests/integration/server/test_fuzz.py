"""Whatever is sent to the ways in that take answers: no token is used up by nonsense, and nothing breaks."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everstep import Flow
from everstep.client.views import WaitInfo
from tests.integration.server.serving import (
    BEARER,
    NO_SUCH_TOKEN,
    NO_SUCH_WAIT,
    Serving,
    ask_choice,
    ask_number,
    expense,
    paid,
    serving,
)

SEEDED = settings(
    max_examples=1000 if os.environ.get("EVERSTEP_SOAK") == "1" else 30,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([0, -1, 2**63, 2**64, -(2**63) - 1, 10**30])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(
        ["true", "yes", "red", "blue ", "\\x00", "et_", NO_SUCH_TOKEN, NO_SUCH_WAIT, "../w", "1e400"]
    )
)
names = st.sampled_from(["approved", "approver", "comment", "answer", "token", "option", "$ref"]) | st.text()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
raw = st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass"))
mangled = st.builds(
    lambda value, cut, junk: json.dumps(value).encode()[: cut or None] + junk,
    values,
    st.integers(-3, 3),
    st.binary(max_size=3),
)


class Loop:
    """A service that lives through all examples of a test, and waits that nothing may settle."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self.s: Serving = self._runner.run(self._open())
        self.waits: list[WaitInfo] = [
            self.halted(expense, amount=1),
            self.halted(ask_number),
            self.halted(ask_choice),
        ]

    async def _open(self) -> Serving:
        return await self._stack.enter_async_context(serving(headers={}))

    def halted(self, flow: Flow, **inputs: Any) -> WaitInfo:
        return self._runner.run(self.s.halted(flow, **inputs))

    def wait(self, wait_id: str) -> WaitInfo:
        return self._runner.run(self.s.host.wait(wait_id))

    def post(self, path: str, content: bytes, **options: Any) -> httpx.Response:
        return self._runner.run(self.s.client.post(path, content=content, **options))

    def are_open(self) -> bool:
        return all(self._runner.run(self.s.is_open(waiting)) for waiting in self.waits)

    def close(self) -> None:
        self._runner.run(self._stack.aclose())
        self._runner.close()


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    opened = Loop()
    yield opened
    opened.close()


def is_answer(waiting: WaitInfo, value: Any) -> bool:
    """Say whether a wait really asks for this, so that it may be settled by it."""
    if isinstance(value, dict) and value.keys() == {"answer"} and waiting.kind != "approval":
        value = value["answer"]
    if waiting.kind == "approval":
        return isinstance(value, dict) and isinstance(value.get("approved"), bool)
    if waiting.kind == "choice":
        return value in ("red", "blue")
    return isinstance(value, int | float) and not isinstance(value, bool)


def body_of(value: Any) -> bytes:
    return json.dumps(value).encode()


@SEEDED
@given(value=values, k=st.integers(0, 2))
def test_an_answer_of_another_shape_uses_no_token_up(loop: Loop, value: Any, k: int) -> None:
    waiting = loop.waits[k]
    if is_answer(waiting, value):
        return
    sent = [
        loop.post(f"/answers/{waiting.token}", body_of(value)),
        loop.post("/resume", body_of({"token": waiting.token, "answer": value}), headers=BEARER),
        loop.post("/resume", body_of({"wait_id": waiting.id, "answer": value}), headers=BEARER),
        loop.post(f"/waits/{waiting.id}/answer", body_of(value), headers=BEARER),
    ]
    assert {response.status_code for response in sent} == {400}
    assert loop.are_open()


@SEEDED
@given(body=raw | mangled, k=st.integers(0, 2))
def test_bytes_that_mean_nothing_use_no_token_up(loop: Loop, body: bytes, k: int) -> None:
    waiting = loop.waits[k]
    try:
        if is_answer(waiting, json.loads(body)):
            return
    except (ValueError, RecursionError):
        pass
    for path in (f"/answers/{waiting.token}", f"/waits/{waiting.id}/answer", "/resume"):
        assert loop.post(path, body, headers=BEARER).status_code == 400
    assert loop.are_open()


@SEEDED
@given(
    message=st.dictionaries(
        st.sampled_from(["checkpoint_id", "run_id", "token", "wait_id", "answer"]) | st.text(max_size=5),
        values,
        max_size=4,
    )
)
def test_a_message_of_any_shape_is_refused_by_name(loop: Loop, message: dict[str, Any]) -> None:
    response = loop.post("/resume", body_of(message), headers=BEARER)
    assert response.status_code in (400, 401, 404)
    assert response.json()["code"]
    assert loop.are_open()


@SEEDED
@given(
    form=st.dictionaries(
        st.sampled_from(["approver", "comment", "option", "answer"]) | st.text(max_size=5),
        st.text(max_size=20) | st.sampled_from(["true ", "True", "2", "-1", "١", "{", "NaN", "[1]", "null"]),
        max_size=4,
    ),
    k=st.integers(0, 2),
)
def test_a_form_that_is_not_filled_in_uses_no_token_up(loop: Loop, form: dict[str, str], k: int) -> None:
    waiting = loop.waits[k]
    if waiting.kind == "choice" and form.get("option") in ("0", "1"):
        return
    if waiting.kind == "text" and form.get("answer", "").strip().lstrip("-").isdecimal():
        return
    if form.get("approved") in ("true", "false"):
        return
    body = urlencode(form, errors="surrogatepass").encode()
    assert loop.post(f"/w/{waiting.token}", body).status_code == 400
    assert loop.are_open()


@SEEDED
@given(body=raw, k=st.integers(0, 2))
def test_a_page_sent_any_bytes_answers_with_a_page(loop: Loop, body: bytes, k: int) -> None:
    response = loop.post(f"/w/{loop.waits[k].token}", body)
    assert response.status_code == 400
    assert response.text.startswith("<!doctype html>")
    assert loop.are_open()


@SEEDED
@given(
    token=st.text(
        alphabet=st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1, max_size=60
    )
)
def test_a_token_that_was_never_given_out_opens_nothing(loop: Loop, token: str) -> None:
    response = loop.post(f"/answers/{quote(token, safe='')}", b'{"approved": true}')
    assert response.status_code in (401, 404, 405)
    assert loop.are_open()


@SEEDED
@given(value=values)
def test_a_callback_takes_any_json_and_keeps_it_as_it_was(loop: Loop, value: Any) -> None:
    waiting = loop.halted(paid)
    assert loop.post(f"/answers/{waiting.token}", body_of(value)).status_code == 200
    kept = loop.wait(waiting.id).answer
    assert json.dumps(kept, sort_keys=True) == json.dumps(value, sort_keys=True)
