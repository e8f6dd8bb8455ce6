"""Nodes that wait for a clock, a person or another system: `from everstep import wait`."""

from everstep.graph.author.wait_options import Wait
from everstep.graph.author.waits import (
    WaitNode,
    approval,
    callback,
    event,
    literal,
    question,
    signal,
    timer,
    value,
)
from everstep.model.outputs import ApprovalOutput, CallbackOutput, TimerOutput

__all__ = [
    "ApprovalOutput",
    "CallbackOutput",
    "TimerOutput",
    "Wait",
    "WaitNode",
    "approval",
    "callback",
    "event",
    "literal",
    "question",
    "signal",
    "timer",
    "value",
]
