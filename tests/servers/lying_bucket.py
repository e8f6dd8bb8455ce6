"""A small S3 that ignores the conditions that it is told to ignore, or answers what it is told to answer.

It also knows the conditions of Google, which go by the number of a write.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from tests.servers.seaweed import key_in_the_environment

GENERATION = "x-goog-if-generation-match"


class Liar(BaseHTTPRequestHandler):
    """Keeps objects, and tells no more of them than it must."""

    protocol_version = "HTTP/1.1"
    ignores: ClassVar[tuple[str, ...]]
    """Headers with conditions that do not count here."""
    answers: ClassVar[dict[str, tuple[int, str]]]
    """What is said to a method instead: a status and the code of an error."""
    kept: ClassVar[dict[str, bytes]]
    generations: ClassVar[dict[str, int]]
    """How often something was written under a name that is there."""
    has_versions: ClassVar[bool] = False

    def do_PUT(self) -> None:
        data, held = self._body(), self.kept.get(self.path)
        wanted = self.headers.get("If-Match")
        is_free = "If-None-Match" not in self.headers or "If-None-Match" in self.ignores or held is None
        is_same = wanted is None or "If-Match" in self.ignores or (held is not None and _tag(held) == wanted)
        generation = self.generations.get(self.path, 0)
        is_next = self.headers.get(GENERATION, str(generation)) == str(generation)
        if self._is_answered():
            return
        if is_free and is_same and is_next:
            self.kept[self.path] = data
            self.generations[self.path] = generation + 1
            self._send(200, b"", _tag(data))
        else:
            self._refuse(412, "PreconditionFailed")

    def do_GET(self) -> None:
        held = self.kept.get(self.path)
        if self._is_answered():
            return
        if held is None:
            self._refuse(404, "NoSuchKey")
        else:
            self._send(200, held, _tag(held))

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.generations.pop(self.path, None)
        if self.kept.pop(self.path, None) is None:
            self._refuse(404, "NoSuchKey")
        else:
            self._send(204, b"")

    def do_POST(self) -> None:
        keys = re.findall(rb"<Key>(.*?)</Key>", self._body())
        for key in keys:
            self.kept.pop(f"{self.path.partition('?')[0]}/{key.decode()}", None)
        gone = b"".join(b"<Deleted><Key>%b</Key></Deleted>" % key for key in keys)
        self._send(200, b"<DeleteResult>%b</DeleteResult>" % gone)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"]))

    def _is_answered(self) -> bool:
        if self.command not in self.answers:
            return False
        self._refuse(*self.answers[self.command])
        return True

    def _refuse(self, status: int, code: str) -> None:
        inside = f"<Code>{code}</Code><StringToSign>Signature=</StringToSign>"
        self._send(status, f"<Error>{inside}</Error>".encode())

    def _send(self, status: int, body: bytes, tag: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", formatdate(usegmt=True))
        if tag:
            self.send_header("ETag", tag)
            self.send_header("x-goog-generation", str(self.generations[self.path]))
        if self.has_versions:
            self.send_header("x-amz-version-id", "1")
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)

    def log_message(self, format: str, *args: object) -> None: ...


def _tag(data: bytes) -> str:
    return f'"{len(data)}-{data.decode()}"'


@contextmanager
def lying(
    ignores: tuple[str, ...] = (), answers: dict[str, tuple[int, str]] | None = None
) -> Iterator[tuple[str, type[Liar]]]:
    """Run a server that lies, and give the URL of a bucket there."""
    kind = type(
        "Lying", (Liar,), {"ignores": ignores, "answers": answers or {}, "kept": {}, "generations": {}}
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server, key_in_the_environment():
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield f"s3://test/here?endpoint=http://127.0.0.1:{server.server_port}&region=us-east-1", kind
        server.shutdown()
        thread.join()
