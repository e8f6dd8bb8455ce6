"""Calls that carry whole runs elsewhere: bundles, copies to other stores, folders of plain files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from everstep.client.exports.forms import as_form
from everstep.client.exports.run_folder import write_run_folder
from everstep.client.parts import Parts
from everstep.client.views import RunInfo, RunState
from everstep.errors import BadRequest
from everstep.graph.author.flow import Flow
from everstep.model.acts import Act, act_of
from everstep.model.bundles import IMPORTED, LeaveOut
from everstep.model.enums import Status
from everstep.ports.store import RunFilter
from everstep.registry import Opened, open_store, place_of, with_blobs, without_secrets
from everstep.runtime.addresses import in_run
from everstep.runtime.bundles.copy import Copied, Target, chosen, copy_runs
from everstep.runtime.bundles.export import Exported, Progress, export
from everstep.runtime.bundles.import_run import Imported, import_bundle
from everstep.runtime.history import views
from everstep.runtime.retention.erase import imported_runs


class TransferCalls:
    """Whole runs, carried elsewhere."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._services, self._runs = parts.services, parts.runs.reader
        self._resting = parts.runs.resting

    async def export(
        self,
        run_id: str,
        path: str | Path,
        *,
        leave_out: LeaveOut | None = None,
        decrypt: bool = False,
        force: bool = False,
        flow: Flow | None = None,
        on_progress: Callable[[Progress], object] | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> Exported:
        """Write a run into one file: its records, artifacts, waits and the structure of its flow.

        A fork brings the runs along that it comes from. Tokens are left out, and with
        `leave_out=LeaveOut.secrets()` values whose names say that they are secrets. What is encrypted stays
        so unless `decrypt`. The Flow IR is added if the flow is given. A file that is there is replaced only
        with `force`. Of a part such as A17/rag, the whole run. The run itself is not changed; `by` and
        `comment` stand in the audit log.
        """

        async def write() -> Exported:
            return await export(
                self._services,
                self._runs,
                (await in_run(self._runs, run_id))[0],
                Path(path),
                leave_out=leave_out or LeaveOut(),
                decrypt=decrypt,
                force=force,
                ir=msgspec.json.encode(flow.to_ir()) if flow is not None else None,
                on_progress=on_progress,
            )

        about = "decrypted" if decrypt else ""
        return await self._parts.audited("export", act_of(by, comment), write(), run_id, about)

    async def import_(
        self,
        path: str | Path,
        *,
        values: Mapping[str, Any] | None = None,
        live: bool = False,
        dry_run: bool = False,
        on_progress: Callable[[Progress], object] | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> Imported:
        """Put the runs of a bundle into the store. All of it is checked before anything is written.

        They keep their ids. Workers leave an unfinished one alone until it is resumed by name, as it
        may still be driven where it comes from; with `live` they go on with it. `values` are values that were
        left out, by name: their digests must fit. Done again, it changes nothing. Records are not changed by
        it, so who imports them stands in the log of what went.
        """
        act = act_of(by, comment)
        doing = import_bundle(
            self._services,
            Path(path),
            values=values or {},
            live=live,
            dry_run=dry_run,
            on_progress=on_progress,
            act=act,
        )
        return await self._parts.audited("import", None if dry_run else act, doing)

    async def was_imported(self, run_id: str) -> bool:
        """True if a run came with a bundle, so that what it says of itself is the word of a stranger."""
        row = await self._runs.row(run_id)
        return row.needs_repair == IMPORTED or row.run_id in await imported_runs(self._services)

    async def copy(
        self,
        to: str | Opened,
        run_ids: Sequence[str] | None = None,
        *,
        flow: str | None = None,
        status: Status | str | None = None,
        move: bool = False,
        blobs: str | None = None,
        on_run: Callable[[Copied], object] | None = None,
        on_progress: Callable[[Progress], object] | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> list[Copied]:
        """Copy runs to another store as they are, all unless some are named; says what became of each.

        An unfinished run is claimed meanwhile. Workers there leave the copy of one alone, as it goes on here;
        with `move` it goes on there, and is erased here once the digests of both were compared. `blobs` is
        where the other store's artifacts are kept, if not beside it. Stopped anywhere, it can be done again.
        Who copies them stands in the log of the other store, and of what was moved also in this one's.
        """
        act = act_of(by, comment)
        how: dict[str, Any] = {"flow": flow, "status": status, "move": move, "blobs": blobs, "act": act}
        doing = self._copy(to, run_ids, on_run=on_run, on_progress=on_progress, **how)
        return await self._parts.audited("move" if move else "copy", act, doing)

    async def _copy(
        self,
        to: str | Opened,
        run_ids: Sequence[str] | None,
        *,
        flow: str | None,
        status: Status | str | None,
        move: bool,
        blobs: str | None,
        act: Act | None,
        **told: Any,
    ) -> list[Copied]:
        opened = to if isinstance(to, Opened) else open_store(to, self._services.clock)
        home = None
        try:
            if place_of(opened.url) == place_of(self._parts.url) and self._parts.url != "memory:":
                raise BadRequest("both stores are the same.", fix="Name another one to copy to.")
            if not opened.store.capabilities.durable and (move or not isinstance(to, Opened)):
                raise BadRequest(f"{opened.url} keeps nothing.", fix="Name a store that lasts to copy to.")
            if blobs is not None:
                opened, home = with_blobs(opened, blobs, self._services.clock)
            wanted = RunFilter(flow_id=flow, status=Status(status) if status is not None else None)
            target = Target(opened.store, opened.blobs, without_secrets(opened.url))
            ids = await chosen(self._services.store, run_ids, wanted)
            return await copy_runs(self._services, self._resting, target, ids, move=move, act=act, **told)
        finally:
            if not isinstance(to, Opened):
                await opened.store.close()
            if home is not None:
                await home.close()

    async def checkpoint_as(self, run_id: str, form: str, *, at: int | str | None = None) -> dict[str, Any]:
        """Return a checkpoint in another form, as JSON has it: `pipeline` or `phases`; by default the newest.

        `pipeline` has nine fields: where a graph of nodes stands, its context and its history. `phases` has
        phase outputs, gate history and counters; ids that are no UUIDs become some.
        """
        state = RunState(run_id.partition("@")[0], await self._runs.look_back(run_id, at))
        row = await self._runs.row(state.run_id)
        records = views(await self._runs.lineage.get(row, last=state.sequence))
        return as_form(form, RunInfo.of(row, is_driven=False), state, records)

    async def write_run_folder(
        self,
        run_id: str,
        folder: str | Path,
        *,
        pipeline: str | None = None,
        until: Callable[[], bool] | None = None,
    ) -> Path:
        """Write a run as a folder of plain files below `folder`, and return it; done again, it goes on.

        It holds checkpoints, events, and what each node was asked and answered, in the clear, as the records
        tell it. It is never read back. `pipeline` is the text of `pipeline.dot`. With `until` it goes on with
        what comes until that function says so.
        """
        return await write_run_folder(
            self._services, self._runs, run_id, Path(folder), pipeline=pipeline, until=until
        )
