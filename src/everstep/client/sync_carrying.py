"""The part of `Host` that carries runs elsewhere. No logic of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from everstep.client.lanes import Lanes
from everstep.client.views import Copied, Exported, Imported, Progress
from everstep.graph.author.flow import Flow
from everstep.model.bundles import LeaveOut
from everstep.model.enums import Status
from everstep.registry import Opened


class SyncCarrying:
    """What may be done with whole runs."""

    _lanes: Lanes

    def export(
        self,
        run_id: str,
        path: str | Path,
        *,
        leave_out: LeaveOut | None = None,
        decrypt: bool = False,
        force: bool = False,
        flow: Flow | None = None,
        on_progress: Callable[[Progress], object] | None = None,
    ) -> Exported:
        """Write a run into one file: its records, artifacts, waits and the structure of its flow.

        A fork brings the runs along that it comes from. Tokens are left out, and with
        `leave_out=LeaveOut.secrets()` values whose names say that they are secrets. What is encrypted stays
        so unless `decrypt`. The Flow IR is added if the flow is given. A file that is there is replaced only
        with `force`. Of a part such as A17/rag, the whole run.
        """
        how: dict[str, Any] = {"decrypt": decrypt, "force": force, "flow": flow, "on_progress": on_progress}
        return self._lanes.call(lambda host: host.export(run_id, path, leave_out=leave_out, **how))

    def import_(
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
        return self._lanes.call(
            lambda host: host.import_(
                path,
                values=values,
                live=live,
                dry_run=dry_run,
                on_progress=on_progress,
                by=by,
                comment=comment,
            )
        )

    def checkpoint_as(self, run_id: str, form: str, *, at: int | str | None = None) -> dict[str, Any]:
        """Return a checkpoint in another form, as JSON has it: `pipeline` or `phases`; by default the newest.

        `pipeline` has nine fields: where a graph of nodes stands, its context and its history. `phases` has
        phase outputs, gate history and counters; ids that are no UUIDs become some.
        """
        return self._lanes.call(lambda host: host.checkpoint_as(run_id, form, at=at))

    def write_run_folder(
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
        return self._lanes.call(
            lambda host: host.write_run_folder(run_id, folder, pipeline=pipeline, until=until)
        )

    def copy(
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
        return self._lanes.call(
            lambda host: host.copy(
                to,
                run_ids,
                flow=flow,
                status=status,
                move=move,
                blobs=blobs,
                on_run=on_run,
                on_progress=on_progress,
                by=by,
                comment=comment,
            )
        )
