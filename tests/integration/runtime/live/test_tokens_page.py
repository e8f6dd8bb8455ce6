"""The example of a page that shows tokens as they come."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from examples.tokens_page import ANSWER, app

pytestmark = pytest.mark.stores("sqlite")


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("EVERSTEP_STORE", f"sqlite:///{tmp_path}/runs.db")
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join(30)
    listening.close()


def frames(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    frame: dict[str, Any] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            frame[name] = json.loads(value) if name == "data" else value
        elif frame:
            yield frame
            frame = {}


def test_tokens_come_to_the_page_one_by_one_and_a_lost_line_goes_on_where_it_was(address: str) -> None:
    with httpx.Client(base_url=address, timeout=30) as client:
        assert "EventSource" in client.get("/").text
        run_id = client.post("/ask", params={"question": "What is a run?"}).json()["run_id"]
        seen: list[str] = []
        began, last = time.monotonic(), ""
        with client.stream("GET", f"/runs/{run_id}") as response:
            for frame in frames(response.iter_lines()):
                last = frame["id"]
                seen.append(frame["data"]["text"])
                if len(seen) == 3:
                    break
        first_three = time.monotonic() - began
        with client.stream("GET", f"/runs/{run_id}", headers={"Last-Event-ID": last}) as response:
            *tokens, end = frames(response.iter_lines())
        seen += [frame["data"]["text"] for frame in tokens]
        assert end["event"] == "end"
        assert end["data"]["answer"] == ANSWER
        assert "".join(seen).strip() == ANSWER, "each once, in order"
        assert first_three < time.monotonic() - began, "they came before the end"


def test_the_page_of_a_run_that_is_not_there_is_not_found(address: str) -> None:
    missing = httpx.get(f"{address}/runs/nope", timeout=30)
    assert missing.status_code == 404
    assert "there is no run 'nope'" in missing.json()["detail"]
