"""The route table: every endpoint, who may call it, what it takes and what it gives. Apart from `app`, which
knows no endpoint.
"""

from __future__ import annotations

from everstep.client.guards import BreakerInfo
from everstep.client.projection import StepPage
from everstep.client.views import RunInfo, WaitInfo
from everstep.results import Erased
from everstep.server import shapes
from everstep.server.api import breakers, delivery, events, keeping, looking, monitoring, runs, waits
from everstep.server.checks import (
    CHECKPOINT,
    EVENT_ID,
    MOST,
    PART,
    RUNS,
    WAIT_ID,
    WAIT_STATUSES,
)
from everstep.server.endpoint import Answer, Body, Endpoint, Guard, Query
from everstep.server.pages import answer
from everstep.server.schemas import ANY, FLAG, OBJECT, TEXT, Shape, pattern

JSON = "application/json"
HTML = "text/html"
FORM = "application/x-www-form-urlencoded"


def _json(description: str, shape: Shape, headers: dict[str, str] | None = None) -> Answer:
    return Answer(description, {JSON: shape}, headers or {})


_LIMIT = Query(
    "limit", {"type": "integer", "minimum": 1, "maximum": MOST, "default": 100}, "At most so many."
)
_FLOW = Query("flow", TEXT, "Only of this flow.")
_PAGE = Answer("A page.", {HTML: TEXT})

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        method="POST",
        path="/runs",
        name="start_run",
        is_signed=True,
        summary="Accept a run durably and return at once; a worker drives it.",
        handler=runs.start,
        body=Body(shapes.Start),
        answers={202: _json("The run, accepted.", RunInfo, {"Location": "Where the run is shown."})},
        errors=(404, 409, 422),
    ),
    Endpoint(
        method="GET",
        path="/runs",
        name="list_runs",
        summary="List runs, newest first.",
        handler=runs.listing,
        query=RUNS,
        answers={200: _json("Runs.", shapes.Runs)},
    ),
    Endpoint(
        method="GET",
        path="/workers",
        name="list_workers",
        summary="List the workers that are alive, the longest serving first, and what they drive.",
        handler=runs.workers,
        answers={200: _json("Workers.", shapes.Workers)},
    ),
    Endpoint(
        method="GET",
        path="/breakers",
        name="list_breakers",
        summary="List the breakers that runs of the store share.",
        handler=breakers.listing,
        answers={200: _json("Breakers by name.", shapes.Breakers)},
    ),
    Endpoint(
        method="POST",
        path="/breakers/{breaker}/reset",
        name="reset_breaker",
        is_signed=True,
        summary="Close a shared breaker; what it has counted is forgotten.",
        handler=breakers.reset,
        body=Body(shapes.Signed, required=False),
        answers={200: _json("How it stands.", BreakerInfo)},
        errors=(404,),
    ),
    Endpoint(
        method="GET",
        path="/runs/{run_id}",
        name="show_run",
        summary="Show one run.",
        handler=runs.show,
        answers={200: _json("The run.", shapes.ShownRun)},
        errors=(404,),
    ),
    Endpoint(
        method="DELETE",
        path="/runs/{run_id}",
        name="erase_run",
        is_signed=True,
        summary="Remove a run that has ended for good, with the artifacts that only it names.",
        handler=keeping.erase,
        answers={200: _json("What went.", Erased)},
        errors=(404, 409),
    ),
    Endpoint(
        method="POST",
        path="/runs/{run_id}/pin",
        name="pin_run",
        is_signed=True,
        summary="Keep a run whole until it is unpinned, whatever retention says.",
        handler=keeping.pin,
        body=Body(shapes.Pin, required=False),
        answers={200: _json("The run.", RunInfo)},
        errors=(404,),
    ),
    Endpoint(
        method="POST",
        path="/runs/{run_id}/unpin",
        name="unpin_run",
        is_signed=True,
        summary="Let retention apply to a run again.",
        handler=keeping.unpin,
        body=Body(shapes.Signed, required=False),
        answers={200: _json("The run.", RunInfo)},
        errors=(404,),
    ),
    Endpoint(
        method="POST",
        path="/runs/{run_id}/ack",
        name="acknowledge_run",
        is_signed=True,
        summary="Note that the result of a run that has ended was taken.",
        handler=keeping.ack,
        body=Body(shapes.Signed, required=False),
        answers={200: _json("The run.", RunInfo)},
        errors=(404,),
    ),
    Endpoint(
        method="GET",
        path="/runs/{run_id}/state",
        name="show_state",
        summary="Show the values of a run at a checkpoint, by default the newest.",
        handler=runs.state,
        looks_back=True,
        query=(Query("at", pattern(CHECKPOINT), "The checkpoint's number or id."),),
        answers={200: _json("The state.", shapes.State)},
        errors=(404,),
    ),
    Endpoint(
        method="GET",
        path="/runs/{run_id}/nodes",
        name="list_nodes",
        summary="Show a run at a glance: its nodes with visits, attempts, items, waits and times.",
        handler=looking.nodes,
        looks_back=True,
        answers={200: _json("The nodes.", shapes.Nodes)},
        errors=(404,),
    ),
    Endpoint(
        method="GET",
        path="/runs/{run_id}/steps",
        name="list_steps",
        summary="List the steps of a run in order, those of a map's items in one line.",
        handler=looking.steps,
        looks_back=True,
        query=(
            Query(
                "after",
                {"type": "integer", "minimum": 0, "maximum": 9999999999, "default": 0},
                "Only behind this checkpoint.",
            ),
            Query("full", FLAG, "A line for every step of a map's items, too."),
            Query("limit", _LIMIT.schema, "The steps of at most so many checkpoints."),
        ),
        answers={200: _json("A page of steps.", StepPage)},
        errors=(404,),
    ),
    Endpoint(
        method="GET",
        path="/runs/{run_id}/events",
        name="watch_run",
        summary="Stream the events of a run until it ends, or give a page of them as JSON.",
        handler=events.events,
        query=(Query("after", pattern(EVENT_ID), "Only what came after this event."), _LIMIT),
        answers={
            200: Answer("Events.", {events.STREAM: shapes.StreamedEvent, JSON: shapes.Events}),
            204: Answer("The run has ended, and there are no more events."),
        },
        errors=(404,),
    ),
    Endpoint(
        method="POST",
        path="/runs/{run_id}/cancel",
        name="cancel_run",
        is_signed=True,
        summary="Cancel a run; `running` means that its owner was told.",
        handler=runs.cancel,
        body=Body(shapes.Signed, required=False),
        answers={200: _json("Where the run stands.", shapes.Cancelled)},
        errors=(404, 409),
    ),
    Endpoint(
        method="POST",
        path="/runs/{run_id}/resume",
        name="resume_run",
        is_signed=True,
        summary="Drive a run in the service until it ends or halts; a failed one is reopened. A service that "
        "drives none leaves it to workers.",
        handler=runs.resume,
        body=Body(shapes.Resume, required=False),
        answers={
            200: _json("The run ended.", shapes.Result),
            202: _json("The run halted, or is left to workers.", shapes.Halted),
        },
        errors=(404, 409),
    ),
    Endpoint(
        method="GET",
        path="/waits",
        name="list_waits",
        summary="List waits, the oldest first; by default those that are open.",
        handler=waits.listing,
        query=(
            Query("run_id", pattern(PART), "Only of this run, or of this part of one."),
            _FLOW,
            Query("kind", pattern(waits.KIND), "Only of this kind."),
            Query("status", {"type": "string", "enum": WAIT_STATUSES}, "Only with this status."),
            _LIMIT,
            Query("after", pattern(WAIT_ID), "Go on after this wait of the list."),
        ),
        answers={200: _json("Waits.", shapes.Waits)},
        errors=(404,),
    ),
    Endpoint(
        method="GET",
        path="/waits/{wait_id}",
        name="show_wait",
        summary="Show one wait.",
        handler=waits.show,
        answers={200: _json("The wait.", WaitInfo)},
        errors=(404,),
    ),
    Endpoint(
        method="POST",
        path="/waits/{wait_id}/answer",
        name="answer_wait",
        is_signed=True,
        summary="Answer a wait as its operator.",
        handler=waits.settle,
        body=Body(ANY, required=False),
        answers={200: _json("The wait, settled.", WaitInfo)},
        errors=(404, 409),
    ),
    Endpoint(
        method="POST",
        path="/waits/{wait_id}/reissue",
        name="reissue_token",
        is_signed=True,
        summary="Give a wait another token; the one it had dies.",
        handler=waits.reissue,
        body=Body(shapes.Reissue, required=False),
        answers={200: _json("The wait, with its token.", WaitInfo)},
        errors=(404, 409),
    ),
    Endpoint(
        method="POST",
        path="/answers/{token}",
        name="answer_by_token",
        is_signed=True,
        summary="Answer a wait with its token alone. An answer of the wrong shape does not use the token up.",
        handler=waits.answer_by_token,
        guard=Guard.TOKEN,
        body=Body(ANY, required=False),
        answers={200: _json("Settled.", shapes.Settled)},
        errors=(409,),
    ),
    Endpoint(
        method="POST",
        path="/resume",
        name="deliver",
        is_signed=True,
        summary="Deliver a checkpoint id, a token or a wait id, and drive its run on. Private.",
        handler=delivery.deliver,
        is_public=False,
        body=Body(OBJECT),
        answers={200: _json("The run ended.", shapes.Result), 202: _json("The run halted.", shapes.Halted)},
        errors=(404, 409),
    ),
    Endpoint(
        method="GET",
        path="/w/{token}",
        name="show_page",
        summary="A page for a person to answer at. Looking at it settles nothing.",
        handler=answer.show,
        guard=Guard.TOKEN,
        answers={200: _PAGE},
        errors=(409,),
        errors_in=HTML,
    ),
    Endpoint(
        method="POST",
        path="/w/{token}",
        name="answer_on_page",
        summary="What the form of that page sends.",
        handler=answer.settle,
        guard=Guard.TOKEN,
        body=Body(OBJECT, media=FORM),
        answers={200: _PAGE},
        errors=(409,),
        errors_in=HTML,
    ),
    Endpoint(
        method="GET",
        path="/healthz",
        name="health",
        summary="Say that the service answers.",
        handler=monitoring.healthz,
        guard=Guard.NONE,
        answers={200: _json("It does.", shapes.Health)},
    ),
    Endpoint(
        method="GET",
        path="/metrics",
        name="metrics",
        summary="Metrics in the text form of Prometheus.",
        handler=monitoring.metrics,
        answers={200: Answer("Metrics.", {"text/plain": TEXT})},
    ),
    Endpoint(
        method="GET",
        path="/openapi.json",
        name="openapi",
        summary="This document.",
        handler=monitoring.openapi,
        guard=Guard.BEARER,
        answers={200: Answer("An OpenAPI document.", {JSON: OBJECT})},
    ),
)
