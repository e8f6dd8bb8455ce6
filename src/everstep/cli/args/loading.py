"""From `FILE.py:flow`, `package.module:flow` or `FILE.dot` to a flow."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from everstep import Flow
from everstep.cli.args.pipelines import is_pipeline
from everstep.errors import BadRequest, EverstepError, FlowError, close_matches
from everstep.graph.author.subflow import Subflow
from everstep.on_demand import on_demand
from everstep.ports.durability import Notifier, ResumeScheduler

if TYPE_CHECKING:
    from everstep.cli.args.pipelines import load_pipeline
else:
    load_pipeline = on_demand("everstep.cli.args.pipelines:load_pipeline")


T = TypeVar("T")


class Spec(NamedTuple):
    """A file or a module, and the name of a flow in it if one was given."""

    place: str
    flow: str

    @property
    def is_file(self) -> bool:
        return self.place.endswith(".py") or "/" in self.place or Path(self.place).is_file()

    @classmethod
    def parse(cls, text: str) -> Spec:
        place, colon, flow = text.rpartition(":")
        if not colon or "/" in flow:
            return cls(text, "")
        if not place or not flow:
            raise BadRequest(
                f"{text!r} does not name a flow.", fix="Write FILE.py, FILE.py:flow or module:flow."
            )
        return cls(place, flow)


class WaitServices(NamedTuple):
    """Who is told of waits and who keeps their time, as a file with flows says."""

    notifiers: Mapping[str, Notifier] = {}
    schedulers: Mapping[str, ResumeScheduler] = {}


UNWIRED = WaitServices()


def load_flow(text: str, *, runs: bool = True) -> Flow:
    """Load the file or module and return the flow that is meant."""
    return load(text, runs=runs)[0]


def load(text: str, *, runs: bool = True) -> tuple[Flow, WaitServices]:
    """Load the file or module and return the flow that is meant, and the services defined beside it.

    A pipeline that is only looked at, and not run, needs no leave for its commands.
    """
    if is_pipeline(text):
        return _pipeline(text, runs=runs), UNWIRED
    spec = Spec.parse(text)
    module = load_module(spec)
    flow = find_flow(module, spec)
    flow.source = place_of(text)
    return flow, wired_in(module, spec)


def _pipeline(text: str, *, runs: bool = True) -> Flow:
    flow = load_pipeline(text, _find, runs=runs)
    flow.source = place_of(text)
    return flow


def _find(text: str) -> Any:
    """Return what `FILE.py:NAME` or `module:NAME` names."""
    spec = Spec.parse(text)
    module = load_module(spec)
    if not hasattr(module, spec.flow):
        raise BadRequest(f"{spec.place} has no {spec.flow!r}.", fix="Check the name.")
    return getattr(module, spec.flow)


def load_all(text: str) -> tuple[list[Flow], WaitServices]:
    """Load the file or module and return the flow that is meant, or else all that are not inside others."""
    if is_pipeline(text):
        return [_pipeline(text)], UNWIRED
    spec = Spec.parse(text)
    module = load_module(spec)
    flows = [find_flow(module, spec)] if spec.flow else outermost(module) or [find_flow(module, spec)]
    names = {id(value): name for name, value in vars(module).items() if isinstance(value, Flow)}
    for flow in flows:
        flow.source = place_of(f"{spec.place}:{names[id(flow)]}")
    return flows, wired_in(module, spec)


def load_several(texts: Sequence[str]) -> tuple[list[Flow], WaitServices]:
    """Load what one process is to drive: the flows of several files, and the services beside them."""
    flows: list[Flow] = []
    notifiers: dict[str, Any] = {}
    schedulers: dict[str, Any] = {}
    for text in texts:
        found, wired = load_all(text)
        flows += [flow for flow in found if flow not in flows]
        for known, given in ((notifiers, wired.notifiers), (schedulers, wired.schedulers)):
            for alias, service in given.items():
                if known.setdefault(alias, service) is not service:
                    raise BadRequest(f"two files define {alias!r} differently.", fix="Name one otherwise.")
    return flows, WaitServices(notifiers, schedulers)


def wired_in(module: ModuleType, spec: Spec) -> WaitServices:
    """Return the `notifiers` and the `schedulers` that a file defines, each by alias."""
    wired = WaitServices(_mapping(module, "notifiers"), _mapping(module, "schedulers"))
    for alias, notifier in wired.notifiers.items():
        if not callable(notifier):
            raise BadRequest(
                f"notifier {alias!r} of {spec.place} cannot be called.",
                fix="Write notifiers = {alias: function} with a function of one notice.",
            )
    for alias, scheduler in wired.schedulers.items():
        if not isinstance(scheduler, ResumeScheduler):
            raise BadRequest(
                f"scheduler {alias!r} of {spec.place} is no ResumeScheduler.",
                fix="It needs schedule_at, schedule_after, cancel and status.",
            )
    return wired


def _mapping(module: ModuleType, name: str) -> Mapping[str, Any]:
    """Return the mapping of that name; anything else of that name is the file's own business."""
    given = getattr(module, name, None)
    is_ours = isinstance(given, Mapping) and all(isinstance(alias, str) for alias in given)
    return given if is_ours and given is not None else {}


def place_of(text: str) -> str:
    """Return the same place in a form that holds from any folder."""
    spec = Spec.parse(text)
    place = str(Path(spec.place).resolve()) if spec.is_file else spec.place
    return f"{place}:{spec.flow}" if spec.flow else place


def load_module(spec: Spec) -> ModuleType:
    """Import a file under its stem, as `import` would from its folder, or a module by its name."""
    path = Path(spec.place).resolve()
    if path.is_dir() and (spec.is_file or spec.place.startswith(".")):
        raise BadRequest(f"{spec.place} is a folder.{_flows_in(path)}", fix="Name a file that ends in .py.")
    if not spec.is_file:
        return _import_by_name(spec.place)
    if not path.is_file():
        raise BadRequest(f"there is no file {spec.place}.{_nearby(path)}", fix="Check the path.")
    if path.suffix == ".json":
        raise BadRequest(
            f"{spec.place} has no functions, so it cannot be a flow by itself.",
            fix="If it is a Flow IR, read it in a Python file: flow = Flow.from_ir(ir, registry). Name that.",
        )
    if path.suffix != ".py":
        raise BadRequest(
            f"{spec.place} is neither a Python file nor a pipeline.",
            fix="Name a file that ends in .py or .dot.",
        )
    name = path.stem
    loaded = sys.modules.get(name)
    if loaded is not None:
        if _file_of(loaded) == path:
            return loaded
        # Its classes could not be found again under this name, and the other module's users would get ours.
        raise BadRequest(
            f"{spec.place} would be loaded as module {name!r}, but another module has that name.",
            fix=f"Rename the file, for example to my_{name}.py.",
        )
    sys.path.insert(0, str(path.parent))
    module_spec = importlib.util.spec_from_file_location(name, path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    try:
        module_spec.loader.exec_module(module)
    except EverstepError:
        raise
    except Exception as error:
        raise _cannot_load(spec.place, error) from error
    return module


def _flows_in(folder: Path) -> str:
    names = sorted(file.name for file in folder.glob("*.py"))
    return f" It has {', '.join(names[:5])}{', …' if len(names) > 5 else ''}." if names else ""


def _import_by_name(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        fix = "Name a file that ends in .py, or a module that can be imported from here."
        raise BadRequest(f"{name!r} is neither a file nor a module.", fix=fix)
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except EverstepError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            fix = "Name a file that ends in .py, or a module that can be imported from here."
            raise BadRequest(f"there is no module {name!r}.", fix=fix) from error
        raise _cannot_load(name, error) from error
    except Exception as error:
        raise _cannot_load(name, error) from error


def _cannot_load(place: str, error: Exception) -> FlowError:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_machinery(f.filename)]
    trace = "".join(
        ["Traceback (most recent call last):\n", *traceback.format_list(frames)] if frames else []
    )
    trace += "".join(traceback.format_exception_only(error))
    message = f"{place} cannot be loaded: {type(error).__name__}: {error}."
    return FlowError(message, fix="Fix the file and try again.", traceback=trace)


def _is_machinery(filename: str) -> bool:
    return filename == __file__ or filename.startswith("<frozen importlib") or "/importlib/" in filename


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if file else None


def _nearby(path: Path) -> str:
    if not path.parent.is_dir():
        return ""
    close = close_matches(path.name, [p.name for p in path.parent.glob("*.py")], n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def outermost(module: ModuleType) -> list[Flow]:
    """Return the flows of a module that are not inside another of them."""
    distinct = {id(flow): flow for flow in vars(module).values() if isinstance(flow, Flow)}
    inside = [n.flow for flow in distinct.values() for n in flow.nodes if isinstance(n, Subflow)]
    inner = {id(flow.original or flow) for flow in inside}
    return [flow for flow in distinct.values() if id(flow) not in inner]


def find_flow(module: ModuleType, spec: Spec) -> Flow:
    """Return the flow of that name, or the only one that is not inside another."""
    flows = {name: value for name, value in vars(module).items() if isinstance(value, Flow)}
    listed = ", ".join(f"{spec.place}:{name}" for name in flows)
    if not spec.flow:
        found = outermost(module)
        if len(found) == 1:
            return found[0]
        if not flows:
            fix = "Define one at the top level: flow = Flow('name', [...])."
            raise BadRequest(f"{spec.place} has no flow.", fix=fix)
        distinct = {id(flow) for flow in flows.values()}
        raise BadRequest(f"{spec.place} has {len(distinct)} flows.", fix=f"Name one: {listed}")
    if spec.flow in flows:
        return flows[spec.flow]
    named = [flow for flow in flows.values() if flow.name == spec.flow]
    if named:
        return named[0]
    what = "is not a flow" if hasattr(module, spec.flow) else "is not there"
    fix = f"It has {listed}" if flows else "It has no flow."
    raise BadRequest(f"{spec.flow!r} {what} in {spec.place}.", fix=fix)


@contextlib.contextmanager
def stdout_kept_clean(as_json: bool) -> Iterator[None]:
    """With `--json`, what the user's code prints goes to stderr."""
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        yield
