"""Checkpoints as three files: the run, its state as JSON, and a few words about both.

A set counts once its `.meta.json` is there, which is written last and names the digests of the other two.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from everstep.client.exports.forms import session_form
from everstep.client.exports.spelling import iso
from everstep.client.sync import Host
from everstep.client.views import RunInfo, RunResult, RunState
from everstep.codec.plain_json import jsonable
from everstep.codec.tags import Refused
from everstep.codec.values import pickled, unpickled
from everstep.errors import BadRequest, BundleInvalid, IncompatibleVersion
from everstep.graph.author.flow import Flow
from everstep.model.records import TRACE
from everstep.model.shapes import understood
from everstep.runtime.bundles.new_file import NewFile, sync_folder

SCHEMA = "1.0"
DATA, PICKLE = ".everstep", ".pkl"
STATE, META = ".state.json", ".meta.json"
_SUFFIXES = (DATA, PICKLE, STATE, META)
_LARGEST_JSON = 64 << 20
_CALLED = {"node": "task_id", "visit": "cycle_count", "elapsed": "elapsed_time"}
"""What a checkpoint that a node asked for says of it, and what that is called in a session."""
_VERSION = re.compile(r"(\d+)\.(\d+)")


class CheckpointMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of a checkpoint without reading it."""

    checkpoint_id: str
    session_id: str
    """The run."""
    created_at: str
    """ISO 8601, in UTC."""
    steps: int
    start_node: str | None
    backend: dict[str, str]
    """Where queue and channel were kept: `{"queue": "sqlite", "channel": "sqlite"}`."""
    user_metadata: dict[str, Any] = {}
    """What was given with it; `{"auto": true}` if it was taken by itself."""
    schema_version: str = SCHEMA
    path: str = ""
    """Where the set is, without the ends of its three names. Not in the file."""


class _File(msgspec.Struct, frozen=True):
    size: int
    sha256: str


class _Meta(CheckpointMetadata, frozen=True, kw_only=True):
    payload: _File
    state: _File
    is_pickle: bool = False


class CheckpointManager:
    """Keeps checkpoints of runs as files in a folder, and goes on from them.

    The run is a bundle, data only: `.everstep`. With `pickle=True`, on a host that allows it, it is a `.pkl`.
    """

    def __init__(self, host: Host, folder: str | Path = "checkpoints", *, pickle: bool = False) -> None:
        if pickle and not host.values.allow_pickle:
            raise BadRequest(
                "this host allows no pickle.",
                fix="Leave pickle=True out: a bundle holds the same. Or use Host(..., allow_pickle=True).",
            )
        self._host = host
        self.folder = Path(folder)
        self._pickles = pickle

    def create_checkpoint(
        self,
        run_id: str,
        path: str | Path | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        flow: Flow | None = None,
    ) -> tuple[str, CheckpointMetadata]:
        """Write a run as it is now, and return where, without the ends of the names, and what is said of it.

        By default into the manager's folder, under a name of its own. A set that is there is never replaced.
        With its flow, `max_retries` is told of what comes next; records do not hold it.
        """
        info, newest = self._host.info(run_id), self._host.latest(run_id)
        state = self._host.state(run_id, newest.sequence)
        records = self._host.history(run_id, last=newest.sequence)
        told = session_form(info, state, records, self._backend(state), flow)
        asked = {
            _CALLED.get(k, k): v for k, v in (newest.metadata or {}).items() if k not in ("source", TRACE)
        }
        given = asked | dict(metadata or {})
        created = iso(self._host.clock.now()) or ""
        own = self.folder / f"session_{run_id}_step_{told['steps']}_{re.sub('[^0-9T]', '', created)}"
        base = self._base(path) if path is not None else own
        with _locked(base.parent):
            number = 2
            while path is None and _named(base, META).exists():
                base, number = own.with_name(f"{own.name}_{number}"), number + 1
            if _named(base, META).exists():
                raise BadRequest(f"{_named(base, META)} is there already.", fix="Choose another name.")
            payload = self._write_payload(run_id, base)
            state_file = _write(_named(base, STATE), _encode(told), replaces=True)
            meta = _Meta(
                checkpoint_id=newest.checkpoint_id,
                session_id=run_id,
                created_at=created,
                steps=told["steps"],
                start_node=told["start_node"],
                backend=told["backend"],
                user_metadata=jsonable(given),
                payload=payload,
                state=state_file,
                is_pickle=self._pickles,
            )
            _write(_named(base, META), _encode(_without_path(meta)), replaces=False)
        return str(base), _shown(meta, base)

    def resume_from_checkpoint(
        self, path: str | Path, flow: Flow | None = None, *, start: str | None = None, wait: bool = False
    ) -> tuple[RunInfo | RunResult, CheckpointMetadata]:
        """Go on from a checkpoint, and return the run it became and what is said of the checkpoint.

        The run is put into the host's store if it is not there. If it has gone on since, a fork goes on from
        the checkpoint. With its flow it is driven, from `start` on if that is given; without, `resume` does.
        """
        base = self._base(path)
        meta = _read_meta(base)
        _check(base, meta, is_thorough=True)
        run_id, sequence = self._bring_back(base, meta)
        info = self._host.info(run_id)
        if info.checkpoints != sequence:
            info = self._host.fork(run_id, at=sequence)
        if flow is None:
            return info, _shown(meta, base)
        return self._host.resume(info.run_id, flow, start=start, wait=wait), _shown(meta, base)

    def list_checkpoints(
        self, pattern: str | None = None, *, run_id: str | None = None
    ) -> list[CheckpointMetadata]:
        """List the sets in the folder that are whole, newest first; `pattern` is one of names, as `A17*`.

        With a folder before it, as `checkpoints/*.pkl`, it is one of paths.
        """
        found = []
        wanted = self._base(pattern or "*")
        for file in sorted(wanted.parent.glob(wanted.name + META)):
            base = file.with_name(file.name.removesuffix(META))
            try:
                meta = _read_meta(base)
                _check(base, meta, is_thorough=False)
            except (BundleInvalid, IncompatibleVersion):
                continue
            if run_id in (None, meta.session_id):
                found.append(_shown(meta, base))
        return sorted(found, key=lambda meta: (meta.created_at, meta.steps), reverse=True)

    def get_latest_checkpoint(self, run_id: str | None = None) -> CheckpointMetadata | None:
        """Return the newest set in the folder, or the newest of a run; none if there is none."""
        return next(iter(self.list_checkpoints(run_id=run_id)), None)

    def cleanup_old_checkpoints(self, keep_last_n: int = 5, *, run_id: str | None = None) -> int:
        """Remove all but the last sets of each run, and what crashes left; returns how many sets went."""
        if type(keep_last_n) is not int or keep_last_n < 1:
            raise BadRequest(f"keep_last_n is {keep_last_n!r}.", fix="Keep at least 1.")
        if not self.folder.is_dir():
            return 0
        kept: dict[str, int] = {}
        removed = 0
        with _locked(self.folder):
            for meta in self.list_checkpoints(run_id=run_id):
                kept[meta.session_id] = kept.get(meta.session_id, 0) + 1
                if kept[meta.session_id] > keep_last_n:
                    _remove(Path(meta.path))
                    removed += 1
            if run_id is None:
                _remove_halves(self.folder)
        return removed

    def _backend(self, state: RunState) -> dict[str, str]:
        """Say where the run has its queue and its channel, which may lie beside its records."""
        own = self._host.url.partition(":")[0]
        schemes = self._host.storage.schemes
        return {"queue": schemes["queue"], "channel": schemes["channel"] if state.has_channel_beside else own}

    def _base(self, path: str | Path) -> Path:
        text = str(path)
        if "://" in text:
            raise BadRequest(
                f"{text!r} is no path: checkpoints as files are kept in folders.",
                fix="Open a host on that place, or copy the run there: everstep copy --to URL.",
            )
        base = Path(_stem(text))
        return base if base.parent != Path() else self.folder / base

    def _write_payload(self, run_id: str, base: Path) -> _File:
        if not self._pickles:
            path = _named(base, DATA)
            self._host.transfer.export(run_id, path, force=True)
            return _file(path)
        with TemporaryDirectory(prefix="everstep-") as folder:
            bundle = Path(folder) / "run.everstep"
            self._host.transfer.export(run_id, bundle)
            state = self._host.state(run_id)
            values = {name: state[name] for name in state if not name.startswith("@")}
            data = {"schema_version": SCHEMA, "session_id": run_id, "values": values}
            return _write(
                _named(base, PICKLE), pickled(data | {"bundle": bundle.read_bytes()}), replaces=True
            )

    def _bring_back(self, base: Path, meta: _Meta) -> tuple[str, int]:
        """Put the run of a set into the store; returns it and the sequence of its newest checkpoint there."""
        if meta.is_pickle:
            with TemporaryDirectory(prefix="everstep-") as folder:
                bundle = Path(folder) / base.name
                bundle.write_bytes(self._unpickle(_named(base, PICKLE)))
                brought = self._host.transfer.import_(bundle)
        else:
            brought = self._host.transfer.import_(_named(base, DATA))
        run = brought.runs[-1]
        if (run.run_id, run.checkpoint_id) != (meta.session_id, meta.checkpoint_id):
            raise _invalid(base, "it is the checkpoint of another run")
        return run.run_id, run.checkpoints

    def _unpickle(self, path: Path) -> bytes:
        try:
            data = unpickled(path.read_bytes(), is_allowed=self._host.values.allow_pickle)
        except Refused as refused:
            raise BadRequest(
                f"{path} is a pickle, and this host does not unpickle.",
                fix="If you trust where it comes from: Host(..., allow_pickle=True).",
            ) from refused
        except Exception as error:  # a pickle may do anything
            raise _invalid(path, f"it cannot be unpickled: {error}") from error
        bundle = data.get("bundle") if isinstance(data, dict) else None
        if not isinstance(bundle, bytes):
            raise _invalid(path, "it holds no run")
        return bundle


def _stem(text: str) -> str:
    """Return a name without the end that one of the three files has."""
    for suffix in _SUFFIXES:
        if text.endswith(suffix):
            return text.removesuffix(suffix)
    return text


def _named(base: Path, suffix: str) -> Path:
    return base.with_name(base.name + suffix)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep others from writing sets here meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _encode(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"


def _write(path: Path, data: bytes, *, replaces: bool) -> _File:
    with NewFile(path, replaces=replaces) as file:
        file.stream.write(data)
        file.commit()
    return _File(len(data), hashlib.sha256(data).hexdigest())


def _file(path: Path) -> _File:
    with path.open("rb") as file:
        return _File(path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def _without_path(meta: _Meta) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(meta)
    told.pop("path")
    return told


def _shown(meta: _Meta, base: Path) -> CheckpointMetadata:
    fields = {name: getattr(meta, name) for name in CheckpointMetadata.__struct_fields__}
    return CheckpointMetadata(**(fields | {"path": str(base)}))


def _read_json(path: Path) -> bytes:
    try:
        if path.stat().st_size > _LARGEST_JSON:
            raise _invalid(path, "it is too large")
        return path.read_bytes()
    except OSError as error:
        raise _invalid(path, error.strerror or str(error)) from error


def check_schema(found: object, path: Path) -> None:
    """Refuse a schema that is newer than ours; an absent one is the first."""
    if found is None:
        return
    version = _VERSION.fullmatch(found) if isinstance(found, str) else None
    if version is None:
        raise _invalid(path, f"{found!r} is no version of a schema")
    if (int(version[1]), int(version[2])) > (1, 0):
        raise IncompatibleVersion(
            f"{path} has schema version {found}; this everstep knows up to {SCHEMA}.",
            fix="Use the newer everstep that wrote it.",
        )
    if found != SCHEMA:
        raise _invalid(path, f"there never was a schema {found}")


def _read_meta(base: Path) -> _Meta:
    path = _named(base, META)
    data = _read_json(path)
    try:
        said = msgspec.json.decode(data)
        check_schema(said.get("schema_version") if isinstance(said, dict) else None, path)
        return msgspec.json.decode(data, type=understood(_Meta))
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise _invalid(path, str(error)) from error


def _check(base: Path, meta: _Meta, *, is_thorough: bool) -> None:
    """Raise unless the other two files are those that were written with this one."""
    for suffix, wanted in ((PICKLE if meta.is_pickle else DATA, meta.payload), (STATE, meta.state)):
        path = _named(base, suffix)
        try:
            if path.stat().st_size != wanted.size or (is_thorough and _file(path) != wanted):
                raise _invalid(path, "it is another one than was written")
        except OSError as error:
            raise _invalid(path, error.strerror or str(error)) from error
    if is_thorough:
        path = _named(base, STATE)
        try:
            said = msgspec.json.decode(_read_json(path), type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise _invalid(path, str(error)) from error
        check_schema(said.get("schema_version"), path)
        if said.get("session_id") != meta.session_id:
            raise _invalid(path, "it is the state of another run")


def _remove(base: Path) -> None:
    """Remove a set; from its first file on it no longer counts."""
    _named(base, META).unlink(missing_ok=True)
    sync_folder(base.parent)
    for suffix in (STATE, DATA, PICKLE):
        _named(base, suffix).unlink(missing_ok=True)


def _remove_halves(folder: Path) -> None:
    """Remove what is left of sets whose last file was never written."""
    for file in folder.glob(f"session_*{STATE}"):
        _remove_half(file.with_name(file.name.removesuffix(STATE)))
    for suffix in (DATA, PICKLE):
        for file in folder.glob(f"session_*{suffix}"):
            _remove_half(file.with_name(file.name.removesuffix(suffix)))


def _remove_half(base: Path) -> None:
    if not _named(base, META).exists():
        _remove(base)


def _invalid(path: Path, why: str) -> BundleInvalid:
    return BundleInvalid(f"{path} is no whole checkpoint: {why}.", fix="Take another one.")
