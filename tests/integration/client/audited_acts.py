"""How acts of the audit log are done, and refused: a case, and those of undo, notices and schedules."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from everstep import Flow, Host, Schedule, node

Who = dict[str, Any]


class Case(NamedTuple):
    """How a call is made so that it does something, and so that it is refused; each after what it needs."""

    needs: Callable[[Any], Any]
    does: Callable[[Any, Any, Who], Any]
    is_refused: Callable[[Any, Any, Who], Any]
    needs_to_be_refused: Callable[[Any], Any] = lambda host: None
    act: str = ""


def nothing(host: Host) -> None:
    return


def out_of_reach(notice: object) -> None:
    """Be a notifier with no way out."""
    raise ConnectionError("no line")


@node(undo=lambda: None)
def reserve() -> None:
    return


@node(output="packed")
def pack() -> str:
    raise ValueError("no box")


@node(output="counted")
def count() -> int:
    return 1


UNDOABLE = Flow("undoable", [reserve >> pack], undo="never")
TELLING = Flow("telling", [pack], notify="ops")
COUNTING = Flow("counting", [count])


def can_be_undone(host: Host) -> str:
    host.run(UNDOABLE, run_id="undoable")
    return "undoable"


def counted(host: Host) -> str:
    host.run(COUNTING, run_id="counted")
    return "counted"


def dead_letter(host: Host, *more: str) -> str:
    """Return the id of a notice that was tried in vain to the end; with more runs, that of the last."""
    for run_id in ("telling", *more):
        host.run(TELLING, run_id=run_id)
    clock: Any = host._host.clock
    while host.notices.find(state="pending"):
        clock.advance(timedelta(days=1))
        host.notices.send()
    return host.notices.find(state="dead")[0].id


def keeps_no_notices(host: Host) -> None:
    store: Any = host._host._services.store
    store.capabilities = msgspec.structs.replace(store.capabilities, has_notices=False)


def hourly(host: Host) -> str:
    host.schedules.create(COUNTING, "hourly", cron="0 * * * *")
    return "hourly"


def declaring(schedule_id: str) -> Flow:
    return Flow("counting", COUNTING.nodes, schedules=[Schedule(schedule_id, every="1h")])


def paused_hourly(host: Host) -> str:
    host.schedules.pause(hourly(host))
    return "hourly"


def filling(host: Host) -> str:
    host.schedules.backfill(hourly(host), "-3d", "-1d")
    return "hourly"


LATER_CASES: dict[str, Case] = {
    "undo": Case(
        can_be_undone,
        lambda h, run, who: h.undo(run, **who),
        lambda h, run, who: h.undo(run, **who),
        counted,
    ),
    "notices.again": Case(
        dead_letter,
        lambda h, one, who: h.notices.again(one, **who),
        lambda h, _, who: h.notices.again("no such notice", **who),
        act="resend",
    ),
    "notices.again_all": Case(
        dead_letter,
        lambda h, _, who: h.notices.again_all(**who),
        lambda h, _, who: h.notices.again_all(**who),
        keeps_no_notices,
        act="resend",
    ),
    "schedules.create": Case(
        nothing,
        lambda h, _, who: h.schedules.create(COUNTING, "hourly", cron="0 * * * *", **who),
        lambda h, _, who: h.schedules.create(COUNTING, "hourly", cron="at noon", **who),
        act="create_schedule",
    ),
    "schedules.apply": Case(
        nothing,
        lambda h, _, who: h.schedules.apply(declaring("hourly"), **who),
        lambda h, _, who: h.schedules.apply([declaring("hourly"), declaring("hourly")], **who),
        act="apply_schedules",
    ),
    "schedules.change": Case(
        hourly,
        lambda h, name, who: h.schedules.change(name, every="2h", **who),
        lambda h, name, who: h.schedules.change(name, cron="at noon", **who),
        hourly,
        act="change_schedule",
    ),
    "schedules.pause": Case(
        hourly,
        lambda h, name, who: h.schedules.pause(name, **who),
        lambda h, run, who: h.schedules.pause(run, **who),
        counted,
    ),
    "schedules.unpause": Case(
        paused_hourly,
        lambda h, name, who: h.schedules.unpause(name, **who),
        lambda h, _, who: h.schedules.unpause("no", **who),
    ),
    "schedules.run_now": Case(
        hourly,
        lambda h, name, who: h.schedules.run_now(name, **who),
        lambda h, _, who: h.schedules.run_now("no", **who),
        act="run_schedule",
    ),
    "schedules.backfill": Case(
        hourly,
        lambda h, name, who: h.schedules.backfill(name, "-3d", "-1d", **who),
        lambda h, name, who: h.schedules.backfill(name, "-1d", "-3d", **who),
        hourly,
        act="backfill_schedule",
    ),
    "schedules.stop_backfill": Case(
        filling,
        lambda h, name, who: h.schedules.stop_backfill(name, **who),
        lambda h, _, who: h.schedules.stop_backfill("no", **who),
    ),
    "schedules.delete": Case(
        hourly,
        lambda h, name, who: h.schedules.delete(name, **who),
        lambda h, run, who: h.schedules.delete(run, **who),
        counted,
        act="delete_schedule",
    ),
}
