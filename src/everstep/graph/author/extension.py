"""What others add to a flow without the core knowing them: a front end's own data, and its rules.

Data lies in `Node.extension`, under the namespace of the front end; it is part of the structure that is
hashed, and of the IR. Rules are an `Extension`, which the front end gives to the flow that it builds; for a
flow that was read back, one is found by the namespace of its nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from importlib import import_module
from typing import Any, Final

import msgspec

from everstep.errors import BadRequest

Read = Callable[[str], Any]
"""Returns what the channel of a run holds under a key; none if that is nothing."""


class Extension:
    """How the runs of a flow go on, where its maker has something to say. This one says nothing.

    `prefix` is the path of the flow in its run, such as `outer/`, and empty at the top.
    """

    keeps_as_around = False
    """True if the flow, as a node of another, is kept as the flow around it says."""

    def read(self, data: Any) -> Any:
        """Return what an IR says of a node as it is kept; `BadRequest` if that is wrong."""
        return data

    def check_resume(self, prefix: str, read: Read) -> None:
        """Raise unless a run that was under way may go on with this flow."""

    def resumes_at(self, prefix: str, failed: str, read: Read) -> str | None:
        """Return the node where a flow begins again in which a node failed; none to go on where it stands."""
        return None

    def only_chooses(self, prefix: str, path: str, visit: int, read: Read) -> bool | None:
        """Say whether a visit has done its work and is only to choose; none leaves it to the flow around.

        `path` is that of the node in the flow.
        """
        return None

    def start_marks(self, path: str, *, is_told: bool) -> Mapping[str, Any]:
        """Return what the channel is told when a resume begins at a node, which a person named or a rule."""
        return {}

    def progress(self, flow: Any, state: Any, read: Read, start: str | None) -> Mapping[str, Any]:
        """Return how far a run had come when it is resumed, by the name under which that is told."""
        return {}

    def steps_done(self, state: Any) -> int | None:
        """Count what was done in a run, in units of the front end's own; none for plain steps."""
        return None


PLAIN: Final = Extension()
"""That of a flow which no front end made."""


class Extensions:
    """Which front end a namespace belongs to. Filled by what attaches itself to the core."""

    def __init__(self) -> None:
        self._homes: dict[str, str] = {}
        self._old: set[str] = set()
        self._results: dict[str, str] = {}

    def add(self, namespace: str, home: str, *, is_old_field: bool = False) -> None:
        """Say where the extension of a namespace is: `module:NAME`, loaded when it is asked for.

        An old field stood in the IR as a field of the node, before there were extensions.
        """
        self._homes[namespace] = home
        if is_old_field:
            self._old.add(namespace)

    def add_results(self, beginning: str, home: str) -> None:
        """Say who knows what a run came to whose channel has keys that begin so.

        `home` is `module:function`; it gets the plan and the keys, and returns those that are the result,
        or none if the run is not its own.
        """
        self._results[beginning] = home

    def results(self, plan: Any, keys: Collection[str]) -> set[str] | None:
        """Return which keys of the channel are the result of a run; none if its values are."""
        for beginning, home in self._results.items():
            if any(key.startswith(beginning) for key in keys):
                found: set[str] | None = _load(home)(plan, keys)
                return found
        return None

    def of(self, nodes: Iterable[Any]) -> Extension:
        """Return the extension that the nodes of a flow belong to."""
        for node in nodes:
            for namespace in getattr(node, "extension", ()):
                return self._found(namespace)
        return PLAIN

    def read(self, ir: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a node of an IR says to front ends, in old spellings too."""
        said = {name: ir[name] for name in self._old if name in ir} | ir.get("extension", {})
        for namespace in said.keys() & ir.keys() - self._old:
            raise BadRequest(f"{namespace!r} is a field of every node.", fix="Use a name of your own.")
        found = {namespace: self._found(namespace).read(data) for namespace, data in said.items()}
        # The structure is hashed as it is written, and in JSON the order of keys means nothing.
        ordered: dict[str, Any] = msgspec.to_builtins(found, order="sorted")
        return ordered

    def _found(self, namespace: str) -> Extension:
        if namespace not in self._homes:  # its front end is not installed: its data is kept as it is
            return PLAIN
        found: Extension = _load(self._homes[namespace])
        return found


def _load(home: str) -> Any:
    module, _, name = home.partition(":")
    return getattr(import_module(module), name)


EXTENSIONS: Final = Extensions()
