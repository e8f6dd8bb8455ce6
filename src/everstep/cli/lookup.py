"""The values that steps read and wrote, found by version in the states of the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everstep import Host, RunState
from everstep.cli.plain import Unreadable
from everstep.errors import EverstepError
from everstep.model.enums import ValueForm
from everstep.model.records import CheckpointRecord, Written


class Lookup:
    """Reads any version of any value that was the newest at the end of some checkpoint."""

    def __init__(self, host: Host, run_id: str, records: Sequence[CheckpointRecord]) -> None:
        self._host = host
        self._run_id = run_id
        self._head = records[-1].sequence if records else 0
        self._written: dict[tuple[str, int], int] = {}
        for record in records:
            for step in record.steps:
                for write in step.writes:
                    self._written[write.name, write.version] = record.sequence
        if records and records[0].state is not None:
            for write in records[0].state.values:
                self._written.setdefault((write.name, write.version), records[0].sequence)
        self._states: dict[int, RunState | Unreadable] = {}

    def value(self, name: str, version: int) -> Any:
        """Return a version of a value, or an `Unreadable` that says why not."""
        first = self._written.get((name, version))
        if first is None:
            return Unreadable(f"no checkpoint wrote version {version} of {name!r}")
        # The last checkpoint that still has it: most values are never rewritten, and share the newest state.
        last = self._written.get((name, version + 1), self._head + 1) - 1
        if last < first:
            return Unreadable(f"version {version} was overwritten before checkpoint {first} was written")
        state = self._state(last)
        if isinstance(state, Unreadable):
            return state
        try:
            return state[name]
        except Exception as error:
            return Unreadable(error)

    def added(self, write: Written) -> list[Any] | None:
        """Return the items that a write appended to a list; none if it wrote the list whole, or who knows."""
        if write.form is not ValueForm.APPEND:
            return None
        before, after = self.value(write.name, write.version - 1), self.value(write.name, write.version)
        if not isinstance(before, list) or not isinstance(after, list):
            return None
        return after[len(before) :]

    def _state(self, sequence: int) -> RunState | Unreadable:
        if sequence not in self._states:
            newest = self._states.get(self._head)
            self._states = {self._head: newest} if newest is not None else {}
            try:
                self._states[sequence] = self._host.state(self._run_id, at=sequence)
            except EverstepError as error:
                self._states[sequence] = Unreadable(error)
        return self._states[sequence]
