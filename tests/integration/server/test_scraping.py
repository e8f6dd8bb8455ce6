"""The port on which a worker tells its metrics."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from everstep import AsyncHost
from everstep.cli.commands.fleet.metrics import scrapes_listener
from everstep.errors import BadRequest
from everstep.server.scraping import Scrapes, place_of, scraped
from everstep.server.serving import address_of, listen

TOKEN = "a-token-for-the-tests"


@contextmanager
def scraping(*, token: str | None = None, stopping: threading.Event | None = None) -> Iterator[httpx.Client]:
    """Answer for a host in memory, and give a client."""
    host = AsyncHost("memory:", metrics=True)
    stopped = stopping or threading.Event()
    listener = listen("127.0.0.1", 0, has_token=token is not None)
    app = Scrapes(host, token=token, is_stopping=stopped.is_set)
    client = httpx.Client(base_url=address_of(listener), timeout=5)
    with listener, scraped(app, listener), client:
        yield client


def test_it_tells_metrics_to_this_machine_without_a_token() -> None:
    with scraping() as client:
        answer = client.get("/metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert "everstep_store_up 1" in answer.text.splitlines()
        assert client.head("/metrics").content == b""


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}])
def test_a_web_page_elsewhere_reads_nothing(headers: dict[str, str]) -> None:
    with scraping() as client:
        assert client.get("/metrics", headers=headers).status_code == 403


@pytest.mark.parametrize("given", [None, "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x"])
def test_with_a_token_it_tells_nothing_without_it(given: str | None) -> None:
    with scraping(token=TOKEN) as client:
        headers = {"Authorization": given} if given is not None else {}
        answer = client.get("/metrics", headers=headers)
        assert answer.status_code == 401
        assert "everstep_store_up" not in answer.text
        assert TOKEN not in answer.text
        assert client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_whether_it_lives_and_works_is_told_to_all() -> None:
    stopping = threading.Event()
    with scraping(token=TOKEN, stopping=stopping) as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        assert client.get("/readyz").json() == {"status": "ready", "reason": None}
        stopping.set()
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["reason"]) == (503, "stopping")
        assert client.get("/healthz").status_code == 200


def test_it_has_nothing_else() -> None:
    with scraping() as client:
        assert client.get("/runs").status_code == 404
        assert client.post("/metrics").status_code == 405


@pytest.mark.parametrize(
    ("text", "place"),
    [("9464", ("127.0.0.1", 9464)), ("0.0.0.0:1", ("0.0.0.0", 1)), ("[::1]:9464", ("::1", 9464))],
)
def test_where_it_is_to_listen_is_read(text: str, place: tuple[str, int]) -> None:
    assert place_of(text) == place


@pytest.mark.parametrize("text", ["", "x", "1:", "localhost", "70000", "[::1:9464", "-1"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="not \\[HOST:\\]PORT"):
        place_of(text)


def test_other_machines_reach_it_only_with_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVERSTEP_HTTP_TOKEN", raising=False)
    with pytest.raises(BadRequest, match="can be reached from other machines"):
        scrapes_listener("0.0.0.0:0", None)
    monkeypatch.setenv("EVERSTEP_HTTP_TOKEN", "short")
    with pytest.raises(BadRequest, match="16 or more"):
        scrapes_listener("0.0.0.0:0", None)
    with pytest.raises(BadRequest, match="--token-file is for --metrics"):
        scrapes_listener(None, "token")


def test_a_port_that_is_taken_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVERSTEP_HTTP_TOKEN", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadRequest, match=f"cannot listen at 127.0.0.1 port {port}"):
            scrapes_listener(str(port), None)
