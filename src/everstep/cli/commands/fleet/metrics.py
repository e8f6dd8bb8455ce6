"""Where a worker tells its metrics. Apart from the command: it needs what only some install."""

from __future__ import annotations

import os
import socket
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from everstep import AsyncHost
from everstep.errors import BadRequest
from everstep.runtime.workers.worker import Worker

TOKEN_VARIABLE = "EVERSTEP_HTTP_TOKEN"


class ScrapesListener:
    """An open socket, and who may read what is answered there."""

    def __init__(self, scraping: Any, listener: socket.socket, address: str, token: str | None) -> None:
        self._scraping = scraping
        self._listener = listener
        self.address = address
        self._token = token

    def answering(self, host: AsyncHost, worker: Worker) -> AbstractContextManager[None]:
        """Return what answers with the metrics of a host for as long as it is entered."""
        app = self._scraping.Scrapes(
            host.twin(), token=self._token, is_stopping=lambda: worker.describe().is_stopping
        )
        found: AbstractContextManager[None] = self._scraping.scraped(app, self._listener)
        return found


def scrapes_listener(at: str | None, token_file: str | None) -> ScrapesListener | None:
    """Open the socket that `--metrics` asks for: without a token, only where no other machine can connect."""
    if at is None:
        if token_file is not None:
            raise BadRequest("--token-file is for --metrics.", fix="Give --metrics [HOST:]PORT, too.")
        return None
    guards, scraping, serving = _server()
    token = _token(token_file)
    token = None if token is None else guards.check_token(token, token_file or TOKEN_VARIABLE)
    host, port = scraping.place_of(at)
    listener = serving.listen(host, port, has_token=token is not None)
    return ScrapesListener(scraping, listener, serving.address_of(listener), token)


def _token(file: str | None) -> str | None:
    if file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadRequest(f"--token-file {file} cannot be read: {reason}.", fix="Check the path.") from error


def _server() -> tuple[Any, Any, Any]:
    """Return the modules of the service, which need what is not installed everywhere."""
    try:
        from everstep.server import guards, scraping, serving
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("starlette", "uvicorn"):
            raise
        raise BadRequest(
            f"--metrics needs the package {package}, which is not installed.",
            fix="Install it with: pip install 'everstep[web]'",
        ) from error
    return guards, scraping, serving
