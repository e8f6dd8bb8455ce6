"""One file that holds many: any program opens it, and no byte of it can change unseen."""

from __future__ import annotations

import io
import stat
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.codec.archive import ArchiveReader, ArchiveWriter
from everstep.errors import BundleInvalid, EverstepError, TooLarge

PARTS = {"runs/A17/run.json": b"{}", "blobs/" + "a" * 64: bytes(range(256)) * 4, "manifest.json": b"[1, 2]"}


def packed(parts: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    writer = ArchiveWriter(file)
    for name, data in parts.items():
        writer.add(name, data)
    writer.close()
    return file.getvalue()


def unpacked(data: bytes) -> dict[str, bytes]:
    return {name: found for name, found, _ in ArchiveReader(io.BytesIO(data), "it").parts()}


def made_by_others(change: Callable[[zipfile.ZipInfo], Any] = lambda info: None, **about: Any) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", about.get("compression", zipfile.ZIP_STORED)) as archive:
        for name in about.get("names", ["manifest.json"]):
            info = zipfile.ZipInfo(name)
            change(info)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it does not like two of one name either
                archive.writestr(info, b"x" * 1000, about.get("compression"))
    return file.getvalue()


def test_what_is_written_is_read() -> None:
    assert unpacked(packed(PARTS)) == PARTS


def test_any_program_opens_it() -> None:
    with zipfile.ZipFile(io.BytesIO(packed(PARTS))) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == PARTS


def test_the_same_parts_give_the_same_bytes() -> None:
    assert packed(PARTS) == packed(dict(PARTS))


def test_the_digest_of_what_stands_before_a_part_is_told() -> None:
    file = io.BytesIO()
    writer = ArchiveWriter(file)
    writer.add("one", b"1")
    before = writer.digest
    writer.add("two", b"2")
    writer.close()
    told = {name: digest for name, _, digest in ArchiveReader(file, "it").parts()}
    assert told["two"] == before != told["one"]


def test_more_parts_than_a_small_zip_can_count() -> None:
    many = {f"p/{number}": b"" for number in range(70_000)}
    data = packed(many)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert len(archive.namelist()) == 70_000
    assert len(unpacked(data)) == 70_000


def test_every_flipped_bit_is_found() -> None:
    whole = packed({"a": b"one", "b/c.json": b"two", "manifest.json": b"{}"})
    for bit in range(len(whole) * 8):
        altered = bytearray(whole)
        altered[bit // 8] ^= 1 << bit % 8
        with pytest.raises(EverstepError):
            unpacked(bytes(altered))


def test_every_cut_and_everything_added_is_found() -> None:
    whole = packed(PARTS)
    for end in range(len(whole)):
        with pytest.raises(BundleInvalid):
            unpacked(whole[:end])
    for more in (b"\0", b"PK", whole):
        with pytest.raises(BundleInvalid):
            unpacked(whole + more)
        with pytest.raises(BundleInvalid):
            unpacked(more + whole)


@pytest.mark.parametrize(
    "name",
    [
        *("/etc/passwd", "../up", "a/../../up", "a//b", "a/./b", ".hidden", "a/.git", "C:\\x", "a\\b", ""),
        *("a/", "ein\u00e4", "x" * 600, "a\nb", "a b", "~root"),
    ],
)
def test_a_name_that_may_lead_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(BundleInvalid, match="it"):
        unpacked(packed({name: b"x", "manifest.json": b"{}"}))


def test_two_parts_of_one_name_are_refused() -> None:
    file = io.BytesIO()
    writer = ArchiveWriter(file)
    writer.add("twice", b"1")
    writer.add("twice", b"2")
    writer.close()
    with pytest.raises(BundleInvalid, match="twice"):
        unpacked(file.getvalue())


def is_link(info: zipfile.ZipInfo) -> None:
    info.external_attr = (stat.S_IFLNK | 0o777) << 16


def is_from_today(info: zipfile.ZipInfo) -> None:
    info.date_time = (2026, 11, 15, 12, 0, 0)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(made_by_others(compression=zipfile.ZIP_DEFLATED), id="compressed"),
        pytest.param(made_by_others(is_link), id="a link"),
        pytest.param(made_by_others(is_from_today), id="dated"),
        pytest.param(made_by_others(names=["a", "a"]), id="twice"),
        pytest.param(b"", id="empty"),
        pytest.param(b"not a zip at all" * 10, id="no zip"),
    ],
)
def test_what_others_packed_is_refused(data: bytes) -> None:
    with pytest.raises(BundleInvalid):
        unpacked(data)


def test_a_part_that_claims_to_be_huge_is_refused_before_it_is_read() -> None:
    whole = bytearray(packed({"a": b"x"}))
    whole[18:26] = b"\xff\xff\xff\x7f" * 2
    with pytest.raises(BundleInvalid, match="larger than the file"):
        unpacked(bytes(whole))


def test_too_many_parts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everstep.codec.archive.MOST_PARTS", 2)
    with pytest.raises(TooLarge):
        unpacked(packed(PARTS))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_no_bytes_crash_the_reader(data: bytes) -> None:
    with pytest.raises(EverstepError):
        unpacked(data)
    with pytest.raises(EverstepError):
        unpacked(b"PK\x03\x04" + data)
