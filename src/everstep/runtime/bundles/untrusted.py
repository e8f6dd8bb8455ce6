"""Checking a bundle from beginning to end. It may come from anywhere, and is believed in nothing. Apart from
taking it in: nothing is written before this is through.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from datetime import datetime
from typing import TypeVar

import msgspec

from everstep.codec.archive import ArchiveReader
from everstep.codec.chain import Codecs
from everstep.codec.notes import open_wait
from everstep.codec.payload import LEFT_OUT
from everstep.codec.records import read_checked
from everstep.codec.sealing import inline_writes
from everstep.errors import (
    BadRequest,
    BundleInvalid,
    EverstepError,
    IncompatibleVersion,
    KeyUnavailable,
    TooLarge,
)
from everstep.graph.compile.blueprint import plan_of
from everstep.graph.compile.plan import hash_of
from everstep.graph.labels import check_labels
from everstep.model.bundles import BUNDLE_FORMAT, BUNDLE_VERSION, MANIFEST, BundledRun, Manifest
from everstep.model.commits import NO_LABELS, Labels
from everstep.model.records import SCHEMA_VERSION, ArtifactRef, CheckpointRecord
from everstep.model.shapes import understood
from everstep.model.waits import SettledBy, WaitRow, WaitStatus
from everstep.ports.restoring import WholeRun
from everstep.ports.store import RunRow, StoredRecord
from everstep.runtime.bundles.export import RawRecord, RunPart
from everstep.runtime.bundles.read_run import ChainReader, Checked
from everstep.runtime.coded_blobs import CodedBlobs
from everstep.runtime.run_ids import check_run_id

T = TypeVar("T")
LARGEST = 1 << 30
"""The most bytes that one value may claim to be where it is compressed."""
_MOST_RUNS = 10_000
_PART = re.compile(r"runs/([^/]+)/(run\.json|records-[0-9]{10})|flows/([0-9a-f]{32})(\.ir)?\.json")
_CHECKSUM = re.compile("[0-9a-f]{64}")
_SMALL = 1 << 53


class _Version(msgspec.Struct):
    format: str
    version: int
    schema_version: int


class Contents:
    """What a bundle holds, checked. Its artifacts are still in the file."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.runs: list[WholeRun] = []
        self.before: dict[str, bytes] = {}
        """The digest that the first record of each run was hashed onto."""
        self.blobs: dict[str, ArtifactRef] = {}
        """The artifacts in it, by checksum."""
        self.stored: dict[str, bytes] = {}
        """SHA-256 of each of them as it is in the file."""
        self.absent: list[tuple[ArtifactRef, str]] = []
        """Artifacts that were left out, and the names of their values."""
        self.inline_left_out: set[str] = set()
        """Names of values that were left out of records."""


def check_contents(archive: ArchiveReader, shown: str, codecs: Codecs, blobs: CodedBlobs | None) -> Contents:
    """Read a bundle whole and return what it holds, or raise a named error."""
    checking = _Checking(shown, codecs)
    for name, data, before in archive.parts():
        checking.take(name, data, before)
    contents = checking.finish()
    if blobs is not None:
        # With the references known, each artifact is held against its own.
        for name, data, _ in archive.parts():
            checksum = name.removeprefix("blobs/")
            if name.startswith("blobs/") and checksum in contents.blobs:
                ref = contents.blobs[checksum]
                check_size(ref.size, data, checksum)
                blobs.check(ref, data)
    return contents


class _Checking:
    """One bundle under way."""

    def __init__(self, shown: str, codecs: Codecs) -> None:
        self._shown = shown
        self._codecs = codecs
        self._records: dict[str, list[StoredRecord]] = {}
        self._about: dict[str, RunPart] = {}
        self._blueprints: dict[str, bytes] = {}
        self._stored: dict[str, bytes] = {}
        self._manifest: Manifest | None = None

    def take(self, name: str, data: bytes, before: str) -> None:
        """Take one part in."""
        if self._manifest is not None:
            raise self._invalid(f"{name} stands behind its manifest")
        if name == MANIFEST:
            self._manifest = self._read_manifest(data, before)
            return
        if name.startswith("blobs/"):
            checksum = name.removeprefix("blobs/")
            if not _CHECKSUM.fullmatch(checksum):
                raise self._invalid(f"{name} is no artifact")
            self._stored[checksum] = hashlib.sha256(data).digest()
            return
        part = _PART.fullmatch(name)
        if part is None:
            raise self._invalid(f"{name} does not belong into a bundle")
        run_id, what, flow_hash, is_ir = part.groups()
        if flow_hash is not None:
            if is_ir is None:
                self._blueprints[flow_hash] = self._blueprint(flow_hash, data)
        elif what == "run.json":
            self._about[run_id] = self._decode(data, RunPart, name)
        else:
            raw = self._unpack(data, name)
            if not raw or int(what.removeprefix("records-")) != raw[0][0]:
                raise self._invalid(f"{name} holds other records")
            self._records.setdefault(run_id, []).extend(StoredRecord(*fields) for fields in raw)
            if len(self._records) > _MOST_RUNS:
                raise TooLarge(f"{self._shown} has more than {_MOST_RUNS:,} runs.")

    def _read_manifest(self, data: bytes, before: str) -> Manifest:
        said = self._decode(data, _Version, MANIFEST)
        if said.format != BUNDLE_FORMAT:
            raise self._invalid("it is no bundle of everstep")
        for what, found, known in (
            ("bundle", said.version, BUNDLE_VERSION),
            ("schema", said.schema_version, SCHEMA_VERSION),
        ):
            if found > known:
                raise IncompatibleVersion(
                    f"{self._shown} has {what} version {found}; this everstep knows up to {known}.",
                    fix="Use the newer everstep that wrote it.",
                )
        manifest = self._decode(data, Manifest, MANIFEST)
        if manifest.content != before:
            raise self._invalid("it does not hold what its manifest says")
        return manifest

    def finish(self) -> Contents:
        """Return what it holds once every run of it is checked."""
        manifest = self._manifest
        if manifest is None:
            raise self._invalid("it has no manifest")
        named = [run.run_id for run in manifest.runs]
        is_said = {*named} == {*self._about} and {*named} == {*self._records}
        if not named or len(set(named)) != len(named) or not is_said or not manifest.runs[-1].is_wanted:
            raise self._invalid("its manifest names other runs than it holds")
        contents = Contents(manifest)
        whole: dict[str, WholeRun] = {}
        for said in manifest.runs:
            try:
                run, checked = self._run(said, whole, contents)
            except (RecursionError, OverflowError, ValueError) as error:
                raise self._invalid(f"run {said.run_id!r} cannot be read: {error}") from error
            whole[said.run_id] = run
            contents.runs.append(run)
            self._collect(checked, contents)
        contents.stored = self._stored
        if {*contents.blobs} != {*self._stored} or manifest.artifacts != len(self._stored):
            raise self._invalid("it holds other artifacts than its records name")
        return contents

    def _run(
        self, said: BundledRun, known: dict[str, WholeRun], contents: Contents
    ) -> tuple[WholeRun, list[Checked]]:
        about, records = self._about[said.run_id], self._records[said.run_id]
        row = about.row
        self._check_row(said, row, records)
        before = self._before(about, known)
        contents.before[row.run_id] = before
        for stored in records:
            self._check_sizes(stored)
        chain = ChainReader(row, before, self._codecs)
        checked = chain.check(records)
        self._check_end(said, row, checked, chain.digest)
        self._check_waits(about, checked)
        if row.flow_hash not in self._blueprints:
            raise self._invalid(f"the structure of flow {row.flow_id!r} is not in it")
        met = [c.opened.record.flow_hash for c in checked if c.opened is not None]
        hashes = dict.fromkeys([*(h for h in met if h in self._blueprints), row.flow_hash])
        run = WholeRun(
            row=row,
            base=about.base,
            records=tuple(records),
            waits=about.waits,
            blueprints=tuple((h, self._blueprints[h]) for h in hashes),
            inbox=() if about.inbox is msgspec.UNSET else about.inbox,
            had=() if about.had is msgspec.UNSET else about.had,
            labels=self._labels(about),
        )
        return run, checked

    def _labels(self, about: RunPart) -> Labels:
        if about.labels is msgspec.UNSET:
            return NO_LABELS
        try:
            check_labels(about.labels)
        except BadRequest as error:
            raise self._invalid(f"a label of run {about.row.run_id!r} is none: {error.message}") from error
        return about.labels

    def _check_row(self, said: BundledRun, row: RunRow, records: list[StoredRecord]) -> None:
        try:
            check_run_id(row.run_id)
        except BadRequest as error:
            raise self._invalid(error.message) from error
        told = (row.run_id, row.flow_id, row.flow_version, row.status.value, row.checkpoints)
        if told != (said.run_id, said.flow_id, said.flow_version, said.status, said.checkpoints):
            raise self._invalid(f"its manifest says other things of run {said.run_id!r} than the run")
        self._check_fields(row, said.run_id)
        if (
            row.lease is not None
            or not 1 <= row.first < _SMALL
            or row.checkpoints - row.first + 1 != len(records)
        ):
            raise self._invalid(f"run {said.run_id!r} has other records than it says")
        if any(r.is_stub != (r.sequence < row.trimmed_before) for r in records) or records[-1].is_stub:
            raise self._invalid(f"run {said.run_id!r} has other records than it says")
        if any(r.digest is not None and (len(r.digest) != 32 or r.body) for r in records):
            raise self._invalid(f"a removed checkpoint of run {said.run_id!r} has no digest")
        if row.trimmed_before > row.first and not records[row.trimmed_before - row.first].keyframe:
            raise self._invalid(f"run {said.run_id!r} cannot be read from where its records begin")

    def _check_fields(self, struct: msgspec.Struct, run_id: str) -> None:
        """Refuse what no store of ours says: times without a zone, numbers out of all bounds."""
        for name in struct.__struct_fields__:
            value = getattr(struct, name)
            if isinstance(value, datetime) and value.tzinfo is None:
                raise self._invalid(f"{name} of run {run_id!r} has no time zone")
            if type(value) is int and not -_SMALL < value < _SMALL:
                raise self._invalid(f"{name} of run {run_id!r} is out of bounds")

    def _before(self, about: RunPart, known: dict[str, WholeRun]) -> bytes:
        row = about.row
        if row.forked_at is None:
            if about.base is not None:
                raise self._invalid(f"run {row.run_id!r} is no fork")
            return b""
        parent = known.get(row.parent_run_id or "")
        k = row.forked_at - parent.row.first if parent is not None else -1
        if parent is None or not 0 <= k < len(parent.records) or parent.records[k].is_stub:
            raise self._invalid(f"what run {row.run_id!r} was forked from is not in it")
        base = parent.records[k]
        if base.checkpoint_id != about.base:
            raise self._invalid(f"run {row.run_id!r} was forked from another checkpoint")
        return Checked(base, None).digest

    def _check_sizes(self, stored: StoredRecord) -> None:
        """Refuse values that claim to be larger than anybody's, before they are decompressed."""
        if stored.is_stub:
            return
        try:
            opened = read_checked(stored.body, stored.checkpoint_id)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._invalid(f"checkpoint {stored.sequence} cannot be read: {error}") from error
        for write, payload in zip(inline_writes(opened.record), opened.payloads, strict=False):
            check_size(write.size, payload, write.name)

    def _check_end(self, said: BundledRun, row: RunRow, checked: list[Checked], digest: bytes | None) -> None:
        head = checked[-1]
        if head.stored.checkpoint_id != said.checkpoint_id or (digest or b"").hex() != said.digest:
            raise self._invalid(f"its manifest says other things of run {said.run_id!r} than its records")
        status = head.opened.record.status if head.opened is not None else None
        if status is not row.status and (row.status.is_final or (status is not None and status.is_final)):
            raise self._invalid(f"run {said.run_id!r} is {row.status.value}, but its records end otherwise")

    def _check_waits(self, about: RunPart, checked: list[Checked]) -> None:
        row = about.row
        ids = [wait.wait_id for wait in about.waits]
        if len(set(ids)) != len(ids) or any(wait.run_id != row.run_id for wait in about.waits):
            raise self._invalid(f"the waits of run {row.run_id!r} are another run's")
        for wait in about.waits:
            self._check_fields(wait, row.run_id)
            if wait.token_hash is not None and len(wait.token_hash) != 32:
                raise self._invalid(f"the token of wait {wait.wait_id!r} is none")
            self._check_notes(wait)
        opened = {wait_id for c in checked if c.opened is not None for wait_id in _waits_of(c.opened.record)}
        if row.trimmed_before <= row.first and row.forked_at is None and not opened.issuperset(ids):
            raise self._invalid(f"run {row.run_id!r} never opened some of its waits")

    def _check_notes(self, wait: WaitRow) -> None:
        """Refuse a question or an answer that is unreadable, or that would break every listing."""
        try:
            plain = open_wait(self._codecs, wait)
            is_answered = wait.answer is not None or wait.settled_by is SettledBy.CLOCK
            if wait.status is WaitStatus.SETTLED and not is_answered:
                raise ValueError("it has no answer")
            if not isinstance(msgspec.json.decode(plain.details), dict):
                raise ValueError("it asks nothing")
            if plain.answer is not None:
                msgspec.json.decode(plain.answer)
        except KeyUnavailable:
            return
        except (msgspec.DecodeError, RecursionError, ValueError, EverstepError) as error:
            raise self._invalid(f"wait {wait.wait_id!r} cannot be read: {error}") from error

    def _collect(self, checked: Iterable[Checked], contents: Contents) -> None:
        """Note which artifacts the records name, and which values were left out."""
        left_out = {one.name for one in contents.manifest.left_out if one.what == "value"}
        for one in checked:
            if one.opened is None:
                continue
            for write in one.opened.record.writes():
                ref = write.artifact
                if ref is None:
                    continue
                if not _CHECKSUM.fullmatch(ref.checksum) or not 0 <= ref.size < _SMALL:
                    raise self._invalid(f"value {write.name!r} names no artifact")
                if ref.checksum in self._stored:
                    contents.blobs[ref.checksum] = ref
                elif write.name in left_out:
                    contents.absent.append((ref, write.name))
                else:
                    raise self._invalid(f"the artifact of value {write.name!r} is not in it")
            for write, payload in zip(inline_writes(one.opened.record), one.opened.payloads, strict=False):
                if payload == LEFT_OUT:
                    contents.inline_left_out.add(write.name)
                    if write.name not in left_out:
                        raise self._invalid(
                            f"value {write.name!r} is missing, and its manifest does not say so"
                        )

    def _blueprint(self, flow_hash: str, data: bytes) -> bytes:
        if hash_of(data) != flow_hash:
            raise self._invalid(f"the structure {flow_hash} was altered")
        try:
            plan_of(data)
        except (EverstepError, ValueError, TypeError, KeyError, LookupError, RecursionError) as error:
            raise self._invalid(f"the structure {flow_hash} cannot be read: {error}") from error
        return data

    def _decode(self, data: bytes, kind: type[T], name: str) -> T:
        try:
            return msgspec.json.decode(data, type=understood(kind))
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise self._invalid(f"{name} cannot be read: {error}") from error

    def _unpack(self, data: bytes, name: str) -> list[RawRecord]:
        try:
            return msgspec.msgpack.decode(data, type=understood(list[RawRecord]))
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise self._invalid(f"{name} cannot be read: {error}") from error

    def _invalid(self, why: str) -> BundleInvalid:
        return BundleInvalid(f"{self._shown} cannot be imported: {why}.", fix="Export the run again.")


def check_size(size: int, stored: bytes, name: str) -> None:
    """Refuse compressed bytes that claim to be more than anybody's."""
    if stored[2:3] > b"\0" and not 0 <= size <= LARGEST:
        raise TooLarge(f"{name!r} claims to be {size:,} bytes.", fix="Do not trust where it comes from.")


def _waits_of(record: CheckpointRecord) -> Iterable[str]:
    for step in record.steps:
        if step.wait is not None:
            yield step.wait.wait_id
    if record.state is not None:
        for node in record.state.nodes.values():
            if node.wait is not None:
                yield node.wait.wait_id
