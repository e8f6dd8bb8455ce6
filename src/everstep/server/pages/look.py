"""How the pages for people look: one frame, one style, no scripts, nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from starlette.responses import Response

from everstep.codec.plain_json import jsonable

STYLE = Path(__file__).with_name("style.css").read_text(encoding="utf-8")

_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()

HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex, nofollow",
    "Cache-Control": "no-store",
}

LONGEST_CONTEXT = 20_000
"""How many characters of a context are shown."""


def page(title: str, body: str, *, status: int = 200, foot: str = "") -> Response:
    """Return a page; `body` and `foot` are HTML already."""
    text = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<main>\n{body}\n</main>\n{f'<footer>{foot}</footer>' if foot else ''}\n</body>\n</html>\n"
    )
    return Response(text.encode("utf-8", "replace"), status, HEADERS, media_type="text/html")


def message(title: str, text: str, *, status: int) -> Response:
    """Return a page that says one thing."""
    return page(title, f"<h1>{escape(title)}</h1>\n<p>{escape(text)}</p>", status=status)


def context_html(context: Any) -> str:
    """Return what a person is asked about: an object as a list of its fields, anything else as it is."""
    shown = jsonable(context)
    if isinstance(shown, dict) and shown and len(shown) <= 100:
        return "<dl>" + "".join(_field(name, value) for name, value in shown.items()) + "</dl>"
    return _block(shown)


def _field(name: str, value: Any) -> str:
    if isinstance(value, list) and value and not any(isinstance(item, dict | list) for item in value):
        inner = escape(_cut("\n".join(map(plain, value))))
    else:
        inner = _block(value) if isinstance(value, dict | list) and value else escape(plain(value))
    return f"<dt>{escape(name.replace('_', ' '))}</dt><dd>{inner}</dd>"


def _block(value: Any) -> str:
    return (
        f"<p>{escape(_cut(value))}</p>"
        if isinstance(value, str)
        else f"<pre>{escape(_cut(pretty(value)))}</pre>"
    )


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_CONTEXT else text[:LONGEST_CONTEXT] + "\n…"


def plain(value: Any) -> str:
    """Write a single value as a person would."""
    match value:
        case None:
            return "—"
        case bool():
            return "yes" if value else "no"
        case str():
            return _cut(value)
    return pretty(value)


def pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def moment_html(at: datetime) -> str:
    """Return a time as a person reads it; the page cannot know the reader's time zone."""
    at = at.astimezone(UTC)
    return f'<time datetime="{at.isoformat()}">{at.day} {at:%B %Y, %H:%M} UTC</time>'
