"""A run as a folder of plain files, written beside its store and from its records alone. Apart from the calls
that write it, as one of several ways to export.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from everstep.client.exports import stage_records as staged
from everstep.client.exports.forms import Past, step_outcome
from everstep.client.exports.run_folder_events import Told, followed_in, forks_in, may_be_late
from everstep.client.exports.spelling import iso, readable
from everstep.client.views import RunInfo, RunState
from everstep.codec.plain_json import jsonable
from everstep.errors import BadRequest, RunNotFound, StoreError
from everstep.graph.compile.plan import Plan
from everstep.graph.draw.graphviz import Sketch, SketchEdge, SketchNode, to_text
from everstep.model.enums import Status
from everstep.model.records import CheckpointRecord, StepRecord
from everstep.model.waits import SettledBy
from everstep.ports.store import CheckpointStore, RunRow
from everstep.runtime.lineage import Link, flows_met, verified
from everstep.runtime.reader import RunReader
from everstep.runtime.rehydrate import Rehydrated
from everstep.runtime.run_ids import check_run_id
from everstep.runtime.services import Services

LOOK: Final = 0.05
"""Seconds between two looks at whether the store was written to."""
_AT_ONCE: Final = 256
"""Checkpoints that are read together."""
_FORMAT: Final = 1
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.@#-]")
_LONGEST: Final = 80
_RESERVED: Final = frozenset({"con", "prn", "aux", "nul"})


async def write_run_folder(
    services: Services,
    runs: RunReader,
    run_id: str,
    folder: Path,
    *,
    pipeline: str | None,
    until: Callable[[], bool] | None,
) -> Path:
    """Write a run's folder below another and return it; with `until`, go on with it until that says so."""
    row = await runs.row(check_run_id(run_id))
    root = folder / folder_name(row)
    with _making(root):
        writer = RunFolder(services.store, runs, row.run_id, root, pipeline)
        while True:
            is_last = until is None or until()
            seen = services.store.changes()
            await writer.sync()
            if is_last:
                return root
            while until is not None and not until() and services.store.changes() == seen:
                await services.system.pause(LOOK)


def folder_name(row: RunRow) -> str:
    """Return what a run's folder is called: always the same."""
    return f"{row.created_at:%Y%m%dT%H%M%SZ}_{file_name(row.flow_id)}_{file_name(row.run_id)}"


@contextlib.contextmanager
def _making(root: Path) -> Iterator[None]:
    """Have the folder to oneself, and say in plain words if it cannot be written."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        with (root / ".lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BadRequest(
                    f"{root} is being written by another process.", fix="Wait for it, or name another folder."
                ) from None
            yield
    except OSError as error:
        said = error.strerror or str(error)
        raise StoreError(f"{root} cannot be written: {said}.", fix="Name a folder that can be.") from error


class RunFolder:
    """The folder of one run: what is there is written once, what comes is added."""

    def __init__(
        self, store: CheckpointStore, runs: RunReader, run_id: str, root: Path, pipeline: str | None
    ) -> None:
        self._store = store
        self._runs = runs
        self._run_id = run_id
        self._root = root
        self._base = root
        """Where the run is written now: the folder itself, or that of the newest restart."""
        self._restarts = 0
        self._pipeline = pipeline
        self._forks: frozenset[str] = frozenset()
        self._told = Told(run_id, self._forks)
        self._names = FileNames()
        self._visits: dict[str, NodeFiles] = {}
        """The newest visit to each node."""
        self._begun: set[Path] = set()
        """Lists of events that were begun anew."""
        self._folded: Rehydrated | None = None
        self._past = Past()
        self._values: dict[str, tuple[int, Any]] = {}

    async def sync(self) -> None:
        """Write what the records tell that is not written yet."""
        row = await self._runs.row(self._run_id)
        while True:
            newest = self._past.newest
            first = await self._beginning(row) if newest is None else newest.sequence + 1
            if first > row.checkpoints:
                break
            links = await self._runs.lineage.get(row, first, min(row.checkpoints, first + _AT_ONCE - 1))
            await self._take(row, links)
        self._write_summary(RunInfo.of(row, is_driven=False))

    async def _beginning(self, row: RunRow) -> int:
        """Return the first record from which on none is missing."""
        if not row.trimmed_before and row.parent_run_id is None:
            return 1
        found = None
        for first in range(1, row.checkpoints + 1, _AT_ONCE):
            page = await self._runs.lineage.open(row, first, min(row.checkpoints, first + _AT_ONCE - 1))
            for link, opened in page:
                found = None if opened is None else found or link.sequence
        if found is None:
            raise RunNotFound(f"nothing is left of run {self._run_id!r}.", fix="Name another run.")
        return found

    async def _take(self, row: RunRow, links: Sequence[Link]) -> None:
        before = self._folded.head.digest if self._folded is not None else None
        records = {record.sequence: record for record in _opened(links, before)}
        if self._folded is None:
            first = min(records)
            self._folded = await self._runs.look_back(self._run_id, first)
            self._forks = forks_in(self._folded.state.plan)
            followed = followed_in(self._folded.state.plan)
            self._told = Told(self._run_id, self._forks, followed)
            self._write_beginning(row, self._folded.state.plan)
            await self._find_late(records[first])
            self._write(row, records[first])
            links = [link for link in links if link.sequence > first]
        for flow_hash in flows_met(links):
            self._folded.plans[flow_hash] = await self._runs.plan(row, flow_hash)
        for link in links:
            record = records[link.sequence]
            self._folded.watch(_wanted(record))
            self._folded.fold([link], needs_values=False)
            await self._find_late(record)
            self._write(row, record)
            self._folded.seen.clear()
            await asyncio.sleep(0)  # others on this loop have their turn

    async def _find_late(self, record: CheckpointRecord) -> None:
        """Learn which waits that a record ends were settled by the clock."""
        for step in record.steps:
            if step.wait is not None and may_be_late(step):
                row = await self._store.wait(step.wait.wait_id)
                if row is not None and row.settled_by is SettledBy.CLOCK:
                    self._told.late.add(row.wait_id)

    # -- one checkpoint -----------------------------------------------------------------------------------

    def _write(self, row: RunRow, record: CheckpointRecord) -> None:
        assert self._folded is not None
        self._past.take(record)
        info, state = RunInfo.of(row, is_driven=False), RunState(self._run_id, self._folded)
        form = self._past.form(info, state, partial(self._read, state))
        stages = self._stages(record)
        for step in record.steps:
            if step.path[0] != "@" and step.status is not Status.RUNNING:
                self._write_node(step, stages.get((step.path, step.visit)))
        self._append_events(record, stages)
        node = self._names[form["current_node"] or record.trigger.value]
        _put_json(self._base / "checkpoints" / f"{record.sequence:03d}_{node}.json", form)
        _put_json(self._base / "checkpoint.json", _small_form(form, state))
        restarts = self._read(state, staged.RESTARTED) if staged.RESTARTED in state else 0
        if isinstance(restarts, int) and restarts > self._restarts:
            self._begin_anew(restarts)

    def _begin_anew(self, restarts: int) -> None:
        self._restarts = restarts
        self._base = self._root / f"restart-{restarts + 1}"
        self._names = FileNames()
        self._visits.clear()

    def _read(self, state: RunState, name: str) -> Any:
        """Return a value as JSON; one that has not changed is not read again."""
        version = state.versions[name]
        known = self._values.get(name)
        if known is None or known[0] != version:
            known = self._values[name] = (version, readable(state, name))
        return known[1]

    def _stages(self, record: CheckpointRecord) -> dict[tuple[str, int], dict[str, Any]]:
        """Return the records of stages that a checkpoint brought, by the path and visit of their step."""
        assert self._folded is not None
        found: dict[tuple[str, int], dict[str, Any]] = {}
        for step in record.steps:
            for write in step.writes:
                if write.name == staged.stage_key(step):
                    told = jsonable(self._folded.seen.get((write.name, write.version)))
                    found[step.path, step.visit] = told if isinstance(told, dict) else {}
        return found

    # -- nodes --------------------------------------------------------------------------------------------

    def _write_node(self, step: StepRecord, stage: Mapping[str, Any] | None) -> None:
        path = staged.node_path(step)
        if stage is None and path.rpartition("/")[0] in self._forks:
            return  # a branch as a whole, of which its stages tell
        folder = self._base / "nodes" / self._names[path]
        files = _files_of(step, stage)
        before = self._visits.get(path)
        now = NodeFiles(1, step, stage, files) if before is None else before.followed_by(step, stage, files)
        if before is not None and now.number > before.number:
            for name, text in before.files.items():
                _put(folder / "visits" / str(before.number) / name, text)
            for name in before.files.keys() - files.keys():
                (folder / name).unlink(missing_ok=True)
        self._visits[path] = now
        for name, text in files.items():
            _put(folder / name, text)

    def _append_events(
        self, record: CheckpointRecord, stages: Mapping[tuple[str, int], Mapping[str, Any]]
    ) -> None:
        path = self._base / "events.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(event, ensure_ascii=False) for event in self._told.events_of(record, stages)]
        with path.open("a" if path in self._begun else "w", encoding="utf-8", errors="replace") as file:
            file.write("".join(f"{line}\n" for line in lines))
        self._begun.add(path)

    # -- the whole run ------------------------------------------------------------------------------------

    def _write_beginning(self, row: RunRow, plan: Plan) -> None:
        _put_json(
            self._root / "manifest.json",
            {
                "format": _FORMAT,
                "run_id": row.run_id,
                "pipeline_name": row.flow_id,
                "flow_version": row.flow_version,
                "flow_hash": row.flow_hash,
                "created_at": iso(row.created_at),
                "parent_run_id": row.parent_run_id,
                "forked_at": row.forked_at,
            },
        )
        text = self._root / "pipeline.dot"
        if self._pipeline is not None:
            _put(text, self._pipeline)
        elif not text.exists():
            _put(text, _drawn(row.flow_id, plan))

    def _write_summary(self, info: RunInfo) -> None:
        newest, current = self._past.newest, self._past.current
        error = newest.error if newest is not None else None
        _put_json(
            self._root / "status.json",
            {
                "run_id": info.run_id,
                "pipeline_name": info.flow,
                "status": newest.status.value if newest is not None else info.status.value,
                "current_node": current.path if current is not None else None,
                "started_at": iso(info.created_at),
                "updated_at": iso(newest.created_at) if newest is not None else None,
                "ended_at": iso(info.ended_at),
                "checkpoints": newest.sequence if newest is not None else 0,
                "restarts": self._restarts,
                "error": None if error is None else {"type": error.type, "message": error.message},
            },
        )


class NodeFiles(NamedTuple):
    """A visit to a node, and its files by name."""

    number: int
    step: StepRecord
    stage: Mapping[str, Any] | None
    files: dict[str, str]

    def followed_by(
        self, step: StepRecord, stage: Mapping[str, Any] | None, files: dict[str, str]
    ) -> NodeFiles:
        """Return the visit that a later step of the same node belongs to: this one, or the next.

        A node that waits, tries again or has a gate behind it takes several steps for one visit.
        """
        is_same = (self.step.path, self.step.visit) == (step.path, step.visit)
        goes_on = self.step.path != step.path and self.stage is None and stage is not None
        if is_same or goes_on:
            return NodeFiles(self.number, step, stage, {**self.files, **files})
        return NodeFiles(self.number + 1, step, stage, files)


def _opened(links: Sequence[Link], before: bytes | None) -> Iterator[CheckpointRecord]:
    """Yield the records that were not removed, each verified, with the run that it lies in."""
    for link, opened in verified(links, before, needs_values=False):
        if opened is not None:
            row = link.row
            yield msgspec.structs.replace(
                opened.record, run_id=row.run_id, parent_run_id=row.parent_run_id, flow_id=row.flow_id
            )


def _wanted(record: CheckpointRecord) -> list[tuple[str, int]]:
    return [
        (write.name, write.version)
        for step in record.steps
        for write in step.writes
        if write.name == staged.stage_key(step)
    ]


def _files_of(step: StepRecord, stage: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the files of a visit by name."""
    if not stage:
        outcome = step_outcome(step)
        return {"outcome.json": _json(outcome)}
    outcome = staged.outcome_of(stage)
    response = outcome.pop("response", None)
    status = {
        "outcome": outcome.get("status"),
        "preferred_next_label": outcome.get("preferred_label", ""),
        "suggested_next_ids": outcome.get("suggested_next", []),
        "notes": outcome.get("notes", ""),
        "failure_reason": outcome.get("failure_reason", ""),
    }
    files = {"outcome.json": _json(outcome), "status.json": _json(status)}
    if isinstance(stage.get("prompt"), str):
        files["prompt.md"] = stage["prompt"]
    if isinstance(stage.get("preamble"), str):
        files["preamble.md"] = stage["preamble"]
    if isinstance(response, str):
        files["response.md"] = response
    if outcome.get("artifacts"):
        # Only where they are: what a stage names as its file may be any file.
        files["artifacts/references.json"] = _json(outcome["artifacts"])
    return files


def _small_form(form: Mapping[str, Any], state: RunState) -> dict[str, Any]:
    """Return a checkpoint with the fields of the other dialect."""
    good = ("success", "partial_success", "skipped")
    done = [node for node, outcome in form["node_history"] if outcome.get("status") in good]
    return {
        "timestamp": form["timestamp"],
        "current_node": form["current_node"],
        "completed_nodes": list(dict.fromkeys(done)),
        "node_retries": dict(state.counters.retries),
        "context": form["context"],
        "logs": [],
    }


def _drawn(name: str, plan: Plan) -> str:
    """Return a flow of which only the wiring is known as DOT."""
    ids = [f"n{number}" for number in range(len(plan.nodes))]
    nodes = [SketchNode(id_, {"label": node.name}) for id_, node in zip(ids, plan.nodes, strict=True)]
    edges = [SketchEdge(ids[tail], ids[head]) for tail, heads in plan.graph.items() for head in sorted(heads)]
    return to_text(Sketch("flow", tuple(nodes), tuple(edges), attributes={"label": name}))


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _put_json(path: Path, value: Any) -> None:
    _put(path, _json(value))


def _put(path: Path, text: str) -> None:
    """Write a file that appears whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(text, encoding="utf-8", errors="replace")
    draft.replace(path)


def file_name(text: str) -> str:
    """Return a name for a file: letters, digits and `_.@#-` as they are, `/` as `+`, all else as `%XX`.

    One that is too long is cut, one that would be hidden or is reserved changed; a digest keeps it its own.
    """
    name = "".join(_spelled(letter) for letter in text)
    if name[:1] in (".", "-"):
        name = f"%{ord(name[0]):02X}{name[1:]}"
    is_odd = not name or name.endswith(".") or name.partition(".")[0].lower() in _RESERVED
    if len(name) > _LONGEST or is_odd:
        return f"{name[:_LONGEST].rstrip('.')}~{_digest(text)}"
    return name


def _spelled(letter: str) -> str:
    if letter == "/":
        return "+"
    if _PLAIN.fullmatch(letter):
        return letter
    return "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "surrogatepass"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


class FileNames:
    """Names of files in one folder, also where it does not tell capital letters from small ones."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}
        self._taken: set[str] = set()

    def __getitem__(self, text: str) -> str:
        """Return the name for a text: always the same, and never that of another."""
        if text not in self._given:
            name = file_name(text)
            if name.lower() in self._taken:
                name = f"{name}~{_digest(text)}"
            self._taken.add(name.lower())
            self._given[text] = name
        return self._given[text]
