"""Processes made of phases: `phases` makes a flow of a list of `Phase`s, with `ScoredGate`s between them."""

import sys
from types import ModuleType
from typing import Any
from warnings import warn

from everstep.frontends.phases.build import phases
from everstep.frontends.phases.phase import Phase, ScoredGate

__all__ = ["Phase", "ScoredGate", "phases"]


class _CallableModule(ModuleType):
    """What `from everstep import phases` gives: in 0.1 that was the function, so the module can be called."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        message = "everstep.phases is everstep.phases.phases now; the old name works until everstep 0.3."
        warn(message, DeprecationWarning, stacklevel=2)
        return phases(*args, **options)


sys.modules[__name__].__class__ = _CallableModule
