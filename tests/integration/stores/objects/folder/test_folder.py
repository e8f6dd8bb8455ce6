"""A folder as a bucket where things go wrong: replies are lost, syncs fail, folders go, disks fill up."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everstep.errors import StoreError, StoreUnavailable
from everstep.ports.health import Level
from everstep.stores.objects.folder import fitness, locks
from everstep.stores.objects.folder.bucket import Folder
from everstep.stores.objects.folder.mounts import Mount, find_mount, mount_of

ROOT = Path(__file__).parents[5]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "objects"


@pytest.fixture(params=["unnamed", "named"])
def folder(request: pytest.FixtureRequest, place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    """A folder on a file system with files that have no name yet, and on one without."""
    if request.param == "named":
        monkeypatch.setattr(fitness, "UNNAMED", 0)
    opened = Folder(place)
    yield opened
    opened.close()


def files_in(place: Path) -> list[str]:
    found = (path.relative_to(place) for path in place.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if path.parts[0] != ".everstep")


def failing(
    call: Callable[..., object], number: int, *, only: Callable[[str], bool] = lambda _: True
) -> Callable[..., object]:
    def fail(*arguments: object, **options: object) -> object:
        if only(str(arguments[0])):
            raise OSError(number, os.strerror(number))
        return call(*arguments, **options)

    return fail


def is_folder(fd: str) -> bool:
    return Path(f"/proc/self/fd/{fd}").resolve().is_dir()


# -- replies that get lost -------------------------------------------------------------------------------


def test_a_link_whose_reply_was_lost_is_found_to_be_ours(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def link_twice(*arguments: object, **options: object) -> None:
        link(*arguments, **options)  # type: ignore[arg-type]
        raise FileExistsError(errno.EEXIST, "a retransmission")

    monkeypatch.setattr(os, "link", link_twice)
    assert folder.create("a/b", b"mine")
    monkeypatch.undo()
    assert not folder.create("a/b", b"other")
    found = folder.get("a/b")
    assert found is not None and found.data == b"mine"


def test_a_rename_whose_reply_was_lost_is_found_to_be_ours(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def rename_twice(*arguments: object, **options: object) -> None:
        rename(*arguments, **options)  # type: ignore[arg-type]
        raise FileNotFoundError(errno.ENOENT, "a retransmission")

    monkeypatch.setattr(os, "rename", rename_twice)
    folder.put("a/b", b"mine")
    monkeypatch.undo()
    found = folder.get("a/b")
    assert found is not None and found.data == b"mine"


def test_what_may_have_been_linked_is_synced_before_it_is_read(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, look = os.link, os.stat

    def link_and_time_out(*arguments: object, **options: object) -> None:
        link(*arguments, **options)  # type: ignore[arg-type]
        raise OSError(errno.ETIMEDOUT, "timed out")

    folder.create("a/first", b"x")
    monkeypatch.setattr(os, "link", link_and_time_out)
    monkeypatch.setattr(os, "stat", failing(look, errno.ETIMEDOUT))
    with pytest.raises(StoreUnavailable):
        folder.create("a/b", b"mine")
    monkeypatch.undo()
    synced: list[int] = []
    fsync = os.fsync

    def note_sync(fd: int) -> None:
        synced.append(fd)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note_sync)
    found = folder.get("a/b")
    assert found is not None and found.data == b"mine"
    assert synced
    synced.clear()
    folder.get("a/b")
    assert not synced


# -- syncs that fail -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_file_whose_sync_failed_is_never_seen(
    folder: Folder, place: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.create("a/first", b"x")
    monkeypatch.setattr(os, "fsync", failing(os.fsync, number))
    for write in (folder.create, folder.put):
        with pytest.raises(StoreError) as caught:
            write("a/b", b"mine")
        assert caught.value.code == ("store.failed" if number == errno.EIO else "store.not_writable")
        assert os.strerror(number) in caught.value.message and caught.value.fix
    monkeypatch.undo()
    assert files_in(place) == ["a/first"]
    assert folder.create("a/b", b"again")


def test_after_a_folder_could_not_be_synced_nothing_is_believed(
    folder: Folder, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.create("a/first", b"x")
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", failing(fsync, errno.EIO, only=is_folder))
    with pytest.raises(StoreError, match="Input/output error"):
        folder.create("a/b", b"mine")
    monkeypatch.undo()
    for call in (
        lambda: folder.get("a/b"),
        lambda: folder.create("a/b", b"mine"),
        lambda: folder.put("a/c", b""),
        lambda: folder.names(""),
        lambda: folder.mark(["a/d"]),
        lambda: folder.delete(["a/b"]),
    ):
        with pytest.raises(StoreError, match="a sync failed here before") as caught:
            call()
        assert not isinstance(caught.value, StoreUnavailable)
        assert "open the store anew" in caught.value.fix
    assert Folder(place).names("a/") == ["a/b", "a/first"]


def test_marks_are_synced_before_the_object_they_lead_to_has_its_name(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "_keeps_order", False)
    happened: list[str] = []
    fsync, link = os.fsync, os.link

    def note_sync(fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").resolve()
        happened.append(f"sync {path.name}" if path.is_dir() else "sync file")
        fsync(fd)

    def note_link(*arguments: object, **options: object) -> None:
        happened.append("link")
        link(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "link", note_link)
    folder.mark(["live/r~1", "index/1~r"])
    assert happened == []
    folder.create("runs/r/log/1", b"x")
    before, after = happened[: happened.index("link")], happened[happened.index("link") + 1 :]
    assert before[0] == "sync file"
    assert {"sync live", "sync index"} <= set(before)
    assert after == ["sync log", "sync r", "sync runs", "sync objects"]
    happened.clear()
    folder.create("runs/r/log/2", b"x")
    assert happened == ["sync file", "link", "sync log"]


# -- folders that come and go ----------------------------------------------------------------------------


def test_an_empty_folder_that_is_removed_meanwhile_is_made_again(folder: Folder, place: Path) -> None:
    other = Folder(place)
    for k in range(5):
        assert folder.create("runs/r/log/1", b"%d" % k)
        other.delete(["runs/r/log/1"])
        assert not (place / "runs" / "r").exists()
    folder.mark(["runs/r/log/2"])
    other.delete(["runs/r/log/2"])
    folder.put("runs/r/log/2", b"put")
    assert other.names("") == ["runs/r/log/2"]


def test_one_removes_what_another_makes_in_the_same_folder(place: Path) -> None:
    one, other = Folder(place), Folder(place)
    failed: list[BaseException] = []

    def churn(mine: Folder, name: str) -> None:
        try:
            for k in range(60):
                assert mine.create(f"runs/r/log/{name}{k}", b"x")
                mine.delete([f"runs/r/log/{name}{k}"])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=churn, args=pair) for pair in ((one, "a"), (other, "b"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert one.names("") == []


def test_a_folder_that_is_gone_is_not_taken_for_an_empty_one(folder: Folder, place: Path) -> None:
    folder.create("a/b", b"x")
    shutil.rmtree(place)
    for call in (
        lambda: folder.get("a/b"),
        lambda: folder.names(""),
        lambda: folder.create("a/c", b"x"),
        lambda: folder.put("a/c", b"x"),
        lambda: folder.mark(["a/c"]),
    ):
        with pytest.raises(StoreError) as caught:
            call()
        assert "mounted" in caught.value.fix


def test_a_folder_that_is_not_there_is_made_only_if_it_may_be(place: Path) -> None:
    with pytest.raises(StoreError, match="there is no folder at"):
        Folder(place, create=False)
    assert not place.parent.exists()
    Folder(place)
    assert Folder(place, create=False).names("") == []


def test_files_that_were_never_finished_are_swept_after_a_day(folder: Folder, place: Path) -> None:
    folder.create("runs/r/log/1", b"x")
    old, new = place / "runs" / "r" / "log" / ".1-a-1.tmp", place / "runs" / "r" / "log" / ".1-a-2.tmp"
    for path in (old, new):
        path.write_bytes(b"half")
    long_ago = (folder.now() - timedelta(days=2)).timestamp()
    os.utime(old, (long_ago, long_ago))
    assert [each.name for each in folder.listed("runs/")] == ["runs/r/log/1"]
    assert (old.exists(), new.exists()) == (False, True)


def test_a_forked_child_goes_on_where_its_parent_was(folder: Folder) -> None:
    folder.create("a/1", b"x")
    pid = os.fork()
    if pid == 0:
        os._exit(0 if folder.create("a/2", b"child") and not folder.create("a/1", b"") else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert folder.names("a/") == ["a/1", "a/2"]


# -- places that are refused -----------------------------------------------------------------------------


def test_a_folder_without_links_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", failing(os.link, errno.EPERM))
    with pytest.raises(StoreError, match="has no hard links") as caught:
        Folder(place)
    assert "local disk" in caught.value.fix


def test_a_folder_whose_links_replace_names_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def link_over(source: str, target: str, **options: Any) -> None:
        try:
            link(source, target, **options)
        except FileExistsError:
            return

    monkeypatch.setattr(os, "link", link_over)
    with pytest.raises(StoreError, match="lets a name that is taken be taken again"):
        Folder(place)


def test_a_folder_without_locks_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda fd, how: None)
    with pytest.raises(StoreError, match="gives one lock to two"):
        Folder(place)
    monkeypatch.setattr(fcntl, "flock", failing(lambda fd, how: None, errno.ENOLCK))
    with pytest.raises(StoreError, match="has no locks"):
        Folder(place)
    assert list(place.glob(".everstep/*.tmp")) == []


@pytest.mark.parametrize(
    ("mount", "says"),
    [
        (Mount("fuse.sshfs"), "cannot keep two writers apart"),
        (Mount("nfs", frozenset({"rw", "nolock"})), "nolock"),
        (Mount("nfs4", frozenset({"local_lock=all"})), "local_lock=all"),
        (Mount("cifs", frozenset({"nobrl"})), "nobrl"),
    ],
)
def test_a_mount_that_is_known_not_to_fence_is_refused(
    mount: Mount, says: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everstep.stores.objects.folder.bucket.mount_of", lambda path: mount)
    with pytest.raises(StoreError, match=says):
        Folder(place)


def test_a_folder_that_confuses_capital_letters_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.stat

    def careless(path: str, **options: Any) -> os.stat_result:
        return real(path.lower() if str(path).endswith(".TMP") else path, **options)

    monkeypatch.setattr(os, "stat", careless)
    with pytest.raises(StoreError, match="takes capital letters for small ones"):
        Folder(place)
    assert list(place.glob(".everstep/*.tmp")) == []


def test_one_who_may_enter_the_folder_may_lock(place: Path) -> None:
    before = os.umask(0o077)
    try:
        folder = Folder(place)
        folder.put("a/b", b"x")
    finally:
        os.umask(before)
    for path in (place / ".everstep").rglob("*"):
        assert path.is_dir() or stat.S_IMODE(path.stat().st_mode) == 0o666, path
    assert stat.S_IMODE((place / "a" / "b").stat().st_mode) == 0o600
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_a_lock_that_another_client_keeps_makes_others_try_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_PATIENCE", 0.05)
    folder = Folder(place)
    with folder._locks.held("a/b"), pytest.raises(StoreUnavailable, match="does not let go of it"):
        folder.put("a/b", b"x")
    folder.put("a/b", b"x")


def test_a_folder_that_can_only_be_read_is_read(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Folder(place).create("a/b", b"x")
    monkeypatch.setattr(fitness, "NEW_FILE", -1)
    opened = os.open

    def read_only(path: str, flags: int, *arguments: int, **options: int) -> int:
        if flags == -1:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", read_only)
    reader = Folder(place, create=False)
    found = reader.get("a/b")
    assert found is not None and found.data == b"x"
    with pytest.raises(StoreError, match="Read-only file system") as caught:
        reader.create("a/c", b"")
    assert "Mount it for writing" in caught.value.fix
    with pytest.raises(StoreError, match="Read-only file system"):
        Folder(place)


# -- clocks and kinds of file systems --------------------------------------------------------------------


def test_on_a_network_file_system_the_clock_of_the_server_counts(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everstep.stores.objects.folder.bucket.mount_of", lambda path: Mount("nfs4"))
    folder = Folder(place)
    assert not folder.is_local
    utime, ahead = os.utime, timedelta(hours=3)

    def stamped_there(fd: int) -> None:
        at = (local.now() + ahead).timestamp()
        utime(fd, (at, at))

    monkeypatch.setattr("everstep.stores.objects.folder.bucket.mount_of", mount_of)
    local = Folder(place.parent / "local")
    monkeypatch.setattr(os, "utime", stamped_there)
    assert abs(folder.now() - local.now() - ahead) < timedelta(seconds=5)
    assert folder.changes() is None and local.changes() is not None
    health = folder.health()
    assert health.server == "files on nfs4" and health.now is not None
    assert (
        not (place / ".everstep").glob("*.tmp").__next__()
        if list((place / ".everstep").glob("*.tmp"))
        else True
    )


MOUNTS = r"""
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:27 / /srv rw - tmpfs tmpfs rw
31 22 0:40 / /srv/share rw,relatime - nfs4 host:/export rw,vers=4.2,local_lock=none
32 22 0:41 / /srv/with\040space rw - fuse.sshfs me@host: rw
33 22 0:42 / /srv/share2 rw - nfs host:/b rw,nolock
34 31 8:1 / /srv/share/over rw - xfs /dev/sda1 rw
""".strip().splitlines()


@pytest.mark.parametrize(
    ("folder", "device", "kind", "is_shared", "is_refused"),
    [
        ("/srv/share/runs", (0, 40), "nfs4", True, False),
        ("/srv/share2/runs", (0, 42), "nfs", True, True),
        ("/srv/with space", (0, 41), "fuse.sshfs", True, True),
        ("/srv/share/over/runs", (8, 1), "xfs", False, False),
        ("/srv/shared", (0, 27), "tmpfs", False, False),
        ("/home/me", (254, 0), "ext4", False, False),
        ("/home/subvolume", (0, 99), "ext4", False, False),
    ],
)
def test_the_file_system_of_a_folder_is_found(
    folder: str, device: tuple[int, int], kind: str, is_shared: bool, is_refused: bool
) -> None:
    mount = find_mount(MOUNTS, folder, os.makedev(*device))
    assert (mount.kind, mount.is_shared, bool(mount.objection)) == (kind, is_shared, is_refused)


def test_health_warns_where_a_folder_is_kept_in_memory_or_nearly_full(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(place)
    real = os.statvfs(place)
    low = os.statvfs_result((real[0], 4096, real[2], 10, 10, real[5] or 1, 5, 5, *real[8:]))
    monkeypatch.setattr(os, "statvfs", lambda path: low)
    said = [finding.text for finding in folder.health().findings if finding.level is Level.WARNING]
    assert any("0 MiB left" in text for text in said) and any("room for 5 files" in text for text in said)
    monkeypatch.setattr(folder, "mount", Mount("tmpfs"))
    assert "every run is gone" in folder.health().findings[0].text


@pytest.mark.skipif(not shutil.which("unshare"), reason="No unshare here, so no small disk can be mounted.")
def test_a_disk_that_is_full_keeps_what_it_has(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from typing import Any
from everstep.errors import StoreError
from everstep.stores.objects.folder.bucket import Folder
folder = Folder(Path(sys.argv[1]) / "objects")
kept = []
try:
    for k in range(1000):
        assert folder.create(f"a/{k}", bytes(10_000))
        kept.append(f"a/{k}")
except StoreError as error:
    print(error)
else:
    raise SystemExit("the disk is not full")
assert kept and folder.names("") == sorted(kept), folder.names("")
assert all(len(folder.get(name).data) == 10_000 for name in kept)
folder.delete(kept[:3])
assert folder.create("a/after", bytes(10_000))
Folder(Path(sys.argv[1]) / "objects", create=False).get("a/after")
"""
    mounted = tmp_path / "small"
    mounted.mkdir()
    inside = f'mount -t tmpfs -o size=256k tmpfs "{mounted}" && exec "$@"'
    command = ["unshare", "-Urm", "sh", "-c", inside, "sh", sys.executable, "-c", script, str(mounted)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if "Operation not permitted" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"No one may mount a small disk here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert "No space left on device" in done.stdout and "Free some space" in done.stdout
