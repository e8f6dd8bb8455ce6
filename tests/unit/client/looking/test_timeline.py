"""When what of a run happened: segments, buckets and marks, never more of them than is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from everstep.client.looking.timeline import MOST_BUCKETS, Lanes, TimeLane, TimeSegment, thinned
from everstep.model.acts import Act
from everstep.model.enums import Status, Trigger
from everstep.model.records import OWNER, CheckpointRecord, NodeState, OpenedState, StepRecord
from everstep.model.waits import WaitOpened

BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def step(
    path: str,
    began: float | None,
    ended: float | None,
    status: Status = Status.COMPLETED,
    visit: int = 1,
    attempts: int = 1,
    items: int | None = None,
) -> StepRecord:
    return StepRecord(
        path=path,
        visit=visit,
        status=status,
        attempts=attempts,
        started_at=None if began is None else at(began),
        ended_at=None if ended is None else at(ended),
        items=items,
    )


def records(*steps: StepRecord | Sequence[StepRecord]) -> list[CheckpointRecord]:
    """Return checkpoints with these steps, a second after each other."""
    return [
        CheckpointRecord(
            sequence=k,
            trigger=Trigger.STEP,
            created_at=at(100 + k),
            steps=(one,) if isinstance(one, StepRecord) else tuple(one),
        )
        for k, one in enumerate(steps, 1)
    ]


def lanes_of(*steps: StepRecord | Sequence[StepRecord], most: int = 300) -> dict[str, TimeLane]:
    lanes = Lanes()
    lanes.take(records(*steps))
    return {lane.node: lane for lane in lanes.lanes([], most)[0]}


def told(segment: TimeSegment) -> tuple[str, str, float, float | None, int]:
    began = (segment.began - BEGAN).total_seconds()
    ended = None if segment.ended is None else (segment.ended - BEGAN).total_seconds()
    return segment.kind, segment.status.value, began, ended, segment.attempt


def test_a_visit_that_is_tried_again_is_an_attempt_a_pause_and_an_attempt() -> None:
    lane = lanes_of(
        step("draft", 0, 1, Status.RETRYING),
        step("draft", 5, 6, attempts=2),
    )["draft"]
    assert [told(one) for one in lane.segments] == [
        ("attempt", "retrying", 0, 1, 1),
        ("retry_pause", "retrying", 1, 5, 1),
        ("attempt", "completed", 5, 6, 2),
    ]
    assert [one.sequence for one in lane.segments] == [1, 1, 2]
    assert lane.segments[2].address == "draft@1"


def test_a_wait_is_one_segment_from_where_it_opened_to_its_answer() -> None:
    opened = step("sign", 0, 0.5, Status.HALTED)
    lane = lanes_of(opened, step("sign", 0, 60))["sign"]
    assert [told(one) for one in lane.segments] == [("wait", "completed", 0, 60, 1)]
    assert [told(one) for one in lanes_of(opened)["sign"].segments] == [("wait", "halted", 0, None, 1)]


def test_an_announced_effect_is_under_way_until_it_says_how_it_ended() -> None:
    announced = step("charge", 1, None, Status.RUNNING)
    assert [told(one) for one in lanes_of(announced)["charge"].segments] == [
        ("under_way", "running", 1, None, 1)
    ]
    lane = lanes_of(announced, step("charge", 1, 3, Status.FAILED))["charge"]
    assert [told(one) for one in lane.segments] == [("attempt", "failed", 1, 3, 1)]


def test_a_node_that_spends_is_at_work_from_where_it_began() -> None:
    spent = step("write", None, 20, Status.RUNNING)
    lane = lanes_of(spent, step("write", 1, 20))["write"]
    assert [told(one) for one in lane.segments] == [("attempt", "completed", 1, 20, 1)]


def test_durable_calls_have_a_lane_below_their_node() -> None:
    lanes = Lanes()
    lanes.take(records(step("agent/$search", 0, 1), step("agent", 0, 2), step("report", 3, 4)))
    order = [("agent", "node"), ("report", "node")]
    assert [(one.node, one.kind) for one in lanes.lanes(order, 300)[0]] == [
        ("agent", "node"),
        ("agent/$search", "unit"),
        ("report", "node"),
    ]


def test_a_run_that_ends_leaves_nothing_open() -> None:
    lanes = Lanes()
    lanes.take(records(step("charge", 1, None, Status.RUNNING)))
    lanes.take(
        [CheckpointRecord(sequence=2, trigger=Trigger.CANCELLED, created_at=at(200), status=Status.CANCELLED)]
    )
    [lane], _ = lanes.lanes([], 300)
    assert [told(one)[3] for one in lane.segments] == [200]
    assert [(mark.kind, mark.sequence) for mark in lanes.marks] == [("cancel", 2)]


def test_items_are_told_in_buckets_those_that_failed_first_then_the_slowest() -> None:
    lane = lanes_of(
        step("check", 0, None, Status.RUNNING, items=5),
        step("check#0", 0, 1),
        step("check#1", 0, 9),
        step("check#2", 0, 2, Status.FAILED),
        step("check#3/inner", 3, 4),
        step("check#4", 0, 3),
    )["check"]
    assert [(one.status.value, one.first_item, one.slowest) for one in lane.buckets] == [
        ("failed", "check#2", 2),
        ("running", "check#3", 0),
        ("completed", "check#1", 9),
        ("completed", "check#4", 3),
        ("completed", "check#0", 1),
    ]
    assert lane.items is not None and (lane.items.count, lane.items.completed, lane.items.failed) == (5, 3, 1)
    assert "check/inner" not in lanes_of(step("check#3/inner", 3, 4))


def test_a_map_of_ten_thousand_items_has_sixty_buckets() -> None:
    items = [
        step(f"check#{k}", k, k + (k % 97) / 10, Status.FAILED if k % 1000 == 0 else Status.COMPLETED)
        for k in range(10_000)
    ]
    lane = lanes_of(step("check", 0, None, Status.RUNNING, items=10_000), items)["check"]
    assert len(lane.buckets) <= MOST_BUCKETS
    assert sum(one.count for one in lane.buckets) == 10_000
    failed = [one for one in lane.buckets if one.status is Status.FAILED]
    assert failed == lane.buckets[: len(failed)] and sum(one.count for one in failed) == 10
    slowest = [one.slowest for one in lane.buckets if one.status is Status.COMPLETED]
    assert slowest == sorted(slowest, reverse=True) and slowest[0] == 9.6


def test_a_second_visit_to_a_map_tells_of_its_own_items() -> None:
    lane = lanes_of(
        step("check", 0, None, Status.RUNNING, items=2),
        step("check#0", 0, 1),
        step("check", 0, 2),
        step("check", 3, None, Status.RUNNING, visit=2, items=1),
        step("check@2#0", 3, 4),
    )["check"]
    assert [one.first_item for one in lane.buckets] == ["check@2#0"]
    assert (lane.visits, lane.items and lane.items.count) == (2, 1)


PLACES = st.tuples(
    st.sampled_from(["a", "b", "c/d", "c"]),
    st.integers(0, 1000),
    st.integers(0, 50),
    st.sampled_from([Status.COMPLETED, Status.FAILED, Status.RETRYING, Status.HALTED, Status.RUNNING]),
)


@given(st.lists(PLACES, max_size=60), st.integers(1, 40))
def test_there_are_never_more_segments_than_asked_for_and_none_is_lost(
    places: list[tuple[str, int, int, Status]], most: int
) -> None:
    lanes = Lanes()
    lanes.take(
        records(
            *(
                step(path, began, began + took if status is not Status.RUNNING else None, status, visit=k)
                for k, (path, began, took, status) in enumerate(places, 1)
            )
        )
    )
    whole, left = lanes.lanes([], 10_000)
    assert left == 0 and all(one.count == 1 for lane in whole for one in lane.segments)
    pieces = sum(len(lane.segments) for lane in whole)
    told, left = lanes.lanes([], most)
    assert len(told) == min(most, len(whole)) and left == len(whole) - len(told)
    segments = [one for lane in told for one in lane.segments]
    assert len(segments) <= max(most, len(told))
    if left == 0:
        assert sum(one.count for one in segments) == pieces
        failed = {lane.node for lane in whole if any(one.status is Status.FAILED for one in lane.segments)}
        assert failed == {
            lane.node for lane in told if any(one.status is Status.FAILED for one in lane.segments)
        }
    for lane in told:
        begins = [one.began for one in lane.segments]
        assert begins == sorted(begins)


def test_what_was_under_way_before_the_stretch_is_known_from_where_the_run_stood() -> None:
    lanes = Lanes()
    lanes.take(records(step("other", 50, 51)))
    nodes = {
        "sign": NodeState(visits=1, since=at(3), wait=WaitOpened("w", "approval", None)),
        "other": NodeState(visits=1, status=Status.COMPLETED),
        "again": NodeState(visits=2, status=Status.RETRYING, attempts=1, since=at(4)),
    }
    lanes.stand(nodes, {"rag": OpenedState(visit=3, started_at=at(5))}, coming=["next"])
    found = {lane.node: [told(one) for one in lane.segments] for lane in lanes.lanes([], 300)[0]}
    assert found["sign"] == [("wait", "halted", 3, None, 1)]
    assert found["again"] == [("under_way", "retrying", 4, None, 2)]
    assert found["rag"] == [("under_way", "running", 5, None, 1)]
    assert found["next"] == [("under_way", "running", 101, None, 1)]
    assert found["other"] == [("attempt", "completed", 50, 51, 1)]


def test_marks_name_who_goes_on_with_a_run_and_who_asked_for_it() -> None:
    lanes = Lanes()
    owner = {OWNER: {"epoch": 3, "host": "box", "pid": 7}}
    lanes.take(
        [
            CheckpointRecord(sequence=4, trigger=Trigger.STEP, created_at=at(4), metadata=owner),
            CheckpointRecord(sequence=5, trigger=Trigger.RESUME, created_at=at(5), act=Act("ann", "go on")),
            CheckpointRecord(sequence=6, trigger=Trigger.STEP, created_at=at(6), metadata={OWNER: "mine"}),
        ]
    )
    assert [(one.kind, one.sequence, one.worker, one.by, one.text) for one in lanes.marks] == [
        ("takeover", 4, "7 on box", "", ""),
        ("resume", 5, None, "ann", "go on"),
    ]


@given(st.integers(0, 50), st.integers(1, 60))
def test_checkpoints_are_thinned_evenly_with_both_ends(count: int, most: int) -> None:
    lanes = Lanes()
    lanes.take(records(*([step("a", 0, 1)] * count)))
    kept = [one.sequence for one in thinned(lanes.commits, most)]
    assert len(kept) == min(count, most) == len(set(kept))
    assert kept == sorted(kept)
    if most > 1 and count:
        assert (kept[0], kept[-1]) == (1, count)
