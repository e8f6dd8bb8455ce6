"""A model behind HTTP: a real server that answers, refuses, dawdles, hangs up and talks nonsense."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import pytest

from everstep import Flow, Host
from everstep.backends import Http
from everstep.errors import BadRequest
from everstep.frontends.pipelines.outcome import Outcome, StageStatus
from everstep.frontends.pipelines.stage import Stage
from everstep.graph.author.context import Context
from everstep.testing import ManualClock
from tests.architecture.sources import PACKAGE

KEY = "sk-hush-hush"
Reply = Callable[[BaseHTTPRequestHandler], None]


class Endpoint(ThreadingHTTPServer):
    """A server that keeps what it gets and replies as it is told."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reply: Reply = answers(completion("Done."))
        self.got: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.got.append((self.path, headers, json.loads(body)))
        self.server.reply(self)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def completion(text: Any, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"model": "m-1", "choices": [{**choice, **more.pop("choice", {})}], **more}


def answers(body: Any, status: int = 200, **headers: str) -> Reply:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"content-length": str(len(data)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    return reply


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


def ask(backend: Http, **fields: Any) -> Outcome:
    return asyncio.run(backend(Stage(**{"node": "plan", "kind": "task", "prompt": "Plan it.", **fields})))


def failed(outcome: Outcome, *, retryable: bool) -> str:
    assert outcome.status is StageStatus.FAIL
    assert outcome.error is not None and outcome.error.retryable is retryable
    assert KEY not in str(outcome)
    return outcome.failure_reason


def test_prompt_goes_out_with_key_model_and_settings(endpoint: Endpoint) -> None:
    outcome = ask(
        Http(endpoint.url, model="other"),
        tell=lambda: "Before, we met.",
        idempotency_key="k-1",
        model={"llm_model": "m-1", "temperature": "0.5", "max_tokens": 100, "reasoning_effort": "low"},
    )
    assert (outcome.status, outcome.response) == (StageStatus.SUCCESS, "Done.")
    [(path, headers, body)] = endpoint.got
    assert path == "/v1/chat/completions"
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["idempotency-key"] == "k-1"
    assert body == {
        "model": "m-1",
        "messages": [
            {"role": "system", "content": "Before, we met."},
            {"role": "user", "content": "Plan it."},
        ],
        "temperature": 0.5,
        "max_tokens": 100,
        "reasoning_effort": "low",
    }


def test_node_without_settings_uses_the_given_model_and_says_no_more(endpoint: Endpoint) -> None:
    ask(Http(endpoint.url + "/", model="m-2"))
    assert endpoint.got[0][2] == {"model": "m-2", "messages": [{"role": "user", "content": "Plan it."}]}


def test_without_a_key_none_is_sent(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(Http(endpoint.url, model="m", api_key_env=None))
    monkeypatch.delenv("OPENAI_API_KEY")
    ask(Http(endpoint.url, model="m"))
    assert ["authorization" in headers for _, headers, _ in endpoint.got] == [False, False]


@pytest.mark.parametrize(
    ("model", "why"),
    [({}, "no model is named"), ({"llm_model": "m", "temperature": "warm"}, "temperature is 'warm'")],
)
def test_what_cannot_be_asked_for_is_not_sent(endpoint: Endpoint, model: dict[str, Any], why: str) -> None:
    assert why in failed(ask(Http(endpoint.url), model=model), retryable=False)
    assert endpoint.got == []


class Purse(Context):
    """A context that counts what is spent."""

    def __init__(self) -> None:
        super().__init__("A17", "plan", 1, 1, "k")
        self.spent: list[Any] = []

    def spend(self, **amounts: Any) -> Any:
        self.spent.append(amounts)


@pytest.mark.parametrize(
    "usage", [{"total_tokens": 12, "details": {"x": 1}}, {"prompt_tokens": 10, "completion_tokens": 2}]
)
def test_tokens_are_spent(endpoint: Endpoint, usage: dict[str, Any]) -> None:
    endpoint.reply = answers(completion("Done.", usage=usage))
    purse = Purse()
    outcome = ask(Http(endpoint.url, model="m"), ctx=purse)
    assert purse.spent == [{"tokens": 12}]
    assert 12 in outcome.metadata["usage"].values() or outcome.metadata["usage"] == usage


def test_tokens_of_an_answer_that_is_no_use_are_spent_too(endpoint: Endpoint) -> None:
    endpoint.reply = answers({"usage": {"total_tokens": 7}})
    purse = Purse()
    failed(ask(Http(endpoint.url, model="m"), ctx=purse), retryable=True)
    assert purse.spent == [{"tokens": 7}]


def test_text_in_parts_is_put_together(endpoint: Endpoint) -> None:
    endpoint.reply = answers(completion([{"type": "text", "text": "Do"}, {"type": "text", "text": "ne."}]))
    assert ask(Http(endpoint.url, model="m")).response == "Done."


def test_half_a_character_is_replaced_so_that_the_answer_can_be_kept(endpoint: Endpoint) -> None:
    endpoint.reply = answers(b'{"choices": [{"message": {"content": "a\\ud800b"}}], "model": "\\udfff"}')
    outcome = ask(Http(endpoint.url, model="m"))
    assert (outcome.response, outcome.metadata["model"]) == ("a?b", "?")


def test_answer_that_was_cut_says_so(endpoint: Endpoint) -> None:
    endpoint.reply = answers(completion("Do", choice={"finish_reason": "length"}))
    outcome = ask(Http(endpoint.url, model="m"))
    assert (outcome.response, outcome.notes) == ("Do", "The answer was cut at max_tokens.")


@pytest.mark.parametrize("status", [408, 429, 500, 503, 529])
def test_busy_endpoint_may_be_asked_again_when_it_says(endpoint: Endpoint, status: int) -> None:
    endpoint.reply = answers({"error": {"message": f"slow down, {KEY}"}}, status, retry_after="7")
    outcome = ask(Http(endpoint.url, model="m"))
    assert failed(outcome, retryable=True).endswith(f"answered {status}: slow down, ***")
    assert outcome.error is not None and dict(outcome.error.details) == {"status": status, "retry_after": 7.0}


def test_busy_endpoint_is_waited_for_as_long_as_it_says(endpoint: Endpoint) -> None:
    replies = [answers(b"", 429, retry_after="30"), answers(b"", 503), answers(completion("Done."))]
    endpoint.reply = lambda handler: replies.pop(0)(handler)
    text = """digraph g { start [shape=Mdiamond]; exit [shape=Msquare]
      ask [prompt="Well?", max_retries=3]; start -> ask -> exit }"""
    clock = ManualClock(auto=True)
    with Host("memory:", clock=clock) as host:
        result = host.run(Flow.from_dot(text, backend=Http(endpoint.url, model="m")), run_id="A17")
        assert (result.status, len(endpoint.got)) == ("completed", 3)
        steps = [step for record in host.history("A17") for step in record.steps if step.retry_at]
    pauses = [(s.retry_at - s.ended_at).total_seconds() for s in steps if s.retry_at and s.ended_at]
    assert pauses[0] == 30.0 and pauses[1] < 10


@pytest.mark.parametrize("said", ["Fri, 31 Dec 1999 23:59:59 GMT", "-1", "nan", "1e99"])
def test_odd_time_to_wait_is_no_time(endpoint: Endpoint, said: str) -> None:
    endpoint.reply = answers(b"", 429, retry_after=said)
    outcome = ask(Http(endpoint.url, model="m"))
    assert outcome.error is not None and dict(outcome.error.details) == {"status": 429}


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 302])
def test_refusal_is_for_good(endpoint: Endpoint, status: int) -> None:
    endpoint.reply = answers({"error": "no"}, status, location=f"{endpoint.url}/elsewhere")
    assert f"answered {status}: no" in failed(ask(Http(endpoint.url, model="m")), retryable=False)
    assert len(endpoint.got) == 1, "the key went elsewhere"


def test_missing_key_is_named_when_one_is_wanted(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    endpoint.reply = answers({"error": {"message": "who are you?"}}, 401)
    assert "(OPENAI_API_KEY is not set)" in failed(ask(Http(endpoint.url, model="m")), retryable=False)


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[" * 100_000, b"null", b"{}", b'{"choices": []}', b'{"choices": [{"message": 3}]}'],
)
def test_garbage_may_be_asked_again(endpoint: Endpoint, body: bytes) -> None:
    endpoint.reply = answers(body)
    assert failed(ask(Http(endpoint.url, model="m")), retryable=True).endswith("what is no completion.")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (completion(None, choice={"message": {"content": None, "refusal": "I will not."}}), "I will not."),
        (completion(None, choice={"finish_reason": "tool_calls"}), "(tool_calls)"),
        (completion("half", choice={"finish_reason": "content_filter"}), "(content_filter)"),
    ],
)
def test_model_that_will_not_answer_is_not_asked_again(endpoint: Endpoint, body: Any, why: str) -> None:
    endpoint.reply = answers(body)
    assert why in failed(ask(Http(endpoint.url, model="m")), retryable=False)


def test_answer_above_the_limit_is_not_read_to_its_end(endpoint: Endpoint) -> None:
    sent: list[int] = []

    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while len(sent) < 5_000:
            handler.wfile.write(b"x" * 65536)
            sent.append(1)

    endpoint.reply = endless
    why = failed(ask(Http(endpoint.url, model="m", response_limit=100_000)), retryable=False)
    assert why.endswith("answered with more than 100000 bytes.")
    assert len(sent) < 1_000


def test_small_body_that_unpacks_to_a_large_one_is_not_read_to_its_end(endpoint: Endpoint) -> None:
    endpoint.reply = answers(gzip.compress(b"x" * 20_000_000), content_encoding="gzip")
    why = failed(ask(Http(endpoint.url, model="m", response_limit=100_000)), retryable=False)
    assert why.endswith("answered with more than 100000 bytes.")


@pytest.mark.parametrize("begins", [False, True])
def test_slow_endpoint_may_be_asked_again(endpoint: Endpoint, begins: bool) -> None:
    def dawdle(handler: BaseHTTPRequestHandler) -> None:
        if begins:
            handler.send_response(200)
            handler.end_headers()
            while not endpoint.over.wait(0.02):
                handler.wfile.write(b" ")
        endpoint.over.wait(10)

    endpoint.reply = dawdle
    outcome = ask(Http(endpoint.url, model="m", timeout=60), timeout=0.2)
    assert failed(outcome, retryable=True).endswith("took longer than 0.2 s.")
    assert outcome.error is not None and outcome.error.type == "Timeout"


@pytest.mark.parametrize("sent", [0, 100])
def test_endpoint_that_hangs_up_may_be_asked_again(endpoint: Endpoint, sent: int) -> None:
    def hang_up(handler: BaseHTTPRequestHandler) -> None:
        if sent:
            handler.send_response(200)
            handler.send_header("Content-Length", "100000")
            handler.end_headers()
            handler.wfile.write(b"{" * sent)
        handler.wfile.flush()
        handler.connection.close()

    endpoint.reply = hang_up
    assert "could not be asked" in failed(ask(Http(endpoint.url, model="m")), retryable=True)


def test_endpoint_that_is_not_there_may_be_asked_again(endpoint: Endpoint) -> None:
    with Endpoint() as gone:
        url = gone.url
    assert "could not be asked" in failed(ask(Http(url, model="m")), retryable=True)


@pytest.mark.parametrize(
    "url", ["http://models.example.com/v1", "http://10.0.0.1", "http://127.0.0.1.example.com"]
)
def test_key_is_not_sent_in_the_clear_to_other_machines(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert "would be sent in the clear" in failed(ask(Http(url, model="m")), retryable=False)


@pytest.mark.parametrize("key", ["sk\nX-Evil: 1", "schlüssel"])
def test_key_that_cannot_be_one_is_not_sent(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    outcome = ask(Http(endpoint.url, model="m"))
    assert outcome.failure_reason == "OPENAI_API_KEY holds what cannot be a key."
    assert endpoint.got == []


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://x/v1",
        "api.openai.com",
        "http://",
        "https://me:pw@x/v1",
        "https://x/v1?key=1",
        "http://x:99999999",
        3,
    ],
)
def test_address_that_is_none_or_holds_a_secret_is_refused(url: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        Http(url)
    assert "pw" not in str(caught.value)


def test_everstep_comes_without_the_library_until_it_is_asked_for() -> None:
    code = """
import sys
sys.modules["httpx2"] = None
import everstep
try:
    everstep.backends.Http("https://x")
except everstep.EverstepError as error:
    print(error)
try:
    everstep.backends.Htpp
except AttributeError as error:
    print(error)
"""
    env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert "Http needs httpx2. Install it with: pip install 'everstep[http]'" in done.stdout
    assert "has no attribute 'Htpp'" in done.stdout


def test_key_is_in_no_log_and_no_name(endpoint: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    backend = Http(endpoint.url, model="m", headers={"X-Org": KEY})
    with caplog.at_level(logging.DEBUG):
        ask(backend)
    assert KEY not in caplog.text
    assert repr(backend) == f"Http({endpoint.url}/chat/completions, model=m)"


def test_prompt_of_ten_megabytes_arrives(endpoint: Endpoint) -> None:
    ask(Http(endpoint.url, model="m"), prompt="x" * 10_000_000)
    assert len(cast(str, endpoint.got[0][2]["messages"][0]["content"])) == 10_000_000
