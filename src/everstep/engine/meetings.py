"""Where the branches of a group meet: who has succeeded, who has failed, and when the join may go on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from everstep.engine.scope import Scope
from everstep.graph.compile.loops import bits, mask_of
from everstep.graph.compile.plan import Member
from everstep.model.enums import Status


def tolerates(scope: Scope, i: int) -> bool:
    """True if the failure of a node is a group's affair."""
    plan = scope.plan
    return any(plan.meetings[j].tolerates for j in plan.meets_at.get(i, ()))


def met_by(scope: Scope, i: int) -> Iterator[int]:
    """Note what became of the branch of a node that is done, and yield the joins that are due with it.

    Each is to be made due before the next is asked for: a join may be in a branch of another.
    """
    plan = scope.plan
    for j in plan.meets_at.get(i, ()):
        meeting = plan.meetings[j]
        for k, member in enumerate(meeting.members):
            if not member.nodes >> i & 1:
                continue
            if scope.statuses[i] is Status.FAILED and not _is_tolerated_inside(scope, i, member):
                scope.lost[j] = scope.lost.get(j, 0) | 1 << k
            elif member.last >> i & 1 and _has_won(scope, i, j, k):
                scope.won[j] = scope.won.get(j, 0) | 1 << k
        if j not in scope.fired:
            yield j
        elif not scope.active & meeting.everyone:
            _forget(scope, j)


def _is_tolerated_inside(scope: Scope, i: int, member: Member) -> bool:
    """True if the failure of a node is the affair of a group inside the branch, not of the branch."""
    found = (scope.plan.meetings[j] for j in member.joins)
    return any(meeting.tolerates and meeting.everyone >> i & 1 for meeting in found)


def _has_won(scope: Scope, i: int, j: int, k: int) -> bool:
    """True if a branch has come to its end with this node, and nothing in it has failed."""
    last = scope.plan.meetings[j].members[k].last
    is_over = scope.statuses[i] is Status.COMPLETED and not scope.active & last
    return is_over and not scope.lost.get(j, 0) >> k & 1


def may_go_on(scope: Scope, j: int) -> bool:
    """True for a join for which enough branches have succeeded."""
    meeting = scope.plan.meetings.get(j)
    if meeting is None or meeting.need is None:
        return False
    return scope.won.get(j, 0).bit_count() >= meeting.need


def go_on(scope: Scope, j: int) -> None:
    """A join has gone on; what its branches do from now on comes too late for it."""
    scope.winners[j] = scope.won.get(j, 0)
    if scope.active & scope.plan.meetings[j].everyone:
        scope.fired.add(j)
    else:
        _forget(scope, j)


def still_in_the_way(scope: Scope, i: int, conflict: int) -> int:
    """Leave out the nodes that are no longer waited for, since an early join has gone on without them."""
    excuses = scope.plan.excuses.get(i)
    if excuses is not None:
        for j in scope.fired:
            conflict &= ~excuses.get(j, 0)
    return conflict


def has_lost(scope: Scope, i: int, name: str) -> bool:
    """True if the branch that writes a value was not among those that a join went on with."""
    source = scope.plan.fed.get(i, {}).get(name)
    return source is not None and not scope.winners.get(source[0], 0) >> source[1] & 1


def is_left_out(scope: Scope, i: int, name: str) -> bool:
    """True if a node does without a value: who writes it has lost, and the node has a default for it."""
    plan = scope.plan
    if i not in plan.fed or name in plan.required[i] or not has_lost(scope, i, name):
        return False
    over = plan.children[i].over if i in plan.children else None
    return over is None or all(p.source != name or p.name not in over.params for p in plan.nodes[i].params)


def _forget(scope: Scope, j: int) -> None:
    scope.fired.discard(j)
    scope.won.pop(j, None)
    scope.lost.pop(j, None)


def meet_anew(scope: Scope, again: Iterable[int]) -> None:
    """Some nodes are to run again: their branches have not ended, those of the others still count."""
    plan, nodes = scope.plan, mask_of(again)
    for j, meeting in plan.meetings.items():
        touched = mask_of(k for k, member in enumerate(meeting.members) if member.nodes & nodes)
        winners = scope.winners.get(j, 0)
        if not touched or (j in scope.fired and not winners & touched):
            continue  # what came too late for the join comes too late again
        won, lost = scope.won.pop(j, 0), scope.lost.pop(j, 0)
        if scope.visits[j] and j not in scope.due and j not in scope.fired:
            won = winners
            lost = mask_of(k for k, member in enumerate(meeting.members) if _has_failed(scope, member))
        scope.fired.discard(j)
        if won & ~touched:
            scope.won[j] = won & ~touched
        if lost & ~touched:
            scope.lost[j] = lost & ~touched


def _has_failed(scope: Scope, member: Member) -> bool:
    failed = (i for i in bits(member.nodes) if scope.statuses[i] is Status.FAILED)
    return any(not _is_tolerated_inside(scope, i, member) for i in failed)


def outcomes(scope: Scope, j: int) -> dict[str, str]:
    """Say what became of each branch of a group."""
    won, lost = scope.won.get(j, 0), scope.lost.get(j, 0)
    found: dict[str, str] = {}
    for k, member in enumerate(scope.plan.meetings[j].members):
        if won >> k & 1:
            found[member.name] = Status.COMPLETED.value
        elif lost >> k & 1:
            found[member.name] = Status.FAILED.value
        elif scope.active & member.nodes:
            found[member.name] = Status.RUNNING.value
        else:
            found[member.name] = "skipped"
    return found
