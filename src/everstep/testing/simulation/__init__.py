"""A simulated world: every schedule, from a seed. Read `world` first.

`simulate` tries a flow in it; `trial` says what is tried, `explore` which schedules, `checks` what must hold,
`story` how a failure is told. A world is made of `hub` (threads and time), `process`, `store` and `hosts`;
`played` are flows in it, with doubles for their effects; `faults` are what goes wrong, `ledger` is what was
seen. It needs the extra `simulation`. May import what `testing` may.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from everstep.errors import BadRequest

if TYPE_CHECKING:
    from everstep.testing.simulation.faults import Fault
    from everstep.testing.simulation.played import ITSELF
    from everstep.testing.simulation.recorded_run import recorded
    from everstep.testing.simulation.simulating import Simulated, SimulationFailed, simulate
    from everstep.testing.simulation.world import Here, World

__all__ = ["Fault", "Here", "ITSELF", "Simulated", "SimulationFailed", "World", "recorded", "simulate"]

_PLACES = {
    "Fault": "faults",
    "Here": "world",
    "ITSELF": "played",
    "Simulated": "simulating",
    "SimulationFailed": "simulating",
    "World": "world",
    "recorded": "recorded_run",
    "simulate": "simulating",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "greenlet":
            raise
        raise BadRequest(
            "simulation needs greenlet, which is not installed.", fix="pip install 'everstep[simulation]'"
        ) from error
