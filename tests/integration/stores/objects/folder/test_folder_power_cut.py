"""Cut the power at every moment of a folder's life: what was acknowledged is there, whole, under its name.

The disk keeps what was synced. Of the rest each new name may be kept or not, by itself, and each file's bytes
whole, in part, or not at all.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from everstep import Flow, Host, node
from everstep.stores.objects.folder import fitness
from everstep.stores.objects.folder.bucket import Folder
from everstep.testing import ManualClock

ROOT_ID = 0


class Op(NamedTuple):
    """One thing that was asked of the disk, or `told`: the caller was told that all before it lasts."""

    act: str
    what: int = 0
    name: str = ""
    other: int | None = None
    data: bytes = b""
    is_folder: bool = False


class Disk:
    """Notes what is asked of the disk below one folder, and tells what a power cut would leave."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.ops: list[Op] = []
        self._root = root
        self._ids = {root.stat().st_ino: ROOT_ID}
        self._names: dict[tuple[int, str], int] = {}
        self._next = 1
        for name in ("open", "write", "fsync", "link", "rename", "unlink", "mkdir", "rmdir"):
            patch.setattr(os, name, self._noting(getattr(self, f"_{name}"), getattr(os, name)))

    def _noting(self, note: Callable[..., None], real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            result = real(*arguments, **options)
            note(result, *arguments, **options)
            return result

        return call

    def _id(self, fd: int) -> int | None:
        return self._ids.get(os.fstat(fd).st_ino)

    def _place(self, path: Any, folder: int | None) -> tuple[int, str] | None:
        """Return the folder that a path lies in and its name there; none if it is not on this disk."""
        above, _, leaf = str(path).rpartition("/")
        if folder is None and not str(path).startswith(f"{self._root}/"):
            return None
        at = self._ids.get(
            (Path(above) if folder is None else Path(f"/proc/self/fd/{folder}") / above).stat().st_ino
        )
        return None if at is None else (at, leaf)

    def _new(self, inode: int) -> int:
        self._ids[inode] = self._next
        self._next += 1
        return self._next - 1

    def _open(self, fd: int, path: Any, flags: int, mode: int = 0, *, dir_fd: int | None = None) -> None:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            if dir_fd is not None and self._id(dir_fd) is not None:
                self._new(os.fstat(fd).st_ino)
        elif (
            flags & os.O_CREAT
            and (place := self._place(path, dir_fd)) is not None
            and place not in self._names
        ):
            self._names[place] = made = self._new(os.fstat(fd).st_ino)
            self.ops.append(Op("name", *place, made))

    def _write(self, size: int, fd: int, data: bytes) -> None:
        if (what := self._id(fd)) is not None:
            self.ops.append(Op("write", what, data=bytes(data[:size])))

    def _fsync(self, _: None, fd: int) -> None:
        if (what := self._id(fd)) is not None:
            self.ops.append(Op("sync", what))

    def _link(self, _: None, source: str, target: str, *, dst_dir_fd: int, **__: Any) -> None:
        if (place := self._place(target, dst_dir_fd)) is not None:
            what = self._ids[os.stat(target, dir_fd=dst_dir_fd).st_ino]
            self._names[place] = what
            self.ops.append(Op("name", *place, what))

    def _rename(self, _: None, source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        if (place := self._place(target, dst_dir_fd)) is not None:
            what = self._names.pop((place[0], source))
            self._names[place] = what
            self.ops += [Op("name", *place, what), Op("unname", place[0], source)]

    def _unlink(self, _: None, path: Any, *, dir_fd: int | None = None) -> None:
        if (place := self._place(path, dir_fd)) is not None:
            self._names.pop(place, None)
            self.ops.append(Op("unname", *place))

    _rmdir = _unlink

    def _mkdir(self, _: None, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        if (place := self._place(path, dir_fd)) is not None:
            self._names[place] = made = self._new(os.stat(path, dir_fd=dir_fd).st_ino)
            self.ops.append(Op("name", *place, made, is_folder=True))

    def told(self, name: str, data: bytes | None) -> None:
        self.ops.append(Op("told", name=name, other=None if data is None else 1, data=data or b""))


def survivors(ops: list[Op], chance: Random) -> dict[str, bytes]:
    """Return the files that a power cut after these operations may leave."""
    folders: dict[int, dict[str, int]] = {ROOT_ID: {}}
    bytes_of: dict[int, list[bytes]] = {}
    synced: dict[int, int] = {}
    pending: dict[int, list[Op]] = {}
    for op in ops:
        if op.act in ("name", "unname"):
            pending.setdefault(op.what, []).append(op)
            if op.is_folder and op.other is not None:
                folders.setdefault(op.other, {})
        elif op.act == "write":
            bytes_of.setdefault(op.what, []).append(op.data)
        elif op.act == "sync":
            synced[op.what] = len(bytes_of.get(op.what, []))
            for change in pending.pop(op.what, []):
                _apply(folders.setdefault(op.what, {}), change)
    for what, changes in pending.items():
        for change in changes:
            if chance.random() < 0.5:
                _apply(folders.setdefault(what, {}), change)
    found: dict[str, bytes] = {}

    def walk(folder: int, above: str) -> None:
        for name, what in folders[folder].items():
            if what in folders:
                walk(what, f"{above}{name}/")
            else:
                parts = bytes_of.get(what, [])
                sure = b"".join(parts[: synced.get(what, 0)])
                rest = b"".join(parts[synced.get(what, 0) :])
                found[above + name] = sure + rest[: chance.choice((0, len(rest) // 2, len(rest)))]

    walk(ROOT_ID, "")
    return found


def _apply(names: dict[str, int], change: Op) -> None:
    if change.act == "unname":
        names.pop(change.name, None)
    elif change.other is not None:
        names[change.name] = change.other


def losses(ops: list[Op], written: dict[str, set[bytes]], chance: Random) -> Iterator[str]:
    """Name each promise that a cut after these operations breaks."""
    left = survivors(ops, chance)
    told: dict[str, Op] = {}
    for op in ops:
        if op.act == "told":
            told[op.name] = op
    begun = _begun_since_told(ops)
    for name, op in told.items():
        if name in begun:
            continue  # it was under way again when the power failed
        if op.other is None and name in left:
            yield f"{name} is back"
        if op.other is not None and left.get(name) != op.data:
            yield f"{name} is {left.get(name)!r} instead of {op.data!r}"
    for name, data in left.items():
        if not any(part.startswith(".") for part in name.split("/")) and data not in written[name]:
            yield f"{name} holds {data!r}, which no one wrote"


def _begun_since_told(ops: list[Op]) -> set[str]:
    last = max((k for k, op in enumerate(ops) if op.act == "told"), default=-1)
    return {op.name for op in ops[last + 1 :] if op.act == "begins"}


@pytest.fixture(params=["unnamed", "named"])
def disk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    if request.param == "named":
        monkeypatch.setattr(fitness, "UNNAMED", 0)
    root = tmp_path / "disk"
    root.mkdir()
    return Disk(root, monkeypatch)


def live(disk: Disk, folder: Folder, chance: Random) -> dict[str, set[bytes]]:
    """Write, replace and remove objects, and note what is promised when; returns all that was written."""
    written: dict[str, set[bytes]] = {}
    marks: list[str] = []

    def begin(name: str, data: bytes) -> None:
        written.setdefault(name, set()).add(data)
        disk.ops.append(Op("begins", name=name))

    for k in range(30):
        name, data = f"runs/r{chance.randrange(3)}/log/{k}", bytes([k]) * chance.randrange(1, 9)
        if chance.random() < 0.4:
            marks.append(f"live/{chance.choice('abc')}/{k}")
            begin(marks[-1], b"")
            folder.mark(marks[-1:])
        begin(name, data)
        assert folder.create(name, data)
        disk.told(name, data)
        for mark in marks:
            disk.told(mark, b"")
        begin("beats/one", data)
        if chance.random() < 0.3 and (found := folder.get("beats/one")) is not None:
            assert folder.swap("beats/one", data, found.tag)
        else:
            folder.put("beats/one", data)
        disk.told("beats/one", data)
        if chance.random() < 0.2:
            disk.ops.append(Op("begins", name=name))
            folder.delete([name])
            disk.told(name, None)
    return written


def test_what_was_acknowledged_survives_a_power_cut_at_any_moment(disk: Disk, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "disk" / "store")
    folder._keeps_order = False
    prefix = "store/"
    written = {prefix + name: data for name, data in live(disk, folder, Random(5)).items()}
    ops = [op._replace(name=prefix + op.name) if op.act in ("told", "begins") else op for op in disk.ops]
    assert sum(op.act == "sync" for op in ops) > 100
    for cut in range(len(ops)):
        for seed in range(3):
            assert list(losses(ops[: cut + 1], written, Random(f"{cut} {seed}"))) == [], f"after {ops[cut]}"


@pytest.mark.parametrize("lie", ["files", "folders", "marks"])
def test_a_sync_that_is_left_out_is_found_out(lie: str, disk: Disk, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "disk" / "store")
    folder._keeps_order = lie == "marks"
    written = {f"store/{name}": data for name, data in live(disk, folder, Random(5)).items()}
    ops = [op._replace(name=f"store/{op.name}") if op.act in ("told", "begins") else op for op in disk.ops]
    named = {op.other for op in ops if op.act == "name" and op.is_folder} | {ROOT_ID}
    if lie != "marks":
        ops = [op for op in ops if op.act != "sync" or (op.what in named) != (lie == "folders")]
    found = [loss for cut in range(len(ops)) for loss in losses(ops[: cut + 1], written, Random(cut))]
    assert found


@node(output="b")
def first(a: int) -> int:
    return a + 1


@node(output="c")
def second(b: int) -> int:
    return b * 10


FLOW = Flow("two", [first, second], durability="strong")


def test_a_run_goes_on_after_a_power_cut_at_any_moment(disk: Disk, tmp_path: Path) -> None:
    clock = ManualClock()
    with Host(f"file://{tmp_path}/disk/store", clock=clock) as host:
        assert host.run(FLOW, {"a": 1}, run_id="run")["c"] == 20
    disk.told("", b"")
    clock.advance(3600)  # the machine was off for longer than a lease lasts
    ops, place = disk.ops, tmp_path / "after"
    for cut in [k for k, op in enumerate(ops) if op.act in ("sync", "told")]:
        shutil.rmtree(place, ignore_errors=True)
        for name, data in survivors(ops[: cut + 1], Random(cut)).items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)
        with Host(f"file://{place}/store", clock=clock) as host:
            known = [info.run_id for info in host.runs()]
            assert known == ["run"] or cut < len(ops) - 1
            assert host.run(FLOW, {"a": 1}, run_id="run")["c"] == 20
            assert not any(found.flaws for found in host.storage.verify())
