"""What a person sees while a run goes on: a live tree on a terminal, plain lines on a pipe, or nothing. Apart
from the commands, which do not know whether a person looks on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Protocol

from everstep import Flow
from everstep.cli.live.progress import Lines, Silent, how_to_settle
from everstep.results import RunState
from everstep.runtime.events import Event


class Watcher(Protocol):
    """Hears of everything that happens, and knows which run it is about."""

    run_id: str
    """Empty until a run was started or resumed."""
    is_halted: bool
    """True while the run waits for answers and nothing else."""

    def __call__(self, event: Event) -> None: ...

    def recall(self, look: Callable[[], RunState]) -> None:
        """Take a look at what an earlier process has done."""

    def stop(self) -> None: ...


def choose_watcher(
    flow: Flow, *, quiet: bool, store: str | None = None, stays: bool = False, is_plain: bool = False
) -> Watcher:
    """Pick what suits where stderr goes; one that stays with a halted run says how to answer it.

    A plain one leaves the terminal to questions that are asked on it.
    """
    if quiet:
        return Silent()
    how = partial(how_to_settle, store) if stays else None
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not is_plain:
        from everstep.cli.live.tree import LiveTree

        return LiveTree(flow, how=how)
    return Lines(flow, how=how)
