"""The options that several commands share, and the host and the run they name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, unquote

import click

from everstep import Host
from everstep.cli.args.loading import UNWIRED, Spec, WaitServices, load_module
from everstep.client.queries import Parameter
from everstep.errors import BadRequest, RunNotFound, StoreMissing
from everstep.on_demand import on_demand
from everstep.runtime.events import Listener

if TYPE_CHECKING:
    import getpass
    import shlex
else:
    getpass = on_demand("getpass")
    shlex = on_demand("shlex")

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_FILE = Path(".everstep/runs.db")
SHORTEST_PREFIX = 4
_PASSWORD = r"(?<=://)([^/:@]*):[^/]*(?=@)|(?<=[?&])(?:ssl)?password=[^&]*&?"
_URL = r"[A-Za-z][A-Za-z0-9+.-]*:"
_PAGE = 1000
_BY, _COMMENT = "by", "comment"


def store_option(command: F) -> F:
    """Add `--store URL`, which may also stand before the command."""
    return click.option(
        "--store",
        metavar="FILE|URL",
        callback=lambda context, _, store: store or context.find_root().params.get("store"),
        help="Where runs are kept, such as runs.db. [default: EVERSTEP_STORE, or .everstep/runs.db]",
    )(command)


def json_option(command: F) -> F:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")(
        command
    )


def who_options(command: F) -> F:
    """Add `--as NAME` and `--comment TEXT`; `who` finds what they say."""
    return _name_option("--as", "--by")(_comment_option(command))


def who_option(command: F) -> F:
    """Add `--as NAME` alone."""
    return _name_option("--as", "--by")(command)


def who_option_by(command: F) -> F:
    """Add the same as `--by NAME`, where `--as` means something else."""
    return _name_option("--by")(_comment_option(command))


def _name_option(*names: str) -> Callable[[F], F]:
    return click.option(
        *names,
        _BY,
        metavar="NAME",
        expose_value=False,
        callback=_keep_who,
        help="Say who does this. [default: EVERSTEP_AS, or your login name]",
    )


def _comment_option(command: F) -> F:
    return click.option(
        "--comment",
        _COMMENT,
        metavar="TEXT",
        expose_value=False,
        callback=_keep_who,
        help="Say why; it is kept with it.",
    )(command)


def times_options(command: F) -> F:
    """Add `--at TIME`, `--after SPAN` and `--deadline`; `said_times` finds what they say."""
    at = _time_option("at", "TIME", "Begin then: 2030-01-31T09:00:00+01:00.")
    after = _time_option("after", "SPAN", "Begin so long from now: 2h, 90m.")
    return at(after(deadline_option(command)))


def deadline_option(command: F) -> F:
    """Add `--deadline` alone."""
    return _time_option("deadline", "SPAN|TIME", "End it then, if it has not ended by itself.")(command)


def _time_option(name: str, metavar: str, text: str) -> Callable[[F], F]:
    return click.option(f"--{name}", metavar=metavar, expose_value=False, callback=_keep_who, help=text)


def said_times() -> dict[str, Any]:
    """Return what the command line says of when a run begins and ends, as a host takes it."""
    meta = click.get_current_context().meta
    said = {name: meta.get(f"everstep.{name}") for name in ("at", "after", "deadline")}
    return {name: text for name, text in said.items() if text is not None}


def _keep_who(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    context.meta[f"everstep.{option.name}"] = value
    return value


def said_who() -> dict[str, Any]:
    """Return what the command line says of who and why, as a host takes it."""
    meta = click.get_current_context().meta
    return {name: meta.get(f"everstep.{name}") for name in (_BY, _COMMENT)}


def who() -> dict[str, Any]:
    """Return who does this and why; without a name, that of the login."""
    said = said_who()
    return {**said, _BY: said[_BY] or login_name()}


def login_name() -> str | None:
    """Return what the user of this process is called; none if that is unknown."""
    if name := os.environ.get("EVERSTEP_AS"):
        return name
    try:
        return getpass.getuser() or None
    except (KeyError, OSError, ImportError):  # an id without a name, as in containers
        return None


def load_option(command: F) -> F:
    """Add `--load FILE.py`."""
    return click.option(
        "--load",
        "modules",
        metavar="FILE.py",
        multiple=True,
        help="Load this file first, so that values of the classes it defines are shown as it shows them.",
    )(command)


def tokens_option(command: F) -> F:
    """Add `--tokens`."""
    return click.option(
        "--tokens", is_flag=True, help="Show the tokens that answer waits, too. They are secrets."
    )(command)


def key_option(command: F) -> F:
    """Add `--key-file`."""
    return click.option(
        "--key-file",
        metavar="FILE",
        envvar="EVERSTEP_KEY_FILE",
        help="Make tokens with the key in this file. [default: EVERSTEP_KEY, or tokens at random]",
    )(command)


def host_options(command: F) -> F:
    """Add `--key-file` and `--base-url`."""
    base = click.option(
        "--base-url",
        metavar="URL",
        envvar="EVERSTEP_BASE_URL",
        help="Where the pages to answer at are served. [default: EVERSTEP_BASE_URL]",
    )
    return key_option(base(command))


def encryption_option(command: F) -> F:
    """Add `--encrypt-required` and its opposite, for `keys_here`."""
    return click.option(
        "--encrypt-required/--no-encrypt-required",
        default=None,
        help="Read nothing in the clear, or also believe answers from before there was a key. "
        "[default: EVERSTEP_ENCRYPT_REQUIRED]",
    )(command)


def open_host(
    store: str | None,
    *,
    create: bool,
    on_event: Listener | None = None,
    key_file: str | None = None,
    base_url: str | None = None,
    wired: WaitServices = UNWIRED,
) -> Host:
    """Open the store that the options name."""
    if not store and not create and not DEFAULT_FILE.exists():
        raise StoreMissing(
            f"there are no runs yet: there is no {DEFAULT_FILE} here.", fix=where_else("", store="FILE")
        )
    return Host(
        url_of(store) if store else None,
        create=create,
        on_event=on_event,
        key=read_key(key_file),
        base_url=base_url,
        notifiers=wired.notifiers,
        schedulers=wired.schedulers,
        channel=channel_url(),
        queue=queue_url(),
    )


def channel_url() -> str | None:
    """Return where the environment says that channels are kept; none for the records."""
    return os.environ.get("EVERSTEP_CHANNEL") or None


def queue_url() -> str | None:
    """Return where the environment says that runs are announced to workers."""
    return os.environ.get("EVERSTEP_QUEUE") or None


def read_key(file: str | None) -> str | None:
    """Return the key that a file holds; none without a file."""
    if file is None:
        return None
    try:
        key = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise BadRequest(f"--key-file {file} cannot be read: {reason}.", fix="Check the path.") from error
    if not key:
        raise BadRequest(f"--key-file {file} is empty.", fix="Write a long random text into it.")
    return key


def say_if_new(store: str | None) -> None:
    """Say so if there is no store yet where a command is to work: the path may be misspelt."""
    if is_new(store):
        click.secho(f"there is no store at {store} yet: a new one is made", err=True, fg="yellow")


def is_new(store: str | None) -> bool:
    """True if a store is to be made."""
    path = None if store is None else path_in(url_of(store))
    return path is not None and not path.exists()


def path_in(url: str) -> Path | None:
    """Return the file or folder that a URL names; none if it names a server."""
    scheme, _, rest = url.partition("?")[0].partition(":")
    if scheme == "sqlite":
        return Path(unquote(rest.removeprefix("///")))
    return Path(unquote(rest.removeprefix("//"))) if scheme == "file" else None


def url_of(store: str) -> str:
    """Return the URL of a store; a plain path is a SQLite file."""
    return store if re.match(_URL, store) else f"sqlite:///{quote(store)}"


def where_else(command: str, *, store: str) -> str:
    """Say how to name another store, with a file that lies here if there is one."""
    here = sorted(path.name for path in Path.cwd().glob("*.db"))
    if here and command:
        return f"There is {here[0]} here: {command_line(command, store=here[0])}"
    return f"If they are kept elsewhere, say where: --store {here[0] if here else store}, or EVERSTEP_STORE."


@contextmanager
def looking_at(store: str | None, modules: Sequence[str] = (), *, as_json: bool) -> Iterator[Host]:
    """Open a store to look at what it keeps, and say which values are shown without their class."""
    for module in modules:
        load_module(Spec(module, ""))
    with open_host(store, create=False) as host:
        host.values.loose = True
        yield host
        names = sorted(host.values.seen_without_class)
        if names and not as_json:
            text = f"shown by their stored fields: {', '.join(names)} (--load FILE.py loads the class)"
            click.secho(text, err=True, dim=True)


def find_run(host: Host, text: str) -> str:
    """Return the id of the run of that name, or of the only one whose id begins so.

    What lies behind it, in RUN/PATH, stays: the host says whether the run has that, and what it means.
    """
    text, slash, path = text.partition("/")
    return _find_id(host, text) + slash + path


def whole_run(host: Host, text: str) -> str:
    """Return the id of a run of which no part can be taken, and say so if a part is named."""
    address = find_run(host, text)
    run_id = host.info(address).run_id
    if run_id != address:
        click.secho(
            f"{address} shares the checkpoints of run {run_id}: the whole run is meant", err=True, dim=True
        )
    return run_id


def split_run(address: str) -> tuple[str, str]:
    """Return the run and the path in it that an address names; the path is empty for the whole run."""
    run_id, _, path = address.partition("/")
    return run_id, path


def _find_id(host: Host, text: str) -> str:
    try:
        return host.info(text).run_id
    except RunNotFound:
        found = [id for id in _all_ids(host) if id.startswith(text)] if len(text) >= SHORTEST_PREFIX else []
        if not found:
            raise
    if len(found) > 1:
        listed = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
        raise BadRequest(f"{len(found)} runs begin with {text!r}.", fix=f"Write more of one: {listed}")
    return found[0]


def find_place(host: Host, text: str, at: str | None) -> tuple[str, int | str | None]:
    """Return a run and one of its checkpoints, given as RUN@N or apart; none is the newest.

    The path of RUN/PATH or RUN@N/PATH stays with the run.
    """
    text, slash, path = text.partition("/")
    name, sign, sequence = text.partition("@")
    if sign and at is not None:
        raise BadRequest("the checkpoint is given twice.", fix=f"Write {text}, or {name} with --at {at}.")
    if sign and not sequence.isdecimal():
        raise BadRequest(f"{text!r} is not a checkpoint of a run.", fix=f"Write a number: {name}@3.")
    at = sequence if sign else at
    return _find_id(host, name) + slash + path, int(at) if at is not None and at.isdecimal() else at


def _all_ids(host: Host) -> Iterator[str]:
    last: str | None = None
    while True:
        page = host.runs(limit=_PAGE, before=last)
        yield from (info.run_id for info in page)
        if len(page) < _PAGE:
            return
        last = page[-1].run_id


def command_line(*words: str, store: str | None = None, program: Sequence[str] = ("everstep",)) -> str:
    """Write a command of ours as it can be pasted into a shell."""
    return shlex.join([*program, *words, *(["--store", without_password(store)] if store else [])])


def without_password(store: str) -> str:
    """Return the name of a store as it may be shown."""
    return re.sub(_PASSWORD, lambda found: found[1] or "", store)


def query_options(parameters: Sequence[Parameter], **defaults: Any) -> Callable[[F], F]:
    """Add an option for each thing that a query may say, with its description as the help."""

    def add(command: F) -> F:
        for one in reversed(parameters):
            command = _query_option(one, defaults.get(one.name, one.default))(command)
        return command

    return add


_METAVARS = {"where": "QUERY", "act": "ACT", "after": "N", "id_prefix": "TEXT", "error": "TEXT"} | {
    "waiting": "KIND",
    "error_code": "CODE",
}


def _query_option(one: Parameter, default: Any) -> Callable[[F], F]:
    name = f"--{one.name.replace('_', '-')}"
    if isinstance(default, bool):
        return click.option(name, is_flag=True, help=one.description)
    if isinstance(default, int):
        number = click.IntRange(min=one.least)
        return click.option(name, type=number, default=default, show_default=True, help=one.description)
    if one.is_many:
        return click.option(name, multiple=True, metavar="NAME[=VALUE]", help=one.description)
    metavar = _METAVARS.get(one.name) or ("TIME" if one.name.endswith(("since", "until")) else "")
    metavar = metavar or ("RUN" if one.pattern else "STATUS" if one.choices else "NAME")
    return click.option(name, metavar=metavar, default=default, help=one.description)
