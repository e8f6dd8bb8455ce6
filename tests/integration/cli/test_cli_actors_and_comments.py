"""Who and why at a shell: said with `--as` and `--comment`, shown by `log`, `show` and `waits`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from everstep import Flow, Host, node, wait
from everstep.cli.commands.runs.cancel import cancel
from everstep.cli.commands.runs.log import log
from everstep.cli.commands.runs.run import resume, run
from everstep.cli.commands.runs.show import show
from everstep.cli.commands.store.copy import copy
from everstep.cli.commands.store.gc import command as gc
from everstep.cli.commands.store.pin import erase, pin, unpin
from everstep.cli.commands.travel.compat import migrate
from everstep.cli.commands.travel.fork import fork
from everstep.cli.commands.waits.answer import answer
from everstep.cli.commands.waits.waits import waits

FILE = """
from everstep import Flow, node, wait

@node(output="priced")
def price(region: str) -> str:
    return f"price in {region}"

asking = Flow("asking", [wait.question("region", answer_type=str), price])
"""

TELL = """
@node(output="told")
def tell(priced: str) -> str:
    return priced

"""
TIMER = """
from everstep import Flow, wait

later = Flow("later", [wait.timer("nap", duration="1h")])
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("EVERSTEP_AS", "ada")
    Path("signed_flows.py").write_text(FILE)
    Path("signed_timers.py").write_text(TIMER)
    yield
    for name in ("signed_flows", "signed_timers", "newer_flows"):
        sys.modules.pop(name, None)


def said(command: Any, *words: str, code: int = 0) -> str:
    done = CliRunner().invoke(command, [*words], catch_exceptions=False, standalone_mode=False)
    assert (done.return_value or 0) == code, done.output
    return done.stdout


def begun(run_id: str, *words: str) -> None:
    said(run, "signed_flows.py", "--run-id", run_id, "--quiet", *words, code=3)


def test_names_and_comments_are_shown_by_log_show_and_waits() -> None:
    begun("r", "--comment", "ticket 4711")
    said(answer, "r", "--text", "north", "--as", "grace", "--comment", "the customer called")
    assert "answered: 'north' by grace: the customer called" in said(waits, "r", "--status", "settled")
    said(resume, "r", "--quiet")
    text = said(log, "r")
    assert "by ada: ticket 4711" in text and "by grace: the customer called" in text
    told = json.loads(said(log, "r", "--json"))["checkpoints"]
    assert told[0]["act"] == {"by": "ada", "comment": "ticket 4711", "how": "claimed"}
    steps = [step for record in told for step in record["steps"] if step["act"] is not None]
    assert [(step["node"], step["act"]["by"]) for step in steps] == [("region", "grace")]
    text = said(show, "r")
    assert "by ada: ticket 4711" in text and "by grace: the customer called" in text
    acts = json.loads(said(show, "r", "--json"))["acts"]
    assert [(act["step"], act["by"]) for act in acts] == [(None, "ada"), (None, "ada"), ("region@1", "grace")]
    assert "by grace" in said(show, "r", "region") and "by ada" in said(show, "r", "1")


def test_the_login_name_is_taken_where_no_name_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVERSTEP_AS")
    monkeypatch.setenv("LOGNAME", "hopper")
    begun("r")
    assert json.loads(said(show, "r", "--json"))["acts"][0]["by"] == "hopper"


def test_an_approval_that_names_its_approver_is_not_signed_by_the_login() -> None:
    with Host("sqlite:///.everstep/runs.db") as host:
        host.run(Flow("f", [wait.approval("ok")]), run_id="r")
    said(answer, "r", '{"approved": true, "approver": "grace"}')
    with Host("sqlite:///.everstep/runs.db") as host:
        [found] = host.waits("r", status=None)
        assert found.act is not None and found.act.by == "grace"


def test_every_command_that_does_something_is_signed() -> None:
    for run_id in ("r", "s"):
        begun(run_id)
    said(fork, "r", "--as", "copy", "--by", "grace", "--comment", "to try")
    said(cancel, "r", "--comment", "withdrawn")
    assert "by ada: withdrawn" in said(log, "r") and "by ada: withdrawn" in said(show, "r")
    assert "by grace: to try" in said(show, "copy")
    pinned = json.loads(said(pin, "r", "evidence", "--as", "grace", "--json"))
    assert pinned["pinned_by"]["by"] == "grace"
    assert "evidence, by grace" in said(show, "r")
    said(unpin, "r", "--comment", "done with it")
    said(cancel, "copy")
    said(erase, "copy", "--yes", "--comment", "a request")
    told = said(gc, "--log")
    assert "by ada: a request" in told and "by ada: done with it" in told


def test_who_fires_migrates_copies_and_reissues_at_a_shell_is_kept() -> None:
    for run_id in ("r", "s"):
        begun(run_id)
    said(answer, "r", "--reissue", "--as", "grace", "--comment", "lost it")
    said(answer, "r", "--revoke", "--comment", "leaked")
    assert "1 reissue of run r: wait" in said(gc, "--log") and "by grace: lost it" in said(gc, "--log")
    assert "by ada: leaked" in said(gc, "--log")
    newer = FILE.replace('Flow("asking", [', 'Flow("asking", version="2", nodes=[').replace(
        ", price]", ", price, tell]"
    )
    Path("newer_flows.py").write_text(newer.replace("asking =", TELL + "asking ="))
    said(migrate, "s", "newer_flows.py", "--as", "grace", "--comment", "the new price list")
    assert "by grace: the new price list" in said(log, "s")
    said(copy, "s", "--to", "other.db", "--comment", "for the archive")
    assert "1 copy of run s: by ada: for the archive" in said(gc, "--log", "--store", "other.db")
    said(run, "signed_timers.py", "--run-id", "t", "--quiet", code=3)
    assert "fired early by ada: no time" in said(answer, "t", "--fire", "--comment", "no time")


def test_what_a_name_holds_does_not_move_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that wrote a record may have been careless; a caller that shows it is not."""

    @node
    def work() -> int:
        return 1

    from everstep.model import acts

    monkeypatch.setattr(acts, "_checked", lambda what, text, *limits: text or "")
    with Host("sqlite:///.everstep/runs.db") as host:
        host.run(Flow("f", [work]), run_id="r", by="\x1b[31mada\x07", comment="a\nb")
    for text in (said(log, "r"), said(show, "r"), said(show, "r", "1")):
        assert "\x1b[31m" not in text and "\x07" not in text and "ada" in text
