"""Doubles that are taken from a recorded run: a call gives what that visit gave. Apart from `played`, which
needs no host.
"""

from __future__ import annotations

from everstep.client.sync import Host
from everstep.codec.tags import Unreadable
from everstep.model.address import plain_of
from everstep.model.enums import Status
from everstep.model.records import UNDONE_BY
from everstep.testing.simulation.played import VisitDouble


def recorded(host: Host, run_id: str) -> dict[str, VisitDouble]:
    """Return doubles for the effects of a recorded run, for `simulate(..., doubles=recorded(host, "A17"))`.

    A visit that the run does not have, or whose values are not kept, is refused by name when it is called.
    """
    writes: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for record in host.history(run_id):
        for step in record.steps:
            if step.status is Status.COMPLETED and not step.path.startswith("@"):
                named = [
                    (step.whole_name(write.name), write.version)
                    for write in step.writes
                    if write.name != UNDONE_BY
                ]
                writes[step.path, step.visit] = named
    values = host.debug.recall(run_id, [version for named in writes.values() for version in named])
    found: dict[str, VisitDouble] = {}
    for (path, visit), named in writes.items():
        double = found.setdefault(plain_of(path), VisitDouble(run_id))
        given = [values[version] for version in named]
        if not any(isinstance(value, Unreadable) for value in given):
            double.add(path, visit, given[0] if len(given) == 1 else tuple(given))
    return found
