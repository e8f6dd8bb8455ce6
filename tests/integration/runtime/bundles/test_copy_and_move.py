"""Runs that are copied or moved from one store to another, whatever happens meanwhile."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from everstep import Flow, Host, KeyRing, Status, node, notify, wait
from everstep.errors import BadRequest, ValueNotStorable, WaitClosed
from everstep.registry import Opened, open_store
from everstep.results import Copied
from everstep.testing import ManualClock
from everstep.testing.killing import Crashed, Killer, crash, killing, lose_reply
from tests.integration.runtime.bundles.carried import ASK, CRAWL, GIVEN, LONG, START
from tests.servers import warm

CALLS: list[str] = []


@node(output="sent", effects="effectful", idempotency_key="auto")
def send(agreed: Any) -> str:
    CALLS.append("send")
    return "sent"


@node(output="page", persist="ref")
def fetch(user: str) -> str:
    return "a long page " * 1000


@node(output="never")
def give_up(user: str) -> str:
    raise ValueError(user)


@node(output="page", persist="inline")
def fetch_inline(user: str) -> str:
    return "a long page " * 1000


ORDER = Flow("order", [fetch, wait.approval("agree", prompt="May we?", output="agreed"), send])
INLINE = Flow("inline", [fetch_inline, wait.approval("agree", prompt="May we?", output="agreed"), send])


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START, auto=True)


@pytest.fixture
def here(tmp_path: Path, clock: ManualClock) -> Iterator[Host]:
    with Host(f"sqlite:///{tmp_path}/here.db", clock=clock) as host:
        yield host


@pytest.fixture(params=["sqlite", "postgres", "redis", "file"])
def to(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/there.db"
    if request.param == "file":
        return f"file://{tmp_path}/there"
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def file(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/there.db"


def outcomes(found: list[Copied]) -> dict[str, str]:
    return {one.run_id: one.outcome for one in found}


def digests(host: Host, run_id: str) -> list[str]:
    return [record.digest for record in host.history(run_id)]


class TestCopying:
    def test_everything_is_there_as_it_was(self, here: Host, to: str, clock: ManualClock) -> None:
        here.run(CRAWL, GIVEN, run_id="A17")
        here.run(LONG, {"text": "", "round": 0}, run_id="L")
        here.retention.clean_up("L", keep=2)
        here.fork("A17", at=2, fork_id="B")
        here.resume("B", CRAWL)
        here.run(ORDER, {"user": "ann"}, run_id="H")
        found = here.transfer.copy(to)
        assert outcomes(found) == dict.fromkeys(("A17", "L", "B", "H"), "copied")
        with Host(to, clock=clock) as there:
            for one in found:
                assert digests(there, one.run_id) == digests(here, one.run_id)
                assert digests(there, one.run_id)[-1] == one.digest
                assert dict(there.state(one.run_id)) == dict(here.state(one.run_id))
                assert there.storage.verify(one.run_id)[0].is_sound
            assert there.waits("H")[0].id == here.waits("H")[0].id
        assert outcomes(here.transfer.copy(to)) == dict.fromkeys(("A17", "L", "B", "H"), "there")

    def test_and_back_again(self, here: Host, to: str, tmp_path: Path, clock: ManualClock) -> None:
        here.run(CRAWL, GIVEN, run_id="A17")
        before = digests(here, "A17")
        assert outcomes(here.transfer.copy(to, move=True)) == {"A17": "moved"}
        assert here.runs() == []
        with Host(to, clock=clock) as there:
            assert outcomes(there.transfer.copy(here.url, ["A17"], move=True)) == {"A17": "moved"}
            assert there.runs() == []
        with Host(here.url, clock=clock) as again:
            assert digests(again, "A17") == before
            assert len(again.state("A17")["page"]) == 12_000

    def test_its_artifacts_are_no_orphans_there_and_go_with_it(
        self, here: Host, to: str, tmp_path: Path, clock: ManualClock
    ) -> None:
        here.run(CRAWL, GIVEN, run_id="A17")
        here.transfer.copy(to)
        clock.advance(10 * 86_400)
        with Host(to, clock=clock) as there:
            assert there.retention.gc().artifacts.removed == 0
            assert len(there.state("A17")["page"]) == 12_000
            there.transfer.copy(f"sqlite:///{tmp_path}/further.db")
            clock.advance(10 * 86_400)
            assert there.retention.erase("A17").artifacts == 1
        with Host(f"sqlite:///{tmp_path}/further.db", clock=clock) as further:
            assert further.retention.gc().artifacts.removed == 0
            assert len(further.state("A17")["page"]) == 12_000

    def test_a_moved_run_goes_on_there(self, here: Host, to: str, clock: ManualClock) -> None:
        CALLS.clear()
        token = here.run(ORDER, {"user": "ann"}, run_id="H").waits[0].token
        assert outcomes(here.transfer.copy(to, ["H"], move=True)) == {"H": "moved"}
        with Host(to, clock=clock) as there:
            there.answer(token, {"approved": True})
            assert there.work([ORDER], until_idle=True).completed == 1
            assert there.state("H")["sent"] == "sent"
        assert CALLS == ["send"]

    def test_who_is_told_comes_along_and_hears_of_what_was_not_sent(
        self, here: Host, to: str, clock: ManualClock
    ) -> None:
        got: list[Any] = []
        tells = notify.Tell("ops", on=["failed", "cancelled"], overdue="2h")
        failing = Flow("failing", [give_up], notify=tells)
        waiting = Flow("waiting", [wait.approval("agree", output="agreed")], notify=tells)
        here.run(failing, {"user": "ann"}, run_id="F")
        here.run(waiting, run_id="W")
        assert [one.state for one in here.notices.find(run_id="F")] == ["pending"]
        assert outcomes(here.transfer.copy(to, ["F", "W"], move=True)) == {"F": "moved", "W": "moved"}
        assert here.notices.find() == []
        with Host(to, clock=clock, notifiers={"ops": got.append}) as there:
            there.notices.send()
            assert [(notice.run_id, notice.occasion) for notice in got] == [("F", "failed")]
            clock.advance(3 * 3600)
            there.notices.send()
            there.cancel("W")
            there.notices.send()
        assert [notice.occasion for notice in got] == ["failed", "overdue", "cancelled"]

    def test_a_run_that_was_copied_stays_until_its_notices_are_sent(
        self, here: Host, file: str, clock: ManualClock
    ) -> None:
        failing = Flow("failing", [give_up], notify="ops")
        here.run(failing, {"user": "ann"}, run_id="F")
        here.transfer.copy(file, ["F"])
        with Host(file, clock=clock) as there:
            assert there.notices.find() == []  # who has the run tells of it
        [copied] = here.transfer.copy(file, ["F"], move=True)
        assert "notices that are still to be sent" in copied.problem
        assert here.info("F").status is Status.FAILED

    def test_a_copy_of_an_unfinished_run_waits_to_be_named(
        self, here: Host, file: str, clock: ManualClock
    ) -> None:
        here.start(CRAWL, GIVEN, run_id="A17")
        here.transfer.copy(file)
        with Host(file, clock=clock) as there:
            assert there.work([CRAWL], until_idle=True).completed == 0
            assert there.info("A17").needs_repair is not None
            assert there.resume("A17", CRAWL)["size"] == 12_002
        assert here.work([CRAWL], until_idle=True).completed == 1

    def test_what_was_copied_before_is_moved_with_what_came_since(
        self, here: Host, to: str, clock: ManualClock
    ) -> None:
        here.run(ORDER, {"user": "ann"}, run_id="H")
        here.start(CRAWL, GIVEN, run_id="R")
        assert outcomes(here.transfer.copy(to)) == {"H": "copied", "R": "copied"}
        here.answer(here.waits("H")[0].id, {"approved": True, "comment": "since"})
        assert outcomes(here.transfer.copy(to, move=True)) == {"H": "moved", "R": "moved"}
        with Host(to, clock=clock) as there:
            assert there.work([ORDER, CRAWL], until_idle=True).completed == 2
            assert there.state("H")["agreed"].comment == "since"

    def test_what_a_fork_comes_from_comes_along_and_rests(
        self, here: Host, file: str, clock: ManualClock
    ) -> None:
        here.run(ORDER, {"user": "ann"}, run_id="H")
        here.fork("H", fork_id="F")
        assert outcomes(here.transfer.copy(file, ["F"], move=True)) == {"F": "moved"}
        assert [info.run_id for info in here.runs()] == ["H"]
        with Host(file, clock=clock) as there:
            assert {info.run_id: info.needs_repair is None for info in there.runs()} == {
                "F": True,
                "H": False,
            }

    def test_what_others_go_on_from_stays_here_when_it_is_moved(self, here: Host, file: str) -> None:
        here.run(CRAWL, GIVEN, run_id="A17")
        here.fork("A17", at=2, fork_id="B")
        [moved] = here.transfer.copy(file, ["A17"], move=True)
        assert (moved.outcome, "goes on from it" in moved.problem) == ("copied", True)
        assert outcomes(here.transfer.copy(file, move=True)) == {"A17": "moved", "B": "moved"}
        assert here.runs() == []

    def test_some_are_chosen_by_flow_and_status(self, here: Host, file: str) -> None:
        here.run(CRAWL, GIVEN, run_id="A17")
        here.run(ASK, GIVEN, run_id="H")
        here.start(CRAWL, GIVEN, run_id="R")
        assert outcomes(here.transfer.copy(file, flow="crawl", status="completed")) == {"A17": "copied"}
        assert outcomes(here.transfer.copy(file, flow="ask")) == {"H": "copied"}

    def test_one_that_cannot_be_copied_stops_no_other(
        self, here: Host, file: str, clock: ManualClock
    ) -> None:
        for run_id in ("A", "B", "C"):
            here.run(CRAWL, GIVEN, run_id=run_id)
        with Host(file, clock=clock) as there:
            there.run(CRAWL, {**GIVEN, "user": "bob"}, run_id="B")
        found = here.transfer.copy(file)
        assert outcomes(found) == {"A": "copied", "B": "failed", "C": "copied"}
        assert "another run is called 'B'" in found[1].problem
        assert outcomes(here.transfer.copy(file, ["unknown"])) == {"unknown": "failed"}

    def test_an_older_copy_that_was_not_touched_is_replaced(
        self, here: Host, to: str, clock: ManualClock
    ) -> None:
        here.run(ORDER, {"user": "ann"}, run_id="H")
        assert outcomes(here.transfer.copy(to)) == {"H": "copied"}
        here.answer(here.waits("H")[0].id, {"approved": True})
        here.resume("H", ORDER)
        assert outcomes(here.transfer.copy(to)) == {"H": "copied"}
        with Host(to, clock=clock) as there:
            assert digests(there, "H") == digests(here, "H") and there.storage.verify("H")[0].is_sound
            assert there.waits("H") == []

    @pytest.mark.parametrize("touched", ["resumed", "answered", "forked", "pinned"])
    def test_an_older_copy_that_may_be_in_use_is_left_alone(
        self, here: Host, file: str, clock: ManualClock, touched: str
    ) -> None:
        here.run(ORDER, {"user": "ann"}, run_id="H")
        here.transfer.copy(file)
        with Host(file, clock=clock) as there:
            if touched == "answered":
                there.answer(there.waits("H")[0].id, {"approved": False})
            elif touched == "forked":
                there.fork("H", fork_id="mine")
            elif touched == "pinned":
                there.retention.pin("H", "mine")
            else:
                there.resume("H", ORDER)
            before = (there.history("H"), there.waits("H", status=None)[0].status)
            here.answer(here.waits("H")[0].id, {"approved": True})
            here.resume("H", ORDER)
            [found] = here.transfer.copy(file)
            assert found.outcome == "failed" and "older state" in found.problem
            assert (there.history("H"), there.waits("H", status=None)[0].status) == before

    def test_a_run_with_an_owner_is_not_taken_from_it(
        self, tmp_path: Path, clock: ManualClock, file: str
    ) -> None:
        url = f"sqlite:///{tmp_path}/here.db"
        found: list[Copied] = []

        @node(output="x")
        def look(user: str) -> int:
            with Host(url, clock=clock) as other:
                found.extend(other.transfer.copy(file, ["A17"], move=True))
            return 1

        with Host(url, clock=clock) as here:
            assert here.run(Flow("look", [look]), {"user": "ann"}, run_id="A17")["x"] == 1
        assert found[0].outcome == "failed" and "A17" in found[0].problem

    def test_a_mark_stays_on_a_run_that_was_set_aside(
        self, here: Host, file: str, clock: ManualClock
    ) -> None:
        here.start(CRAWL, GIVEN, run_id="A17")
        here.transfer.copy(file)
        with Host(file, clock=clock) as there:
            why = there.info("A17").needs_repair
            there.transfer.copy(f"{file}.further", ["A17"])
            assert there.info("A17").needs_repair == why is not None
            assert not there.info("A17").is_driven

    def test_a_channel_that_is_kept_elsewhere_is_named(
        self, tmp_path: Path, redis_url: str, file: str
    ) -> None:
        with Host(f"sqlite:///{tmp_path}/beside.db", channel=redis_url) as host:
            host.run(CRAWL, GIVEN, run_id="A17", channel={"key": 1})
            assert host.transfer.copy(file)[0].elsewhere == ("channel",)
            assert host.transfer.export("A17", tmp_path / "x.everstep").elsewhere == ("channel",)

    def test_what_was_copied_can_be_encrypted_with_another_key(self, tmp_path: Path, redis_url: str) -> None:
        old, new = {"2025": b"1" * 32}, {"2026": b"2" * 32}
        with Host(f"sqlite:///{tmp_path}/here.db", encrypt=KeyRing(old)) as here:
            here.run(CRAWL, GIVEN, run_id="A17")
            here.transfer.copy(redis_url)
        with Host(redis_url, encrypt=KeyRing(new | old)) as there:
            [done] = there.storage.rekey()
            assert (done.artifacts, there.storage.rekey()[0].has_changed) == (1, False)
        with Host(redis_url, encrypt=KeyRing(new)) as there:
            assert len(there.state("A17")["page"]) == 12_000

    @pytest.mark.parametrize("there_has", ["2026", None], ids=["another-key", "clear"])
    @pytest.mark.parametrize("way", ["copied", "imported"])
    def test_an_equal_artifact_that_is_there_stays_readable(
        self, tmp_path: Path, file: str, way: str, there_has: str | None
    ) -> None:
        ours = KeyRing({there_has: b"2" * 32}) if there_has is not None else None
        with Host(file, encrypt=ours) as there:
            there.run(CRAWL, GIVEN, run_id="theirs")
        with Host(f"sqlite:///{tmp_path}/here.db", encrypt=KeyRing({"2025": b"1" * 32})) as here:
            here.run(CRAWL, GIVEN, run_id="A17")
            here.transfer.export("A17", tmp_path / "A17.everstep")
            copied = here.transfer.copy(file) if way == "copied" else []
        with Host(file, encrypt=ours) as there:
            if way == "copied":
                assert ("2026" if there_has else "") in copied[0].problem
                assert copied[0].outcome == ("failed" if there_has else "copied")
            else:
                there.transfer.import_(tmp_path / "A17.everstep")
            assert len(there.state("theirs")["page"]) == 12_000

    def test_what_is_there_encrypted_is_not_replaced_by_what_is_not(self, here: Host, file: str) -> None:
        with Host(file, encrypt=KeyRing({"2026": b"2" * 32})) as there:
            there.run(CRAWL, GIVEN, run_id="theirs")
        here.run(CRAWL, GIVEN, run_id="A17")
        [found] = here.transfer.copy(file)
        assert found.outcome == "failed" and "2026" in found.problem

    def test_to_the_same_store_is_refused(self, here: Host) -> None:
        with pytest.raises(BadRequest, match="the same"):
            here.transfer.copy(here.url)

    def test_a_run_that_goes_on_before_it_is_erased_stays(
        self, tmp_path: Path, clock: ManualClock, file: str
    ) -> None:
        url = f"sqlite:///{tmp_path}/here.db"
        with Host(url, clock=clock) as other:
            fails = Flow("fails", [give_up], durability="strong")
            other.run(fails, {"user": "ann"}, run_id="A17")

            def resume(point: str) -> None:
                other.resume("A17", fails)

            killer = Killer("before erase 1", act=resume)
            with Host(killing(open_store(url, clock), by=killer), clock=clock) as here:
                [found] = here.transfer.copy(file, move=True)
            assert (found.outcome, "has gone on" in found.problem) == ("copied", True)
            assert other.info("A17").status == "failed"

    def test_an_answer_that_comes_before_it_is_erased_goes_with_it(
        self, tmp_path: Path, clock: ManualClock, to: str
    ) -> None:
        url = f"sqlite:///{tmp_path}/here.db"
        with Host(url, clock=clock) as other:
            other.run(ORDER, {"user": "ann"}, run_id="H")

            def answer(point: str) -> None:
                other.answer(other.waits("H")[0].id, {"approved": True, "comment": "in time"})

            killer = Killer("before set_aside 1", act=answer)
            with Host(killing(open_store(url, clock), by=killer), clock=clock) as here:
                assert outcomes(here.transfer.copy(to, move=True)) == {"H": "moved"}
        with Host(to, clock=clock) as there:
            assert there.work([ORDER], until_idle=True).completed == 1
            assert there.state("H")["agreed"].comment == "in time"

    def test_what_is_said_to_a_run_that_was_moved_is_refused_and_not_lost(
        self, here: Host, file: str, clock: ManualClock
    ) -> None:
        here.run(ORDER, {"user": "ann"}, run_id="H")
        here.fork("H", fork_id="F")  # so that it cannot be erased here
        assert "goes on from it" in here.transfer.copy(file, ["H"], move=True)[0].problem
        [asked] = here.waits("H")
        with pytest.raises(WaitClosed, match=r"moved to .*there\.db"):
            here.answer(asked.id, {"approved": True})
        with pytest.raises(BadRequest, match=r"moved to .*there\.db"):
            here.cancel("H")
        with pytest.raises(BadRequest, match=r"moved to .*there\.db"):
            here.run(ORDER, {"user": "ann"}, run_id="H")
        with Host(file, clock=clock) as there:
            there.answer(asked.id, {"approved": True})
            assert there.work([ORDER], until_idle=True).completed == 1

    def test_it_tells_what_it_does(self, here: Host, file: str) -> None:
        here.run(CRAWL, GIVEN, run_id="A17")
        runs: list[Copied] = []
        sizes: list[int] = []
        here.transfer.copy(file, on_run=runs.append, on_progress=lambda progress: sizes.append(progress.size))
        assert [one.run_id for one in runs] == ["A17"] and sizes[-1] > 12_000


def prepared(tmp_path: Path, clock: ManualClock) -> Opened:
    """Return a store with a halted run with an artifact, one that completed, and its fork."""
    opened = open_store(f"sqlite:///{tmp_path}/here.db", clock)
    host = Host(opened, clock=clock)
    host.run(CRAWL, GIVEN, run_id="A17")
    host.fork("A17", at=2, fork_id="B")
    host.run(ORDER, {"user": "ann"}, run_id="H")
    host.close()
    return open_store(f"sqlite:///{tmp_path}/here.db", clock)


class TestCrashes:
    """A copy is killed at every write to either store, and then done again."""

    @pytest.mark.parametrize("move", [False, True], ids=["copy", "move"])
    def test_killed_at_any_write_and_done_again_it_comes_to_the_same_end(
        self, tmp_path: Path, move: bool
    ) -> None:
        seen = Killer(None)
        self.carried(tmp_path / "whole", seen, move=move)
        kinds = {point.rpartition(" ")[0].partition(" ")[2] for point in seen.points}
        wanted = {"blob", "lease", "restore"} | ({"set_aside", "erase"} if move else {"release_lease"})
        assert wanted <= kinds
        for number in range(1, len(seen.points) + 1):
            folder = tmp_path / str(number)
            with pytest.raises(Crashed):
                self.carried(folder, Killer(number, act=crash), move=move)
            self.at_no_time_in_two_places(folder)
            self.carried(folder, Killer(None), move=move, hours=1)
            self.has_arrived(folder, move=move)

    @pytest.mark.parametrize("move", [False, True], ids=["copy", "move"])
    def test_a_lost_reply_to_any_write_costs_nothing(self, tmp_path: Path, move: bool) -> None:
        seen = Killer(None)
        self.carried(tmp_path / "whole", seen, move=move)
        for point in (point for point in seen.points if point.startswith("after")):
            folder = tmp_path / point.replace(" ", "-")
            self.carried(folder, Killer(point, act=lose_reply), move=move)
            self.at_no_time_in_two_places(folder)
            self.carried(folder, Killer(None), move=move, hours=1)
            self.has_arrived(folder, move=move)

    def test_killed_once_it_has_arrived_and_killed_again_it_is_never_in_two_places(
        self, tmp_path: Path
    ) -> None:
        for number in range(1, 100):
            folder = tmp_path / str(number)
            with pytest.raises(Crashed):
                self.carried(folder, Killer("before erase 1", act=crash), move=True)
            again = Killer(number, act=crash)
            try:
                self.carried(folder, again, move=True, hours=1)
            except Crashed:
                self.at_no_time_in_two_places(folder)
                self.carried(folder, Killer(None), move=True, hours=2)
                self.has_arrived(folder, move=True)
            else:
                assert number > 4  # or there was nothing to be killed at
                return

    def carried(self, folder: Path, killer: Killer, *, move: bool, hours: int = 0) -> None:
        folder.mkdir(exist_ok=True)
        # Later, so that a lease which a dead process left is over.
        clock = ManualClock(START + timedelta(hours=hours), auto=True)
        opened = open_store(f"sqlite:///{folder}/here.db", clock) if hours else prepared(folder, clock)
        there = open_store(f"sqlite:///{folder}/there.db", clock)
        host = Host(killing(opened, by=killer), clock=clock)
        try:
            found = host.transfer.copy(killing(there, by=killer), move=move)
            if killer.at is None:
                assert not [one.problem for one in found if one.outcome == "failed"]
        finally:
            killer.at = None
            killer._is_over = False
            host.close()
            Host(there).close()

    def at_no_time_in_two_places(self, folder: Path) -> None:
        """Workers of both stores look for work; together they find the run that may go on once."""
        later = datetime(2027, 1, 1, tzinfo=UTC)
        found = []
        for name in ("here", "there"):
            with Host(f"sqlite:///{folder}/{name}.db", clock=ManualClock(later, auto=True)) as host:
                found += [i.run_id for i in host.runs() if i.run_id == "H" and i.needs_repair is None]
        assert len(found) <= 1, found

    def has_arrived(self, folder: Path, *, move: bool) -> None:
        clock = ManualClock(datetime(2027, 1, 2, tzinfo=UTC), auto=True)
        with Host(f"sqlite:///{folder}/there.db", clock=clock) as there:
            assert {one.run_id: one.problem for one in there.storage.verify()} == dict.fromkeys(
                ("H", "B", "A17"), ""
            )
            assert len(there.state("A17")["page"]) == 12_000
            assert there.info("H").status is Status.HALTED and there.waits("H")
        with Host(f"sqlite:///{folder}/here.db", clock=clock) as here:
            left = {info.run_id for info in here.runs()}
            assert left == (set() if move else {"A17", "B", "H"})
            for run_id in left:
                assert not here.info(run_id).is_driven and here.info(run_id).needs_repair is None
                assert here.storage.verify(run_id)[0].is_sound


CHILD = """
import sys
from everstep import Host
from everstep.registry import open_store
from everstep.runtime.system import SystemClock
from everstep.testing.killing import Killer, killing

here, there, point = sys.argv[1:]
clock, killer = SystemClock(), Killer(point)
there = killing(open_store(there, clock), by=killer)
Host(killing(open_store(here, clock), by=killer)).transfer.copy(there, move=True)
"""


@pytest.mark.parametrize("point", ["after lease 1", "after set_aside 1", "after restore 1", "before erase 1"])
def test_after_kill_9_the_same_command_ends_what_was_begun(tmp_path: Path, point: str) -> None:
    here, there = f"sqlite:///{tmp_path}/here.db", f"sqlite:///{tmp_path}/there.db"
    with Host(here) as host:
        host.run(ORDER, {"user": "ann"}, run_id="H")
        host.run(CRAWL, GIVEN, run_id="A17")
    died = warm.run([sys.executable, "-c", CHILD, here, there, point], check=False)
    assert died.returncode == -signal.SIGKILL
    with Host(here) as host:
        # No lease is waited for: its owner is gone.
        assert outcomes(host.transfer.copy(there, move=True)) == {"H": "moved", "A17": "moved"}
        assert host.runs() == []
    with Host(there) as other:
        assert all(one.is_sound for one in other.storage.verify()) and other.waits("H")


@pytest.mark.parametrize("to", ["none:", "memory:"])
def test_a_target_that_keeps_nothing_is_refused(here: Host, to: str) -> None:
    here.run(CRAWL, GIVEN, run_id="A17")
    with pytest.raises(BadRequest, match="keeps nothing"):
        here.transfer.copy(to, move=True)
    assert [info.run_id for info in here.runs()] == ["A17"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
@pytest.mark.parametrize("move", [False, True])
def test_a_record_larger_than_the_other_store_takes_is_refused_by_name_and_stays(
    here: Host,
    kind: str,
    move: bool,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is sent all the same makes a server hang up, as if it were out of reach."""
    to = f"sqlite:///{tmp_path}/there.db" if kind == "sqlite" else request.getfixturevalue(f"{kind}_url")
    monkeypatch.setattr(f"everstep.stores.{kind}.restoring.MOST", 1000)
    here.run(INLINE, {"user": "ann"}, run_id="H")
    here.transfer.export("H", tmp_path / "H.everstep")
    [found] = here.transfer.copy(to, move=move)
    assert found.outcome == "failed"
    assert "a record of" in found.problem and "too large" in found.problem
    with Host(to) as there:
        with pytest.raises(ValueNotStorable, match="too large"):
            there.transfer.import_(tmp_path / "H.everstep")
        assert there.runs() == []
    here.answer(here.waits("H")[0].id, {"approved": True})
    assert here.resume("H", INLINE).status is Status.COMPLETED


@pytest.mark.parametrize("carries", ["copy", "import"])
def test_artifacts_that_were_erased_there_before_their_run_came_are_brought_again(
    here: Host, carries: str, tmp_path: Path, clock: ManualClock
) -> None:
    to = f"sqlite:///{tmp_path}/there.db"
    here.run(CRAWL, GIVEN, run_id="A17")
    here.transfer.export("A17", tmp_path / "A17.everstep")
    with Host(to, clock=clock) as there:
        there.run(CRAWL, GIVEN, run_id="same")

        def take_long(_: object) -> None:
            clock.advance(4000)
            if there.runs():
                assert there.retention.erase("same").artifacts == 1

        if carries == "copy":
            here.transfer.copy(to, on_progress=take_long)
        else:
            there.transfer.import_(tmp_path / "A17.everstep", on_progress=take_long)
        assert len(there.state("A17")["page"]) == 12_000
        assert there.storage.verify("A17")[0].is_sound
