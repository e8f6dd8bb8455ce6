"""Flows whose runs are carried elsewhere, and bundles taken apart."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from everstep import END, Flow, Host, node, route, wait
from everstep.codec.archive import ArchiveReader, ArchiveWriter

START = datetime(2026, 11, 15, 12, tzinfo=UTC)


@node(output="word")
def login(user: str, api_token: str) -> dict[str, str]:
    return {"user": user, "session": "s" * 10}


@node(output="page", persist="ref")
def fetch(word: dict[str, str]) -> str:
    return "a long page " * 1_000


@node(output="size")
def measure(page: str, word: dict[str, str]) -> int:
    return len(page) + len(word)


CRAWL = Flow("crawl", [login, fetch, measure], durability="strong")
GIVEN = {"user": "ann", "api_token": "hush-hush"}
ASK = Flow("ask", [login, wait.approval("agree", prompt="May we?", output="agreed")])


@node(output=("text", "round"))
def write(text: str, round: int) -> tuple[str, int]:
    return text + f" {round}" * 3000, round + 1


@route(["write", END])
def again(round: int) -> Any:
    return "write" if round < 12 else END


LONG = Flow("long", [write, again], entry=["write"], durability="strong")


def parts_of(file: Path) -> dict[str, bytes]:
    return {name: data for name, data, _ in ArchiveReader(io.BytesIO(file.read_bytes()), "it").parts()}


def repacked(parts: dict[str, bytes], file: Path, **said: Any) -> Path:
    """Write parts as a bundle whose manifest fits them, and says besides what it is told to."""
    with file.open("wb") as stream:
        writer = ArchiveWriter(stream)
        for name, data in parts.items():
            if name != "manifest.json":
                writer.add(name, data)
        manifest = msgspec.json.decode(parts["manifest.json"]) | {"content": writer.digest} | said
        writer.add("manifest.json", msgspec.json.encode(manifest))
        writer.close()
    return file


def same(one: Host, other: Host, run_id: str) -> bool:
    return [r.digest for r in one.history(run_id)] == [r.digest for r in other.history(run_id)]
