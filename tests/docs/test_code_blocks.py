"""What the pages say is true: their code runs, their commands exist, their links lead somewhere.

The blocks of a page share a folder and, if they are Python, a module:

    ```python               runs
    ```python file=name.py  is written to that file, for the blocks after it
    ```python no-run        does not run; listed in NOT_RUN with the reason
    ```console              runs what stands behind `$ `; the lines below are its output, `…` is any text
    ```sh                   does not run; its commands and options exist
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import get_args

import click
import msgspec
import pytest

import everstep
from everstep import errors, testing
from everstep.cli.main import COMMANDS, cli
from everstep.graph.author.subflow import Subflow
from everstep.model import acts, enums, leases, ledger, records, waits
from everstep.model.durability import Durability
from everstep.runtime.events import EventKind
from tests.architecture.sources import PACKAGE, ROOT
from tests.servers import warm

REDIS = "redis://localhost:6379/0"
"""What pages call a Redis; their code runs with one of its own."""

GITHUB = "github://acme/flows/runs"
"""What pages call a repository; likewise."""

S3 = "s3://my-bucket/runs?region=eu-central-1"
"""What pages call a bucket; likewise."""

NOT_RUN: dict[str, str] = {}
"""Pages with a block that cannot run here, and why."""

NOT_FOR_USERS = {"alone", "spread", "decide", "describe", "saying", "make_step", "occurrence", *dir(Mapping)}
"""Methods of nodes and contexts that the graph and the runtime call, and those that every mapping has."""

PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
}
FENCE = re.compile(r"^```(\w+)[ ]*([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
EXIT = re.compile(r"# exits with (\d+)$")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, what follows the language, and the text."""

    language: str
    note: str
    text: str
    line: int


def blocks_of(page: str) -> list[Block]:
    return [Block(m[1], m[2].strip(), m[3], page[: m.start()].count("\n") + 2) for m in FENCE.finditer(page)]


def commands_in(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a console block with the lines that it should print."""
    for chunk in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *expected = chunk.replace("\\\n", "").rstrip().splitlines()
        yield command, expected


def runnable(page: str) -> bool:
    return any(b.language in ("python", "console", "dot") for b in blocks_of(PAGES[page]))


@pytest.fixture
def page_module(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """A module of its own for a page's Python blocks, findable as the home of the classes they define."""
    name = "page_" + re.sub(r"\W", "_", request.node.callspec.params["page"])
    module = sys.modules[name] = ModuleType(name)
    before = set(sys.modules)
    yield module
    for added in {m for m in sys.modules.keys() - before if _is_written_by_a_page(m)}:
        del sys.modules[added]
    del sys.modules[name]


def _is_written_by_a_page(module: str) -> bool:
    return any(b.note == f"file={module}.py" for text in PAGES.values() for b in blocks_of(text))


@pytest.fixture
def shell(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which `everstep` is this everstep."""
    folder = tmp_path_factory.mktemp("bin")
    python, command = map(shlex.quote, (sys.executable, str(ROOT / "tests" / "servers" / "warm_command.py")))
    (folder / "everstep").write_text(f'#!/bin/sh\nexec {python} -IS {command} -m everstep "$@"\n')
    (folder / "everstep").chmod(0o755)
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith("EVERSTEP_")},
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(PACKAGE.parent),
        "COLUMNS": "110",
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",  # as at a terminal: what was printed before a kill has been seen
        "WARM_LINE": str(warm.SERVER.line()),
    }


@pytest.mark.parametrize("page", [p for p in PAGES if runnable(p)])
def test_code_on_the_page_runs(
    page: str,
    page_module: ModuleType,
    shell: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if "DATABASE_URL" in PAGES[page]:
        shell["DATABASE_URL"] = request.getfixturevalue("postgres_url")
        monkeypatch.setenv("DATABASE_URL", shell["DATABASE_URL"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = PAGES[page]
    if REDIS in text:
        text = text.replace(REDIS, request.getfixturevalue("redis_url"))
    if S3 in text:
        text = text.replace(S3, request.getfixturevalue("s3_url"))
        shell |= {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    if GITHUB in text:
        shell["EVERSTEP_GITHUB_TOKEN"] = request.getfixturevalue("github_token")
        text = text.replace(GITHUB, request.getfixturevalue("github_url").replace("%3A%2F%2F", "://"))
    for block in blocks_of(text):
        if block.language == "console":
            for command, expected in commands_in(block.text):
                check_command(command, expected, shell, f"{page}:{block.line}")
        elif block.language == "dot":
            everstep.Flow.from_dot(block.text, tools=everstep.backends.Tools())
            if block.note:
                Path(block.note.removeprefix("file=")).write_text(block.text)
        elif block.language == "python" and block.note.startswith("file="):
            file = Path(block.note.removeprefix("file="))
            file.write_text(block.text)
            found = getattr(sys.modules.get(file.stem), "__file__", None) or ""
            if found.startswith((tempfile.gettempdir(), "/dev/shm")):
                del sys.modules[file.stem]  # another test has made one of this name
            assert file.stem not in sys.modules, f"{page}: {file} would not be imported"
        elif block.language == "python" and block.note != "no-run":
            code = "\n" * (block.line - 1) + block.text
            parsed = ast.fix_missing_locations(_Expecting().visit(ast.parse(code)))
            exec(compile(parsed, str(ROOT / page), "exec"), vars(page_module))
    for name, host in vars(page_module).items():
        assert not isinstance(host, everstep.Host) or host._lanes._is_closed, f"{page}: `{name}` is left open"
    for flow in flows_on(page, page_module):
        assert everstep.Flow.from_ir(flow.to_ir(), flow.functions()).plan.hash == flow.plan.hash


class _Expecting(ast.NodeTransformer):
    """Makes a `try` whose `except` says something of the error fail if there is no error."""

    def visit_Try(self, node: ast.Try) -> ast.Try:
        says = any(isinstance(part, ast.Assert) for handler in node.handlers for part in ast.walk(handler))
        if says and not node.orelse:
            node.orelse = ast.parse("raise AssertionError('nothing was raised')").body
        self.generic_visit(node)
        return node


def flows_on(page: str, module: ModuleType) -> Iterator[everstep.Flow]:
    """Yield the flows that a page defines, in its module and in the files that it writes."""
    blocks = [b for b in blocks_of(PAGES[page]) if b.language == "python" and b.note.startswith("file=")]
    files = [b.note.removeprefix("file=") for b in blocks]
    for home in (module, *(importlib.import_module(Path(file).stem) for file in files)):
        found = (flow for flow in vars(home).values() if isinstance(flow, everstep.Flow))
        yield from (flow for flow in found if not flow.problems)


def check_command(command: str, expected: list[str], shell: dict[str, str], where: str) -> None:
    """Run a command and compare its exit code and output with what the page shows."""
    done = subprocess.run(
        ["sh", "-c", command],
        env=shell,
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
        pass_fds=[int(shell["WARM_LINE"])],
    )
    output = done.stderr + done.stdout
    wanted = EXIT.search(command)
    code = 128 - done.returncode if done.returncode < 0 else done.returncode
    assert code == (int(wanted[1]) if wanted else 0), f"{where}: {command}\n{output}"
    lines = [line.rstrip() for line in output.splitlines()]
    for line in expected:
        pattern = ".*".join(re.escape(" ".join(part.split())) for part in line.split("…"))
        assert any(re.fullmatch(pattern, " ".join(x.split())) for x in lines), (
            f"{where}: {command} does not print {line!r} but\n{output}"
        )


@pytest.mark.parametrize(
    ("command", "expected"), [("echo one", ["two"]), ("exit 3", []), ("true # exits with 3", [])]
)
def test_command_that_does_something_else_is_found(
    command: str, expected: list[str], shell: dict[str, str]
) -> None:
    with pytest.raises(AssertionError, match="here"):
        check_command(command, expected, shell, "here")


def test_only_listed_pages_have_code_that_does_not_run() -> None:
    found = {page for page, text in PAGES.items() if any(b.note == "no-run" for b in blocks_of(text))}
    assert found == set(NOT_RUN)


def test_blocks_have_a_known_kind() -> None:
    known = re.compile(
        r"(python( no-run| file=\w+\.py)?|dot( file=\w+\.dot)?|console|sh|text|sql|toml|yaml|mermaid)"
    )
    odd = [
        f"{page}:{b.line}: {b.language} {b.note}"
        for page, text in PAGES.items()
        for b in blocks_of(text)
        if not known.fullmatch(f"{b.language} {b.note}".strip())
    ]
    assert odd == []


def shown_commands(page: str) -> Iterator[list[str]]:
    """Yield the words of each `everstep` command in the shell blocks of a page."""
    for block in blocks_of(PAGES[page]):
        if block.language in ("console", "sh"):
            text = block.text.replace("\\\n", "")
            for line in re.findall(r"^(?:\$ )?(everstep .*)$", text, re.MULTILINE):
                words = shlex.split(line, comments=True)
                yield words[1 : words.index("|")] if "|" in words else words[1:]


@pytest.mark.parametrize("page", [p for p in PAGES if any(shown_commands(p))])
def test_command_on_the_page_exists_with_its_options(page: str) -> None:
    for name, *words in shown_commands(page):
        assert name in COMMANDS, f"{page}: everstep {name}"
        unknown = {w.partition("=")[0] for w in words if w.startswith("-") and w != "-"} - options_of(name)
        assert not unknown, f"{page}: everstep {name} has no {unknown}"


def options_of(name: str) -> set[str]:
    context = click.Context(cli)
    command = cli.get_command(context, name)
    assert command is not None
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    params = [param for one in (command, *inner) for param in one.get_params(context)]
    return {option for param in params for option in (*param.opts, *param.secondary_opts) if option[0] == "-"}


def anchors_of(page: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", FENCE.sub("", page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for link in LINK.findall(FENCE.sub("", PAGES[page])):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (ROOT / page).parent / file if file else ROOT / page
        assert target.exists(), f"{page} links to {link}"
        if anchor:
            assert anchor in anchors_of(target.read_text(encoding="utf-8")), f"{page} links to {link}"


def test_index_leads_to_every_page_of_the_docs() -> None:
    index = {
        (ROOT / "docs" / link.partition("#")[0]).resolve() for link in LINK.findall(PAGES["docs/README.md"])
    }
    decisions = {
        (ROOT / "docs/decisions" / link).resolve() for link in LINK.findall(PAGES["docs/decisions/README.md"])
    }
    pages = {path.resolve() for path in (ROOT / "docs").rglob("*.md")} - {ROOT / "docs/README.md"}
    assert pages - index - decisions == set()


def test_every_error_is_explained() -> None:
    raised = {
        (cls.__name__, cls.code)
        for _, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, errors.EverstepError) and cls is not errors.EverstepError
    }
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", PAGES["docs/reference/errors.md"], re.MULTILINE)
    assert set(rows) == raised
    assert len(rows) == len(raised)


def test_every_diagnostic_is_explained() -> None:
    text = "".join(path.read_text() for path in (PACKAGE / "graph/check").glob("*.py"))
    found = set(re.findall(r'"((?:flow|profile|durability)\.[a-z_]+)"', text))
    pipelines = "".join(path.read_text() for path in (PACKAGE / "frontends/pipelines").rglob("*.py"))
    found |= set(re.findall(r'"(pipeline\.[a-z_]+)"', pipelines))
    page = PAGES["docs/reference/diagnostics.md"]
    assert [code for code in sorted(found) if f"\n| `{code}` |" not in page] == []


@pytest.mark.parametrize(
    "struct",
    [
        records.CheckpointRecord,
        records.StepRecord,
        records.Written,
        records.ArtifactRef,
        records.ErrorInfo,
        acts.Act,
        records.NodeState,
        records.UnitFacts,
        records.UnitAt,
        ledger.Guarded,
        ledger.BreakerAt,
        ledger.Ledger,
        leases.Lease,
        waits.WaitOpened,
        waits.WaitRow,
    ],
)
def test_every_field_of_a_record_is_explained(struct: type[msgspec.Struct]) -> None:
    section = PAGES["docs/reference/records.md"].split(f"## {struct.__name__}\n")[1].split("\n## ")[0]
    named = {
        f
        for row in re.findall(r"^\| (`[^|]*`) \|", section, re.MULTILINE)
        for f in row.strip("`").split("`, `")
    }
    missing = [f for f in struct.__struct_fields__ if f not in named]
    assert missing == []


@pytest.mark.parametrize("words", [enums.Trigger, enums.Status])
def test_every_trigger_and_status_is_explained(words: type[enums.Trigger] | type[enums.Status]) -> None:
    page = PAGES["docs/reference/records.md"]
    assert [w.value for w in words if f"| `{w.value}` |" not in page] == []


def test_every_public_name_is_in_the_reference() -> None:
    page = PAGES["docs/reference/python.md"]
    methods = [f".{n}(" for n, _ in inspect.getmembers(everstep.Host, inspect.isfunction) if n[0] != "_"]
    modules = (everstep, everstep.phases, everstep.results, everstep.types)
    names = [name for module in modules for name in module.__all__]
    wanted = [*names, *methods, *(f"`{field.name}`" for field in dataclasses.fields(Durability))]
    assert [name for name in wanted if name not in page] == []


@pytest.mark.parametrize(
    "cls", [Subflow, everstep.Context, everstep.types.Channel, everstep.results.RunResult]
)
def test_every_method_that_users_call_is_in_the_reference(cls: type) -> None:
    page = PAGES["docs/reference/python.md"]
    found = [
        n for n, _ in inspect.getmembers(cls, inspect.isfunction) if n[0] != "_" and n not in NOT_FOR_USERS
    ]
    assert [name for name in found if not re.search(rf"\b{name}\(", page)] == []


def test_every_name_of_the_other_modules_is_in_the_reference() -> None:
    python, waiting = PAGES["docs/reference/python.md"], PAGES["docs/reference/waiting.md"]
    assert [name for name in everstep.wait.__all__ if f"wait.{name}" not in python] == []
    assert [name for name in everstep.notify.__all__ if f"`{name}" not in waiting] == []
    section = python.split("## Testing\n")[1].split("\n## ")[0]
    assert [name for name in testing.__all__ if f"`{name}" not in section] == []


def test_every_kind_of_event_is_explained() -> None:
    section = PAGES["docs/reference/python.md"].split("### Events\n")[1].split("\n## ")[0]
    assert [kind for kind in get_args(EventKind) if f"`{kind}`" not in section] == []


def test_every_fact_of_a_wait_is_explained() -> None:
    wait_info = everstep.results.WaitInfo
    section = PAGES["docs/reference/python.md"].split("### WaitInfo\n")[1].split("\n### ")[0]
    facts = wait_info.__struct_fields__
    assert len(facts) > 15
    assert [fact for fact in facts if f"`{fact}`" not in section] == []


@pytest.mark.parametrize(
    "function",
    [
        everstep.Flow,
        everstep.Flow.as_node,
        everstep.Host,
        everstep.Node.map_over,
        everstep.node,
        everstep.phases.Phase,
        everstep.phases,
        everstep.phases.ScoredGate,
        everstep.wait.Wait,
        everstep.wait.approval,
        everstep.wait.callback,
        everstep.wait.question,
        everstep.wait.timer,
    ],
)
def test_every_option_is_in_the_reference(function: Callable[..., object]) -> None:
    page = PAGES["docs/reference/python.md"]
    names = [n for n, p in inspect.signature(function).parameters.items() if p.kind is p.KEYWORD_ONLY]
    assert [name for name in names if f"`{name}`" not in page and f"{name}=" not in page] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_option_is_in_the_reference(command: str) -> None:
    page = PAGES["docs/reference/command-line.md"]
    assert f"## {command}\n" in page
    section = page.split(f"## {command}\n")[1].split("\n## ")[0] + page.split("\n## ")[0]
    assert [o for o in options_of(command) if f"`{o}" not in section] == []


def test_every_name_of_backends_and_pipelines_is_in_the_reference() -> None:
    page = PAGES["docs/reference/backends.md"]
    names = [*everstep.backends.__all__, *everstep.pipelines.__all__]
    assert [name for name in names if f"`{name}" not in page] == []
    fields = [*dataclasses.fields(everstep.pipelines.Stage), *dataclasses.fields(everstep.pipelines.Outcome)]
    shown = [field.name for field in fields if field.repr]
    assert [name for name in shown if f"`{name}`" not in page] == []


@pytest.mark.parametrize("name", ["Http", "Shell", "Simulation", "Tools"])
def test_every_backend_and_its_options_are_in_the_reference(name: str) -> None:
    page = PAGES["docs/reference/backends.md"]
    section = page.split(f"## {name}\n")[1].split("\n## ")[0]
    parameters = inspect.signature(getattr(everstep.backends, name)).parameters
    assert [option for option in parameters if option not in section] == []
