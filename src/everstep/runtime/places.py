"""Which record lies in which place of a chain, and what that says if it is not the right one."""

from __future__ import annotations

from collections.abc import Iterator

from everstep.runtime.flaws import FlawKind

Told = tuple[FlawKind, str, int]
_MOST = 1000


class Places:
    """Notes what each place of a chain holds; a stretch of places that are all off alike costs one note."""

    def __init__(self, first: int) -> None:
        self.newest = first - 1
        """The last place that holds something."""
        self._gaps: list[tuple[int, int]] = []
        self._off: list[list[int]] = []
        """Stretches of places that hold the records of others: first, last, and by how much they are off."""

    def take(self, place: int, sequence: int | None) -> None:
        """Note the sequence that the record in a place says it has; none if it cannot be read."""
        if place > self.newest + 1 and len(self._gaps) < _MOST:
            self._gaps.append((self.newest + 1, place - 1))
        self.newest = max(self.newest, place)
        shift = 0 if sequence is None else sequence - place
        if not shift:
            return
        if self._off and self._off[-1][1] == place - 1 and self._off[-1][2] == shift:
            self._off[-1][1] = place
        elif len(self._off) < _MOST:
            self._off.append([place, place, shift])

    def flaws(self, last: int, run_id: str) -> Iterator[Told]:
        """Yield what is wrong with the places up to a sequence."""
        made_up: list[tuple[int, int]] = []
        for first, until, shift in self._off:
            if until == self.newest and shift > 0:
                # All that follows stands too low: what belongs before it was taken out.
                yield _missing(first, first + shift - 1, run_id)
                made_up.append((until + 1, until + shift))
            else:
                yield self._moved(first, until, shift, run_id)
        gaps = list(self._gaps)
        if self.newest < last:
            gaps.append((self.newest + 1, last))
        for first, until in gaps:
            if (first, until) not in made_up:
                yield _missing(first, until, run_id)

    def _moved(self, first: int, until: int, shift: int, run_id: str) -> Told:
        sequence = first + shift
        what = f"checkpoint {sequence} of run {run_id!r}"
        if self._holds(sequence) or (until == self.newest and shift < 0):
            return FlawKind.DUPLICATED, f"{what} is there a second time, in the place of {first}.", first
        return FlawKind.REORDERED, f"{what} lies in the place of {first}.", first

    def _holds(self, sequence: int) -> bool:
        """True if a place holds the record that belongs there."""
        gone = any(first <= sequence <= until for first, until in self._gaps)
        other = any(first <= sequence <= until for first, until, _ in self._off)
        return not gone and not other and sequence <= self.newest


def _missing(first: int, last: int, run_id: str) -> Told:
    if first == last:
        return FlawKind.MISSING, f"checkpoint {first} of run {run_id!r} is missing.", first
    return FlawKind.MISSING, f"checkpoints {first} to {last} of run {run_id!r} are missing.", first
