"""Damage in a folder of objects is found and called what it is, whatever did it and however well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import pytest

from everstep import Host
from everstep.codec.records import glance
from everstep.errors import EverstepError, StateCorrupted
from everstep.model.enums import Status
from everstep.results import Verified
from everstep.stores.objects.entries import Entry, decode, encode
from everstep.testing import ManualClock
from tests.integration.runtime.integrity.test_verify_damage import FLOW, PLAIN, flipped, kinds
from tests.unit.codec.fuzzing import IS_SOAK, spoiled


class Bucket:
    """A folder with the halted run A and the finished run B of test_verify_damage, and hands beneath it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        with self.host() as host:
            assert host.run(FLOW, {"x": 1}, run_id="A").status == "halted"
            assert host.run(PLAIN, {"x": 1}, run_id="B").status == "completed"
            assert all(one.is_sound for one in host.storage.verify())

    def host(self) -> Host:
        return Host(f"file://{self.folder}", clock=self.clock, encrypt=False, compress=False)

    def verify(self, run_id: str) -> Verified:
        with self.host() as host:
            [one] = host.storage.verify(run_id)
        return one

    def file(self, run: str, sequence: int) -> Path:
        for path in sorted((self.folder / "runs" / run / "log").iterdir()):
            if any(record.sequence == sequence for record in self.entry(path).records):
                return path
        raise AssertionError(f"no entry with checkpoint {sequence}")

    @staticmethod
    def entry(path: Path) -> Entry:
        return decode(path.read_bytes(), "it")

    def change(self, run: str, sequence: int, change: Callable[[bytes], bytes]) -> None:
        """Change a record as an attacker does who knows what an entry is."""
        path = self.file(run, sequence)
        entry = self.entry(path)
        records = tuple(
            msgspec.structs.replace(r, body=change(r.body)) if r.sequence == sequence else r
            for r in entry.records
        )
        path.write_bytes(encode(msgspec.structs.replace(entry, records=records)))

    def blob(self) -> Path:
        [path] = [path for path in (self.folder / "blobs").rglob("*") if path.is_file()]
        return path


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket(tmp_path / "runs")


def edit(body: bytes) -> bytes:
    return flipped(body, body.index(b"second"))


def edit_value(body: bytes) -> bytes:
    version, digest, kept, header, [payload] = msgspec.msgpack.decode(body)
    return msgspec.msgpack.encode([version, digest, kept, header, [flipped(payload, 3)]])


def newer(body: bytes) -> bytes:
    version, *rest = msgspec.msgpack.decode(body)
    return msgspec.msgpack.encode([version + 1, *rest])


@pytest.mark.parametrize(
    ("sequence", "change", "kind"),
    [
        (3, edit, "altered"),
        (2, edit_value, "value"),
        (4, lambda body: body[:-9], "cut_short"),
        (4, newer, "newer"),
        (3, lambda body: b"", "cut_short"),
    ],
)
def test_what_was_done_to_a_record_is_named(
    bucket: Bucket, sequence: int, change: Callable[[bytes], bytes], kind: str
) -> None:
    bucket.change("A", sequence, change)
    found = bucket.verify("A")
    assert kinds(found) == [(kind, sequence)], found.flaws
    assert found.newest_valid == sequence - 1
    assert bucket.verify("B").is_sound


def test_records_that_changed_places_are_named(bucket: Bucket) -> None:
    two, four = bucket.file("A", 2), bucket.file("A", 4)
    one, other = bucket.entry(two).records[0], bucket.entry(four).records[0]
    for path, record, body in ((two, one, other.body), (four, other, one.body)):
        swapped = (msgspec.structs.replace(record, body=body),)
        path.write_bytes(encode(msgspec.structs.replace(bucket.entry(path), records=swapped)))
    found = bucket.verify("A")
    assert kinds(found) == [("reordered", 2), ("reordered", 4)] and found.newest_valid == 1


@pytest.mark.parametrize("sequence", [1, 2, 3, 4])
@pytest.mark.parametrize("damage", ["flipped", "emptied", "gone"])
def test_an_object_that_was_damaged_or_is_gone_is_named(bucket: Bucket, sequence: int, damage: str) -> None:
    path = bucket.file("A", sequence)
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(b"" if damage == "emptied" else flipped(path.read_bytes(), 60))
    found = bucket.verify("A")
    assert not found.is_sound and found.newest_valid == (sequence - 1 or None)
    assert {flaw.sequence for flaw in found.flaws} == {sequence}, found.flaws
    assert found.flaws[0].kind.value in ("missing", "altered", "cut_short")


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("artifact_missing", None),
        ("artifact_cut_short", lambda old: old[:-1]),
        ("artifact_altered", lambda old: flipped(old, 5000)),
    ],
)
def test_a_damaged_artifact_is_named(
    bucket: Bucket, kind: str, change: Callable[[bytes], bytes] | None
) -> None:
    blob = bucket.blob()
    if change is None:
        blob.unlink()
    else:
        blob.write_bytes(change(blob.read_bytes()))
    found = bucket.verify("A")
    assert kinds(found) == [(kind, 3)] and found.newest_valid == 2


def test_a_standing_that_disagrees_with_the_records_is_named(bucket: Bucket) -> None:
    path = bucket.file("B", 3)
    entry = bucket.entry(path)
    row = msgspec.structs.replace(entry.standing.row, status=Status.FAILED)
    standing = msgspec.structs.replace(entry.standing, row=row)
    path.write_bytes(encode(msgspec.structs.replace(entry, standing=standing)))
    assert kinds(bucket.verify("B")) == [("row", None)]


def test_a_missing_structure_is_named(bucket: Bucket) -> None:
    (bucket.folder / "flows" / FLOW.plan.hash).unlink()
    assert kinds(bucket.verify("A")) == [("blueprint", None)]


def test_a_damaged_run_falls_back(bucket: Bucket) -> None:
    bucket.change("A", 4, lambda body: body[:-9])
    with bucket.host() as host:
        with pytest.raises(StateCorrupted) as refused:
            host.resume("A", FLOW)
        assert refused.value.details["newest_valid"] == 3
        result = host.resume("A", FLOW, fallback=True)
        assert (result.run_id, result.status) == ("A-from-3", "halted")
        host.answer(result.waits[0].id, {"approved": True})
        assert host.resume("A-from-3", FLOW)["d"] == 700_003
        assert host.info("A").needs_repair is not None
        assert host.work([FLOW], until_idle=True).completed == 0


def test_any_object_may_hold_anything(bucket: Bucket) -> None:
    chance = Random(9 if not IS_SOAK else None)
    for _ in range(600 if IS_SOAK else 15):
        files = [path for path in sorted(bucket.folder.rglob("*")) if path.is_file() and path.stat().st_size]
        path = chance.choice(files)
        whole = path.read_bytes()
        path.write_bytes(spoiled(chance, whole, tuple(chance.choice(files).read_bytes() for _ in range(2))))
        with bucket.host() as host:
            for look in (
                host.runs,
                host.storage.verify,
                host.waits,
                lambda: host.history("A"),
                lambda: dict(host.state("A")),
                lambda: host.resume("B", PLAIN),
            ):
                try:
                    look()
                except EverstepError:
                    continue
        path.write_bytes(whole)
    assert glance(bucket.entry(bucket.file("A", 1)).records[0].body, "it").record.sequence == 1
