"""Calls to GitHub: made again where that is safe, held back where it says so; refusals in plain words."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Collection, Mapping
from contextvars import ContextVar
from datetime import timedelta
from threading import Event, Lock, Thread
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx2
import msgspec

from everstep.errors import StoreError, StoreNotWritable, StoreUnavailable
from everstep.ports.system import Clock, time_for_store
from everstep.stores.objects.github.address import GithubAddress
from everstep.stores.objects.github.clock import ServerTime
from everstep.stores.objects.github.quota import LONGEST, RequestQuota, is_refusal

ATTEMPTS = 3
PAUSE = 0.25
"""Seconds before a call is made again the first time; twice as many the next time."""
LONGEST_PAUSE = 2.0
_KEPT = 16 * 1024 * 1024
"""Bytes of answers that are kept, so that GitHub may say that nothing changed: such a call costs no quota."""
_HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}

hurries: ContextVar[bool] = ContextVar("hurries", default=False)
"""True where a call should rather fail than wait for the quota."""


class ApiAnswer(NamedTuple):
    """What GitHub said."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def message(self) -> str:
        """GitHub's own words on what was wrong."""
        said = self.body.get("message", "") if isinstance(self.body, dict) else ""
        return " ".join(said.split()) if isinstance(said, str) else ""


class Api:
    """One repository, asked by one token. Any thread may call."""

    def __init__(
        self, address: GithubAddress, clock: Clock, transport: httpx2.BaseTransport | None = None
    ) -> None:
        self._address = address
        self._clock = clock
        self._transport = transport
        self._lock = Lock()
        self._client: httpx2.Client | None = None
        self._pid = os.getpid()
        self._answers: OrderedDict[str, tuple[str, bytes]] = OrderedDict()
        self._kept = 0
        self.quota = RequestQuota(clock, address.shown)
        self.time = ServerTime(clock)

    def get(self, path: str, expected: Collection[int] = (), **params: str) -> ApiAnswer:
        """Read something of the repository. What was expected is returned, other refusals are raised."""
        return self.ask("GET", path, expected=expected, params=params)

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, object] | None = None,
        params: Mapping[str, str] | None = None,
        expected: Collection[int] = (),
    ) -> ApiAnswer:
        """Make one call below the repository. Reading is tried again; a write of unknown fate never is.

        A call that was refused for the quota did not happen, so that it is made again when it is its turn.
        """
        failures, refusals, waited = 0, 0, 0.0
        while True:
            if (closed := self.quota.seconds_closed) > 0:
                waited += self._wait_for_quota(closed, waited)
            try:
                answer = self._send(method, self._url(path), body, params)
            except StoreUnavailable:
                failures += 1
                if method != "GET" or failures == ATTEMPTS:
                    raise
                self.pause(failures)
                continue
            if is_refusal(answer.status, answer.headers, answer.message):
                refusals += 1
                seconds = self.quota.until_allowed(answer.headers, refusals)
                self.quota.close_for(seconds)
                if refusals == ATTEMPTS:
                    raise self.quota.used_up()
                continue
            if answer.status < 300 or answer.status in expected:
                return answer
            raise self.refused(answer)

    def pause(self, failures: int) -> None:
        """Let real time pass before a retry: the server needs it.

        A clock that tests move stands still meanwhile; there the server is local.
        """
        seconds = min(PAUSE * 2 ** (failures - 1), LONGEST_PAUSE)
        Event().wait(seconds if time_for_store(self._clock) is None else seconds / 25)

    def _wait_for_quota(self, seconds: float, waited: float) -> float:
        if hurries.get() or waited + seconds > LONGEST:
            raise self.quota.used_up()
        self._sleep(seconds)
        return seconds

    def _sleep(self, seconds: float) -> None:
        # On a thread of its own: where this is called a loop may be running, which cannot run another.
        at = self._clock.now() + timedelta(seconds=seconds)
        sleeper = Thread(target=lambda: asyncio.run(self._clock.sleep_until(at)), name="everstep-github")
        sleeper.start()
        sleeper.join()

    def _url(self, path: str) -> str:
        address = self._address
        tail = f"/{quote(path)}" if path else ""
        return f"{address.api}/repos/{address.owner}/{address.repo}{tail}"

    def _send(
        self, method: str, url: str, body: Mapping[str, object] | None, params: Mapping[str, str] | None
    ) -> ApiAnswer:
        request = self._open().build_request(
            method, url, params=params or None, content=None if body is None else msgspec.json.encode(body)
        )
        key, known = str(request.url), None
        if method == "GET" and (known := self._answers.get(key)):
            request.headers["If-None-Match"] = known[0]
        asked = self.time.monotonic()
        try:
            response = self._open().send(request)
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise self._out_of_reach(str(error) or type(error).__name__) from None
        headers = {name.lower(): value for name, value in response.headers.items()}
        self.time.note(headers.get("date"), asked, self.time.monotonic())
        self.quota.note(headers)
        content, status = response.content, response.status_code
        if status == 304 and known is not None:
            content, status = known[1], 200
        elif method == "GET" and status == 200 and (tag := headers.get("etag")):
            self._keep(key, tag, content)
        if status >= 500:
            raise self._out_of_reach(f"it answered {status}")
        return ApiAnswer(status, headers, self._read(content, status))

    def _read(self, content: bytes, status: int) -> Any:
        if not content:
            return None
        try:
            return msgspec.json.decode(content)
        except msgspec.DecodeError:
            if status < 300:
                raise self._out_of_reach("its answer is not JSON") from None
            return None

    def _keep(self, key: str, tag: str, content: bytes) -> None:
        with self._lock:
            before = self._answers.pop(key, None)
            self._kept += len(content) - (len(before[1]) if before else 0)
            self._answers[key] = (tag, content)
            while self._kept > _KEPT:
                self._kept -= len(self._answers.popitem(last=False)[1][1])

    def _open(self) -> httpx2.Client:
        with self._lock:
            if self._client is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._client = httpx2.Client(
                    headers=_HEADERS | {"Authorization": f"Bearer {self._address.token}"},
                    timeout=self._address.timeout,
                    transport=self._transport,
                )
            return self._client

    def close(self) -> None:
        with self._lock:
            if self._client is not None and self._pid == os.getpid():
                self._client.close()
            self._client = None

    def _out_of_reach(self, why: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self._address.shown} cannot be reached: {why}.",
            fix="Look at the network and at the status of the server; it is safe to try again.",
        )

    def refused(self, answer: ApiAnswer) -> StoreError:
        """Return the error that an answer stands for."""
        shown, said = self._address.shown, answer.message
        quoted = f" ({said})" if said else ""
        match answer.status:
            case 401:
                what, fix = "does not take the token", "Make a new one; set it as EVERSTEP_GITHUB_TOKEN."
            case 403 if "archived" in said:
                what, fix = "was archived, so it is read-only", "Unarchive it, or keep runs elsewhere."
            case 403 | 422 | 507 if "quota" in said or "over its" in said or "disk" in said:
                fix = "Make room in the repository or the account, or keep runs elsewhere."
                return StoreNotWritable(f"{shown} is full{quoted}.", fix=fix, status=answer.status)
            case 403:
                what = "does not allow this"
                fix = "Give the token the right to read and write the repository's contents (scope repo)."
            case 404:
                what = "is not there, or the token may not see or write it"
                fix = (
                    "Check owner, repository and branch, and that the token may read and write its contents."
                )
            case 301 | 302 | 307 | 308:
                what, fix = "has moved", "Give the URL of where it is now; the token is not sent elsewhere."
            case 413:
                what, fix = "takes no file of this size", "Keep large values elsewhere: Host(url, blobs=...)."
            case _:
                what, fix = f"refused a call with {answer.status}", "Look at the repository's settings."
        return StoreError(f"{shown} {what}{quoted}.", fix=fix, status=answer.status)
