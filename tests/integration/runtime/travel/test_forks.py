"""Forks: a run goes on from another's checkpoint, and the other never notices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from everstep import END, Context, Durability, Flow, Host, Status, ifelse, node, route
from everstep.errors import (
    BadRequest,
    EverstepError,
    FlowChanged,
    InputError,
    InputsDiffer,
    RunNotFound,
    StateCorrupted,
)
from everstep.model.enums import Trigger
from everstep.model.records import CheckpointRecord
from everstep.stores.sqlite.database import PAGE_SIZE
from tests.integration.noise import noise

pytestmark = pytest.mark.servers

WIDE = 9_000
"""Characters a step writes, so that every eighth checkpoint or so is a keyframe."""


@node(output="n")
def step(n: int = 0) -> int:
    return n + 1


@ifelse(when_true="step", when_false="finish")
def more(n: int, limit: int) -> bool:
    return n < limit


@node(output="done")
def finish(n: int, name: str) -> str:
    return f"{name} {n}"


LOOP = Flow("loop", [step, more, finish], entry="step", durability="strong")


@node(output=("page", "round"))
def write_page(round: int, salt: str) -> tuple[str, int]:
    return f"{round}{salt}" + noise((round, salt), WIDE), round + 1


@ifelse(when_true="write_page", when_false=END)
def again(round: int) -> bool:
    return round < 20


BOOK = Flow("book", [write_page, again], entry="write_page", durability="strong")


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db?synchronous=off"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def sqlite_host(path: Path) -> Iterator[Host]:
    with Host(f"sqlite:///{path}?synchronous=off") as opened:
        yield opened


def loop(host: Host, run_id: str = "run", limit: int = 3) -> list[CheckpointRecord]:
    assert host.run(LOOP, {"limit": limit, "name": "x"}, run_id=run_id).status is Status.COMPLETED
    return host.history(run_id)


def go_on(host: Host, flow: Flow, *args: Any, **options: Any) -> dict[str, Any]:
    result = host.resume(host.fork(*args, **options).run_id, flow)
    assert result.status is Status.COMPLETED, result.error
    return dict(result)


class TestGoingOn:
    def test_a_fork_at_any_checkpoint_comes_to_the_same_end(self, host: Host) -> None:
        before = loop(host)
        for at in range(1, len(before) + 1):
            assert go_on(host, LOOP, "run", at=at) == {"n": 3, "done": "x 3"}
        assert host.history("run") == before

    def test_a_fork_at_any_checkpoint_takes_edits_into_account(self, host: Host) -> None:
        before = loop(host)
        for at in range(1, len(before) + 1):
            edited = go_on(host, LOOP, f"run@{at}", inputs={"limit": 6}, state={"name": "y"})
            assert edited == {"n": 6, "done": "y 6"}, at
        assert host.history("run") == before

    def test_a_fork_across_keyframes_comes_to_the_same_end(self, host: Host) -> None:
        result = dict(host.run(BOOK, {"round": 0, "salt": "ab"}, run_id="run"))
        before = host.history("run")
        assert sum(c.keyframe for c in before) >= 2
        for at in range(1, len(before) + 1, 5):
            assert go_on(host, BOOK, "run", at=at) == result
            longer = go_on(host, BOOK, "run", at=at, inputs={"salt": "cd"})
            assert longer["round"] == 20
            assert "cd" in longer["page"] or at > len(before) - 3
        assert host.history("run") == before

    def test_every_state_of_a_fork_is_that_of_its_parent_up_to_its_base(self, host: Host) -> None:
        loop(host)
        fork = host.fork("run", at=5, state={"n": 0})
        host.resume(fork.run_id, LOOP)
        for at in range(1, 6):
            there, here = host.state("run", at), host.state(fork.run_id, at)
            assert (dict(there), there.frontier) == (dict(here), here.frontier)
        assert host.state(fork.run_id, 6)["n"] == 0
        assert host.state(fork.run_id, 6).versions["n"] == host.state("run", 5).versions["n"] + 1

    def test_a_fork_begins_with_a_record_that_names_its_base(self, host: Host) -> None:
        before = loop(host)
        info = host.fork("run", at=4, inputs={"limit": 9}, fork_id="other")
        assert (info.run_id, info.parent_run_id, info.forked_at) == ("other", "run", 4)
        assert (info.status, info.checkpoints, info.is_driven) == (Status.RUNNING, 5, False)
        *shared, first = host.history("other")
        assert shared == before[:4]
        assert (first.trigger, first.sequence, first.base) == (Trigger.FORK, 5, before[3].checkpoint_id)
        assert (first.run_id, first.parent_run_id) == ("other", "run")
        [edit] = first.steps
        assert (edit.path, [(w.name, w.version) for w in edit.writes]) == ("@fork", [("limit", 2)])

    def test_a_checkpoint_is_named_by_its_sequence_its_id_or_an_address(self, host: Host) -> None:
        before = loop(host)
        forks = [host.fork("run", at=3), host.fork("run", at=before[2].checkpoint_id), host.fork("run@3")]
        assert {f.forked_at for f in forks} == {3}
        assert host.fork("run").forked_at == len(before)
        assert dict(host.state("run@4")) == dict(host.state("run", 4))
        assert host.state("run@4").run_id == "run"

    @pytest.mark.parametrize(
        ("run_id", "at", "error"),
        [
            ("run", 0, RunNotFound),
            ("run", 99, RunNotFound),
            ("run", "nothing", RunNotFound),
            ("run", True, RunNotFound),
            ("run@99", None, RunNotFound),
            ("run@3", 3, BadRequest),
            ("run@x", None, BadRequest),
            ("run@", None, BadRequest),
            ("stranger@1", None, RunNotFound),
        ],
    )
    def test_a_checkpoint_that_is_not_there_cannot_be_forked(
        self, host: Host, run_id: str, at: Any, error: type[EverstepError]
    ) -> None:
        loop(host)
        for ask in (lambda: host.fork(run_id, at=at), lambda: host.state(run_id, at)):
            with pytest.raises(error):
                ask()

    def test_a_fork_of_a_completed_run_without_edits_just_completes(self, host: Host) -> None:
        before = loop(host)
        fork = host.fork("run")
        assert dict(host.resume(fork.run_id, LOOP)) == {"n": 3, "done": "x 3"}
        assert [c.trigger for c in host.history(fork.run_id)[len(before) :]] == ["fork", "completed"]

    def test_a_fork_of_a_failed_run_tries_again(self, host: Host) -> None:
        is_broken = [True]

        @node(output="y")
        def divide(x: int) -> float:
            if is_broken[0] or x == 0:
                raise ZeroDivisionError("broken")
            return 1 / x

        flow = Flow("divide", [divide], durability="strong")
        assert host.run(flow, {"x": 0}, run_id="run").status is Status.FAILED
        assert host.resume(host.fork("run", fork_id="same").run_id, flow).status is Status.FAILED
        is_broken[0] = False
        assert go_on(host, flow, "run", inputs={"x": 4}) == {"y": 0.25}
        assert host.info("run").status is Status.FAILED
        assert host.state("run").status is Status.FAILED

    def test_a_fork_of_a_cancelled_run_goes_on(self, host: Host) -> None:
        loop(host, "whole")
        host.cancel(host.fork("whole", at=3, fork_id="stopped").run_id)
        assert host.info("stopped").status is Status.CANCELLED
        assert go_on(host, LOOP, "stopped") == {"n": 3, "done": "x 3"}

    def test_a_fork_left_by_its_process_goes_on_in_another(self, host: Host) -> None:
        calls = []

        @node(output="b")
        def slow(a: int) -> int:
            calls.append(a)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return a + 1

        flow = Flow("two", [node(output="a")(lambda x: x).with_name("first").with_inputs(x="x"), slow])
        host.run(flow, {"x": 1}, run_id="run")
        fork = host.fork("run", inputs={"x": 5})
        with pytest.raises(KeyboardInterrupt):
            host.resume(fork.run_id, flow)
        assert host.resume(fork.run_id, flow)["b"] == 6
        assert host.state("run")["b"] == 2

    def test_a_fork_is_resumed_by_run_as_well_with_the_inputs_it_has(self, host: Host) -> None:
        loop(host)
        fork = host.fork("run", at=2, inputs={"limit": 4})
        with pytest.raises(InputsDiffer, match="limit"):
            host.run(LOOP, {"limit": 3, "name": "x"}, run_id=fork.run_id)
        assert host.run(LOOP, {"limit": 4, "name": "x"}, run_id=fork.run_id)["n"] == 4
        assert host.run(LOOP, run_id=fork.run_id)["n"] == 4

    def test_a_fork_is_not_resumed_with_another_flow(self, host: Host) -> None:
        loop(host)
        fork = host.fork("run", at=3)
        other = Flow("loop", [step, more, finish.with_inputs(name="title")], entry="step")
        with pytest.raises(FlowChanged):
            host.resume(fork.run_id, other)
        with pytest.raises(FlowChanged):
            host.resume(fork.run_id, BOOK)

    def test_forks_are_listed_by_their_parent(self, host: Host) -> None:
        loop(host)
        made = [host.fork("run", at=k).run_id for k in (1, 2, 3)]
        assert [info.run_id for info in host.runs(parent="run")] == made[::-1]
        assert host.runs(parent=made[0]) == []
        assert len(host.runs()) == 4


class TestEdits:
    def test_what_read_an_edited_value_runs_again_and_nothing_else(self, host: Host) -> None:
        calls: list[str] = []

        @node(output="left")
        def go_left(a: int) -> int:
            calls.append("left")
            return a

        @node(output="right")
        def go_right(b: int) -> int:
            calls.append("right")
            return b

        @node(output="both")
        def join(left: int, right: int) -> int:
            calls.append("join")
            return left + right

        flow = Flow("two", [go_left, go_right, join], durability="strong")
        host.run(flow, {"a": 1, "b": 2}, run_id="run")
        calls.clear()
        assert go_on(host, flow, "run", inputs={"a": 10})["both"] == 12
        assert calls == ["left", "join"]
        calls.clear()
        assert go_on(host, flow, "run", state={"right": 30})["both"] == 31
        assert calls == ["join"]

    def test_a_choice_that_was_not_acted_on_is_made_again(self, host: Host) -> None:
        ran: list[str] = []

        @node(output="score")
        def rate(text: str) -> int:
            return len(text)

        @route("publish", "revise")
        def judge(score: int) -> str:
            return "publish" if score > 3 else "revise"

        @node(output="published")
        def publish(text: str) -> str:
            ran.append("publish")
            return text

        @node(output="revised")
        def revise(text: str) -> str:
            ran.append("revise")
            return text + "!"

        flow = Flow("review", [rate, judge, publish, revise], durability="strong")
        host.run(flow, {"text": "long text"}, run_id="run")
        chose = next(c.sequence for c in host.history("run") if c.steps[0].path == "judge")
        for edits in ({"state": {"score": 1}}, {"inputs": {"text": "abc"}}):
            ran.clear()
            go_on(host, flow, "run", at=chose, **edits)
            assert ran == ["revise"]

    @pytest.mark.parametrize(
        ("edits", "error", "says"),
        [
            ({"inputs": {"limt": 1}}, InputError, "Did you mean 'limit'"),
            ({"inputs": {"zzz": 1}}, InputError, "no input 'zzz'"),
            ({"state": {"don": 1}}, BadRequest, "Did you mean 'done'"),
            ({"state": {"": 1}}, BadRequest, "no value ''"),
            ({"inputs": {"limit": 1}, "state": {"limit": 1}}, BadRequest, "edited twice"),
            ({"channel": {"": 1}}, BadRequest, "not a channel key"),
            ({"channel": {"draft.__result__": 1}}, BadRequest, "result of a node"),
            ({"state": {"nest/x": 1}}, BadRequest, "no flow 'nest'"),
            ({"fork_id": "a b"}, BadRequest, "not a run id"),
            ({"fork_id": "run"}, BadRequest, "a run 'run' already"),
        ],
    )
    def test_what_cannot_be_meant_is_refused(
        self, host: Host, edits: dict[str, Any], error: type[EverstepError], says: str
    ) -> None:
        loop(host)
        with pytest.raises(error, match=says):
            host.fork("run", **edits)
        assert len(host.runs()) == 1

    def test_an_entry_of_the_channel_is_kept_with_the_fork(self, host: Host) -> None:
        loop(host)
        fork = host.fork("run", channel={"note": {"a": [1]}})
        assert host.state(fork.run_id)["@channel/note"] == {"a": [1]}
        assert "@channel/note" not in host.state("run")

    def test_an_edit_keeps_its_version_in_a_keyframe(self, host: Host) -> None:
        host.run(BOOK, {"round": 0, "salt": "ab"}, run_id="run")
        fork = host.fork("run", at=1, inputs={"salt": "cd"})
        host.resume(fork.run_id, BOOK)
        assert any(c.keyframe for c in host.checkpoints(fork.run_id) if c.run_id == fork.run_id)
        assert host.state(fork.run_id).versions["salt"] == 2
        assert host.fork(fork.run_id, inputs={"salt": "ef"}, fork_id="again").forked_at
        assert host.state("again").versions["salt"] == 3
        assert [w.version for w in host.history("again")[-1].steps[0].writes] == [3]

    def test_an_input_that_was_left_out_can_be_given(self, host: Host) -> None:
        @node(output="greeting")
        def greet(name: str, word: str = "hello") -> str:
            return f"{word} {name}"

        flow = Flow("greet", [greet], durability="strong")
        host.run(flow, {"name": "x"}, run_id="run")
        fork = host.fork("run", inputs={"word": "bye"})
        with pytest.raises(InputsDiffer, match="word"):
            host.run(flow, {"name": "x"}, run_id=fork.run_id)
        assert host.run(flow, {"name": "x", "word": "bye"}, run_id=fork.run_id)["greeting"] == "bye x"

    def test_a_large_edit_becomes_an_artifact(self, sqlite_host: Host, path: Path) -> None:
        loop(sqlite_host)
        big = "x" * (1 << 20)
        assert go_on(sqlite_host, LOOP, "run", at=2, state={"name": big})["done"] == f"{big} 3"
        first = sqlite_host.history(sqlite_host.runs(parent="run")[0].run_id)[2]
        assert first.steps[0].writes[0].artifact is not None


KEYS: dict[str, str] = {}


@node(output="a", effects="effectful", idempotency_key="auto")
def automatic(x: int, ctx: Context) -> int:
    KEYS["auto"] = ctx.idempotency_key
    return x


@node(output="b", effects="effectful", idempotency_key="order-{x}-{run_id}")
def templated(x: int, ctx: Context) -> int:
    KEYS["template"] = ctx.idempotency_key
    return x


@node(output="c", effects="effectful", idempotency_key=lambda x, **_: f"made-{x}")
def computed(x: int, ctx: Context) -> int:
    KEYS["function"] = ctx.idempotency_key
    return x


@node(output="d")
def undeclared(x: int, ctx: Context) -> int:
    KEYS["undeclared"] = ctx.idempotency_key
    return x


EFFECTS = Flow("effects", [automatic, templated, computed, undeclared], durability="strong")


def keys_of(host: Host, run_id: str) -> dict[str, str]:
    KEYS.clear()
    assert host.resume(run_id, EFFECTS).status is Status.COMPLETED
    return dict(KEYS)


class TestKeys:
    @pytest.fixture
    def original(self, host: Host) -> dict[str, str]:
        KEYS.clear()
        host.run(EFFECTS, {"x": 1}, run_id="run")
        return dict(KEYS)

    def test_a_fork_has_keys_of_its_own(self, host: Host, original: dict[str, str]) -> None:
        keys = keys_of(host, host.fork("run", at=1, fork_id="fork").run_id)
        assert keys["template"] == "order-1-fork:fork"
        assert keys["function"] == "made-1:fork"
        assert not set(keys.values()) & set(original.values())

    def test_a_fork_may_keep_the_keys_of_the_original(self, host: Host, original: dict[str, str]) -> None:
        assert keys_of(host, host.fork("run", at=1, keep_keys=True).run_id) == original

    def test_a_fork_of_a_fork_has_keys_of_its_own_or_keeps_those_of_the_first_fork(
        self, host: Host, original: dict[str, str]
    ) -> None:
        forked = keys_of(host, host.fork("run", at=1, fork_id="fork").run_id)
        assert keys_of(host, host.fork("fork", at=2, keep_keys=True).run_id) == forked
        again = keys_of(host, host.fork("fork", at=2, fork_id="again").run_id)
        assert again["function"] == "made-1:again"
        assert not set(again.values()) & (set(forked.values()) | set(original.values()))

    def test_kept_keys_are_kept_through_any_number_of_forks(
        self, host: Host, original: dict[str, str]
    ) -> None:
        run_id, at = "run", 1
        for _ in range(3):
            info = host.fork(run_id, at=at, keep_keys=True)
            run_id, at = info.run_id, info.checkpoints
        assert keys_of(host, run_id) == original

    def test_a_keyframe_remembers_whose_keys_are_used(self, host: Host) -> None:
        seen: list[str] = []

        @node(output="last", effects="effectful", idempotency_key=lambda round, **_: f"last-{round}")
        def close(round: int, ctx: Context) -> int:
            seen.append(ctx.idempotency_key)
            return round

        flow = Flow("book", [write_page, again, close], entry="write_page", durability="strong")
        host.run(flow, {"round": 0, "salt": "ab"}, run_id="run")
        fork = host.fork("run", at=1, fork_id="fork")
        host.resume(fork.run_id, flow)
        assert any(c.keyframe for c in host.checkpoints("fork") if c.run_id == "fork")
        assert host.resume(host.fork("fork", state={"round": 20}, keep_keys=True).run_id, flow)["last"] == 20
        assert seen[-1] == "last-20:fork"

    def test_an_announced_key_is_forgotten_unless_keys_are_kept(
        self, host: Host, original: dict[str, str]
    ) -> None:
        announced = next(c.sequence for c in host.history("run") if c.steps[0].status is Status.RUNNING)
        for keep, pending in ((True, {"computed": "made-1"}), (False, {})):
            fork = host.fork("run", at=announced, keep_keys=keep)
            assert host.state(fork.run_id).idempotency.pending == pending


class TestLineage:
    def test_a_fork_at_a_shared_checkpoint_lies_beside_its_parent(self, host: Host) -> None:
        loop(host)
        fork = host.fork("run", at=5)
        host.resume(fork.run_id, LOOP)
        beside = host.fork(fork.run_id, at=3)
        assert (beside.parent_run_id, beside.forked_at) == ("run", 3)
        above = host.fork(fork.run_id, at=7)
        assert (above.parent_run_id, above.forked_at) == (fork.run_id, 7)

    def test_a_lineage_of_a_thousand_forks_is_read_whole(self, host: Host) -> None:
        loop(host)
        base = host.info("run").checkpoints
        run_id = "run"
        for k in range(1000):
            run_id = host.fork(run_id, state={"name": f"name {k}"}, fork_id=f"fork-{k}").run_id
        assert host.info(run_id).checkpoints == base + 1000
        assert host.state(run_id)["name"] == "name 999"
        assert host.state(run_id, base + 500)["name"] == "name 499"
        assert len(host.history(run_id)) == base + 1000
        assert host.latest(run_id).sequence == base + 1000
        assert go_on(host, LOOP, run_id, state={"n": 5})["done"] == "name 999 5"

    def test_checkpoints_tell_which_run_they_lie_in(self, host: Host) -> None:
        loop(host)
        fork = host.fork("run", at=2, fork_id="fork")
        host.resume(fork.run_id, LOOP)
        listed = host.checkpoints("fork")
        assert [c.sequence for c in listed] == list(range(1, 10))
        assert [c.run_id for c in listed] == ["run"] * 2 + ["fork"] * 7
        assert [c.trigger for c in listed[:4]] == ["admission", "step", "fork", "step"]
        assert listed[1].nodes == ("step",)
        assert (listed[-1], listed[-1].status) == (host.latest("fork"), Status.COMPLETED)
        assert host.checkpoints("fork", first=2, last=4) == listed[1:4]
        assert all(c.size > 100 and c.steps == 1 and not c.is_trimmed for c in listed)


class TestSharing:
    def test_a_thousand_forks_share_one_artifact(self, sqlite_host: Host, path: Path) -> None:
        @node(output="blob")
        def load(seed: int) -> bytes:
            return bytes([seed]) * (1 << 20)

        @node(output="size")
        def weigh(blob: bytes) -> int:
            return len(blob)

        flow = Flow("blobs", [load, weigh], durability=Durability("strong", blob_threshold=1024))
        sqlite_host.run(flow, {"seed": 7}, run_id="run")
        forks = [sqlite_host.fork("run", at=2).run_id for _ in range(1000)]
        for run_id in forks[::250]:
            assert sqlite_host.resume(run_id, flow)["size"] == 1 << 20
        files = [f for f in path.with_name("runs.db.artifacts").rglob("*") if f.is_file()]
        assert len(files) == 1

    def test_a_fork_takes_less_than_four_kilobytes(self, sqlite_host: Host, path: Path) -> None:
        sqlite_host.run(BOOK, {"round": 0, "salt": "ab"}, run_id="run")
        before = used_bytes(path)
        for _ in range(200):
            sqlite_host.fork("run")
        assert used_bytes(path) - before < 200 * 4096


def used_bytes(path: Path) -> int:
    database = apsw.Connection(str(path))
    try:
        return int(database.execute("PRAGMA page_count").fetchone()[0]) * PAGE_SIZE  # type: ignore[index]  # one row
    finally:
        database.close()


def sql(path: Path, statement: str) -> None:
    database = apsw.Connection(str(path))
    database.execute(statement)
    database.close()


class TestDigests:
    BASE = "position = (SELECT run_key << 32 FROM runs WHERE run_id = 'run') + 4"
    FORK = "position >> 32 = (SELECT run_key FROM runs WHERE run_id = 'fork')"

    @pytest.mark.parametrize(
        "statement",
        [
            f"UPDATE checkpoints SET body = CAST(replace(body, 'step', 'stop') AS BLOB) WHERE {BASE}",
            f"DELETE FROM checkpoints WHERE {BASE}",
            f"DELETE FROM checkpoints WHERE {FORK}",
            "UPDATE runs SET forked_at = 3 WHERE run_id = 'fork'",
            "UPDATE runs SET forked_at = 5 WHERE run_id = 'fork'",
            "UPDATE runs SET forked_at = NULL WHERE run_id = 'fork'",
            "UPDATE runs SET parent_run_id = 'twin' WHERE run_id = 'fork'",
            "UPDATE runs SET parent_run_id = 'gone' WHERE run_id = 'fork'",
            "UPDATE runs SET parent_run_id = 'fork' WHERE run_id = 'fork'",
            f"UPDATE checkpoints SET body = (SELECT body FROM checkpoints WHERE {BASE}) WHERE {FORK}",
        ],
    )
    def test_what_was_altered_at_the_boundary_is_found_out(self, path: Path, statement: str) -> None:
        url = f"sqlite:///{path}"
        with Host(url) as host:
            loop(host)
            loop(host, "twin")
            host.fork("run", at=4, fork_id="fork")
            assert len(host.history("fork")) == 5
        sql(path, statement)
        with Host(url) as host:
            for ask in (
                lambda: host.state("fork"),
                lambda: host.history("fork"),
                lambda: host.checkpoints("fork"),
                lambda: host.resume("fork", LOOP),
            ):
                with pytest.raises(StateCorrupted):
                    ask()
