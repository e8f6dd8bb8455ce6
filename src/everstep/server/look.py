"""How the pages for people look: one frame, one style, no scripts, nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from typing import Any

from starlette.responses import Response

from everstep.client.plain_json import jsonable

STYLE = """
:root { color-scheme: light dark; --back: #f4f5f7; --card: #fff; --ink: #1c2330; --soft: #5d6778; --line: #d9dee6;
  --field: #fff; --go: #17693f; --go-ink: #fff; --stop: #a8232d; --note: #fdf1d8; --note-ink: #6b4a00; --focus: #2b6cd4 }
@media (prefers-color-scheme: dark) { :root { --back: #12151b; --card: #1b2029; --ink: #e8ebf0; --soft: #9aa5b5;
  --line: #323a48; --field: #12161d; --go: #3fa36c; --go-ink: #06140c; --stop: #ff8b90; --note: #3a2f14;
  --note-ink: #f4d58a; --focus: #7fb0ff } }
* { box-sizing: border-box }
body { margin: 0; padding: 1.25rem 1rem 2.5rem; background: var(--back); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif }
main { max-width: 36rem; margin: 0 auto; padding: 1.5rem; background: var(--card); border: 1px solid var(--line);
  border-radius: .75rem }
.where { margin: 0 0 .25rem; color: var(--soft); font-size: .875rem; overflow-wrap: anywhere }
h1 { margin: 0 0 1rem; font-size: 1.4rem; line-height: 1.25; overflow-wrap: anywhere }
h2 { margin: 1.5rem 0 .5rem; font-size: .8rem; color: var(--soft); text-transform: uppercase; letter-spacing: .06em }
p { margin: 0 0 .75rem; overflow-wrap: anywhere }
dl { display: grid; grid-template-columns: minmax(5rem, max-content) 1fr; margin: 0; border-top: 1px solid var(--line) }
dt, dd { margin: 0; padding: .5rem 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; min-width: 0 }
dt { padding-right: 1.25rem; color: var(--soft); max-width: 12rem }
dd { white-space: pre-wrap }
pre { margin: 0; padding: .75rem; background: var(--back); border-radius: .5rem; font: .85rem/1.5 ui-monospace,
  "DejaVu Sans Mono", monospace; white-space: pre-wrap; overflow-wrap: anywhere }
form { margin-top: 1.5rem; padding-top: 1.25rem; border-top: 1px solid var(--line) }
label.field { display: block; margin: 0 0 1rem; font-size: .9rem; color: var(--soft) }
input[type=text], textarea { display: block; width: 100%; margin-top: .25rem; padding: .6rem .7rem; font: inherit;
  color: var(--ink); background: var(--field); border: 1px solid var(--line); border-radius: .5rem }
textarea { min-height: 5.5rem; resize: vertical }
textarea.code { min-height: 9rem; font: .9rem/1.5 ui-monospace, "DejaVu Sans Mono", monospace }
fieldset { margin: 0 0 1rem; padding: 0; border: 0 }
legend { padding: 0; margin-bottom: .4rem; font-size: .9rem; color: var(--soft) }
label.choice { display: flex; gap: .7rem; align-items: center; padding: .7rem .8rem; margin-bottom: .5rem;
  border: 1px solid var(--line); border-radius: .5rem; overflow-wrap: anywhere; min-width: 0 }
label.choice input { flex: none; width: 1.1rem; height: 1.1rem; margin: 0; accent-color: var(--go) }
label.choice span { min-width: 0 }
.buttons { display: flex; flex-wrap: wrap; gap: .75rem }
button { flex: 1 1 9rem; min-height: 2.9rem; padding: .6rem 1rem; font: inherit; font-weight: 600; cursor: pointer;
  border-radius: .5rem; border: 1px solid var(--go); background: var(--go); color: var(--go-ink) }
button.stop { border-color: var(--stop); background: transparent; color: var(--stop) }
:focus-visible { outline: 3px solid var(--focus); outline-offset: 2px }
.note { margin: 0 0 1rem; padding: .7rem .8rem; border-radius: .5rem; background: var(--note); color: var(--note-ink) }
footer { max-width: 36rem; margin: .9rem auto 0; color: var(--soft); font-size: .8rem; text-align: center;
  overflow-wrap: anywhere }
@media (max-width: 26rem) { main { padding: 1.1rem } dl { grid-template-columns: 1fr } dt { padding-bottom: 0;
  border-bottom: 0; max-width: none } dd { padding-top: .1rem } }
"""

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
    """Return what a person is asked about: an object as a list of its fields, anything else as text or JSON."""
    shown = jsonable(context)
    if isinstance(shown, dict) and shown and len(shown) <= 100:
        return "<dl>" + "".join(_field(name, value) for name, value in shown.items()) + "</dl>"
    return _block(shown)


def _field(name: str, value: Any) -> str:
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


def details_html(rows: Mapping[str, str]) -> str:
    """Return a list of names and HTML."""
    return (
        "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{html}</dd>" for name, html in rows.items()) + "</dl>"
    )
