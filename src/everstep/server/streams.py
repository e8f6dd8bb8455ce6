"""Answers that go on, in frames, as long as the service runs and the caller may see them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from everstep.server.access.roles import ANYONE, Principal
from everstep.server.endpoint import Service
from everstep.server.wire import HEADERS

STREAM = "text/event-stream"
T = TypeVar("T")


def wants_stream(request: Request) -> bool:
    """Say whether a caller would rather have a stream than a page of JSON."""
    accepted = request.headers.get("accept", "")
    return STREAM in accepted or "application/json" not in accepted


def streamed(frames: AsyncGenerator[bytes, None]) -> Response:
    """Return frames as a response that no proxy holds back."""
    return StreamingResponse(frames, headers={**HEADERS, "X-Accel-Buffering": "no"}, media_type=STREAM)


def frame(id: str, event: str, data: Any) -> bytes:
    """Return one frame; what is in it is ASCII, on one line."""
    return f"id: {id}\nevent: {event}\ndata: {json.dumps(data, allow_nan=False)}\n\n".encode()


async def stream(
    service: Service,
    source: AsyncGenerator[T, None],
    frame_of: Callable[[T], bytes],
    caller: Principal = ANYONE,
) -> AsyncGenerator[bytes, None]:
    """Send what comes while the caller may see it: a token that is taken out of the file ends its streams."""
    stopping = asyncio.ensure_future(service.stopping.wait())
    coming = asyncio.ensure_future(anext(source))
    try:
        yield b"retry: 2000\n\n"
        while not stopping.done() and service.access.still_admits(caller):
            await asyncio.wait(
                {coming, stopping}, timeout=service.keep_alive, return_when=asyncio.FIRST_COMPLETED
            )
            if not coming.done():
                yield b": still here\n\n"
                continue
            try:
                found = coming.result()
            except StopAsyncIteration:
                return
            coming = asyncio.ensure_future(anext(source))
            if not service.access.still_admits(caller):
                return
            if framed := frame_of(found):
                yield framed
    finally:
        for task in (coming, stopping):
            task.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration):
                await task
        await source.aclose()
