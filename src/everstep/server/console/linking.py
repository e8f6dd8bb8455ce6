"""The console's modules as one script, for a file that has no others beside it. Apart from `file`, which
knows what a run is and nothing of scripts.

Our modules are written in one style, and no two import each other in a circle: each becomes a function that
gives what it exports. What is in another style is refused, so that it is noticed here and not in a browser.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from functools import cache

from everstep.server.console.files import assets

_IMPORT = re.compile(r'^import\s+(?:\*\s+as\s+(\w+)|(\w+)|\{([^}]*)\})\s+from\s+"([^"]+)";$', re.M)
_DECLARED = re.compile(r"^export\s+((?:async\s+)?(?:const|let|function|class)\s+(\w+))", re.M)
_DEFAULT = re.compile(r"^export\s+default\s+((?:async\s+)?function\s+(\w+))", re.M)
_LISTED = re.compile(r"^export\s*\{([^}]*)\};?\s*$", re.M)
_VENDORED = re.compile(r"export\{([^}]*)\};?\s*$")


def linked(entry: str) -> str:
    """Return a script that does what a module does, with all that it imports."""
    order = needed(entry)
    names = {name: f"$m{number}" for number, name in enumerate(order)}
    return '"use strict";\n' + "\n".join(_wrapped(name, names) for name in order) + "\n"


@cache
def needed(entry: str) -> tuple[str, ...]:
    """Return a module and all that it imports, each behind those that it imports itself."""
    return tuple(_order(entry, {}))


def _order(name: str, seen: dict[str, bool]) -> Iterator[str]:
    """Yield modules, each behind those that it imports."""
    if name in seen:
        if not seen[name]:
            raise ValueError(f"{name} imports itself by way of others")
        return
    seen[name] = False
    for found in _IMPORT.finditer(_text(name)):
        yield from _order(_target(name, found[4]), seen)
    seen[name] = True
    yield name


def _text(name: str) -> str:
    return assets()[name].body.decode()


def _target(name: str, said: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), said))


def _wrapped(name: str, names: dict[str, str]) -> str:
    text = _text(name)
    given: dict[str, str] = {}

    def imported(found: re.Match[str]) -> str:
        home = names[_target(name, found[4])]
        if found[1]:
            return f"const {found[1]} = {home};"
        if found[2]:
            return f"const {found[2]} = {home}.default;"
        return f"const {{{_renamed(found[3], ':')}}} = {home};"

    def declared(found: re.Match[str]) -> str:
        given[found[2]] = found[2]
        return found[1]

    def default(found: re.Match[str]) -> str:
        given["default"] = found[2]
        return found[1]

    def listed(found: re.Match[str]) -> str:
        for one in filter(None, (part.strip() for part in found[1].split(","))):
            inner, _, outer = one.partition(" as ")
            given[outer.strip() or inner.strip()] = inner.strip()
        return ""

    text = _IMPORT.sub(imported, text)
    text = _DEFAULT.sub(default, text)
    text = _DECLARED.sub(declared, text)
    text = _VENDORED.sub(listed, text) if name.startswith("vendor/") else _LISTED.sub(listed, text)
    if re.search(r"^\s*(?:import|export)\b", text, re.M) or re.search(r"\bimport\(", text):
        raise ValueError(f"{name} imports or exports in a style that is not known here")
    gives = ", ".join(f"get {outer}() {{ return {inner}; }}" for outer, inner in given.items())
    return f"const {names[name]} = (() => {{\n{text}\nreturn {{ {gives} }};\n}})();"


def _renamed(listed: str, between: str) -> str:
    return ", ".join(
        part.strip().replace(" as ", f"{between} ") for part in listed.split(",") if part.strip()
    )
