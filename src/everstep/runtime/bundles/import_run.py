"""Reading a bundle into a store. Everything is checked before anything is written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from everstep.codec.archive import ArchiveReader
from everstep.codec.notes import INBOX, close_note, is_plain, wait_anew
from everstep.codec.records import with_payloads
from everstep.codec.sealing import closed_anew
from everstep.errors import (
    BadRequest,
    BundleInvalid,
    KeyUnavailable,
    StateCorrupted,
)
from everstep.model.acts import Act
from everstep.model.bundles import IMPORTED, BundledRun, LeftOut
from everstep.model.leases import is_pause
from everstep.model.shapes import shown
from everstep.model.waits import SignalRow, WaitRow
from everstep.ports.restoring import Restored, RestoringStore, WholeRun
from everstep.ports.store import CheckpointStore
from everstep.runtime.after_run import note_act
from everstep.runtime.bundles.conflicts import make_room, meet, taken
from everstep.runtime.bundles.export import Progress
from everstep.runtime.bundles.read_run import ChainReader
from everstep.runtime.bundles.redaction import GivenBack, give_back
from everstep.runtime.bundles.untrusted import Contents, check_contents
from everstep.runtime.coded_blobs import CodedBlobs
from everstep.runtime.operations.acting import one_more, riding, written
from everstep.runtime.retention.erase import IMPORT
from everstep.runtime.retention.references import SLOW, gone_from
from everstep.runtime.services import Services

_COMES = (None, Restored.BEHIND)


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a bundle."""

    runs: tuple[BundledRun, ...]
    restored: tuple[str, ...]
    """The runs that were not there before."""
    checkpoints: int
    artifacts: int
    missing: tuple[LeftOut, ...]
    """What was left out when it was exported, and not given now."""
    keys: tuple[str, ...]
    """Keys without which some of its values cannot be read."""
    elsewhere: tuple[str, ...] = ()
    """What belongs to its runs and was not in the file, such as `channel`."""
    set_aside: tuple[str, ...] = ()
    """Unfinished runs that workers leave alone until they are resumed."""

    @shown
    def run_id(self) -> str:
        """The run that was exported."""
        return next(run.run_id for run in reversed(self.runs) if run.is_wanted)


async def import_bundle(
    services: Services,
    path: Path,
    *,
    values: Mapping[str, Any],
    live: bool = False,
    dry_run: bool = False,
    on_progress: Callable[[Progress], object] | None = None,
    act: Act | None = None,
) -> Imported:
    """Put the runs of a bundle into the store, each in one go; done again, it changes nothing."""
    restoring = restoring_store(services.store)
    with _opened(path) as file:
        shown = path.name
        contents = await services.system.to_thread(
            check_contents, ArchiveReader(file, shown), shown, services.codecs, services.blobs
        )
        if (contents.blobs or contents.absent) and services.blobs is None:
            raise BadRequest("this host keeps no artifacts.", fix="Give it a place with Host(blobs=...).")
        runs = [_for_here(run, contents, live) for run in contents.runs]
        back = give_back(services.values, runs, contents.absent, contents.manifest.left_out, values)
        runs, missing = back.runs, await _still_missing(services, contents, back)
        met = [await meet(services.store, run) for run in runs]
        restored: list[str] = []
        if not dry_run:
            begun = services.clock.monotonic()
            await _restore_blobs(services, file, shown, contents, on_progress)
            for ref, stored in back.blobs:
                await services.system.to_thread(cast(CodedBlobs, services.blobs).restore, ref, stored)
            for run, there in zip(runs, met, strict=True):
                before = contents.before[run.row.run_id]
                if there.judged in _COMES:
                    # First, so that no crash leaves a run that is not known to come from elsewhere.
                    await note_act(services, IMPORT, run.row.run_id, run.row.flow_id, act)
                await make_room(services.store, there)
                if there.judged in _COMES and await _restore(services, restoring, run, before, act):
                    restored.append(run.row.run_id)
            kept = services.blobs.retaining if services.blobs is not None else None
            is_slow = services.clock.monotonic() - begun > SLOW
            if is_slow and await gone_from(services.system, kept, contents.blobs.values()):
                await _restore_blobs(services, file, shown, contents, None)
        else:
            restored = [
                run.row.run_id for run, there in zip(runs, met, strict=True) if there.judged in _COMES
            ]
    new = [run for run in runs if run.row.run_id in restored]
    return Imported(
        runs=contents.manifest.runs,
        restored=tuple(restored),
        checkpoints=sum(len(run.records) for run in new),
        artifacts=len(contents.blobs),
        missing=missing,
        keys=contents.manifest.keys,
        elsewhere=contents.manifest.elsewhere,
        set_aside=tuple(run.row.run_id for run in new if run.row.needs_repair == IMPORTED),
    )


def restoring_store(store: CheckpointStore) -> RestoringStore:
    """Return the store as one that takes whole runs, or say that it does not."""
    if not store.capabilities.restores:
        raise BadRequest("this store takes no runs of other stores.", fix="Use another one.")
    return cast(RestoringStore, store)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        # Before it is opened: a pipe would be waited for.
        if not path.is_file() and path.exists():
            raise BundleInvalid(f"{path} is no file.", fix="Check the name of the bundle.")
        file = path.open("rb")
    except OSError as error:
        raise BundleInvalid(
            f"cannot open {path}: {error.strerror or error}.", fix="Check the name of the bundle."
        ) from error
    with file:
        yield file


def _for_here(run: WholeRun, contents: Contents, live: bool) -> WholeRun:
    """Return a run that workers leave alone here: it may still be driven where it comes from."""
    is_wanted = any(b.run_id == run.row.run_id and b.is_wanted for b in contents.manifest.runs)
    mark = run.row.needs_repair
    is_set_aside = mark is not None and not is_pause(mark)  # who lets it go on is to know where it comes from
    if run.row.status.is_final or is_set_aside or (live and is_wanted):
        return run
    return msgspec.structs.replace(run, row=msgspec.structs.replace(run.row, needs_repair=IMPORTED))


async def _still_missing(services: Services, contents: Contents, back: GivenBack) -> tuple[LeftOut, ...]:
    """Leave out of what is missing the artifacts that the store has of another run."""
    if services.blobs is None or not contents.absent:
        return back.missing
    lost: set[str] = set()
    given = {ref.checksum for ref, _ in back.blobs}
    for ref, name in contents.absent:
        if ref.checksum in given:
            continue
        try:
            await services.system.to_thread(services.blobs.stored, ref)
        except StateCorrupted:
            lost.add(name)
    found = {name for _, name in contents.absent} - lost - contents.inline_left_out
    return tuple(one for one in back.missing if one.what != "value" or one.name not in found)


async def _restore(
    services: Services, store: RestoringStore, run: WholeRun, before: bytes, act: Act | None
) -> bool:
    one_more(act)
    audit = riding(act, run.row.run_id)
    judged = await store.restore(msgspec.structs.replace(_encrypted(services, run, before), audit=audit))
    written(audit, is_done=judged is Restored.RESTORED)
    if judged in (Restored.TAKEN, Restored.BEHIND):
        raise taken(run.row.run_id, judged)
    if judged is Restored.NO_BASE:
        raise StateCorrupted(
            f"run {run.row.parent_run_id!r}, which {run.row.run_id!r} was forked from, is another one here."
        )
    return judged is Restored.RESTORED


def _encrypted(services: Services, run: WholeRun, before: bytes) -> WholeRun:
    """Return a run whose values have the key of this host, if it has one and they can be read."""
    if not services.codecs.encrypts:
        return run
    records, run_id = [], run.row.run_id
    for checked in ChainReader(run.row, before, services.codecs).check(run.records):
        stored, opened = checked.stored, checked.opened
        if opened is not None and not checked.is_locked:
            where = f"checkpoint {stored.sequence} of run {run_id!r}"
            anew = closed_anew(opened, run_id, where, services.codecs)
            if anew is not None:
                stored = msgspec.structs.replace(stored, body=with_payloads(stored.body, *anew))
        records.append(stored)
    waits = tuple(_closed(services, wait) for wait in run.waits)
    inbox = tuple(_closed_signal(services, run_id, signal) for signal in run.inbox)
    return msgspec.structs.replace(run, records=tuple(records), waits=waits, inbox=inbox)


def _closed_signal(services: Services, run_id: str, signal: SignalRow) -> SignalRow:
    if signal.value is None or not is_plain(signal.value):
        return signal
    return msgspec.structs.replace(signal, value=close_note(services.codecs, run_id, INBOX, signal.value))


def _closed(services: Services, wait: WaitRow) -> WaitRow:
    try:
        notes = wait_anew(services.codecs, wait)
    except KeyUnavailable:
        return wait
    return wait if notes is None else msgspec.structs.replace(wait, details=notes[0], answer=notes[1])


async def _restore_blobs(
    services: Services,
    file: BinaryIO,
    shown: str,
    contents: Contents,
    tell: Callable[[Progress], object] | None,
) -> None:
    """Keep the artifacts of a bundle that was checked; read again, as they need not fit into memory."""
    if not contents.blobs or services.blobs is None:
        return
    done = size = 0
    parts = ArchiveReader(file, shown).parts()
    while True:
        part = await services.system.to_thread(next, parts, None)
        if part is None:
            return
        name, data, _ = part
        ref = contents.blobs.get(name.removeprefix("blobs/")) if name.startswith("blobs/") else None
        if ref is None:
            continue
        if hashlib.sha256(data).digest() != contents.stored[ref.checksum]:
            raise BundleInvalid(f"{shown} was altered while it was read.", fix="Import it again.")
        await services.system.to_thread(services.blobs.restore, ref, data)
        done, size = done + 1, size + len(data)
        if tell is not None:
            tell(Progress(run_id=contents.manifest.runs[-1].run_id, artifacts=done, size=size))
