"""A run in one HTML file: the console's views, and the answers that they ask for, without a service."""

from __future__ import annotations

import base64
import json
import re
import tempfile
from collections.abc import Iterable, Iterator
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode

from msgspec import Struct

from everstep.client.host import AsyncHost
from everstep.errors import RunNotFound
from everstep.model.bundles import LeaveOut
from everstep.server.app import Application, create_app
from everstep.server.console.files import assets
from everstep.server.console.linking import linked

LARGEST = 5_000_000
"""How many bytes a file may have."""
_PAGE = 1000
"""How many checkpoints are listed at once, and in all."""
PLAIN = "!'()*"
"""What a browser's script leaves as it is in a path, too."""
_FIRST = re.compile(r"@1(?=[/#]|$)")
"""What the views leave out of an address."""
_LARGEST_IMAGE = 400_000
_ROOM = 20_000
"""Bytes kept for the page around the answers."""


class ExportedPage(Struct, frozen=True, kw_only=True):
    """A run was written into an HTML file."""

    run_id: str
    size: int
    steps: int
    """How many steps it has in full."""
    checkpoints: int
    """At how many checkpoints it can be looked at."""
    cut_steps: int
    """How many had no room."""
    cut_checkpoints: int
    left_out: int
    """How many values were left out by name."""


class RunFile(NamedTuple):
    """A run as one HTML file."""

    text: str
    told: ExportedPage


async def run_file(
    host: AsyncHost,
    run_id: str,
    policy: LeaveOut,
    *,
    decrypt: bool = False,
    by: str | None = None,
    comment: str | None = None,
) -> RunFile:
    """Return a run as one file of at most five megabytes, with what a bundle would leave out left out.

    It is made of such a bundle: what stays behind there is nowhere here either.
    """
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "run.everstep"
        done = await host.transfer.export(
            run_id, bundle, leave_out=policy, decrypt=decrypt, by=by, comment=comment
        )
        async with AsyncHost("memory:", clock=host.clock) as other:
            await other.transfer.import_(bundle)
            answers = _Answers(create_app(other, [], token=None, works=False))
            left_out = sum(1 for one in done.left_out if one.what == "value")
            return await _filled(answers, run_id, host, left_out)


class _Answers:
    """What the views ask for, as the service answers it."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self.kept: dict[str, Any] = {}
        self.values: list[Any] = []
        """Values as they are shown, each once: most stay as they are from one checkpoint to the next."""
        self._known: dict[str, int] = {}
        self.images: dict[str, str] = {}
        """Images that values are, as addresses that hold all of them, by their digests."""
        self.size = 0

    async def add(self, *paths: str, room: int | None = None) -> bool:
        """Keep the answers to some paths, all or none: none if they have no room."""
        found = {path: json.loads(body) for path in paths if (body := await _asked(self._app, path))}
        new: dict[str, int] = {}
        images: dict[str, str] = {}
        size = 0
        for path, told in found.items():
            images |= await self._drawn(told)
            if path.partition("?")[0].endswith("/values"):
                told["values"] = {name: self._place(cut, new) for name, cut in told["values"].items()}
            size += len(path) + len(_json(told)) + 8
        size += sum(len(text) + 1 for text in new)
        size += sum(
            len(digest) + len(text) + 6 for digest, text in images.items() if digest not in self.images
        )
        if room is not None and self.size + size > room:
            return False
        self.size += size
        self.kept |= found
        self._known |= new
        self.images |= images
        self.values += map(json.loads, new)
        return True

    async def look(self, path: str) -> Any:
        """Return an answer without keeping it; none if it is an error."""
        body = await _asked(self._app, path)
        return None if body is None else json.loads(body)

    async def _drawn(self, told: dict[str, Any]) -> dict[str, str]:
        """Return the images among values that are told of, and say in each value which of them it is."""
        at = told.get("checkpoint", told.get("sequence"))
        sides = [told.get(side) for side in ("values", "inputs", "outputs", "before")]
        found: dict[str, str] = {}
        for name, cut in [pair for side in sides if isinstance(side, dict) for pair in side.items()]:
            for one in _images_in(cut):
                of = {"at": at, "name": cut.get("name") or name, "version": cut.get("version")}
                of |= {"pointer": one.get("pointer") or None}
                asked = urlencode({key: word for key, word in of.items() if word is not None})
                body = await _asked(
                    self._app, f"/runs/{quote(told['run_id'], safe=PLAIN)}/values/raw?{asked}"
                )
                if body is not None and len(body) <= _LARGEST_IMAGE:
                    one["image"] = digest = sha256(body).hexdigest()[:16]
                    found[digest] = f"data:{one['mime']};base64,{base64.b64encode(body).decode()}"
        return found

    def _place(self, cut: Any, new: dict[str, int]) -> int:
        text = _json(cut)
        known = self._known.get(text)
        return new.setdefault(text, len(self._known) + len(new)) if known is None else known


async def _filled(answers: _Answers, run_id: str, host: AsyncHost, left_out: int) -> RunFile:
    script, style = linked("file.js"), assets()["console.css"].body.decode()
    room = LARGEST - len(script) - len(style) - _ROOM
    run = f"/runs/{quote(run_id, safe=PLAIN)}"
    await answers.add(
        run, f"{run}/nodes?newest=1000", f"{run}/drawing", f"{run}/edges", f"{run}/timeline?most=240"
    )
    await answers.add(f"/waits?{urlencode({'run_id': run_id, 'limit': 100})}", f"{run}/values")
    await answers.add(f"{run}/steps?after=0&limit=200", room=room)
    if run not in answers.kept:
        raise RunNotFound(f"there is no run {run_id!r}.", fix="List them with: everstep runs")
    visits: list[tuple[str, ...]] = [
        (f"{run}/steps/{quote(one, safe=PLAIN)}",) for one in _addresses(answers, run)
    ]
    visits += [paths for item in _items(answers, run) for paths in await _within(answers, run_id, item)]
    steps = await _added(answers, visits, room)
    last = answers.kept[run]["checkpoints"]
    moments = list(range(last, 0, -1))[:_PAGE]
    seen = await _added(
        answers,
        (
            (
                f"/runs/{quote(f'{run_id}@{n}', safe=PLAIN)}/nodes?newest=1000",
                f"{run}/edges?at={n}",
                f"{run}/values?at={n}",
            )
            for n in moments
        ),
        room,
    )
    cut = {"steps": len(visits) - steps, "checkpoints": last - seen}
    snapshot = {
        "run_id": run_id,
        "made_at": host.clock.now().isoformat(),
        "left_out": left_out,
        "cut": cut,
        "answers": answers.kept,
        "values": answers.values,
        "images": answers.images,
    }
    text = _page(run_id, script, style, snapshot)
    told = ExportedPage(
        run_id=run_id,
        size=len(text.encode()),
        steps=steps,
        checkpoints=seen,
        cut_steps=cut["steps"],
        cut_checkpoints=cut["checkpoints"],
        left_out=left_out,
    )
    return RunFile(text, told)


def _addresses(answers: _Answers, run: str) -> list[str]:
    """Return the steps that a person may look at: those that failed first, then the newest."""
    listed = answers.kept.get(f"{run}/steps?after=0&limit=200", {"steps": []})["steps"]
    nodes = answers.kept.get(f"{run}/nodes?newest=1000", {"nodes": []})["nodes"]
    found = {_shown(one["address"]): one["status"] == "failed" for one in reversed(listed) if one["address"]}
    for node in nodes:
        newest = f"{node['node']}@{node['visits']}" if node["visits"] > 1 else node["node"]
        found.setdefault(newest, node["status"] == "failed")
        found.setdefault(node["node"], False)
    return sorted(found, key=lambda address: not found[address])


def _images_in(cut: Any) -> Iterator[dict[str, Any]]:
    """Yield what is an image in a value as it is shown."""
    if not isinstance(cut, dict):
        return
    if (cut.get("mime") or "").startswith("image/"):
        yield cut
    for kid in cut.get("children") or ():
        yield from _images_in(kid["cut"])


def _shown(address: str) -> str:
    return _FIRST.sub("", address)


def _items(answers: _Answers, run: str) -> list[str]:
    """Return the items that the strips of maps lead to: those that failed first, then the slowest."""
    lanes = answers.kept.get(f"{run}/timeline?most=240", {"lanes": []})["lanes"]
    return [bucket["first_item"] for lane in lanes for bucket in lane["buckets"]]


async def _within(answers: _Answers, run_id: str, item: str) -> list[tuple[str, ...]]:
    """Return what is asked for an item: of itself, what ran for it, and of each of that."""
    run, visit = f"/runs/{quote(run_id, safe=PLAIN)}", f"/steps/{quote(_shown(item), safe=PLAIN)}"
    it = await answers.look(run + visit)
    if it is None:
        return []
    place = f"{run_id}/{it['address']}"
    inside = f"/runs/{quote(place, safe=PLAIN)}/steps?limit=100"
    told = await answers.look(inside) or {"steps": []}
    steps = dict.fromkeys(_shown(one["address"]) for one in told["steps"] if one["address"])
    return [(run + visit, inside, *(f"{run}/steps/{quote(one, safe=PLAIN)}" for one in steps))]


async def _added(answers: _Answers, groups: Iterable[tuple[str, ...]], room: int) -> int:
    """Keep groups of answers as long as there is room; return how many."""
    many = 0
    for paths in groups:
        if not await answers.add(*paths, room=room):
            break
        many += 1
    return many


def _page(run_id: str, script: str, style: str, snapshot: dict[str, Any]) -> str:
    """Return the file. Its script and style are allowed by their hashes, and nothing else is."""
    data = _json(snapshot)
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(run_id)} · everstep</title>\n<style>{style}</style>\n</head>\n"
        f'<body>\n<div id="app"></div>\n<script type="application/json" id="snapshot">{data}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _json(told: Any) -> str:
    return json.dumps(told, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"


async def _asked(app: Application, path: str) -> bytes | None:
    """Return what the service answers; none if that is an error."""
    raw, _, query = path.partition("?")
    status, body = 0, bytearray()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)
        body.extend(message.get("body", b""))

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": unquote(raw),
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", b"localhost"), (b"accept", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
    }
    await app(scope, receive, send)
    return bytes(body) if status == 200 else None
