"""The architecture in tables: which layer may import which, which of its rooms know each other, and which
third-party packages they may use.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import pytest

from tests.architecture.sources import Source, everstep_sources

# A layer is the first package or module below `everstep`; `__init__` is what `import everstep` gives.
# Every layer may import the standard library, and itself as far as `BETWEEN_ROOMS` says. A dotted entry opens
# only that module of a layer; a dotted key is what a room may import besides what its layer may.
MAY_IMPORT: dict[str, set[str]] = {
    "on_demand": set(),
    "errors": {"on_demand"},
    "model": {"errors", "on_demand"},
    "codec": {"errors", "model", "on_demand"},
    # A flow read from JSON is checked as answers are, and finds classes by name as stored values do.
    # What a gate decided on is hashed as JSON, so that the same input is known again.
    # Whether what a hint says can be stored is asked of the codec that would store it.
    "graph": {
        *("errors", "model", "on_demand"),
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
        "on_demand",
        *("errors", "model", "ports", "codec.plain_json", "codec.records", "codec.shown", "codec.wire"),
        *("engine.query.labels", "engine.notices.rows"),
        *(
            "engine.commits",
            "engine.leases",
            "engine.claims",
            "engine.settling",
            "engine.trimming",
            "engine.limits",
        ),
    },
    "registry": {"errors", "on_demand", "ports", "stores", "compat"},
    "client": {
        "errors",
        "model",
        "codec",
        "graph",
        "engine",
        "ports",
        "runtime",
        "registry",
        "on_demand",
    },
    "client.exports": {"frontends"},  # what front ends recorded, in their own words
    # The modules that users import besides `everstep` itself only pass names on.
    "notify": {"graph", "ports", "runtime"},
    "migrate": {"graph", "ports", "registry"},  # a flow's runs, and the tables that keep them
    "checkpoints": {"client"},
    # It says where a line comes from, as a drive notes it, and cuts out what logs of steps do.
    "logs": {"errors", "runtime.live.at_work", "runtime.live.log_text", "runtime.services"},
    "wait": {"model", "graph"},
    "steps": {"errors", "model", "graph"},
    "inbox": {"model"},
    # Agent frameworks inside a node do what users could: nothing in everstep imports it.
    "agents": {"errors", "model", "graph", "steps", "wait"},
    "pipelines": {"frontends"},
    "phases": {"frontends"},
    "results": {"model", "codec", "graph", "ports", "runtime", "client"},
    "types": {"model", "codec.chain", "graph", "ports.tracing"},
    "backends": {"errors", "frontends"},
    "testing": {
        *("errors", "model", "codec", "graph", "engine", "ports", "runtime", "stores", "registry", "client"),
        *("__init__", "wait", "inbox", "backends", "phases", "results", "types"),
    },
    "server": {
        *("errors", "model", "graph", "runtime.events", "runtime.live.at_work", "client", "results"),
        *("runtime.metrics.exposition", "runtime.metrics.histogram"),
        "codec.plain_json",
        "codec.wire",
    },
    # A file with flows may name services of its own, which the command line hands to the host.
    "cli": {
        *(
            "errors",
            "on_demand",
            "model",
            "graph",
            "runtime.events",
            "runtime.workers.worker",
            "ports.durability",
            "client",
            "codec.compare",
            "codec.tags",
            "codec.plain_json",
            "codec.wire",
        ),
        *("server", "checkpoints", "logs", "backends", "frontends", "results", "types", "__init__"),
        "migrate",
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
            "steps",
            "types",
            "wait",
            "inbox",
            "compat",
        ),
        "codec.keyring",
    },
    "__main__": {"cli"},
}

# A room may import itself and the modules of the packages around it. Of the other rooms of its layer:
BETWEEN_ROOMS: dict[str, str] = {
    # The command line: words come in by `args`, go out by `view`.
    "cli": "args view",
    "cli.view": "args",
    "cli.live": "args view",
    "cli.bench": "args view",
    "cli.demo": "args view",
    "cli.commands.author": "args view",
    "cli.commands.fleet": "args view",
    "cli.commands.runs": "args view live commands.waits",
    "cli.commands.store": "args view live",
    "cli.commands.travel": "args view commands.runs",
    "cli.commands.waits": "args view",
    "engine": "limits undo",
    "client": "groups looking",
    "client.groups": "exports looking",
    "frontends.backends": "pipelines",
    "frontends.pipelines": "dot pipelines.lint",
    "frontends.pipelines.lint": "dot",
    "graph.author": "check compile ir",
    "graph.check": "author compile ir",
    "graph.compile": "author check",
    "graph.draw": "author check compile",
    "graph.ir": "author check compile",
    # The core of the runtime; what is done with runs besides driving them knows it, and not each other.
    "runtime": "drive drive.children drive.timed drive.undo guards integrity live metrics operations outage "
    "tracing travel waits waits.notices workers",
    "runtime.drive": "guards live metrics operations outage drive.children drive.timed drive.undo "
    "drive.units tracing waits workers",
    "runtime.drive.children": "drive.timed guards outage waits",
    "runtime.drive.timed": "outage waits",
    "runtime.drive.undo": "drive.units integrity travel",
    "runtime.drive.units": "drive.children outage waits",
    "runtime.guards": "drive workers",
    "runtime.live": "drive",
    "runtime.outage": "drive operations",
    "runtime.waits": "drive drive.children guards metrics operations outage waits.notices workers",
    "runtime.waits.notices": "drive",
    "runtime.workers": "drive.children operations.asking operations.bulk operations.schedules outage waits "
    "waits.notices",
    "runtime.bundles": "operations outage waits workers retention",
    "runtime.integrity": "drive outage travel waits",
    "runtime.metrics": "operations workers",
    "runtime.operations": "waits",
    "runtime.operations.asking": "outage retention travel",
    "runtime.operations.bulk": "retention travel",
    "runtime.operations.schedules": "drive.children operations.bulk retention",
    "runtime.retention": "drive operations outage",
    "runtime.tracing": "live",
    "runtime.travel": "drive drive.units guards operations outage waits",
    "server": "access api console pages",
    "server.console": "access",
    "server.api": "access",
    "stores.objects": "objects.marks",
    # No store knows another, but `memory:` is a store of objects.
    "stores.memory": "objects",
    "testing": "conformance",
}

# By layer, and by room what only that room may use.
MAY_USE: dict[str, set[str]] = {
    "model": {"msgspec"},
    "codec": {"backports", "cryptography", "msgspec"},
    "graph": {"msgspec"},
    "engine.query": {"msgspec"},
    "graph.author": {"typing_extensions"},  # only for type checkers, which bring it along
    "frontends": {"msgspec"},
    "frontends.backends": {"httpx2"},
    "ports": {"msgspec"},
    "runtime": {"msgspec"},
    "runtime.operations.schedules": {"cronsim"},
    "runtime.tracing": {"opentelemetry"},
    "client": {"msgspec"},
    "stores": {"msgspec"},
    "stores.sqlite": {"apsw"},
    "stores.postgres": {"psycopg"},
    "stores.redis": {"redis"},
    "stores.objects.cloud": {"obstore"},
    "stores.objects.github": {"httpx2"},
    "testing": {"apsw", "hypothesis", "msgspec", "pytest"},
    "testing.simulation": {"greenlet"},
    "server": {"msgspec", "starlette", "uvicorn"},
    "agents": {"agents", "mcp", "openai", "pydantic", "pydantic_ai"},
    "cli": {"click"},
    "cli.bench": {"msgspec", "rich"},  # the raw side writes its JSON as fast as it can be written
    "cli.live": {"rich"},
}


def imported_names(source: Source) -> Iterator[tuple[int, str]]:
    """Yield the line and the full dotted name of every import, wherever in the file it stands."""
    loaders = loaders_of(source)
    for node in source.nodes:
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                package = source.package[: len(source.package) - level + 1] if level else []
                origin = ".".join([*package, *([module] if module else [])])
                yield from ((node.lineno, f"{origin}.{alias.name}") for alias in names)
            case ast.Call(func=func, args=[first, *_]):
                if name := loaded_name(getattr(func, "id", getattr(func, "attr", "")), first, loaders):
                    yield node.lineno, name


LOADERS = {"import_module", "__import__", "on_demand"}
DOTTED = re.compile(r"everstep(?:\.\w+)+(?::\w+)?")
"""What a call that is given this first loads, whatever its name; a logger has such a name as well."""


def loaders_of(source: Source) -> set[str]:
    """Return the names by which a module calls what loads another by its name."""
    aliases = [
        alias
        for node in source.nodes
        if isinstance(node, ast.ImportFrom | ast.Import)
        for alias in node.names
    ]
    return LOADERS | {alias.asname for alias in aliases if alias.asname and alias.name in LOADERS}


def loaded_name(function: str, first: ast.expr, loaders: set[str]) -> str:
    """Return the module that a call with this first argument loads; empty if it loads none.

    Of a name that is put together, only the beginning is known: all below it may be meant.
    """
    match first:
        case ast.Constant(value=str(name)) if function in loaders:
            return name.replace(":", ".")
        case ast.Constant(value=str(name)) if function != "getLogger" and DOTTED.fullmatch(name):
            return name.replace(":", ".")
        case ast.JoinedStr(values=[ast.Constant(value=str(name)), *_]) if function in loaders:
            return name.rpartition(".")[0]
    return ""


@cache
def rooms() -> frozenset[str]:
    """Return every package below `everstep`: `stores`, `stores.sqlite`, …"""
    return frozenset(
        source.path.removesuffix("/__init__.py").replace("/", ".")
        for source in everstep_sources()
        if source.path.endswith("/__init__.py")
    )


def room_of(module: str) -> str:
    """Return the innermost room that a dotted name below `everstep` lies in; empty if in none."""
    while module and module not in rooms():
        module = module.rpartition(".")[0]
    return module


def around(room: str) -> list[str]:
    """Return a room, and those that it lies in."""
    parts = room.split(".")
    return [".".join(parts[:k]) for k in range(len(parts), 0, -1)]


def is_allowed(source: Source, name: str) -> bool:
    """Say whether a module may import the dotted `name`."""
    top, _, inner = name.partition(".")
    places = around(".".join(source.package[1:]) or source.layer)
    if top != "everstep":
        return top in sys.stdlib_module_names or any(top in MAY_USE.get(place, ()) for place in places)
    target = inner.split(".")[0]
    if target not in MAY_IMPORT:  # `import everstep`, `from everstep import Host`
        target = inner = "__init__"
    if target == source.layer:
        known = {f"{source.layer}.{name}" for name in BETWEEN_ROOMS.get(places[0], "").split()}
        return room_of(inner) in {*places, *known, ""}
    entries = {entry for place in places for entry in MAY_IMPORT.get(place, ())}
    return any(inner == entry or inner.startswith(f"{entry}.") for entry in entries)


def stray_imports(source: Source) -> list[str]:
    """Name each import that the tables do not allow."""
    place = ".".join(source.package[1:]) or source.layer
    return [
        f"{source.at(line)}: {place} may not import {name}"
        for line, name in imported_names(source)
        if not is_allowed(source, name)
    ]


def test_the_package_is_found() -> None:
    assert "errors.py" in {source.path for source in everstep_sources()}


def test_every_layer_is_in_the_table() -> None:
    assert {source.layer for source in everstep_sources()} <= MAY_IMPORT.keys()


def test_the_tables_name_known_layers_only() -> None:
    layers = {source.layer for source in everstep_sources()}
    entries = {entry.split(".")[0] for allowed in MAY_IMPORT.values() for entry in allowed}
    assert entries <= layers
    assert MAY_IMPORT.keys() | MAY_USE.keys() | BETWEEN_ROOMS.keys() <= layers | rooms()


def test_the_table_of_rooms_allows_what_is_needed_and_no_more() -> None:
    needed: dict[str, set[str]] = defaultdict(set)
    for source in everstep_sources():
        room = room_of(".".join(source.package[1:]))
        for _, name in imported_names(source):
            other = room_of(name.removeprefix("everstep.")) if name.startswith("everstep.") else ""
            if room and other.split(".")[0] == source.layer and other not in around(room):
                needed[room].add(other.removeprefix(f"{source.layer}."))
    assert {room: set(known.split()) for room, known in BETWEEN_ROOMS.items()} == dict(needed)


def test_layers_and_rooms_import_only_what_they_may() -> None:
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
        ("engine/decide.py", "from importlib import import_module as load\nx = load('everstep.stores.a')"),
        ("engine/decide.py", "from importlib import import_module as load\nx = load('apsw')"),
        ("engine/decide.py", "import_module(f'everstep.{room}.sqlite.store')"),
        ("engine/decide.py", "import_module(f'everstep.stores.{kind}')"),
        ("client/host.py", "x = CallGroup('everstep.frontends.dot.parser', 'parse')"),
        ("engine/decide.py", "import msgspec"),
        ("runtime/drive/loop.py", "from everstep.stores.sqlite import SqliteStore"),
        ("runtime/drive/loop.py", "import apsw"),
        ("runtime/drive/loop.py", "fork = on_demand('everstep.runtime.travel.fork:fork')"),
        ("runtime/retention/erase.py", "from everstep.runtime.bundles import export"),
        ("stores/sqlite/a.py", "from everstep.engine import decide"),
        ("stores/sqlite/a.py", "import everstep.engine"),
        ("stores/sqlite/a.py", "from everstep.engine.leases_of_others import take"),
        ("stores/sqlite/a.py", "from everstep.stores.postgres.columns import read"),
        ("stores/sqlite/a.py", "from ..postgres import columns"),
        ("stores/sqlite/a.py", "import psycopg"),
        ("stores/objects/store.py", "from everstep.stores.objects.folder import bucket"),
        ("stores/columns.py", "from everstep.stores.sqlite.store import SqliteStore"),
        ("graph/compile/plan.py", "from everstep.graph.draw.drawing import draw"),
        ("cli/view/text.py", "from everstep.cli.commands.runs import log"),
        ("client/host.py", "from everstep.stores import memory"),
        ("client/host.py", "from everstep.frontends.pipelines import building"),
        ("client/groups/fleet.py", "from everstep.frontends.phases import places"),
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
    place = path.rpartition("/")[0].replace("/", ".") or path.removesuffix(".py")
    assert stray.startswith(f"src/everstep/{path}:{last_line}: {place} may not import ")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("errors.py", "from __future__ import annotations\nimport dataclasses, os.path"),
        ("model/records.py", "import msgspec\nfrom everstep.errors import BadRequest\nfrom . import ids"),
        ("model/deep/ids.py", "from ..records import Record\nfrom ...errors import BadRequest"),
        ("stores/sqlite/a.py", "import apsw\nfrom everstep.engine import leases"),
        ("stores/sqlite/a.py", "from everstep.engine.leases import take\nimport everstep.engine.leases"),
        ("stores/sqlite/a.py", "from everstep.stores.columns import read\nfrom . import waits"),
        ("runtime/drive/loop.py", "from everstep.runtime.waits.open import Waits"),
        ("client/exports/forms.py", "from everstep.frontends.phases import places"),
        ("client/host.py", "debug = CallGroup('everstep.client.groups.debug', 'DebugCalls')"),
        ("engine/decide.py", "log = logging.getLogger('everstep.server')"),
        ("cli/main.py", "import_module(f'everstep.cli.{module}')"),
        ("registry.py", "def f():\n    from everstep.stores.sqlite import SqliteStore"),
        ("cli/live/tree.py", "import click\nfrom rich.table import Table\nfrom everstep import Host"),
        ("cli/main.py", "from everstep.runtime.events import RunEvent\nfrom everstep.runtime import events"),
        ("testing/suite.py", "import pytest\nfrom everstep import Host\nfrom everstep.stores import memory"),
        ("__init__.py", "from everstep.client import Host\nfrom .graph import Flow"),
        ("__main__.py", "from everstep.cli.main import main"),
    ],
)
def test_an_import_in_the_tables_passes(path: str, text: str) -> None:
    assert stray_imports(Source(path, text)) == []
