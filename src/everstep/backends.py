"""What does the work of a pipeline's nodes: `Flow.from_dot(text, backend=backends.Shell("agent"))`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from everstep.errors import BadRequest
from everstep.frontends.backends.shell import Shell, Tools
from everstep.frontends.pipelines.simulation import Simulation

if TYPE_CHECKING:
    from everstep.frontends.backends.http import Http

__all__ = ["Http", "Shell", "Simulation", "Tools"]


def __getattr__(name: str) -> Any:
    if name != "Http":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return import_module("everstep.frontends.backends.http").Http
    except ModuleNotFoundError as error:
        raise BadRequest(
            f"Http needs {error.name}.", fix="Install it with: pip install 'everstep[http]'"
        ) from error
