"""Reading what a client sends: bounded while it comes in, and strict about what counts as JSON."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Collection
from typing import Any, NoReturn, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec
from starlette.requests import Request

from everstep.errors import BadRequest, TooLarge, TooSlow
from everstep.model.acts import Verified
from everstep.model.shapes import understood
from everstep.server.endpoint import caller_of

DEEPEST = 100
"""How many levels a JSON body may have."""

MOST_FIELDS = 20
"""How many fields a form may have."""

PATIENCE = 10.0
"""Seconds to wait for more of a body."""

LONGEST = 60.0
"""Seconds that all of a body may take."""


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body, or raise `TooLarge` as soon as more than `limit` bytes are announced or have come.

    If it stops coming in, or drips, that is `TooSlow`.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > limit):
        raise _too_large(limit)
    body = bytearray()
    chunks = request.stream()
    try:
        async with asyncio.timeout(LONGEST):
            while (chunk := await _next(chunks)) is not None:
                body += chunk
                if len(body) > limit:
                    raise _too_large(limit)
    except TimeoutError:
        raise TooSlow("the body did not come in in time.", fix="Send it again.") from None
    return bytes(body)


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    async with asyncio.timeout(PATIENCE):
        return await anext(chunks, None)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit} bytes.", fix="Send less, or raise --max-body.")


async def read_json(request: Request, limit: int, *, default: Any = ...) -> Any:
    """Return the body as JSON; `default` if there is none and it may be left out."""
    body = await read_body(request, limit)
    if not body.strip() and default is not ...:
        return default
    return parse_json(body)


def parse_json(body: bytes | str) -> Any:
    """Read JSON as the standard has it: no NaN, no infinity, no half characters, not too deep."""
    try:
        text = body if isinstance(body, str) else body.decode("utf-8")
        found = json.loads(text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_once)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:  # also what cannot be decoded, and integers of thousands of digits
        raise BadRequest(f"this is not JSON: {_reason(error)}.", fix="Send a JSON document.") from None
    _check(found)
    return found


def _reason(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _too_deep() -> BadRequest:
    return BadRequest(f"the JSON has more than {DEEPEST} levels.", fix="Send something flatter.")


def _check(found: Any) -> None:
    """Raise for what a store could not keep: too many levels, or half a surrogate pair."""
    level = [found]
    for _ in range(DEEPEST + 1):
        below: list[Any] = []
        for value in level:
            match value:
                case str():
                    _check_text(value)
                case dict():
                    for key in value:
                        _check_text(key)
                    below += value.values()
                case list():
                    below += value
        if not below:
            return
        level = below
    raise _too_deep()


def _check_text(text: str) -> None:
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise BadRequest(
                "a text in the JSON has half a surrogate pair.", fix="Send whole ones."
            ) from None


T = TypeVar("T", bound=msgspec.Struct)


async def read_struct(request: Request, limit: int, shape: type[T], *, is_required: bool = True) -> T:
    """Return the body as the struct that checks it."""
    body = await read_json(request, limit, default=... if is_required else {})
    return converted(body, shape)


def converted(body: Any, shape: type[T]) -> T:
    """Return JSON as a struct, or say what is wrong with it and what there is."""
    try:
        return msgspec.convert(body, understood(shape))
    except msgspec.ValidationError as error:
        fields = ", ".join(f'"{f.encode_name}"' for f in msgspec.structs.fields(shape))
        raise BadRequest(f"the body does not fit: {error}.", fix=f"Send an object of {fields}.") from None


def expect_object(body: Any, *, optional: Collection[str]) -> dict[str, Any]:
    """Return the body as an object with these fields and no others."""
    known = ", ".join(f'"{name}"' for name in optional)
    if not isinstance(body, dict):
        raise BadRequest("the body is not a JSON object.", fix=f"Send an object of {known}.")
    unknown = [f"has an unknown field {cut(name)}" for name in sorted(body.keys() - {*optional})]
    if unknown:
        raise BadRequest(f"the body {' and '.join(unknown[:5])}.", fix=f"Send an object of {known}.")
    return body


WHO = ("by", "comment")
"""The fields of a body that say who sends it, and why."""


def who_of(request: Request, body: Any = None) -> dict[str, Any]:
    """Return who does what a request asks for, and why: as its body says, or its headers.

    Where the caller is known by name, that is who: a request that names another is refused. Headers hold no
    more than Latin letters, so what they say is percent-encoded UTF-8.
    """
    found: dict[str, Any] = {}
    for name in WHO:
        said = body.get(name) if isinstance(body, dict) else getattr(body, name, None)
        if said is None and (header := request.headers.get(f"everstep-{name}")) is not None:
            try:
                said = unquote(header, errors="strict")
            except UnicodeDecodeError:
                raise BadRequest(
                    f"the header Everstep-{name.capitalize()} is not percent-encoded UTF-8.",
                    fix="Encode it: Everstep-By: J%C3%B6rg",
                ) from None
        found[name] = said
    caller = caller_of(request)
    if caller is not None and caller.name:
        found["by"] = _proved(caller.name, found["by"])
    return found


def _proved(name: str, said: object) -> Verified:
    if said is not None and not (isinstance(said, str) and said.strip() in ("", name)):
        raise BadRequest(
            f"`by` is {cut(str(said))}, and this comes from {cut(name)}.",
            fix="Leave `by` out; for whom it is done can be said in `comment`.",
        )
    return Verified(name)


def cut(text: str) -> str:
    """Return a client's own text for a message, in quotes and not longer than a line."""
    return repr(text if len(text) <= 40 else text[:39] + "…")


async def read_form(request: Request, limit: int) -> dict[str, str]:
    """Return the fields of a form as a browser without scripts sends it."""
    body = await read_body(request, limit)
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict"
        )
    except ValueError as error:
        raise BadRequest("this is not a form.", fix="Send application/x-www-form-urlencoded.") from error
    return dict(pairs)
