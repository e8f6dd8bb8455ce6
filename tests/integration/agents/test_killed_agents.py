"""An agent whose process is killed goes on where it was: what is recorded is not called again.

The frameworks are the real ones, the model is a server on this machine, and so are the tools: it sees every
call, from whichever process.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from everstep import Host
from tests.integration.agents.conftest import Live
from tests.integration.agents.fake_model import FakeModel, Made

pytestmark = pytest.mark.slow
LOOKS = 10
CALLS = 2 * LOOKS + 1
EACH = 1 if os.environ.get("EVERSTEP_SOAK") == "1" else 3
"""Of how many calls the process dies in one."""


def ends(life: dict[str, Any]) -> Any:
    assert life["status"] == "completed", life
    return life["said"]


def test_agent_killed_at_each_of_its_calls_makes_no_recorded_call_again(live: Live, model: FakeModel) -> None:
    uninterrupted = ends(live("ask", f"look-{LOOKS}", "whole"))
    expected = model.seen()
    assert len(expected) == CALLS
    assert Counter(what for what, _ in expected) == {"model": LOOKS + 1, "look": LOOKS}
    model.calls.clear()
    deadly = expected[::EACH]
    killed: set[tuple[str, str]] = set()

    def at_each_call_once(made: Made) -> bool:
        is_new = (made.what, made.about) in deadly and (made.what, made.about) not in killed
        killed.add((made.what, made.about))
        return is_new

    model.kills = at_each_call_once
    for _ in deadly:
        assert live("ask", f"look-{LOOKS}") == {"killed": -signal.SIGKILL}
    assert ends(live("ask", f"look-{LOOKS}")) == uninterrupted
    # The one that its process died in is made again by the next, and no other.
    assert model.seen() == [call for call in expected for _ in range(1 + (call in deadly))]
    assert len({made.process for made in model.calls}) == len(deadly) + 1


def test_run_that_is_over_calls_nothing(live: Live, model: FakeModel) -> None:
    first = ends(live("ask", "look-2"))
    model.calls.clear()
    assert ends(live("ask", "look-2")) == first
    assert model.seen() == []


def test_tool_call_waits_for_an_approval_from_another_process(
    live: Live, model: FakeModel, store: str
) -> None:
    assert live("ask", "delete-2")["status"] == "halted"
    assert model.seen() == [("model", "delete-2 after 0")]
    for n in range(2):
        with Host(store) as host:
            (wait,) = host.waits("A")
            assert wait.context == {"tool": "delete", "arguments": {"n": n}}
            host.answer(wait.id, {"approved": True})
        assert live("ask", "delete-2")["status"] == ("completed" if n else "halted")
    assert model.seen() == [
        *(("model", "delete-2 after 0"), ("delete", '{"n": 0}')),
        *(("model", "delete-2 after 1"), ("delete", '{"n": 1}')),
        ("model", "delete-2 after 2"),
    ]


def test_process_killed_in_a_tool_call_after_its_approval_asks_for_no_other(
    live: Live, model: FakeModel, store: str
) -> None:
    assert live("ask", "delete-1")["status"] == "halted"
    with Host(store) as host:
        host.answer(host.waits("A")[0].id, {"approved": True})
    model.kills = lambda made: made.what == "delete" and len(model.calls) == 2
    assert live("ask", "delete-1") == {"killed": -signal.SIGKILL}
    assert live("ask", "delete-1")["status"] == "completed"
    assert Counter(what for what, _ in model.seen()) == {"model": 2, "delete": 2}
    with Host(store) as host:
        assert host.waits("A") == []


def test_tool_call_that_is_rejected_is_not_made_and_the_model_is_told_why(
    live: Live, model: FakeModel, store: str
) -> None:
    live("ask", "delete-1")
    with Host(store) as host:
        host.answer(host.waits("A")[0].id, {"approved": False, "comment": "not today"})
    said = ends(live("ask", "delete-1"))
    assert "not today" in json.dumps(said)
    assert model.seen() == [("model", "delete-1 after 0"), ("model", "delete-1 after 1")]


def test_stream_whose_process_is_killed_begins_anew(live: Live, model: FakeModel) -> None:
    whole = live("listen", "look-1", "whole")
    text = "".join(data["said"] for data in whole["emitted"])
    assert text.startswith("so: look saw 0 and on and on")
    model.calls.clear()
    model.kills_in_stream = 1
    assert live("listen", "look-1") == {"killed": -signal.SIGKILL}
    assert model.seen() == [("model", "look-1 after 0"), ("look", '{"n": 0}'), ("model", "look-1 after 1")]
    model.calls.clear()
    again = live("listen", "look-1")
    assert model.seen() == [("model", "look-1 after 1")]
    assert ends(again) == ends(whole)
    assert "".join(data["said"] for data in again["emitted"]) == text


def test_stream_that_is_cut_off_is_not_spliced(live: Live, model: FakeModel) -> None:
    whole = live("listen", "look-1", "whole")
    text = "".join(data["said"] for data in whole["emitted"])
    model.calls.clear()
    model.cuts = 1
    cut = live("listen", "look-1")
    assert ends(cut) == ends(whole)
    assert model.seen() == [
        *(("model", "look-1 after 0"), ("look", '{"n": 0}')),
        *[("model", "look-1 after 1")] * 2,
    ]
    heard = "".join(data["said"] for data in cut["emitted"])
    assert heard.endswith(text)
    assert text.startswith(heard.removesuffix(text))
    assert heard != text


def test_agent_inside_an_agent_goes_on_where_it_was(live: Live, model: FakeModel) -> None:
    uninterrupted = ends(live("ask", "ask-1", "whole"))
    expected = model.seen()
    assert [what for what, _ in expected] == ["model", "model", "look", "model", "look", "model", "model"]
    model.calls.clear()
    killed: set[tuple[str, str]] = set()

    def at_each_call_once(made: Made) -> bool:
        is_new = (made.what, made.about) not in killed
        killed.add((made.what, made.about))
        return is_new

    model.kills = at_each_call_once
    for _ in expected:
        assert live("ask", "ask-1") == {"killed": -signal.SIGKILL}
    assert ends(live("ask", "ask-1")) == uninterrupted
    assert model.seen() == [call for call in expected for _ in range(2)]


def test_calls_of_an_mcp_server_are_made_once(live: Live, model: FakeModel, store: str) -> None:
    model.kills = lambda made: made.about == '{"n": 1}' and len(model.calls) == 4
    assert live("fetch", "fetch-2") == {"killed": -signal.SIGKILL}
    ends(live("fetch", "fetch-2"))
    assert [what for what, _ in model.seen()] == ["model", "fetch", "model", "fetch", "fetch", "model"]
    with Host(store) as host:
        steps = [step.path for checkpoint in host.history("A") for step in checkpoint.steps]
    assert [path for path in steps if ".tools=" in path]
    assert len([path for path in steps if "first.fetch=" in path]) == 2


@pytest.mark.parametrize("framework", ["openai"], indirect=True)
def test_agent_that_was_handed_over_to_goes_on_where_it_was(live: Live, model: FakeModel) -> None:
    uninterrupted = ends(live("ask", "hand", "whole"))
    expected = model.seen()
    assert expected[:2] == [("model", "hand after 0"), ("model", "look-2 after 0")]
    model.calls.clear()
    model.kills = lambda made: made.what == "look" and len(model.calls) == 3
    assert live("ask", "hand") == {"killed": -signal.SIGKILL}
    assert ends(live("ask", "hand")) == uninterrupted
    assert model.seen() == [*expected[:3], *expected[2:]]


@pytest.mark.parametrize("framework", ["openai"], indirect=True)
def test_memory_is_what_it_would_be_without_a_crash(live: Live, model: FakeModel, tmp_path: Path) -> None:
    uninterrupted = ends(live("remember", "look-1", "whole", memory=f"{tmp_path}/whole.db"))
    expected = model.seen()
    assert len(expected) == 6
    model.calls.clear()
    killed: set[int] = set()

    def at_each_call_once(made: Made) -> bool:
        place = len(model.calls) - len(killed)
        is_new = place not in killed
        killed.add(place)
        return is_new

    model.kills = at_each_call_once
    for _ in expected:
        assert live("remember", "look-1", memory=f"{tmp_path}/b.db") == {"killed": -signal.SIGKILL}
    model.kills = lambda made: False
    assert ends(live("remember", "look-1", memory=f"{tmp_path}/b.db")) == uninterrupted


@pytest.mark.parametrize("framework", ["openai"], indirect=True)
def test_streamed_run_waits_for_an_approval(live: Live, model: FakeModel, store: str) -> None:
    assert live("listen_and_ask", "delete-1")["status"] == "halted"
    with Host(store) as host:
        host.answer(host.waits("A")[0].id, {"approved": True})
    ends(live("listen_and_ask", "delete-1"))
    assert [what for what, _ in model.seen()] == ["model", "delete", "model"]


@pytest.mark.parametrize("framework", ["pydantic"], indirect=True)
def test_tool_may_ask_for_an_approval_itself(live: Live, model: FakeModel, store: str) -> None:
    assert live("ask", "pay-1")["status"] == "halted"
    with Host(store) as host:
        host.answer(host.waits("A")[0].id, {"approved": True})
    ends(live("ask", "pay-1"))
    assert [what for what, _ in model.seen()] == ["model", "pay", "model"]


@pytest.mark.parametrize("framework", ["pydantic"], indirect=True)
def test_tool_that_is_executed_elsewhere_is_waited_for(live: Live, model: FakeModel, store: str) -> None:
    assert live("ask", "later-1")["status"] == "halted"
    with Host(store) as host:
        (wait,) = host.waits("A")
        assert wait.kind == "callback"
        assert wait.context["tool"] == "later"
        host.answer(wait.id, {"done": 7})
    said = ends(live("ask", "later-1"))
    assert {"done": 7} in [part["content"] for _, parts in said for part in parts]
