"""Writing a run, and those it was forked from, into one file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from everstep.codec.archive import ArchiveWriter
from everstep.codec.notes import open_signal, open_wait
from everstep.codec.payload import AES_GCM, HEADER, key_id_of, layers_of
from everstep.codec.sealing import without_codecs
from everstep.errors import BadRequest, ValueUnreadable
from everstep.model.bundles import (
    BUNDLE_FORMAT,
    BUNDLE_VERSION,
    MANIFEST,
    BundledRun,
    LeaveOut,
    LeftOut,
    Manifest,
)
from everstep.model.commits import NO_LABELS, Labels
from everstep.model.records import KEPT, ArtifactRef
from everstep.model.waits import HadEvent, SignalRow, WaitRow
from everstep.ports.store import RunRow, StoredRecord
from everstep.runtime.bundles.new_file import NewFile
from everstep.runtime.bundles.read_run import Checked, Reading, check_nothing_waits, family, unscheduled
from everstep.runtime.bundles.redaction import Leaving
from everstep.runtime.reader import RunReader
from everstep.runtime.services import Services

PART_BYTES = 4 << 20
"""How much of a run's records goes into one part of a bundle, roughly."""
RawRecord = tuple[int, str, bool, bytes, bytes | None]


class RunPart(msgspec.Struct, frozen=True, kw_only=True):
    """What a bundle says of a run besides its records."""

    row: RunRow
    base: str | None
    waits: tuple[WaitRow, ...]
    inbox: tuple[SignalRow, ...] | msgspec.UnsetType = msgspec.UNSET
    """Its signals; left out if there are none."""
    had: tuple[HadEvent, ...] | msgspec.UnsetType = msgspec.UNSET
    """Which events its nodes had, as paths and ids; left out if there are none."""
    labels: Labels | msgspec.UnsetType = msgspec.UNSET
    """Its tags and attributes; left out if there are none."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an export, an import or a copy has come."""

    run_id: str
    checkpoints: int = 0
    artifacts: int = 0
    size: int = 0
    """Bytes of both."""


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What was written."""

    path: Path
    runs: tuple[BundledRun, ...]
    checkpoints: int
    artifacts: int
    size: int
    """Of the file, in bytes."""
    left_out: tuple[LeftOut, ...]
    keys: tuple[str, ...]
    """Keys without which some of its values cannot be read."""
    elsewhere: tuple[str, ...] = ()
    """What belongs to the run and is not in the file."""


async def export(
    services: Services,
    runs: RunReader,
    run_id: str,
    path: Path,
    *,
    leave_out: LeaveOut,
    decrypt: bool = False,
    force: bool = False,
    ir: bytes | None = None,
    on_progress: Callable[[Progress], object] | None = None,
) -> Exported:
    """Write a run into a file that appears when it is whole, and not before."""
    row = await runs.row(run_id)
    check_nothing_waits(services.spool, row.run_id)
    with NewFile(path, replaces=force) as file:
        exporting = _Exporting(services, runs, ArchiveWriter(file.stream), Leaving(leave_out), decrypt)
        exporting.on_progress = on_progress
        manifest = await exporting.write(row, ir)
        size = file.stream.tell()
        file.commit()
    return Exported(
        path=path,
        runs=manifest.runs,
        checkpoints=exporting.checkpoints,
        artifacts=manifest.artifacts,
        size=size,
        left_out=manifest.left_out,
        keys=manifest.keys,
        elsewhere=manifest.elsewhere,
    )


class _Exporting:
    """One export under way."""

    def __init__(
        self, services: Services, runs: RunReader, archive: ArchiveWriter, leaving: Leaving, decrypt: bool
    ) -> None:
        self._services = services
        self._runs = runs
        self._archive = archive
        self._leaving = leaving
        self._decrypt = decrypt
        self.on_progress: Callable[[Progress], object] | None = None
        self.checkpoints = 0
        self._artifacts = 0
        self._size = 0
        self._schema = 1
        self._blobs: dict[str, ArtifactRef] = {}
        self._blueprints: dict[str, bytes] = {}
        self._keys: dict[str, None] = {}
        self._elsewhere: dict[str, None] = {}
        self._run_id = ""

    async def write(self, row: RunRow, ir: bytes | None) -> Manifest:
        rows = await family(self._runs.lineage, row)
        self._run_id = row.run_id
        if self._leaving.looks_at_values:
            for one in rows:
                reading = Reading(self._services.store, self._services.codecs, one)
                async for page in reading.pages():
                    self._leaving.look(one.run_id, page)
        bundled = [await self._run(one, is_wanted=one.run_id == row.run_id) for one in rows]
        for ref in self._blobs.values():
            await self._services.system.to_thread(self._blob, ref)
            self._tell()
        for flow_hash, blueprint in sorted(self._blueprints.items()):
            self._archive.add(f"flows/{flow_hash}.json", blueprint)
        if ir is not None:
            self._archive.add(f"flows/{row.flow_hash}.ir.json", ir)
        manifest = Manifest(
            format=BUNDLE_FORMAT,
            version=BUNDLE_VERSION,
            schema_version=self._schema,
            runs=tuple(bundled),
            artifacts=self._artifacts,
            left_out=self._leaving.left_out,
            keys=tuple(sorted(self._keys)),
            elsewhere=tuple(sorted(self._elsewhere)),
            content=self._archive.digest,
        )
        self._archive.add(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        self._archive.close()
        return manifest

    async def _run(self, row: RunRow, *, is_wanted: bool) -> BundledRun:
        reading = Reading(self._services.store, self._services.codecs, row)
        part: list[RawRecord] = []
        size, head = 0, ""
        async for page in reading.pages():
            for checked in page:
                stored = self._record(row.run_id, checked)
                head = stored.checkpoint_id
                part.append((stored.sequence, head, stored.keyframe, stored.body, stored.digest))
                size += len(stored.body)
                if size >= PART_BYTES:
                    self._add_records(row.run_id, part)
                    part, size = [], 0
            self.checkpoints += len(page)
            self._tell()
        if part:
            self._add_records(row.run_id, part)
        signals = self._leaving.inbox(reading.inbox, reading.waits, row.run_id)
        waits = tuple(self._leaving.wait(unscheduled(self._wait(wait))) for wait in reading.waits)
        labels = self._leaving.labels(reading.labels, row.run_id)
        about = RunPart(
            row=msgspec.structs.replace(reading.row, lease=None),
            base=reading.base,
            waits=waits,
            inbox=tuple(self._signal(row.run_id, signal) for signal in signals) or msgspec.UNSET,
            had=reading.had or msgspec.UNSET,
            labels=msgspec.UNSET if labels == NO_LABELS else labels,
        )
        self._archive.add(f"runs/{row.run_id}/run.json", msgspec.json.encode(about))
        self._blueprints.update(await reading.blueprints())
        return BundledRun(
            run_id=row.run_id,
            flow_id=reading.row.flow_id,
            flow_version=reading.row.flow_version,
            status=reading.row.status.value,
            checkpoints=reading.row.checkpoints,
            checkpoint_id=head,
            digest=reading.digest.hex(),
            is_wanted=is_wanted,
        )

    def _signal(self, run_id: str, signal: SignalRow) -> SignalRow:
        """Return a signal with its value as it is to be in the file."""
        if signal.value is None:
            return signal
        if self._decrypt:
            plain = msgspec.json.encode(open_signal(self._services.codecs, run_id, signal.value))
            return msgspec.structs.replace(signal, value=plain)
        if signal.value[:1] == HEADER[:1]:  # with which no JSON begins
            self._note_key(signal.value)
        return signal

    def _wait(self, wait: WaitRow) -> WaitRow:
        """Return a wait with what is asked and answered as it is to be in the file."""
        if self._decrypt:
            return open_wait(self._services.codecs, wait)
        for note in (wait.details, wait.answer):
            if note is not None and note[:1] == HEADER[:1]:  # with which no JSON begins
                self._note_key(note)
        return wait

    def _add_records(self, run_id: str, part: list[RawRecord]) -> None:
        data = msgspec.msgpack.encode(part)
        self._size += len(data)
        self._archive.add(f"runs/{run_id}/records-{part[0][0]:010d}", data)

    def _record(self, run_id: str, checked: Checked) -> StoredRecord:
        opened = checked.opened
        if opened is None:
            return checked.stored
        self._schema = max(self._schema, opened.record.version)
        for write in opened.record.writes():
            if write.artifact is not None and not self._leaving.stays(write):
                self._blobs.setdefault(write.artifact.checksum, write.artifact)
            if write.name.startswith(KEPT):
                self._elsewhere[write.name.removeprefix(KEPT)] = None
        plain = None
        if self._decrypt:
            where = f"checkpoint {checked.stored.sequence} of run {run_id!r}"
            plain = without_codecs(opened, run_id, where, self._services.codecs)
        else:
            for kept in (*opened.payloads, *opened.notes):
                self._note_key(kept)
        return self._leaving.record(run_id, checked, plain)

    def _note_key(self, payload: bytes) -> None:
        if payload[2:3] > b"\0":
            with suppress(ValueUnreadable):
                layers, _ = layers_of(payload, "value")
                if layers[-1].codec == AES_GCM:
                    self._keys[key_id_of(layers[-1])] = None

    def _blob(self, ref: ArtifactRef) -> None:
        blobs = self._services.blobs
        if blobs is None:
            raise BadRequest("this host has no artifacts.", fix="Give them with Host(blobs=...).")
        stored = blobs.stored(ref)
        if self._decrypt:
            stored = blobs.opened(ref, stored)
        else:
            self._note_key(stored)
            blobs.check(ref, stored)
        self._archive.add(f"blobs/{ref.checksum}", stored)
        self._artifacts += 1
        self._size += len(stored)

    def _tell(self) -> None:
        if self.on_progress is not None:
            told = Progress(
                run_id=self._run_id,
                checkpoints=self.checkpoints,
                artifacts=self._artifacts,
                size=self._size,
            )
            self.on_progress(told)
