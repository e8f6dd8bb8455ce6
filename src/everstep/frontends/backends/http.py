"""Models behind an HTTP endpoint that speaks as OpenAI's does."""

from __future__ import annotations

import asyncio
import inspect
import ipaddress
import json
import os
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from everstep.errors import BadRequest
from everstep.frontends.backends.limits import LARGEST_PROMPT, check_seconds, check_size, shorter
from everstep.frontends.pipelines.outcome import Outcome, StageError, StageStatus
from everstep.frontends.pipelines.stage import Stage
from everstep.model.durations import Span

RESPONSE: Final = 8 * 1024 * 1024
"""Bytes of an answer that are read unless told otherwise."""
_AGAIN: Final = frozenset({408, 409, 425, 429})
_NUMBERS: Final[Mapping[str, type]] = {"temperature": float, "max_tokens": int}


class Http:
    """Sends each prompt to `{base_url}/chat/completions`, with the key that an environment variable holds.

    The model and its settings are the node's (`llm_model`, `temperature`, `max_tokens`, `reasoning_effort`);
    `model` is for nodes that name none. What is busy, broken or slow may be tried again, what is refused may
    not.
    """

    name = "http"

    def __init__(
        self,
        base_url: str,
        *,
        model: str | None = None,
        api_key_env: str | None = "OPENAI_API_KEY",
        timeout: Span | None = 600.0,
        response_limit: int = RESPONSE,
        headers: Mapping[str, str] | None = None,
        allow_plain_http: bool = False,
    ) -> None:
        self._url, self._is_safe = _check_url(base_url)
        self._model = model
        self._key_env = api_key_env
        self._timeout = check_seconds(timeout, "timeout")
        self._limit = check_size(response_limit, "response_limit")
        self._headers = dict(headers or {})
        self._allows_plain = allow_plain_http

    def __repr__(self) -> str:
        return f"Http({self._url}, model={self._model})"

    async def __call__(self, stage: Stage) -> Outcome:
        """Send the stage's prompt and return what was answered."""
        key = os.environ.get(self._key_env, "").strip() if self._key_env else ""
        if not (key.isascii() and key.isprintable()):
            return _refused(f"{self._key_env} holds what cannot be a key.")
        if key and not self._is_safe and not self._allows_plain:
            return _refused(f"{self._key_env} would be sent in the clear to {self._url}. Use https.")
        try:
            body = self._body(stage)
            sent = json.dumps(body).encode()
        except BadRequest as error:
            return _refused(str(error))
        if len(sent) > LARGEST_PROMPT:
            return _refused(f"the request of {len(sent)} bytes is larger than {LARGEST_PROMPT}.")
        headers = {**self._headers, "Content-Type": "application/json", "Accept": "application/json"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        if stage.idempotency_key:
            headers["Idempotency-Key"] = stage.idempotency_key
        timeout = shorter(self._timeout, stage)
        try:
            async with asyncio.timeout(timeout):
                answer = await self._send(sent, headers)
        except TimeoutError:
            limit = f"took longer than {timeout:g} s." if timeout is not None else "did not answer."
            return _again(f"{self._url} {limit}", "Timeout")
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, OSError) as error:
            said = _hide(f"{type(error).__name__}: {error}".rstrip(": "), key)
            return _again(f"{self._url} could not be asked: {said:.300}", "Unreachable")
        if answer.status != 200:
            return _hidden(self._complain(answer, has_key=bool(key)), key)
        return _hidden(await self._read(answer, stage), key)

    def _body(self, stage: Stage) -> dict[str, Any]:
        model = stage.model.get("llm_model") or self._model
        if not model:
            raise BadRequest("no model is named.", fix="Give Http(model=...), or the node an llm_model.")
        messages = [{"role": "system", "content": stage.preamble}] if stage.preamble else []
        messages.append({"role": "user", "content": stage.prompt or stage.label or stage.node})
        body: dict[str, Any] = {"model": str(model), "messages": messages}
        for name, kind in _NUMBERS.items():
            if stage.model.get(name) not in (None, ""):
                try:
                    body[name] = kind(stage.model[name])
                except (TypeError, ValueError, OverflowError):
                    raise BadRequest(
                        f"{name} is {stage.model[name]!r:.40}.", fix="Give the node a number."
                    ) from None
        if stage.model.get("reasoning_effort"):
            body["reasoning_effort"] = str(stage.model["reasoning_effort"])
        return body

    async def _send(self, body: bytes, headers: Mapping[str, str]) -> _Answer:
        # Redirects are not followed: the key is for this address only.
        client = httpx2.AsyncClient(timeout=None, follow_redirects=False)
        async with client, client.stream("POST", self._url, content=body, headers=headers) as response:
            data = bytearray()
            async for chunk in response.aiter_bytes():
                data += chunk
                if len(data) > self._limit:
                    break
            return _Answer(response.status_code, response.headers.get("retry-after"), bytes(data))

    def _complain(self, answer: _Answer, *, has_key: bool) -> Outcome:
        said = answer.message
        why = f"{self._url} answered {answer.status}{f': {said}' if said else '.'}"
        if answer.status == 401 and not has_key and self._key_env:
            why += f" ({self._key_env} is not set)"
        if answer.status not in _AGAIN and answer.status < 500:
            return _refused(why)
        return _again(why, "Busy", status=answer.status, retry_after=answer.retry_after)

    async def _read(self, answer: _Answer, stage: Stage) -> Outcome:
        if len(answer.data) > self._limit:
            return _refused(f"{self._url} answered with more than {self._limit} bytes.")
        found = answer.body
        usage = found.get("usage") if isinstance(found, dict) else None
        metadata: dict[str, Any] = {}
        if isinstance(usage, dict):
            metadata["usage"] = {n: v for n, v in usage.items() if _is_count(v)}
            await _spend(stage, metadata["usage"])
        try:
            choice = found["choices"][0]
            message = choice["message"]
            text = _clean(_text_of(message.get("content")))
            reason = choice.get("finish_reason")
        except (KeyError, IndexError, TypeError, AttributeError):
            garbled = _again(f"{self._url} answered with what is no completion.", "Garbled")
            return garbled.but(metadata=metadata)
        told = {"model": str(found.get("model", "")), "finish_reason": str(reason or "")}
        metadata |= {name: _clean(value) for name, value in told.items()}
        if text is None or reason == "content_filter":
            refusal = message.get("refusal")
            why = f": {_clean(refusal):.300}" if isinstance(refusal, str) and refusal else f" ({reason})."
            return _refused(f"the model gave no answer{why}").but(metadata=metadata)
        notes = "The answer was cut at max_tokens." if reason == "length" else ""
        return Outcome(response=text, notes=notes, metadata=metadata)


class _Answer:
    """What the endpoint said."""

    def __init__(self, status: int, retry_after: str | None, data: bytes) -> None:
        self.status = status
        self.data = data
        self._retry_after = retry_after

    @property
    def body(self) -> Any:
        try:
            return json.loads(self.data)
        except (ValueError, RecursionError):
            return None

    @property
    def message(self) -> str:
        """Its own words on what was wrong."""
        found = self.body
        error = found.get("error", found.get("message")) if isinstance(found, dict) else None
        said = error.get("message") if isinstance(error, dict) else error
        return _clean(" ".join(said.split())[:300]) or "" if isinstance(said, str) else ""

    @property
    def retry_after(self) -> float | None:
        """Seconds that it asks to wait; one that names a date asks for nothing."""
        try:
            seconds = float(self._retry_after or "")
        except ValueError:
            return None
        return seconds if 0 <= seconds < 86400 else None


def _check_url(given: str) -> tuple[str, bool]:
    """Return where requests go, and whether a key may be sent there."""
    try:
        parts = urlsplit(given)
        host = parts.hostname or ""
        is_url = parts.scheme in ("http", "https") and bool(host) and (parts.port or 1) > 0
    except (ValueError, AttributeError, TypeError):
        is_url = False
    if not is_url:
        raise BadRequest(f"{given!r:.80} is no address.", fix="Give one such as https://api.openai.com/v1.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise BadRequest(
            f"the address of {host} has more than a path.",
            fix="Leave name, password and query out; the key comes from an environment variable.",
        )
    url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/chat/completions"
    return url, parts.scheme == "https" or _is_here(host)


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _text_of(content: Any) -> str | None:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str)) if parts else None
    return None


def _clean(text: str | None) -> str | None:
    """Return a text that can be stored: JSON may hold halves of characters."""
    return text if text is None else text.encode("utf-8", "replace").decode()


async def _spend(stage: Stage, usage: Mapping[str, Any]) -> None:
    """Count the tokens of a call against the run's budget, where runs have one."""
    total = usage.get("total_tokens")
    if total is None:
        total = sum(usage.get(name, 0) for name in ("prompt_tokens", "completion_tokens"))
    spend = getattr(stage.ctx, "spend", None)
    if spend is not None and total:
        done = spend(tokens=total)
        if inspect.isawaitable(done):
            await done


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _refused(why: str) -> Outcome:
    return Outcome.fail(why, retryable=False, type="Refused")


def _again(why: str, kind: str, **details: Any) -> Outcome:
    told = {name: value for name, value in details.items() if value is not None}
    error = StageError(type=kind, message=why, retryable=True, details=told)
    return Outcome(status=StageStatus.FAIL, failure_reason=why, error=error)


def _hide(text: str, key: str) -> str:
    return text.replace(key, "***") if key else text


def _hidden(outcome: Outcome, key: str) -> Outcome:
    """Take the key out of what an endpoint that repeats it has said went wrong."""
    if not key or outcome.error is None:
        return outcome
    why = _hide(outcome.failure_reason, key)
    error = StageError(
        type=outcome.error.type, message=why, retryable=outcome.error.retryable, details=outcome.error.details
    )
    return outcome.but(failure_reason=why, error=error)
