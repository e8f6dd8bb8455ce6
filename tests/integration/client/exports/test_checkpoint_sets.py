"""Checkpoints as three files, of which a set counts only when it is whole."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everstep import Context, Flow, Host, Status, node
from everstep.checkpoints import CheckpointManager
from everstep.errors import BadRequest, BundleInvalid, EverstepError, IncompatibleVersion
from everstep.results import RunResult
from everstep.testing import ManualClock
from tests.integration.runtime.bundles.carried import CRAWL, GIVEN, START

IS_BROKEN = True


@node(output="a")
def first(x: int, ctx: Context) -> int:
    ctx.checkpoint({"stage": "one"})
    return x + 1


@node(output="b", retry=1)
def second(a: int) -> int:
    if IS_BROKEN:
        raise ConnectionError("no route")
    return a * 10


FLOW = Flow("two", [first, second], durability="strong")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START, auto=True)


@pytest.fixture
def host(tmp_path: Path, clock: ManualClock) -> Iterator[Host]:
    with Host(f"sqlite:///{tmp_path}/here.db", clock=clock) as opened:
        yield opened


@pytest.fixture
def manager(host: Host, tmp_path: Path) -> CheckpointManager:
    return CheckpointManager(host, tmp_path / "checkpoints")


@pytest.fixture(autouse=True)
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.integration.client.exports.test_checkpoint_sets.IS_BROKEN", True)


def fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.integration.client.exports.test_checkpoint_sets.IS_BROKEN", False)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


class TestWriting:
    def test_three_files_say_what_a_session_is(self, host: Host, manager: CheckpointManager) -> None:
        host.run(FLOW, {"x": 1}, run_id="A17")
        path, meta = manager.create_checkpoint("A17", metadata={"why": "before the deploy"})
        base = Path(path)
        assert names(manager.folder) == [
            base.name + end for end in (".everstep", ".meta.json", ".state.json")
        ]
        assert base.name.startswith("session_A17_step_2_20261115T120000")
        assert (meta.session_id, meta.steps, meta.start_node) == ("A17", 2, "first")
        assert meta.user_metadata == {"why": "before the deploy"}
        assert meta.created_at.startswith("2026-11-15T12:00:0") and meta.created_at.endswith("Z")
        state = json.loads((base.parent / (base.name + ".state.json")).read_text())
        assert state["schema_version"] == "1.0" and state["completed_tasks"] == ["first"]
        assert state["cycle_counts"]["first"] == 1
        [pending] = state["pending_tasks"]
        assert (pending["task_id"], pending["status"], pending["execution_strategy"]) == (
            "second",
            "pending",
            "direct",
        )
        assert set(pending) == {
            *("task_id", "task_data", "status", "priority", "retry_count", "max_retries"),
            "execution_strategy",
        }
        assert state["backend"] == {"queue": "sqlite", "channel": "sqlite"}

    def test_each_queued_task_is_told_with_its_retries_and_where_the_session_began(
        self, host: Host, manager: CheckpointManager
    ) -> None:
        @node(output="done", retry=3)
        def part(number: int) -> int:
            raise ConnectionError("no route")

        @node(output="asked")
        def ask(ctx: Context) -> int:
            for number in range(3):
                ctx.next_task(part, number=number, priority=number)
            return 3

        @node(output="end")
        def last(asked: int) -> int:
            return asked

        flow = Flow("fan", [last, ask], tasks=[part], durability="strong")
        host.run(flow, run_id="A17")
        path, meta = manager.create_checkpoint("A17", flow=flow)
        told = json.loads(Path(f"{path}.state.json").read_text())
        assert (meta.start_node, told["start_node"]) == ("ask", "ask")
        tasks = [task for task in told["pending_tasks"] if task["task_id"] == "part"]
        assert sorted((t["task_data"]["number"], t["priority"], t["max_retries"]) for t in tasks) == [
            *((0, 0, 3), (1, 1, 3), (2, 2, 3)),
        ]
        path, _ = manager.create_checkpoint("A17", path="unknown")
        told = json.loads(Path(f"{path}.state.json").read_text())
        assert {task["max_retries"] for task in told["pending_tasks"]} == {None}, "no record holds it"

    def test_a_queue_and_a_channel_beside_are_told_as_what_they_are(self) -> None:
        pytest.importorskip("redis")
        with Host("memory:", queue="redis://localhost/0", channel="valkey://localhost/1") as host:
            assert host.storage.schemes == {"queue": "redis", "channel": "valkey"}
        with Host("memory:") as host:
            assert host.storage.schemes == {"queue": "memory", "channel": "memory"}

    def test_the_backend_is_where_the_channel_of_this_run_is_kept(
        self, redis_url: str, tmp_path: Path
    ) -> None:
        @node(output="b")
        def tell(a: int, ctx: Context) -> int:
            ctx.channel.set("told", a)
            return a

        flow, url = Flow("f", [tell]), f"sqlite:///{tmp_path}/runs.db"
        with Host(url) as host:
            host.run(flow, {"a": 1}, run_id="within")
        with Host(url, channel=redis_url) as host:
            host.run(flow, {"a": 1}, run_id="beside")
            manager = CheckpointManager(host, tmp_path / "sets")
            told = {name: manager.create_checkpoint(name)[1].backend for name in ("within", "beside")}
        assert told == {
            "within": {"queue": "sqlite", "channel": "sqlite"},
            "beside": {"queue": "sqlite", "channel": "redis"},
        }

    def test_one_that_was_taken_by_itself_says_so(
        self, host: Host, manager: CheckpointManager, tmp_path: Path
    ) -> None:
        said: list[dict[str, Any]] = []

        @node(output="b")
        def look(a: int) -> int:
            with Host(host.url) as other:
                said.append(
                    CheckpointManager(other, tmp_path / "x").create_checkpoint("A17")[1].user_metadata
                )
            return a

        @node(output="a")
        def plain(x: int) -> int:
            return x

        host.run(Flow("auto", [plain, look], auto_checkpoint=1), {"x": 1}, run_id="A17")
        assert said[0] == {"auto": True}

    def test_one_that_a_node_asked_for_says_what_it_said(self, host: Host, tmp_path: Path) -> None:
        said: list[dict[str, Any]] = []

        @node(output="b")
        def look(a: int) -> int:
            with Host(host.url) as other:
                said.append(
                    CheckpointManager(other, tmp_path / "x").create_checkpoint("A17")[1].user_metadata
                )
            return a

        host.run(Flow("asked", [first, look], durability="strong"), {"x": 1}, run_id="A17")
        assert (said[0]["stage"], said[0]["task_id"], said[0]["cycle_count"]) == ("one", "first", 1)

    def test_a_set_that_is_there_is_never_replaced(self, host: Host, manager: CheckpointManager) -> None:
        host.run(FLOW, {"x": 1}, run_id="A17")
        path, _ = manager.create_checkpoint("A17", "mine.pkl")
        assert Path(path) == manager.folder / "mine"
        with pytest.raises(BadRequest, match="is there already"):
            manager.create_checkpoint("A17", "mine.state.json")

    def test_two_at_the_same_moment_have_names_of_their_own(
        self, host: Host, manager: CheckpointManager
    ) -> None:
        host.run(FLOW, {"x": 1}, run_id="A17")
        assert manager.create_checkpoint("A17")[0] != manager.create_checkpoint("A17")[0]
        assert len(manager.list_checkpoints()) == 2

    @pytest.mark.parametrize("pattern", ["A17*", "*.pkl", "checkpoints/*", "checkpoints/*.pkl"])
    def test_sets_are_found_by_name_and_by_path(
        self, host: Host, manager: CheckpointManager, monkeypatch: pytest.MonkeyPatch, pattern: str
    ) -> None:
        monkeypatch.chdir(manager.folder.parent)
        host.run(FLOW, {"x": 1}, run_id="A17")
        manager.create_checkpoint("A17", "A17-mine")
        assert len(manager.list_checkpoints(pattern)) == 1

    @pytest.mark.parametrize("at", [1, 2, 3])
    def test_a_crash_between_two_files_leaves_nothing_that_counts(
        self, host: Host, manager: CheckpointManager, monkeypatch: pytest.MonkeyPatch, at: int
    ) -> None:
        from everstep.runtime.bundles.new_file import NewFile

        host.run(FLOW, {"x": 1}, run_id="A17")
        commit, written = NewFile.commit, []

        def dies(file: NewFile) -> None:
            written.append(file)
            if len(written) == at:
                raise RuntimeError("the power is gone")
            commit(file)

        with monkeypatch.context() as patched:
            patched.setattr(NewFile, "commit", dies)
            with pytest.raises(RuntimeError):
                manager.create_checkpoint("A17", "mine")
        assert manager.list_checkpoints() == [] and manager.get_latest_checkpoint() is None
        with pytest.raises(BundleInvalid):
            manager.resume_from_checkpoint("mine")
        manager.create_checkpoint("A17", "mine")
        assert [Path(meta.path).name for meta in manager.list_checkpoints()] == ["mine"]

    @pytest.mark.parametrize("path", ["s3://bucket/a", "redis://a"])
    def test_places_that_are_no_folders_are_refused(self, manager: CheckpointManager, path: str) -> None:
        with pytest.raises(BadRequest, match="no path"):
            manager.resume_from_checkpoint(path)


class TestResuming:
    def test_a_run_goes_on_from_it(
        self, host: Host, manager: CheckpointManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        host.run(FLOW, {"x": 1}, run_id="A17")
        path, _ = manager.create_checkpoint("A17")
        fix(monkeypatch)
        result, meta = manager.resume_from_checkpoint(path, FLOW)
        assert isinstance(result, RunResult) and result["b"] == 20
        assert (result.run_id, meta.session_id) == ("A17", "A17")

    def test_elsewhere_too(
        self, host: Host, manager: CheckpointManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        host.run(FLOW, {"x": 1}, run_id="A17")
        path, _ = manager.create_checkpoint("A17")
        fix(monkeypatch)
        with Host(f"sqlite:///{tmp_path}/there.db") as there:
            found, _ = CheckpointManager(there).resume_from_checkpoint(path + ".meta.json")
            assert (found.run_id, found.status) == ("A17", Status.FAILED)
            assert there.resume("A17", FLOW)["b"] == 20

    def test_of_a_run_that_has_gone_on_since_a_fork_does(
        self, host: Host, manager: CheckpointManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        host.run(FLOW, {"x": 1}, run_id="A17")
        path, _ = manager.create_checkpoint("A17")
        fix(monkeypatch)
        host.resume("A17", FLOW)
        result, _ = manager.resume_from_checkpoint(path, FLOW)
        assert isinstance(result, RunResult) and result["b"] == 20
        assert host.info(result.run_id).parent_run_id == "A17"

    def test_from_a_node_whatever_was_due(
        self, host: Host, manager: CheckpointManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        host.run(FLOW, {"x": 1}, run_id="A17")
        path, _ = manager.create_checkpoint("A17")
        fix(monkeypatch)
        result, _ = manager.resume_from_checkpoint(path, FLOW, start="first")
        assert isinstance(result, RunResult) and result["b"] == 20


class TestReading:
    @pytest.fixture
    def base(self, host: Host, manager: CheckpointManager) -> Path:
        host.run(CRAWL, GIVEN, run_id="A17")
        return Path(manager.create_checkpoint("A17", "mine")[0])

    @pytest.mark.parametrize("end", [".everstep", ".meta.json", ".state.json"])
    def test_a_file_that_is_missing_cut_or_altered_is_found(
        self, manager: CheckpointManager, base: Path, end: str
    ) -> None:
        path = base.with_name(base.name + end)
        whole = path.read_bytes()
        for other in (whole[:-7], whole[:50] + b"!" + whole[51:], b"", b"[" * 5000, None):
            if other is None:
                path.unlink()
            else:
                path.write_bytes(other)
            with pytest.raises((BundleInvalid, EverstepError)) as caught:
                manager.resume_from_checkpoint("mine")
            assert isinstance(caught.value, EverstepError)

    def test_an_absent_schema_version_is_the_first(self, manager: CheckpointManager, base: Path) -> None:
        meta = base.with_name("mine.meta.json")
        said = json.loads(meta.read_text())
        del said["schema_version"]
        meta.write_text(json.dumps(said))
        assert manager.resume_from_checkpoint("mine")[1].schema_version == "1.0"

    @pytest.mark.parametrize(
        ("version", "error"),
        [
            ("1.1", IncompatibleVersion),
            ("2.0", IncompatibleVersion),
            ("0.9", BundleInvalid),
            ("new", BundleInvalid),
            (1.0, BundleInvalid),
        ],
    )
    def test_any_other_schema_version_is_refused(
        self, manager: CheckpointManager, base: Path, version: Any, error: type[EverstepError]
    ) -> None:
        edit(base.with_name("mine.meta.json"), schema_version=version)
        with pytest.raises(error):
            manager.resume_from_checkpoint("mine")
        assert manager.list_checkpoints() == []

    def test_the_files_of_two_runs_are_no_set(
        self, host: Host, manager: CheckpointManager, base: Path
    ) -> None:
        edit(base.with_name("mine.meta.json"), session_id="B")
        with pytest.raises(BundleInvalid, match="another run"):
            manager.resume_from_checkpoint("mine")


class TestKeeping:
    def test_the_newest_come_first_and_the_last_five_stay(
        self, host: Host, manager: CheckpointManager, clock: ManualClock
    ) -> None:
        for run_id in ("A", "B"):
            host.run(CRAWL, GIVEN, run_id=run_id)
        for number in range(7):
            clock.advance(60)
            manager.create_checkpoint("A", metadata={"number": number})
        manager.create_checkpoint("B")
        latest = manager.get_latest_checkpoint("A")
        assert latest is not None and latest.user_metadata["number"] == 6
        assert manager.get_latest_checkpoint("unknown") is None
        assert manager.cleanup_old_checkpoints() == 2
        kept = [meta.user_metadata["number"] for meta in manager.list_checkpoints(run_id="A")]
        assert kept == [6, 5, 4, 3, 2] and len(manager.list_checkpoints("session_B_*")) == 1
        assert manager.cleanup_old_checkpoints(1, run_id="A") == 4
        assert len(names(manager.folder)) == 6

    def test_what_crashes_left_goes_too(self, host: Host, manager: CheckpointManager) -> None:
        host.run(CRAWL, GIVEN, run_id="A")
        path, _ = manager.create_checkpoint("A")
        Path(path + ".meta.json").unlink()
        (manager.folder / "notes.txt").write_text("mine")
        assert manager.cleanup_old_checkpoints() == 0
        assert names(manager.folder) == ["notes.txt"]

    def test_something_must_be_kept(self, manager: CheckpointManager) -> None:
        assert manager.cleanup_old_checkpoints() == 0
        with pytest.raises(BadRequest):
            manager.cleanup_old_checkpoints(0)


class TestPickle:
    def test_a_pickle_is_written_and_read_only_where_it_is_allowed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = tmp_path / "sets"
        with Host(f"sqlite:///{tmp_path}/a.db", allow_pickle=True) as here:
            here.run(FLOW, {"x": 1}, run_id="A17")
            path, _ = CheckpointManager(here, folder, pickle=True).create_checkpoint("A17", "mine")
        assert names(folder) == ["mine.meta.json", "mine.pkl", "mine.state.json"]
        assert pickle.loads(Path(path + ".pkl").read_bytes())["values"]["a"] == 2
        fix(monkeypatch)
        with Host(f"sqlite:///{tmp_path}/b.db") as there:
            with pytest.raises(BadRequest, match="does not unpickle"):
                CheckpointManager(there, folder).resume_from_checkpoint("mine", FLOW)
            with pytest.raises(BadRequest, match="allows no pickle"):
                CheckpointManager(there, folder, pickle=True)
            assert there.runs() == []
        with Host(f"sqlite:///{tmp_path}/b.db", allow_pickle=True) as there:
            result, _ = CheckpointManager(there, folder).resume_from_checkpoint("mine", FLOW)
            assert isinstance(result, RunResult) and result["b"] == 20


def test_a_run_without_an_owner_is_carried_too(host: Host, manager: CheckpointManager) -> None:
    host.start(CRAWL, GIVEN, run_id="A17")
    path, _ = manager.create_checkpoint("A17")
    assert manager.resume_from_checkpoint(path)[0].run_id == "A17"
