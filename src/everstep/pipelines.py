"""Pipelines in DOT: what their handlers are given and return, and who answers for people."""

from everstep.frontends.pipelines.interviewers import (
    AutoApprove,
    Callback,
    Choice,
    Interviewer,
    Question,
    Queue,
    Recording,
)
from everstep.frontends.pipelines.outcome import Outcome, StageError, StageStatus
from everstep.frontends.pipelines.stage import Handler, Stage

__all__ = [
    "AutoApprove",
    "Callback",
    "Choice",
    "Handler",
    "Interviewer",
    "Outcome",
    "Question",
    "Queue",
    "Recording",
    "Stage",
    "StageError",
    "StageStatus",
]
