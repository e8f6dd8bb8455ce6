"""What the commits of a repository say. Apart as words that people read in the history."""

from __future__ import annotations

from everstep.errors import EverstepError
from everstep.stores.objects import names
from everstep.stores.objects.entries import decode


def describe(name: str, data: bytes) -> str:
    """Say what is written under a name: of the log of a run, its checkpoints."""
    if not name.startswith("runs/"):
        return f"Keep {name}"
    try:
        entry = decode(data, name)
    except EverstepError:
        return f"Keep {name}"
    ids = [record.checkpoint_id for record in entry.records]
    run = names.unquoted(name.split("/")[1])
    if len(ids) > 1:
        return f"Checkpoints {entry.records[0].sequence} to {entry.records[-1].sequence} of {run}"
    return f"Checkpoint {ids[0]}" if ids else f"{entry.what.capitalize() or 'Write'} {run}"
