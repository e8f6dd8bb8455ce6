"""The architecture in two tables: which layer may import which, and which third-party packages it may use."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

import pytest

from tests.architecture.sources import Source, everstep_sources

# A layer is the first package or module below `everstep`; `__init__` is what `import everstep` gives.
# Every layer may import itself and the standard library. A dotted entry opens only that module of a layer.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "on_demand": set(),
    "model": {"errors"},
    "codec": {"errors", "model"},
    # A flow read from JSON is checked as answers are, and finds classes by name as stored values do.
    # What a gate decided on is hashed as JSON, so that the same input is known again.
    # Whether what a hint says can be stored is asked of the codec that would store it.
    "graph": {
        *("errors", "model"),
        *("codec.classes", "codec.complaints", "codec.plain_json", "codec.quick", "codec.values"),
    },
    # Other ways to write a flow: they build flows, and know nothing of how one is run.
    "frontends": {
        *("errors", "model", "graph", "codec.complaints", "codec.plain_json", "codec.schema"),
        "engine.state",  # how far a run has come is told in the words of its front end
        "compat",  # for type checkers: the flow that users see has what front ends attach to it
    },
    # What front ends attach to the classes of the core. The registry names it, and nothing in the core does.
    "compat": {"graph", "frontends"},
    "ports": {"errors", "model"},
    "engine": {"errors", "model", "graph"},
    "runtime": {"errors", "model", "codec", "graph", "engine", "ports", "on_demand"},
    # Who gets a lease, whose turn it is, what may be trimmed and what is left of it is decided once.
    "stores": {
        *("errors", "model", "ports", "codec.plain_json", "codec.records", "codec.shown", "codec.wire"),
        *("engine.commits", "engine.leases", "engine.claims", "engine.settling", "engine.trimming"),
    },
    "registry": {"errors", "ports", "stores", "compat"},
    "client": {
        "errors",
        "model",
        "codec",
        "graph",
        "engine",
        "ports",
        "runtime",
        "registry",
        "frontends",
        "on_demand",
    },
    # The modules that users import besides `everstep` itself only pass names on.
    "notify": {"ports", "runtime"},
    "migrate": {"graph"},
    "checkpoints": {"client"},
    "wait": {"model", "graph"},
    "pipelines": {"frontends"},
    "phases": {"frontends"},
    "results": {"model", "codec", "graph", "ports", "runtime", "client"},
    "types": {"model", "codec.chain", "graph"},
    "backends": {"errors", "frontends"},
    "testing": {
        *("errors", "model", "codec", "graph", "engine", "ports", "runtime", "stores", "registry", "client"),
        *("__init__", "wait", "backends", "phases", "results", "types"),
    },
    "server": {
        *("errors", "model", "graph", "runtime.events", "client", "results"),
        "codec.plain_json",
        "codec.wire",
    },
    # A file with flows may name services of its own, which the command line hands to the host.
    "cli": {
        *(
            "errors",
            "model",
            "graph",
            "runtime.events",
            "runtime.workers.worker",
            "ports.durability",
            "client",
            "codec.compare",
            "codec.plain_json",
            "codec.wire",
        ),
        *("server", "checkpoints", "backends", "frontends", "results", "types", "__init__"),
    },
    # Keys are given to a host, and made without one.
    "__init__": {
        *(
            "errors",
            "model",
            "graph",
            "frontends",
            "backends",
            "client",
            "checkpoints",
            "migrate",
            "notify",
            "phases",
            "pipelines",
            "registry",
            "results",
            "types",
            "wait",
            "compat",
        ),
        "codec.keyring",
    },
    "__main__": {"cli"},
}

MAY_USE: dict[str, set[str]] = {
    "model": {"msgspec"},
    "codec": {"backports", "cryptography", "msgspec"},
    "graph": {"msgspec", "typing_extensions"},  # the latter only for type checkers, which bring it along
    "frontends": {"httpx2", "msgspec"},
    "ports": {"msgspec"},
    "runtime": {"msgspec"},
    "client": {"msgspec"},
    "stores": {"apsw", "httpx2", "msgspec", "obstore", "psycopg", "redis"},
    "testing": {"apsw", "hypothesis", "msgspec", "pytest"},
    "server": {"msgspec", "starlette", "uvicorn"},
    "cli": {"click", "rich"},
}


def imported_names(source: Source) -> Iterator[tuple[int, str]]:
    """Yield the line and the full dotted name of every import, wherever in the file it stands."""
    for node in source.nodes:
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                package = source.package[: len(source.package) - level + 1] if level else []
                origin = ".".join([*package, *([module] if module else [])])
                yield from ((node.lineno, f"{origin}.{alias.name}") for alias in names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__" | "on_demand")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name.replace(":", ".")


def is_allowed(layer: str, name: str) -> bool:
    """Say whether `layer` may import the dotted `name`."""
    top, _, inner = name.partition(".")
    if top != "everstep":
        return top in sys.stdlib_module_names or top in MAY_USE.get(layer, set())
    target = inner.split(".")[0]
    if target not in MAY_IMPORT:  # `import everstep`, `from everstep import Host`
        target = inner = "__init__"
    return target == layer or any(
        inner == entry or inner.startswith(f"{entry}.") for entry in MAY_IMPORT[layer]
    )


def stray_imports(source: Source) -> list[str]:
    """Name each import that the tables do not allow."""
    return [
        f"{source.at(line)}: {source.layer} may not import {name}"
        for line, name in imported_names(source)
        if not is_allowed(source.layer, name)
    ]


def test_the_package_is_found() -> None:
    assert "errors.py" in {source.path for source in everstep_sources()}


def test_every_layer_is_in_the_table() -> None:
    assert {source.layer for source in everstep_sources()} <= MAY_IMPORT.keys()


def test_the_tables_name_known_layers_only() -> None:
    entries = {entry.split(".")[0] for allowed in MAY_IMPORT.values() for entry in allowed}
    assert entries | MAY_USE.keys() <= MAY_IMPORT.keys()


def test_layers_import_only_what_they_may() -> None:
    strays = [stray for source in everstep_sources() for stray in stray_imports(source)]
    assert not strays, "\n".join(strays)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("errors.py", "import everstep.model"),
        ("errors.py", "import everstep"),
        ("errors.py", "import msgspec"),
        ("model/records.py", "from everstep import graph"),
        ("model/records.py", "from .. import graph"),
        ("model/records.py", "from ..graph.flow import Flow"),
        ("model/__init__.py", "from ..graph import Flow"),
        ("engine/decide.py", "def f():\n    from everstep.ports import Clock"),
        ("engine/decide.py", "if TYPE_CHECKING:\n    from everstep.runtime import Worker"),
        ("engine/decide.py", "importlib.import_module('everstep.stores')"),
        ("engine/decide.py", "import msgspec"),
        ("runtime/drive/loop.py", "from everstep.stores.sqlite import SqliteStore"),
        ("runtime/drive/loop.py", "import apsw"),
        ("stores/sqlite.py", "from everstep.engine import decide"),
        ("stores/sqlite.py", "import everstep.engine"),
        ("stores/sqlite.py", "from everstep.engine.leases_of_others import take"),
        ("client/host.py", "from everstep.stores import memory"),
        ("testing/clock.py", "from everstep.cli import main"),
        ("cli/main.py", "from everstep.runtime import drive"),
        ("cli/main.py", "from everstep.stores import memory"),
        ("__init__.py", "from everstep.runtime import Worker"),
        ("__main__.py", "from everstep import Host"),
    ],
)
def test_a_stray_import_is_named_with_its_file_and_line(path: str, text: str) -> None:
    [stray] = stray_imports(Source(path, text))
    last_line = len(text.splitlines())
    assert stray.startswith(f"src/everstep/{path}:{last_line}: {Source(path, text).layer} may not import ")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("errors.py", "from __future__ import annotations\nimport dataclasses, os.path"),
        ("model/records.py", "import msgspec\nfrom everstep.errors import BadRequest\nfrom . import ids"),
        ("model/deep/ids.py", "from ..records import Record\nfrom ...errors import BadRequest"),
        ("stores/sqlite.py", "import apsw\nfrom everstep.engine import leases"),
        ("stores/sqlite.py", "from everstep.engine.leases import take\nimport everstep.engine.leases"),
        ("registry.py", "def f():\n    from everstep.stores.sqlite import SqliteStore"),
        ("cli/main.py", "import click\nfrom rich.table import Table\nfrom everstep import Host"),
        ("cli/main.py", "from everstep.runtime.events import RunEvent\nfrom everstep.runtime import events"),
        ("testing/suite.py", "import pytest\nfrom everstep import Host\nfrom everstep.stores import memory"),
        ("__init__.py", "from everstep.client import Host\nfrom .graph import Flow"),
        ("__main__.py", "from everstep.cli.main import main"),
    ],
)
def test_an_import_in_the_tables_passes(path: str, text: str) -> None:
    assert stray_imports(Source(path, text)) == []
