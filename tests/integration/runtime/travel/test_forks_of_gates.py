"""Forks whose gates choose again."""

from __future__ import annotations

from typing import Any

import pytest

from everstep import END, Context, Flow, Host, node, route
from everstep.errors import BadRequest


def shop(log: list[str]) -> Flow:
    @node
    def weigh(ctx: Context) -> None:
        ctx.channel.set("way", "air")

    @route("air", "rail", END)
    def choose(weigh: Any, ctx: Context) -> str:
        log.append("choose")
        way = ctx.channel.get("way")
        return END if way == "none" else str(way)

    @node(output="sent")
    def air() -> str:
        return "by air"

    @node(output="sent")
    def rail() -> str:
        return "by rail"

    return Flow("shop", [weigh >> choose, air, rail], durability="strong")


def chosen_at(host: Host) -> int:
    """Return the checkpoint in which the gate chose."""
    return next(c.sequence for c in host.history("r") if any(s.path == "choose" for s in c.steps))


@pytest.mark.parametrize("choose_again", [False, True])
def test_a_fork_with_an_edited_channel_can_choose_again(host: Host, choose_again: bool) -> None:
    log: list[str] = []
    flow = shop(log)
    assert host.run(flow, run_id="r")["sent"] == "by air"
    at = chosen_at(host)
    host.fork("r", at=at, channel={"way": "rail"}, fork_id="f", choose_again=choose_again)
    result = host.resume("f", flow)
    assert result["sent"] == ("by rail" if choose_again else "by air")
    assert log.count("choose") == 1 + choose_again
    assert host.run(flow, run_id="r")["sent"] == "by air"
    (checked,) = host.storage.verify("f")
    assert not checked.problem


def test_a_gate_that_chose_the_end_can_choose_again(host: Host) -> None:
    flow = shop([])
    assert host.run(flow, run_id="r", channel={}).status == "completed"
    host.fork("r", at=chosen_at(host), channel={"way": "none"}, fork_id="ended", choose_again=True)
    assert "sent" not in host.resume("ended", flow)
    host.fork("ended", channel={"way": "rail"}, fork_id="f", choose_again=True)
    assert host.resume("f", flow)["sent"] == "by rail"


def test_where_no_choice_is_left_to_make_again_the_fork_is_refused(host: Host) -> None:
    flow = shop([])
    host.run(flow, run_id="r")
    with pytest.raises(BadRequest, match="no gate has chosen what is still to come"):
        host.fork("r", choose_again=True)
