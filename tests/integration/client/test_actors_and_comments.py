"""Who did something to a run, and why: kept with what the act writes, and shown wherever that is."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

from everstep import Context, Flow, Host, KeyRing, node, wait
from everstep.checkpoints import CheckpointManager
from everstep.codec.wire import wire as as_json
from everstep.errors import AnswerInvalid, BadRequest
from everstep.model.acts import Known
from everstep.results import Act, Event
from everstep.testing.clock import ManualClock

ADA = Act("ada", "ticket 4711")


@pytest.fixture
def host(url: str) -> Any:
    with Host(url, clock=ManualClock()) as opened:
        yield opened


@node(output="priced")
def price(region: str) -> str:
    return f"price in {region}"


ASKING = Flow("asking", [wait.question("region", answer_type=str), price])


def acts(host: Host, run_id: str) -> list[tuple[str, Act]]:
    """Return who did what to a run, by trigger and by step."""
    found: list[tuple[str, Act]] = []
    for record in host.history(run_id):
        found += [(record.trigger.value, record.act)] if record.act is not None else []
        found += [(step.path, step.act) for step in record.steps if step.act is not None]
    return found


def test_the_first_record_says_who_started_a_run_and_why(host: Host) -> None:
    host.run(Flow("f", [price]), {"region": "north"}, run_id="r", by="ada", comment="ticket 4711")
    host.start(Flow("f", [price]), {"region": "north"}, run_id="s", by="grace")
    assert acts(host, "r") == [("admission", ADA)]
    assert acts(host, "s") == [("admission", Act("grace"))]


def test_the_step_that_takes_an_answer_says_who_gave_it_and_why(host: Host) -> None:
    [asked] = host.run(ASKING, run_id="r").waits
    settled = host.answer(asked.id, "north", by="ada", comment="ticket 4711")
    assert (settled.answer, settled.act) == ("north", ADA)
    assert host.resume("r", ASKING)["priced"] == "price in north"
    assert acts(host, "r") == [("region", ADA)]
    assert host.wait(asked.id).act == ADA  # also once its run has gone on


def test_nothing_is_kept_where_it_is_not_known_who(host: Host) -> None:
    [asked] = host.run(ASKING, run_id="r").waits
    assert host.answer(asked.id, "north").act is None
    host.resume("r", ASKING)
    assert acts(host, "r") == []


def test_what_an_approval_says_of_its_approver_is_who_gave_it(host: Host) -> None:
    flow = Flow("f", [wait.approval("ok")])
    [first] = host.run(flow, run_id="a").waits
    host.answer(first.id, {"approved": True, "approver": "ada", "comment": "ticket 4711"})
    [second] = host.run(flow, run_id="b").waits
    host.answer(second.id, {"approved": True}, by="ada", comment="ticket 4711")
    for run_id in ("a", "b"):
        said = host.resume(run_id, flow)["ok"]
        assert (said.approver, said.comment) == ("ada", "ticket 4711")
        assert acts(host, run_id) == [("ok", ADA)]


def test_an_approval_given_in_two_names_is_refused(host: Host) -> None:
    [asked] = host.run(Flow("f", [wait.approval("ok")]), run_id="r").waits
    with pytest.raises(AnswerInvalid, match="'grace' in the answer, 'ada' beside it"):
        host.answer(asked.id, {"approved": True, "approver": "grace"}, by="ada")
    assert host.wait(asked.id).status == "open"


def test_a_message_says_who_sent_it(host: Host) -> None:
    [asked] = host.run(ASKING, run_id="r").waits
    host.deliver({"wait_id": asked.id, "answer": "north", "by": "ada", "comment": "ticket 4711"}, [ASKING])
    assert acts(host, "r") == [("region", ADA)]
    [asked] = host.run(ASKING, run_id="s").waits
    host.deliver({"wait_id": asked.id, "answer": "north"}, [ASKING], by="ada", comment="ticket 4711")
    assert acts(host, "s") == [("region", ADA)]


def test_a_resume_is_signed_by_the_next_record_that_it_writes(host: Host) -> None:
    fails = [True]

    @node
    def flaky() -> int:
        if fails[0]:
            raise ValueError("no")
        return 1

    flow = Flow("f", [flaky])
    host.run(flow, run_id="r")
    fails[0] = False
    host.resume("r", flow, by="ada", comment="ticket 4711")
    assert acts(host, "r") == [("resume", ADA)]


def test_a_fork_says_who_made_it(host: Host) -> None:
    host.run(Flow("f", [price]), {"region": "north"}, run_id="r")
    host.fork("r", inputs={"region": "south"}, fork_id="s", by="ada", comment="ticket 4711")
    assert acts(host, "s") == [("fork", ADA)]


def test_a_run_without_an_owner_says_who_cancelled_it(host: Host) -> None:
    host.run(ASKING, run_id="r")
    assert host.cancel("r", by="ada", comment="ticket 4711") == "cancelled"
    assert acts(host, "r") == [("cancelled", ADA)]


def test_a_run_that_another_process_drives_says_who_cancelled_it(url: str) -> None:
    if url == "memory:":
        pytest.skip("no other process sees it")
    begun, told = threading.Event(), threading.Event()

    @node(output="works")
    def works(ctx: Context) -> int:
        begun.set()
        told.wait(20)
        return 1

    @node
    def after(works: int) -> int:
        return works

    flow = Flow("f", [works, after], durability="strong")
    with Host(url) as driving, Host(url) as other:
        thread = threading.Thread(target=lambda: driving.run(flow, run_id="r"))
        thread.start()
        assert begun.wait(20)
        assert other.cancel("r", by="ada", comment="ticket 4711") == "running"
        told.set()
        thread.join(20)
        assert other.info("r").status == "cancelled"
        assert acts(other, "r") == [("cancelled", ADA)]


def test_a_later_cancel_is_not_signed_with_an_earlier_name(host: Host) -> None:
    for run_id, by in (("r", "ada"), ("s", None)):
        host.run(ASKING, run_id=run_id)
        host.cancel(run_id, by=by)
    assert [name for name, _ in acts(host, "r")] == ["cancelled"]
    assert acts(host, "s") == []


def test_who_settled_an_effect_that_never_reported_is_kept(host: Host) -> None:
    class Died(BaseException):
        pass

    dies = [True]

    @node(effects="effectful", on_unknown="stop", idempotency_key="auto")
    def charge() -> str:
        if dies[0]:
            raise Died
        return "paid"

    flow = Flow("f", [charge], durability="strong")
    with pytest.raises(Died):
        host.run(flow, run_id="r")
    dies[0] = False
    host.resume("r", flow)
    host.waiting.settle("r", "charge", done="paid", by="ada", comment="ticket 4711")
    assert host.resume("r", flow).status == "completed"
    assert acts(host, "r") == [("charge", ADA)]


def test_pins_and_tombstones_say_who_wanted_them(host: Host) -> None:
    host.run(Flow("f", [price]), {"region": "north"}, run_id="r")
    pinned = host.retention.pin("r", "the outage of May", by="ada", comment="ticket 4711")
    assert (pinned.pinned, pinned.pinned_by) == ("the outage of May", ADA)
    host.retention.unpin("r", by="grace")
    host.retention.erase("r", by="ada", comment="ticket 4711")
    [gone] = host.retention.removed()
    assert gone.act == ADA
    assert {(line.what, line.act) for line in host.retention.removals()} == {
        ("run", ADA),
        ("unpin", Act("grace")),
    }


def test_a_reason_cannot_pretend_to_carry_a_name(host: Host) -> None:
    host.run(Flow("f", [price]), {"region": "north"}, run_id="r")
    pinned = host.retention.pin("r", 'kept\n{"by":"the boss","how":"authenticated"}')
    assert pinned.pinned_by is None


def test_who_imported_a_run_stands_in_the_log(host: Host, tmp_path: Any) -> None:
    host.run(Flow("f", [price]), {"region": "north"}, run_id="r")
    host.transfer.export("r", tmp_path / "r.everstep")
    host.retention.erase("r")
    with Host("memory:") as other:
        other.transfer.import_(tmp_path / "r.everstep", by="ada", comment="ticket 4711")
        assert [(line.what, line.run_id, line.act) for line in other.retention.removals()] == [
            ("import", "r", ADA)
        ]


@pytest.mark.parametrize(
    "given",
    [
        {"by": "x" * 201},
        {"comment": "x" * 4001},
        {"by": "ada\nroot"},
        {"by": "\x1b[31mada"},
        {"comment": "\x1b]0;title\x07"},
        {"by": "\u202eada"},
        {"by": "a\u200bda"},
        {"by": "a\u200dda"},
        {"by": "ada\u3164"},
        {"by": "ada\ufe0f"},
        {"by": "ad\u00ada"},
        {"by": "ada\U000e0061"},
        {"comment": "fine\u2028by me"},
        {"comment": "\u202dfine"},
        {"comment": "\u200ffine"},
        {"comment": "fine\U000e0041\U000e0042"},
        {"by": 7},
    ],
)
def test_names_and_comments_that_are_too_long_or_would_move_a_terminal_are_refused(
    host: Host, given: dict[str, Any]
) -> None:
    [asked] = host.run(ASKING, run_id="r").waits
    with pytest.raises(BadRequest):
        host.answer(asked.id, "north", **given)
    assert host.wait(asked.id).status == "open"


def test_names_and_comments_are_kept_as_they_are_written(host: Host) -> None:
    [asked] = host.run(ASKING, run_id="r").waits
    comment = (
        "\u06a9\u062a\u0627\u0628\u200c\u0647\u0627 \U0001f469\u200d\U0001f4bb \u2764\ufe0f\n\tf\u00fcr dich"
    )
    host.answer(asked.id, "north", by="Zo\u00eb \u738b", comment=comment)
    act = host.wait(asked.id).act
    assert act is not None and (act.by, act.comment) == ("Zo\u00eb \u738b", comment)


def besides_audit(folder: Path) -> str:
    """Return all that is kept in a file but the audit log, which names who acts in plain text."""
    db = apsw.Connection(str(folder / "runs.db"))
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    kept = [row for name in tables if name != "audit" for row in db.execute(f'SELECT * FROM "{name}"')]
    db.close()
    assert len(kept) > 3
    return repr(kept)


def test_names_and_comments_are_encrypted_where_answers_are(tmp_path: Any) -> None:
    one, two = b"1" * 32, b"2" * 32
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url, encrypt=KeyRing({"one": one})) as host:
        [asked] = host.run(ASKING, run_id="r", by="Ada Lovelace", comment="a private reason").waits
        host.answer(asked.id, "north", by="Grace Hopper", comment="another private reason")
        host.resume("r", ASKING)
        found = acts(host, "r")
    assert [act.by for _, act in found] == ["Ada Lovelace", "Grace Hopper"]
    assert "Lovelace" not in besides_audit(tmp_path) and "Hopper" not in besides_audit(tmp_path)
    assert b"private" not in b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    with Host(url, encrypt=KeyRing({"two": two, "one": one}, active="two")) as host:
        host.storage.rekey()
    with Host(url, encrypt=KeyRing({"two": two})) as host:
        assert acts(host, "r") == found
        assert not host.storage.verify("r")[0].flaws


def test_everything_is_claimed_until_tokens_have_names(host: Host) -> None:
    host.run(Flow("f", [price]), {"region": "north"}, run_id="r", by="ada")
    [(_, act)] = acts(host, "r")
    assert act.how is Known.CLAIMED
    assert as_json(act) == {"by": "ada", "comment": None, "how": "claimed"}


def told(host: Host, run_id: str) -> list[tuple[str, str, Any]]:
    """Return who did what to a run as its events tell it."""
    events = host.events(run_id, live=False)
    return [(event.kind, event.node, event.data["act"]["by"]) for event in events if "act" in event.data]


def test_events_say_who_started_answered_and_cancelled(host: Host) -> None:
    [asked] = host.run(ASKING, run_id="r", by="ada").waits
    host.answer(asked.id, "north", by="grace", comment="the customer called")
    host.resume("r", ASKING)
    assert told(host, "r") == [
        ("run_started", "", "ada"),
        ("checkpoint", "", "ada"),
        ("step_completed", "region", "grace"),
    ]
    host.run(ASKING, run_id="s")
    host.cancel("s", by="ada", comment="ticket 4711")
    assert told(host, "s") == [("checkpoint", "", "ada"), ("run_ended", "", "ada")]
    last = list(host.events("s", live=False))[-1]
    assert last.data["act"] == {"by": "ada", "comment": "ticket 4711", "how": "claimed"}


def test_events_say_who_forked_and_resumed_and_not_that_they_ended_it(host: Host) -> None:
    host.run(Flow("f", [price]), {"region": "north"}, run_id="r")
    host.fork("r", inputs={"region": "south"}, fork_id="s", by="ada")
    host.resume("s", Flow("f", [price]), by="grace")
    kinds = [(kind, by) for kind, _, by in told(host, "s")]
    assert kinds == [("run_started", "ada"), ("checkpoint", "ada"), ("checkpoint", "grace")]


def test_a_listener_in_the_same_process_is_told_who(url: str) -> None:
    heard: list[Event] = []
    with Host(url, clock=ManualClock(), on_event=heard.append) as host:
        [asked] = host.run(ASKING, run_id="r").waits
        host.answer(asked.id, "north", by="grace")
        host.resume("r", ASKING, by="ada")
    said = [(event.kind, event.data["act"]["by"]) for event in heard if "act" in event.data]
    assert said == [("step_completed", "grace"), ("checkpoint", "ada")]


def test_who_let_a_time_be_over_before_it_was_is_kept(host: Host) -> None:
    flow = Flow("f", [wait.approval("ok", timeout="1h")])
    [asked] = host.run(flow, run_id="r").waits
    fired = host.waiting.fire(asked.id, by="ada", comment="ticket 4711")
    assert (fired.settled_by, fired.act) == ("clock", ADA)
    assert host.resume("r", flow)["ok"].approved is False
    assert acts(host, "r") == [("ok", ADA)]
    [asked] = host.run(flow, run_id="s").waits
    host.deliver({"wait_id": asked.id, "by": "ada", "comment": "ticket 4711"}, [flow])
    assert acts(host, "s") == [("ok", ADA)]


def test_who_comes_after_the_due_time_did_not_end_the_wait(url: str) -> None:
    clock = ManualClock()
    with Host(url, clock=clock) as host:
        flow = Flow("f", [wait.timer("later", duration="1h")])
        [asked] = host.run(flow, run_id="r").waits
        clock.advance(3601)
        assert host.waiting.fire(asked.id, by="ada").act is None
        host.resume("r", flow)
        assert acts(host, "r") == []


def test_who_let_a_time_be_over_is_encrypted_where_answers_are(tmp_path: Any) -> None:
    flow = Flow("f", [wait.approval("ok", timeout="1h")])
    with Host(f"sqlite:///{tmp_path}/runs.db", encrypt=KeyRing({"one": b"1" * 32})) as host:
        [asked] = host.run(flow, run_id="r").waits
        host.waiting.fire(asked.id, by="Ada Lovelace", comment="a private reason")
        host.resume("r", flow)
        assert acts(host, "r") == [("ok", Act("Ada Lovelace", "a private reason"))]
    assert "Lovelace" not in besides_audit(tmp_path)
    assert b"private" not in b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())


def test_who_took_a_run_over_to_another_version_is_kept(host: Host) -> None:
    @node(output="again")
    def repeat(priced: str) -> str:
        return priced

    host.run(ASKING, run_id="r")
    newer = Flow("asking", [wait.question("region", answer_type=str), price, repeat], version="2")
    host.versions.migrate("r", newer, by="ada", comment="ticket 4711")
    host.versions.migrate("r", newer, by="grace")  # it goes by that version already, so nothing is done
    assert acts(host, "r") == [("migration", ADA)]


def test_who_copied_and_moved_a_run_stands_in_both_stores(tmp_path: Any) -> None:
    with Host(f"sqlite:///{tmp_path}/a.db") as here, Host(f"sqlite:///{tmp_path}/b.db") as there:
        for run_id in ("r", "s"):
            here.run(Flow("f", [price]), {"region": "north"}, run_id=run_id)
        here.transfer.copy(there.url, ["r"], by="ada", comment="ticket 4711")
        here.transfer.copy(there.url, ["s"], move=True, by="grace", comment="for good")
        here.transfer.copy(there.url, ["r"], by="turing")  # it is there already, so nothing is done
        came = {(line.what, line.run_id): line.act for line in there.retention.removals()}
        assert came == {("copy", "r"): ADA, ("move", "s"): Act("grace", "for good")}
        [left] = here.retention.removed()
        assert left.run_id == "s" and left.act == Act("grace", "for good")


def test_who_let_the_token_of_a_wait_die_stands_in_the_log(host: Host) -> None:
    [asked] = host.run(Flow("f", [wait.callback("paid")]), run_id="r").waits
    host.waiting.reissue(asked.id, by="ada", comment="ticket 4711")
    host.waiting.revoke(asked.id, by="grace")
    host.waiting.reissue(asked.id)  # without a name nothing is noted
    lines = [line for line in host.retention.removals() if line.what in ("reissue", "revoke")]
    assert [(line.what, line.run_id, line.act) for line in reversed(lines)] == [
        ("reissue", "r", ADA),
        ("revoke", "r", Act("grace")),
    ]
    assert all(line.reason == f"wait {asked.id}" for line in lines)


def test_a_run_folder_says_who_started_answered_and_cancelled(host: Host, tmp_path: Any) -> None:
    [asked] = host.run(ASKING, run_id="r", by="ada").waits
    host.answer(asked.id, "north", by="grace", comment="the customer called")
    host.resume("r", ASKING)
    host.run(ASKING, run_id="s")
    host.cancel("s", by="ada")
    for run_id, expected in (
        ("r", [("pipeline.started", "ada"), ("checkpoint.saved", "ada"), ("human.responded", "grace")]),
        ("s", [("checkpoint.saved", "ada"), ("pipeline.failed", "ada")]),
    ):
        folder = host.transfer.write_run_folder(run_id, tmp_path)
        lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
        said = [(line["type"], line["data"]["by"]) for line in lines if "by" in line["data"]]
        assert [one for one in said if one[0] != "node.completed"] == expected


def test_checkpoints_as_three_files_say_who_did_what(tmp_path: Any) -> None:
    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        [asked] = host.run(ASKING, run_id="r", by="ada", comment="ticket 4711").waits
        host.answer(asked.id, "north", by="grace")
        host.resume("r", ASKING)
        host.run(Flow("f", [price]), {"region": "north"}, run_id="s")
        manager = CheckpointManager(host, tmp_path / "sets")
        state = json.loads(Path(manager.create_checkpoint("r")[0] + ".state.json").read_text())
        silent = json.loads(Path(manager.create_checkpoint("s")[0] + ".state.json").read_text())
    said = [(act["trigger"], act.get("task_id"), act["by"], act.get("comment")) for act in state["acts"]]
    assert said[0] == ("admission", None, "ada", "ticket 4711")
    assert [one[1:] for one in said[1:]] == [("region", "grace", None)]
    assert "acts" not in silent
