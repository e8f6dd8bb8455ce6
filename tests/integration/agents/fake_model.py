"""A model behind HTTP on this machine, which speaks as OpenAI's chat and responses APIs do; tools, too.

What it says follows from what it is told, so it says the same to a process that was killed and comes again.
The name of the model is its script: `look-10` calls the tool `look` ten times and then says what it saw. The
key of a request is the process that makes it, and a test may have that process killed at a call.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any


@dataclass(frozen=True)
class Made:
    """A call that arrived: `model` or a tool's name, what came before it or its argument, its process."""

    what: str
    about: str
    process: int


@dataclass
class FakeModel:
    """The server, and what it was asked."""

    calls: list[Made] = field(default_factory=list)
    kills: Callable[[Made], bool] = lambda made: False
    """Says at which call its process is killed, before there is an answer."""
    cuts: int = 0
    """How many streams are still to break off after their first words."""
    kills_in_stream: int = 0
    """At how many streams the process is still to be killed after their first words."""
    _lock: Lock = field(default_factory=Lock)
    _server: ThreadingHTTPServer | None = None

    def __enter__(self) -> FakeModel:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def seen(self) -> list[tuple[str, str]]:
        """Return what was called, and about what, in order."""
        return [(made.what, made.about) for made in self.calls]

    def _handler(model) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - `self` is the handler inside
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                process = int(self.headers["Authorization"].removeprefix("Bearer "))
                kind = self.path.removeprefix("/v1/")
                if kind.startswith("tools/"):
                    made = Made(kind.removeprefix("tools/"), json.dumps(told), process)
                    if model._note(made):
                        self._answer({"said": f"{made.what} saw {told['n']}"})
                    return
                says = Turn.of(kind, told)
                if not model._note(Made("model", says.about, process)):
                    return
                if not told.get("stream"):
                    self._answer(says.whole())
                    return
                self._stream(says, process)

            def _answer(self, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def _stream(self, says: Turn, process: int) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                words = 0
                for event in says.events():
                    data = event.encode()
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                    self.wfile.flush()
                    words += '"delta"' in event
                    if words >= 3 and says.tool is None and model._breaks_off(process):
                        self.close_connection = True
                        return
                self.wfile.write(b"0\r\n\r\n")

        return Handler

    def _note(self, made: Made) -> bool:
        with self._lock:
            self.calls.append(made)
            if self.kills(made):
                os.kill(made.process, signal.SIGKILL)
                return False
        return True

    def _breaks_off(self, process: int) -> bool:
        with self._lock:
            if self.kills_in_stream > 0:
                self.kills_in_stream -= 1
                os.kill(process, signal.SIGKILL)
                return True
            self.cuts -= 1
            return self.cuts >= 0


@dataclass(frozen=True)
class Turn:
    """What the model says next: it calls a tool, or ends with a text."""

    kind: str
    about: str
    tool: str | None
    number: int
    text: str

    @classmethod
    def of(cls, kind: str, told: dict[str, Any]) -> Turn:
        results = _results(told)
        script, _, times = told["model"].partition("-")
        about = f"{told['model']} after {len(results)}"
        tool: str | None = script if len(results) < int(times or 1) else None
        if script == "hand":  # the other agent has another model
            tool = "transfer_to_second"
        if script == "ask":
            tool = "second" if len(results) < int(times or 1) else None
        text = "so: " + " ".join(["; ".join(results), *["and on"] * 5])
        return cls(kind, about, tool, len(results), text)

    @property
    def call_id(self) -> str:
        return f"call_{self.tool}_{self.number}"

    @property
    def arguments(self) -> str:
        if self.tool == "second":
            return json.dumps({"input": f"part {self.number}"})
        return "{}" if self.tool == "transfer_to_second" else json.dumps({"n": self.number})

    def whole(self) -> dict[str, Any]:
        if self.kind == "responses":
            return self._response("completed", [self._item()])
        message: dict[str, Any] = {"role": "assistant", "content": None if self.tool else self.text}
        if self.tool:
            function = {"name": self.tool, "arguments": self.arguments}
            message["tool_calls"] = [{"id": self.call_id, "type": "function", "function": function}]
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if self.tool else "stop"}
        return self._completion("chat.completion", choice)

    def events(self) -> Iterator[str]:
        if self.kind == "responses":
            for number, event in enumerate(self._response_events()):
                yield f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number})}\n\n"
            return
        for delta in self._deltas():
            choice = {"index": 0, "delta": delta, "finish_reason": None}
            yield f"data: {json.dumps(self._completion('chat.completion.chunk', choice))}\n\n"
        last = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if self.tool else "stop"}
        yield f"data: {json.dumps(self._completion('chat.completion.chunk', last))}\n\n"
        yield "data: [DONE]\n\n"

    def _deltas(self) -> Iterator[dict[str, Any]]:
        if self.tool:
            function = {"name": self.tool, "arguments": self.arguments}
            call = {"index": 0, "id": self.call_id, "type": "function", "function": function}
            yield {"role": "assistant", "tool_calls": [call]}
            return
        yield {"role": "assistant", "content": ""}
        for word in self.text.split(" "):
            yield {"content": f"{word} "}

    def _completion(self, sort: str, choice: dict[str, Any]) -> dict[str, Any]:
        made = {
            "id": f"chat_{self.number}",
            "object": sort,
            "created": 1,
            "model": "fake",
            "choices": [choice],
        }
        if sort == "chat.completion":
            made["usage"] = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        return made

    def _item(self) -> dict[str, Any]:
        if self.tool:
            return {
                "type": "function_call",
                "id": f"fc_{self.number}",
                "call_id": self.call_id,
                "name": self.tool,
                "arguments": self.arguments,
                "status": "completed",
            }
        part = {"type": "output_text", "text": self.text, "annotations": []}
        return {
            "type": "message",
            "id": f"msg_{self.number}",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }

    def _response(self, status: str, output: list[Any]) -> dict[str, Any]:
        return {
            "id": f"resp_{self.about.replace(' ', '_')}",
            "object": "response",
            "created_at": 1,
            "status": status,
            "model": "fake",
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 3,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 2,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 5,
            },
        }

    def _response_events(self) -> Iterator[dict[str, Any]]:
        item = self._item()
        yield {"type": "response.created", "response": self._response("in_progress", [])}
        yield {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {
                **item,
                "status": "in_progress",
                **({"arguments": ""} if self.tool else {"content": []}),
            },
        }
        place = {"item_id": item["id"], "output_index": 0}
        if self.tool:
            yield {"type": "response.function_call_arguments.delta", **place, "delta": self.arguments}
            yield {
                "type": "response.function_call_arguments.done",
                **place,
                "arguments": self.arguments,
                "name": self.tool,
            }
        else:
            for word in self.text.split(" "):
                said = {"content_index": 0, "delta": f"{word} ", "logprobs": []}
                yield {"type": "response.output_text.delta", **place, **said}
        yield {"type": "response.output_item.done", "output_index": 0, "item": item}
        yield {"type": "response.completed", "response": self._response("completed", [item])}


def _results(told: dict[str, Any]) -> list[str]:
    """Return what tools have said since the newest question."""
    items = told["messages"] if "messages" in told else told["input"]
    if isinstance(items, str):
        return []
    found: list[str] = []
    for item in items:
        if item.get("role") == "user":
            found = []
        if item.get("role") == "tool":
            found.append(str(item["content"]))
        if item.get("type") == "function_call_output" and "transfer" not in item["call_id"]:
            found.append(str(item["output"]))
    return found
