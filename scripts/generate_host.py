"""Write `client/sync.py` and `client/sync_groups.py`: `Host` and its groups of calls, made from `AsyncHost`.

    python scripts/generate_host.py

Signatures and docstrings are copied, bodies call the same method of `AsyncHost` on an event loop of its own.
A test compares what is committed with what this makes.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

CLIENT = Path(__file__).resolve().parents[1] / "src" / "everstep" / "client"

ONLY_ASYNC = {"borrower", "driving", "twin", "worker"}
"""`twin` is for another event loop; a worker and what is driven live on one, a borrower needs one."""
BY_HAND = {"__init__", "__aenter__", "__aexit__", "close"}
"""What has nothing of its async twin but the signature is written out below."""

HOST_OPENING = '''"""`Host`: `AsyncHost` for code that does not await. No logic of its own.

Made by `scripts/generate_host.py` from `host.py` and `groups/`: change those, and run it.

Each call drives an event loop of its own on the caller's thread, so a sync node runs where the caller is,
Ctrl-C reaches it, and threads that share a host do not wait for one another.
"""

from __future__ import annotations
'''
GROUPS_OPENING = '''\
"""The groups of calls of `Host`: those of `AsyncHost` for code that does not await. Apart from `sync`, which
is generated too: the calls of groups few programs load.

Made by `scripts/generate_host.py` from `groups/`: change that, and run it.
"""

from __future__ import annotations
'''
USED_BY_HOST = {
    "suppress": "contextlib",
    "TracebackType": "types",
    "TYPE_CHECKING": "typing",
    "Self": "typing",
    "overload": "typing",
    "AsyncHost": "everstep.client.host",
    "Lanes": "everstep.client.lanes",
    "with_moved_calls": "everstep.client.moved",
    "BadRequest": "everstep.errors",
    "on_demand": "everstep.on_demand",
}
"""What the bodies need when they are called."""

NEXT_EVENT = """
async def _next_event(events: AsyncGenerator[Any, None]) -> Any:
    return await anext(events, None)


async def _close(events: AsyncGenerator[Any, None]) -> None:
    await events.aclose()
"""
ITERATED = """
        events = self._host.twin().{call}
        try:
            while (event := self._lanes.call(lambda _: _next_event(events))) is not None:
                yield event
        finally:
            with suppress(BadRequest):  # the host is closed
                self._lanes.call(lambda _: _close(events))
"""
STREAMED = """
        yield from streamed_here(
            self._lanes.aside, self._host.clock, lambda host, told: host._telling(told).{call}
        )
"""
TAIL = """
    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
"""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module:
    """A source file: its only public class, and where the names in it come from."""

    def __init__(self, path: Path) -> None:
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.cls = next(node for node in self.tree.body if isinstance(node, ast.ClassDef))
        self.origins: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                self.origins |= {alias.asname or alias.name: node.module for alias in node.names}

    def functions(self) -> Iterator[Function]:
        """Yield its public methods and properties, and its constructor."""
        for node in self.cls.body:
            if isinstance(node, Function) and (node.name in BY_HAND or not node.name.startswith("_")):
                yield node

    def groups(self) -> Iterator[tuple[str, str, str]]:
        """Yield the name, the class and the docstring of each of its groups of calls."""
        for node, after in zip(self.cls.body, self.cls.body[1:], strict=False):
            match node, after:
                case (
                    ast.AnnAssign(
                        target=ast.Name(id=name),
                        annotation=ast.Subscript(value=ast.Name(id="CallGroup"), slice=ast.Name(id=cls)),
                    ),
                    ast.Expr(value=ast.Constant(value=str(doc))),
                ):
                    yield name, cls, doc


class Names:
    """What the generated module has to import."""

    def __init__(self, used: dict[str, str], for_types: dict[str, str]) -> None:
        self.used, self.for_types = used, for_types

    def note(self, function: Function, origins: dict[str, str]) -> None:
        """Take in what a signature names; a default is needed when the module is loaded."""
        arguments = function.args
        defaults = [*arguments.defaults, *(default for default in arguments.kw_defaults if default)]
        self.used |= _names(defaults, origins)
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [one for one in (arguments.vararg, arguments.kwarg) if one]
        hints = [one.annotation for one in every if one.annotation]
        self.for_types |= _names([*hints, *([function.returns] if function.returns else [])], origins)

    def lines(self) -> str:
        """Return the imports."""
        only = {name: module for name, module in self.for_types.items() if name not in self.used}
        block = "\n".join(f"    {line}" for line in _imports(only))
        return "\n".join(_imports(self.used)) + f"\n\nif TYPE_CHECKING:\n{block}\n"


def _names(parts: Iterable[ast.AST], origins: dict[str, str]) -> dict[str, str]:
    found = {node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name)}
    return {name: origins[name] for name in found if name in origins}


def _imports(names: dict[str, str]) -> list[str]:
    return [f"from {module} import {name}" for name, module in sorted(names.items())]


def _signature(function: Function, *, without: str = "", returns: str = "") -> str:
    arguments = function.args
    kept = [(one, default) for one, default in _keywords(arguments) if one.arg != without]
    arguments.kwonlyargs = [one for one, _ in kept]
    arguments.kw_defaults = [default for _, default in kept]
    hint = returns or (ast.unparse(function.returns) if function.returns else "None")
    return f"    def {function.name}({ast.unparse(arguments)}) -> {hint}:\n"


def _keywords(arguments: ast.arguments) -> list[tuple[ast.arg, ast.expr | None]]:
    return list(zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))


def _call(function: Function) -> str:
    """Return the call that hands all arguments on as they came."""
    arguments = function.args
    given = [one.arg for one in arguments.args if one.arg != "self"]
    given += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    given += [f"{one.arg}={one.arg}" for one in arguments.kwonlyargs]
    given += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    return f"{function.name}({', '.join(given)})"


def _docstring(node: Function | ast.ClassDef, indent: str) -> str:
    """Return the docstring as it stands in the source."""
    text = ast.get_docstring(node, clean=True)
    if text is None:
        return ""
    lines = [f'{indent}"""{text.splitlines()[0]}', *(f"{indent}{line}" for line in text.splitlines()[1:])]
    closing = '"""' if len(lines) == 1 else f'\n{indent}"""'
    return "\n".join(line.rstrip() for line in lines) + closing + "\n"


def _is_overload(function: Function) -> bool:
    return any(isinstance(one, ast.Name) and one.id == "overload" for one in function.decorator_list)


def _method(function: Function, group: str) -> str:
    if _is_overload(function):
        return "    @overload\n" + _signature(function).removesuffix("\n") + " ..."
    doc = _docstring(function, " " * 8)
    if not isinstance(function, ast.AsyncFunctionDef):
        assert any(isinstance(d, ast.Name) and d.id == "property" for d in function.decorator_list), function
        owner = f"self._lanes.host.{group}" if group else "self._host."
        body = f"        return {owner}{function.name}\n"
        return "    @property\n" + _signature(function) + doc + body
    match function.returns:
        case ast.Subscript(value=ast.Name(id="AsyncGenerator"), slice=ast.Tuple(elts=[item, _])):
            returns = f"Iterator[{ast.unparse(item)}]"
            if function.name == "stream":  # a drive goes on while its reader does something else
                call = "run" + _call(function).removeprefix("stream")
                return _signature(function, returns=returns) + doc + STREAMED.format(call=call)
            return _signature(function, returns=returns) + doc + ITERATED.format(call=_call(function))
    call = f"host.{group}{_call(function)}"
    return _signature(function) + doc + f"        return self._lanes.call(lambda host: {call})\n"


def _calls(module: Module, names: Names, group: str = "") -> str:
    parts = []
    for function in module.functions():
        if function.name in ONLY_ASYNC:
            continue
        if function.name not in BY_HAND:
            names.note(function, module.origins)
            parts.append(_method(function, group))
        elif function.name == "__init__" and not group:
            names.note(function, module.origins)
            handed = _call(_without(function, "owns_loop")).removeprefix("__init__(").removesuffix(")")
            parts.append(
                f"{_signature(function)}        self._host = AsyncHost({handed}, owns_loop=True)\n"
                "        self._lanes = Lanes(self._host)\n\n"
                "    @property\n    def url(self) -> str:\n"
                '        """Where its runs are kept."""\n        return self._host.url\n'
            )
        elif function.name == "close":
            doc = _docstring(function, " " * 8)
            parts.append(f"{_signature(function)}{doc}        self._lanes.close()\n")
    return "\n".join(parts)


def _without(function: Function, name: str) -> Function:
    _signature(function, without=name)
    return function


def _groups(host: Module) -> str:
    names = Names({"TYPE_CHECKING": "typing", "overload": "typing"}, {"Lanes": "everstep.client.lanes"})
    classes = []
    for group, cls, _ in host.groups():
        module = Module(CLIENT / "groups" / f"{group}.py")
        assert module.cls.name == cls, (group, cls)
        init = "    def __init__(self, lanes: Lanes) -> None:\n        self._lanes = lanes\n\n"
        calls = _calls(module, names, f"{group}.")
        classes.append(f"class Sync{cls}:\n{_docstring(module.cls, '    ')}\n{init}{calls}")
    return GROUPS_OPENING + names.lines() + "\n\n" + "\n\n".join(classes)


def _host(host: Module) -> str:
    names = Names(dict(USED_BY_HOST), {"AsyncGenerator": "collections.abc", "Iterator": "collections.abc"})
    names.for_types |= {f"Sync{cls}": "everstep.client.sync_groups" for _, cls, _ in host.groups()}
    names.for_types |= {"sync_groups": "everstep.client", "streamed_here": "everstep.client.streaming"}
    groups = "\n".join(
        f'    @property\n    def {group}(self) -> Sync{cls}:\n        """{doc}"""\n'
        f"        return sync_groups.Sync{cls}(self._lanes)\n"
        for group, cls, doc in host.groups()
    )
    calls = _calls(host, names)
    start = calls.index("    @property\n    def clock")
    body = f"{calls[:start]}{groups}\n{calls[start:]}{TAIL}"
    groups_on_demand = (
        'else:\n    sync_groups = on_demand("everstep.client.sync_groups")\n'
        '    streamed_here = on_demand("everstep.client.streaming:streamed_here")\n'
    )
    opening = (
        f"{HOST_OPENING}{names.lines()}{groups_on_demand}{NEXT_EVENT}\n\n@with_moved_calls\nclass Host:\n"
    )
    return f"{opening}{_docstring(host.cls, '    ')}\n{body}"


def generate() -> dict[Path, str]:
    """Return the text of each module that is made."""
    host = Module(CLIENT / "host.py")
    made = {CLIENT / "sync.py": _host(host), CLIENT / "sync_groups.py": _groups(host)}
    return {path: _formatted(path, text) for path, text in made.items()}


def _formatted(path: Path, text: str) -> str:
    for command in (["check", "--fix", "--quiet", "--select=I", "-"], ["format", "--quiet", "-"]):
        ruff = [sys.executable, "-m", "ruff", *command, f"--stdin-filename={path}"]
        text = subprocess.run(ruff, input=text, check=True, capture_output=True, text=True).stdout
    return text


if __name__ == "__main__":
    for path, text in generate().items():
        path.write_text(text, encoding="utf-8")
