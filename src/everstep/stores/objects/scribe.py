"""Writes the files for people behind the runs: soon after what they tell of, never in its way."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from time import monotonic

from everstep.errors import EverstepError
from everstep.model.enums import Status
from everstep.stores.forking import free_in_children
from everstep.stores.objects import names, readable
from everstep.stores.objects.bucket import Bucket
from everstep.stores.objects.entries import Entry, Standing, decode
from everstep.stores.objects.unwritten import Unkept

log = logging.getLogger("everstep")

LAG = 0.25
"""Seconds that a file may be behind."""
_ROOM = 64 << 20
"""So many bytes may wait to be written; of more only the runs are remembered, and read again."""
_SHARE = 20
"""The index of a long run is written so seldom that it takes a twentieth of the time."""
_SHELVES = 64
_FAILURES = (EverstepError, OSError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError)
"""What damaged bytes and full disks come to."""

Write = Callable[[str, bytes], None]


class Shelf:
    """The files of one run, as far as they are known."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.rows: dict[int, readable.IndexRow] = {}
        self.newest: tuple[int, bytes] = (0, b"")
        self.is_dirty = False
        self.is_at_rest = False
        self.due = 0.0
        """When the index may be written next."""


class Scribe:
    """Turns entries of logs into files, on a thread that lives only while there is something to write.

    Whatever fails here is logged once and fails nothing else: the files can be made again.
    """

    largest: int | None = None
    """Bytes of the largest file, where there is a limit."""

    def __init__(self, bucket: Bucket, write: Write, unwritten: Unkept) -> None:
        self._bucket = bucket
        self._write = write
        self._unwritten = unwritten
        self._lock = threading.Lock()
        free_in_children(self, "_lock")
        self._waiting: list[tuple[str, bytes]] = []
        self._size = 0
        self._behind: set[str] = set()
        """Runs whose files have to be made from their logs."""
        self._shelves: OrderedDict[str, Shelf] = OrderedDict()
        self._thread: threading.Thread | None = None
        self._hurry = threading.Event()
        self._is_closing = False
        self._has_complained = False

    def created(self, name: str, data: bytes) -> None:
        """Tell of an object that is new in the bucket."""
        if name.startswith(names.RUNS):
            self.note(name, data)

    def replaced(self, name: str) -> None:
        """Tell anew of an object with other bytes: values that were removed must not stay in the files."""
        if name.startswith(names.RUNS):
            self.note_change(name)

    def removed(self, gone: Iterable[str]) -> None:
        """Tell of objects that are gone. A run that is no longer marked as live halts or has ended."""
        for name in gone:
            if name.startswith(names.LIVE):
                self.hasten()
            elif name.startswith(names.RUNS):
                self.note_change(name)

    def note(self, name: str, data: bytes) -> None:
        """Write what an entry of a log tells, soon."""
        with self._lock:
            self._owe(name)
            self._size += len(data)
            if self._size > _ROOM:
                self._behind.add(_run_in(name))
            else:
                self._waiting.append((name, data))
            self._wake()

    def note_change(self, name: str) -> None:
        """Make the files of a run anew, soon: something in its log was replaced or removed."""
        with self._lock:
            self._owe(name)
            self._behind.add(_run_in(name))
            self._wake()

    def catch_up(self) -> None:
        """Write, soon, what processes owe that are gone."""
        with self._lock:
            try:
                self._behind.update(self._unwritten.adopt())
            except OSError as error:
                self._complain(error)
            if self._behind:
                self._wake()

    def _owe(self, name: str) -> None:
        try:
            self._unwritten.add(_run_in(name))
        except OSError as error:
            self._complain(error)

    def _wake(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            # Not a daemon: a program that ends without closing its store leaves whole files.
            self._thread = threading.Thread(target=self._work, name="everstep-scribe")
            self._thread.start()

    def rebuild(self, run_id: str) -> None:
        """Make the files of a run from its log, here and now."""
        shelf = self._from_log(run_id)
        if shelf.rows:
            self._write_index(shelf)
        self._shelve(run_id, shelf)

    def hasten(self) -> None:
        """Write what waits without further delay."""
        self._hurry.set()

    def flush(self) -> None:
        """Return once everything is written that was noted before."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._is_closing = True
            self._hurry.set()
            thread.join()
            self._is_closing = False

    # -- on the thread ------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            if not self._is_closing and threading.main_thread().is_alive():
                self._pause()
            self._hurry.clear()
            with self._lock:
                batch, behind = self._waiting, self._behind
                self._waiting, self._behind, self._size = [], set(), 0
            self._try(batch, behind)
            with self._lock:
                if self._is_idle():
                    self._thread = None
                    return

    def _is_idle(self) -> bool:
        is_behind = self._waiting or self._behind or any(s.is_dirty for s in self._shelves.values())
        return not is_behind

    def _pause(self) -> None:
        """Let more come together, unless hurried."""
        self._hurry.wait(LAG)

    def _try(self, batch: list[tuple[str, bytes]], behind: set[str]) -> None:
        try:
            self._write_all(batch, behind)
        except _FAILURES as error:
            self._shelves.clear()
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        if not self._has_complained:
            self._has_complained = True
            log.warning("readable files not written in %s: %s", self._bucket.place, error)

    def _write_all(self, batch: list[tuple[str, bytes]], behind: set[str]) -> None:
        by_run: dict[str, list[tuple[str, bytes]]] = {}
        for name, data in batch:
            by_run.setdefault(_run_in(name), []).append((name, data))
        for part in {**by_run, **dict.fromkeys(behind)}:
            try:
                self._write_run(names.unquoted(part), None if part in behind else by_run[part])
            except _FAILURES as error:
                self._shelves.pop(names.unquoted(part), None)
                self._complain(error)
        is_last = self._is_closing or not threading.main_thread().is_alive()
        for shelf in list(self._shelves.values()):
            if shelf.is_dirty and (is_last or shelf.is_at_rest or monotonic() >= shelf.due):
                self._write_index(shelf)
            if shelf.is_at_rest and not shelf.is_dirty:
                self._shelves.pop(shelf.run_id, None)

    def _write_run(self, run_id: str, waiting: list[tuple[str, bytes]] | None) -> None:
        """Write what was noted; or everything, if there is more in the log than anybody wrote of here."""
        noted = None if waiting is None else [decode(data, name) for name, data in waiting]
        shelf = self._shelves.get(run_id)
        if noted is not None and shelf is None:
            shelf = self._known(run_id, noted)
        if noted is None or shelf is None:
            self._shelve(run_id, self._from_log(run_id))
            return
        self._shelve(run_id, self._add(shelf, noted, noted[-1].standing))

    def _shelve(self, run_id: str, shelf: Shelf) -> None:
        self._shelves[run_id] = shelf
        self._shelves.move_to_end(run_id)
        while len(self._shelves) > _SHELVES:
            oldest = next(iter(self._shelves.values()))
            if oldest.is_dirty:
                self._write_index(oldest)
            del self._shelves[oldest.run_id]

    def _known(self, run_id: str, noted: list[Entry]) -> Shelf | None:
        """Return the files of a run up to what was noted; none if some are missing."""
        records = [record for entry in noted for record in entry.records]
        first = records[0].sequence if records else noted[-1].standing.row.checkpoints + 1
        shelf = Shelf(run_id)
        oldest = max(noted[-1].standing.row.first, noted[-1].standing.row.trimmed_before)
        if first <= oldest:
            return shelf
        index = readable.read_index(self._bucket, run_id)
        rows = [] if index is None else index.checkpoints
        if [row.sequence for row in rows if row.sequence >= oldest][-1:] != [first - 1]:
            return None
        shelf.rows = {row.sequence: row for row in rows}
        return shelf

    def _from_log(self, run_id: str) -> Shelf:
        """Make everything anew from what counts."""
        there = self._sizes(readable.folder_of(run_id))
        log_names = self._bucket.names(names.log_prefix(run_id))
        last = readable.last_entry(self._bucket, log_names)
        if last is None or last.standing.gone:
            return self._remove(run_id, list(there))
        added = readable.entries(self._bucket, log_names, last)
        shelf = self._add(Shelf(run_id), added, last.standing, there)
        kept = {row.file_path for row in shelf.rows.values()}
        if stale := [name for name in there if readable.is_checkpoint(name) and name not in kept]:
            self._discard(stale)
        return shelf

    def _sizes(self, folder: str) -> dict[str, int]:
        return {each.name: each.size for each in self._bucket.listed(folder)}

    def _add(
        self, shelf: Shelf, added: Iterable[Entry], standing: Standing, there: dict[str, int] | None = None
    ) -> Shelf:
        """Write the checkpoints of some entries, and the newest as `latest.json`."""
        if standing.gone:
            return self._remove(shelf.run_id)
        is_ahead = False
        for entry in added:
            for row, told in self._write_entry(entry, standing.row.trimmed_before, there):
                shelf.rows[row.sequence] = row
                shelf.is_dirty = True
                if row.sequence >= shelf.newest[0]:
                    shelf.newest, is_ahead = (row.sequence, told), True
        shelf.is_at_rest = standing.row.status is not Status.RUNNING
        if is_ahead:
            self._write_latest(shelf)
        return shelf

    def _write_entry(
        self, entry: Entry, trimmed_before: int, there: dict[str, int] | None
    ) -> list[tuple[readable.IndexRow, bytes]]:
        """Write the checkpoints of one entry, unless they are there; return them with their rows."""
        return self._write_each(self._told(entry, trimmed_before), there)

    def _told(self, entry: Entry, trimmed_before: int) -> list[tuple[readable.IndexRow, bytes]]:
        kept = readable.kept_records(entry, trimmed_before)
        return [readable.checkpoint(entry, record, self.largest) for record in kept]

    def _write_each(
        self, found: list[tuple[readable.IndexRow, bytes]], there: dict[str, int] | None
    ) -> list[tuple[readable.IndexRow, bytes]]:
        for row, told in found:
            if there is None or there.get(row.file_path) != len(told):
                self._write(row.file_path, told)
        return found

    def _write_latest(self, shelf: Shelf) -> None:
        # A stale owner that was asleep must not put its older view over the newer one.
        found = self._bucket.get(f"{readable.folder_of(shelf.run_id)}{readable.LATEST}")
        told = None if found is None else readable.valid(found.data, shelf.run_id)
        if told is not None and told["sequence_number"] > shelf.newest[0]:
            shelf.is_dirty = False
            return
        self._write(f"{readable.folder_of(shelf.run_id)}{readable.LATEST}", shelf.newest[1])

    def _remove(self, run_id: str, there: list[str] | None = None) -> Shelf:
        self._discard(self._bucket.names(readable.folder_of(run_id)) if there is None else there)
        self._unwritten.done(names.quoted(run_id))
        return Shelf(run_id)

    def _discard(self, files: list[str]) -> None:
        self._bucket.delete(files)

    def _write_index(self, shelf: Shelf) -> None:
        began = monotonic()
        rows = [shelf.rows[sequence] for sequence in sorted(shelf.rows)]
        updated = rows[-1].timestamp if rows else ""
        index = readable.Index(shelf.run_id, len(rows), rows, updated)
        self._write(f"{readable.folder_of(shelf.run_id)}{readable.INDEX}", readable.as_json(index))
        shelf.is_dirty = False
        if shelf.is_at_rest:
            self._unwritten.done(names.quoted(shelf.run_id))
        shelf.due = monotonic() + _SHARE * (monotonic() - began)


def _run_in(name: str) -> str:
    """Return the part of a log's name that stands for its run."""
    return name.split("/")[1]
