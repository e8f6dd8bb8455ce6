"""How the command line runs pipelines: who does the work of their nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from everstep import Flow
from everstep.errors import BadRequest
from everstep.on_demand import on_demand

if TYPE_CHECKING:
    from everstep import backends
    from everstep.frontends.pipelines.building import pipeline_of as _pipeline_of
    from everstep.frontends.pipelines.interviewers import AutoApprove
    from everstep.frontends.pipelines.reading import Pipeline
else:
    backends = on_demand("everstep.backends")
    _pipeline_of = on_demand("everstep.frontends.pipelines.building:pipeline_of")
    AutoApprove = on_demand("everstep.frontends.pipelines.interviewers:AutoApprove")

F = TypeVar("F", bound=Callable[..., Any])
SUFFIXES = (".dot", ".gv")
_META = "everstep.pipelines"
_SHELL = "shell:"
_URLS = ("http://", "https://")
_FORMS = "simulation, shell:COMMAND, a URL, or FILE.py:FUNCTION"


class Making(NamedTuple):
    """What was said of pipelines on the command line."""

    backend: str = ""
    model: str = ""
    handlers: str = ""
    allow_tools: bool = False
    auto_approve: bool = False


def pipeline_options(command: F) -> F:
    """Add the options for pipelines; `making` finds what they say."""
    options = (
        _option(
            "--backend",
            envvar="EVERSTEP_BACKEND",
            metavar="BACKEND",
            help=f"Who does the work of a pipeline's tasks: {_FORMS}. [default: simulation]",
        ),
        _option("--model", envvar="EVERSTEP_MODEL", metavar="NAME", help="The model to ask a URL for."),
        _option(
            "--handlers", metavar="FILE.py", help="A file whose `handlers` do the work of a pipeline's nodes."
        ),
        _option(
            "--allow-tools",
            envvar="EVERSTEP_ALLOW_TOOLS",
            is_flag=True,
            help="Let a pipeline's tool nodes run their commands on this machine.",
        ),
        _option("--auto-approve", is_flag=True, help="Answer a pipeline's questions with the first choice."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _option(name: str, **more: Any) -> Callable[[F], F]:
    return click.option(name, expose_value=False, callback=_keep, **more)


def _keep(context: click.Context, option: click.Parameter, value: Any) -> Any:
    if value:
        context.meta[_META] = making()._replace(**{str(option.name): value})
    return value


def making() -> Making:
    """Return what was said of pipelines on the command line."""
    context = click.get_current_context(silent=True)
    found = context.meta.get(_META) if context is not None else None
    return found if isinstance(found, Making) else Making()


def said_again() -> list[str]:
    """Return the options for pipelines that a command which goes on with the same run needs too.

    What the environment says it will say again, and a shell command is left out: a secret may be in it.
    """
    context, found = click.get_current_context(silent=True), []
    for name, value in making()._asdict().items():
        source = context.get_parameter_source(name) if context is not None else None
        if value and source is not ParameterSource.ENVIRONMENT:
            shown = [] if value is True else [f"{_SHELL}…" if value.startswith(_SHELL) else value]
            found += [f"--{name.replace('_', '-')}", *shown]
    return found


def is_pipeline(place: str) -> bool:
    """True for the name of a file that holds a pipeline."""
    return place.endswith(SUFFIXES)


def pipeline_of(flow: Flow) -> Pipeline | None:
    """Return the pipeline that a flow was made from, if it was one."""
    return None if flow.extension is None else _pipeline_of(flow)


def load_pipeline(place: str, find: Callable[[str], Any], *, runs: bool = True) -> Flow:
    """Read a pipeline as a flow, to be run or only looked at; `find` imports what `FILE.py:NAME` names."""
    path = Path(place).resolve()
    if path.is_dir():
        raise BadRequest(f"{place} is a folder.", fix="Name a file in it.")
    if not path.is_file():
        raise BadRequest(f"there is no file {place}.", fix="Check the path.")
    said = making()
    return Flow.from_dot(
        path.read_bytes(),
        file=str(path),
        backend=_backend(said, find),
        handlers=_handlers(said, find),
        tools=backends.Tools() if said.allow_tools or not runs else None,
        human=AutoApprove() if said.auto_approve else None,
    )


def _backend(said: Making, find: Callable[[str], Any]) -> Any:
    spec = said.backend.strip()
    if not spec or spec == "simulation":
        return None
    kind, colon, rest = spec.partition(":")
    if kind == "shell" and colon:
        if not rest.strip():
            raise BadRequest("--backend shell: names no command.", fix="Write --backend shell:COMMAND.")
        return backends.Shell(rest)
    if spec.startswith(_URLS):
        return backends.Http(spec, model=said.model or None)
    if ":" in spec:
        found = find(spec)
        if callable(found):
            return found
        raise BadRequest(f"--backend {spec} is {found!r:.60}.", fix="Name a function of a stage.")
    raise BadRequest(f"--backend {spec!r} is not known.", fix=f"Use {_FORMS}.")


def _handlers(said: Making, find: Callable[[str], Any]) -> Mapping[str, Any] | None:
    if not said.handlers:
        return None
    spec = said.handlers if ":" in said.handlers else f"{said.handlers}:handlers"
    found = find(spec)
    if isinstance(found, Mapping):
        return found
    raise BadRequest(f"{spec} is {found!r:.60}.", fix="Write handlers = {node_or_type: function} there.")
