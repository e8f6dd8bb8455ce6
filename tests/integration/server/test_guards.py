"""What a service tells of budgets and breakers."""

from __future__ import annotations

from everstep import Breaker, Context, Flow, Retry, node
from tests.integration.server.serving import Serving, code_of, served


@node(output="draft")
def write(ctx: Context) -> str:
    ctx.spend(usd="4.50")
    return "draft"


@node(output="sent", retry=Retry(9, first=0))
def send(draft: str) -> str:
    raise ConnectionError("down")


guarded = Flow(
    "guarded",
    [write, send],
    budgets={"usd": "5.00"},
    breakers=[Breaker("mail", failures=2, shared=True)],
)


@served()
async def test_a_run_tells_what_it_spent_and_how_its_breakers_stand(s: Serving) -> None:
    await s.host.run(guarded, run_id="G1")
    told = (await s.client.get("/runs/G1")).json()["guards"]
    assert told["budgets"]["usd"] == {"spent": "4.50", "limit": "5.00", "raised": "0", "left": "0.50"}
    assert told["breakers"]["mail"]["state"] == "open"
    assert (await s.client.get("/runs/G1/state")).json()["guards"] == told


@served()
async def test_shared_breakers_are_listed_and_closed(s: Serving) -> None:
    assert (await s.client.get("/breakers")).json() == {"breakers": {}}
    await s.host.run(guarded, run_id="G1")
    assert (await s.client.get("/breakers")).json()["breakers"]["mail"]["state"] == "open"
    assert (await s.client.post("/breakers/mail/reset")).json()["state"] == "closed"
    assert code_of(await s.client.post("/breakers/other/reset")) == (404, "DAG-CKPT-006")
    assert code_of(await s.client.post("/breakers/%20/reset")) == (404, "DAG-CKPT-006")


@served()
async def test_metrics_tell_what_runs_driven_here_spent_and_how_shared_breakers_stand(s: Serving) -> None:
    await s.host.run(guarded, run_id="G1")
    lines = (await s.client.get("/metrics")).text.splitlines()
    for line in (
        'everstep_spent_total{name="usd"} 4.50',
        'everstep_budget_warnings_total{budget="usd"} 1',
        'everstep_breaker_trips_total{breaker="mail"} 1',
        'everstep_breakers{breaker="mail",state="open"} 1',
        'everstep_breakers{breaker="mail",state="closed"} 0',
    ):
        assert line in lines, "\n".join(lines)
