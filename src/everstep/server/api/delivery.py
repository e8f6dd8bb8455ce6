"""`POST /resume`: what timers, queues, webhooks and operators deliver. Not for the public."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from everstep.codec.wire import wire
from everstep.server.bodies import WHO, expect_object, read_json, who_of
from everstep.server.endpoint import Service
from everstep.server.shapes import Halted, Result
from everstep.server.wire import answer


async def deliver(service: Service, request: Request) -> Response:
    """Settle what the message settles, then drive the run on in this process, or leave it to workers."""
    message = expect_object(
        await read_json(request, service.max_body),
        optional=["checkpoint_id", "run_id", "token", "wait_id", "answer", *WHO],
    )
    how = {"drive": service.works, **who_of(request, message)}
    delivery = await service.host.deliver(message, service.flows.values(), **how)
    resumed = delivery.resumed
    metadata = {"labels": None, "resume": None} if resumed is None else resumed.to_wire()
    if delivery.result is None or delivery.result.status == "halted":
        halted = Halted(halted=True, run_id=delivery.run_id, waits=delivery.waits)
        return answer({**wire(halted), **metadata}, 202)
    return answer({**wire(Result.of(delivery.result)), **metadata})
