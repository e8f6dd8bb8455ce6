"""When buffered steps are written."""

from __future__ import annotations

from datetime import timedelta

from everstep.graph.author.node import Node
from everstep.model.durability import RECORD_BYTES, RECORD_STEPS, Durability
from everstep.model.enums import Flush, Mode, Status, Trigger

MAX_LAG_STEPS = 1000
MAX_LAG_BYTES = 1 << 20
MAX_LAG = timedelta(seconds=1)


class FlushPolicy:
    """Turns a flow's durability into answers: write now, and why, or let it ride."""

    def __init__(
        self, durability: Durability, auto_checkpoint: int | None = None, *, record_bytes: int = RECORD_BYTES
    ) -> None:
        self._auto = auto_checkpoint
        self.mode = durability.mode
        self.writes = durability.mode is not Mode.OFF
        self.before_effects = durability.flush is Flush.BEFORE_EFFECTS
        steps, span = durability.interval_parts()
        self.every_step = self.mode is Mode.STRONG and durability.interval is None and not self.before_effects
        self.max_steps = MAX_LAG_STEPS if self.before_effects else steps
        self.max_seconds = (MAX_LAG if self.before_effects else span or timedelta.max).total_seconds()
        self.max_bytes = min(MAX_LAG_BYTES if self.before_effects else record_bytes, record_bytes)
        self.has_deadline = self.before_effects or span is not None

    def after(
        self, node: Node, status: Status, *, steps: int, size: int, seconds: float, asked: bool
    ) -> Trigger | None:
        """Say whether to write after this step, given what is buffered and for how long."""
        if node.expensive and status is Status.COMPLETED and self.writes:
            return Trigger.EXPENSIVE_OP
        if self.every_step:
            return Trigger.MANUAL if asked else Trigger.RETRY if status is Status.RETRYING else Trigger.STEP
        if not self.writes:
            return None
        if asked:
            return Trigger.MANUAL
        if status is not Status.COMPLETED:
            return Trigger.RETRY if status is Status.RETRYING else Trigger.STEP
        if node.is_effectful:
            return Trigger.EFFECT
        if node.is_kept_at_once:
            return Trigger.STEP
        if self._auto is not None and steps >= self._auto:
            return Trigger.AUTO
        if self.before_effects and not node.rides:
            return Trigger.STEP
        if self.max_steps is not None and steps >= self.max_steps:
            return Trigger.INTERVAL
        if seconds >= self.max_seconds or self.is_full(steps, size):
            return Trigger.INTERVAL
        return None

    def is_full(self, steps: int, size: int) -> bool:
        """True if no more should be added to what is buffered."""
        return size >= self.max_bytes or steps >= RECORD_STEPS
