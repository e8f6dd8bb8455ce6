"""A page that shows the words of an answer as they come, from a run that goes on without it.

    pip install fastapi uvicorn
    uvicorn examples.tokens_page:app

The run is driven in this process here; with workers, use `host.start` in `ask` and drive the flow with
`everstep worker`: the page does not change. A browser that loses the line goes on where it was.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, Response, StreamingResponse

from everstep import AsyncHost, Context, Flow, node
from everstep.errors import RunNotFound

ANSWER = "A run is a chain of checkpoints, and each is hashed onto the one before it."


async def ask_a_model(question: str) -> AsyncGenerator[str, None]:
    """Stand in for the client of a model that streams."""
    for word in ANSWER.split(" "):
        await asyncio.sleep(0.02)
        yield f"{word} "


@node(output="answer")
async def reply(question: str, ctx: Context) -> str:
    words = []
    async for word in ask_a_model(question):
        ctx.emit("token", text=word, attempt=ctx.attempt)
        words.append(word)
    return "".join(words).strip()


flow = Flow("chat", [reply], streams=True, durability="strong")

PAGE = """<!doctype html>
<meta charset="utf-8"><title>Tokens</title><link rel="icon" href="data:,">
<form onsubmit="ask(event)"><input id="question" value="What is a run?"><button>Ask</button></form>
<p id="answer" aria-live="polite"></p>
<script>
let source;
async function ask(event) {
  event.preventDefault();
  const answer = document.getElementById("answer");
  const started = await fetch("/ask?question=" + encodeURIComponent(question.value), {method: "POST"});
  const {run_id} = await started.json();
  source?.close();  // of two answers at once, the newer one is shown
  answer.textContent = "";
  // A browser that loses the line asks again by itself, with the id of the last event that it saw.
  source = new EventSource("/runs/" + run_id);
  let told_by = "";
  source.addEventListener("token", e => {
    const {text, attempt} = JSON.parse(e.data);
    const by = e.lastEventId.split("~")[1].split(".")[0] + "/" + attempt;  // the epoch, and the attempt in it
    if (by !== told_by) { answer.textContent = ""; told_by = by; }  // it begins anew
    answer.textContent += text;
  });
  source.addEventListener("gap", e => answer.textContent += " … ");
  source.addEventListener("end", e => {
    const {status, answer: whole} = JSON.parse(e.data);
    answer.textContent = whole ?? "There is no answer: the run " + status + ".";
    e.target.close();
  });
}
</script>"""


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with AsyncHost(os.environ.get("EVERSTEP_STORE", "sqlite:///.everstep/runs.db")) as host:
        app.state.host, app.state.driving = host, set()
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/", response_class=HTMLResponse)
async def page() -> str:
    return PAGE


@app.post("/ask")
async def ask(request: Request, question: str) -> dict[str, str]:
    """Accept a question durably, and let it be answered in the background."""
    host, driving = request.app.state.host, request.app.state.driving
    accepted = await host.start(flow, {"question": question})
    task = asyncio.create_task(host.resume(accepted.run_id, flow))
    driving.add(task)
    task.add_done_callback(driving.discard)
    return {"run_id": accepted.run_id}


@app.get("/runs/{run_id}")
async def tokens(request: Request, run_id: str) -> Response:
    """Stream an answer as it comes, from the beginning or behind what the browser has seen."""
    host = request.app.state.host
    try:
        await host.info(run_id)
    except RunNotFound as error:
        raise HTTPException(404, str(error)) from None
    return StreamingResponse(
        _frames(host, run_id, request.headers.get("last-event-id")),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _frames(host: AsyncHost, run_id: str, after: str | None) -> AsyncGenerator[str, None]:
    async with aclosing(host.follow(run_id, after=after)) as events:
        async for event in events:
            if event.kind == "emitted" and event.data["name"] == "token":
                yield _frame(event.id, "token", event.data["data"])
            elif event.kind == "gap":
                yield _frame(event.id, "gap", event.data)
            elif event.kind == "run_ended":
                state = await host.state(run_id)
                yield _frame(event.id, "end", {"status": event.data["status"], "answer": state.get("answer")})


def _frame(id: str, kind: str, data: dict[str, object]) -> str:
    return f"id: {id}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"
