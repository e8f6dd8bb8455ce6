"""Flows of many shapes, and runs of them in many states, for the console to show."""

from __future__ import annotations

from typing import Any

from everstep import END, Context, Flow, Host, ifelse, node, wait

EVIL = "<img src=x onerror=alert(1)><script>alert(1)</script>"


@node(output="order")
def take(customer: str, items: list[str]) -> dict[str, Any]:
    return {"customer": customer, "items": items, "note": EVIL}


@node(output="price")
def price(order: dict[str, Any]) -> int:
    return 10 * len(order["items"])


@node(output="receipt", effects="effectful", idempotency_key="auto")
def charge(order: dict[str, Any], price: int) -> str:
    if order["customer"] == "13":
        raise ValueError(f"the card of customer 13 was declined {EVIL}")
    return f"{order['customer']}: {price} paid"


@node(output="parcel")
def pack(order: dict[str, Any], receipt: str, release: wait.ApprovalOutput) -> dict[str, Any]:
    return {"items": order["items"], "receipt": receipt, "released": release.approved}


release = wait.approval("release", context="order", prompt="Release this order?", timeout="3d")
orders = Flow("orders", [take, price, charge, release, pack], durability="strong")


@node(output="doubled")
def double(x: int) -> int:
    if x == 13:
        raise ValueError("13 brings bad luck")
    return 2 * x


doubling = Flow("doubling", [double]).as_node()
many = Flow(
    "many",
    [doubling.map_over("x", on_error="collect").with_inputs(x="xs").with_outputs(doubled="all")],
    durability="strong",
)


@node(output="n")
def step(n: int) -> int:
    return n + 1


@ifelse(when_true="step", when_false=END)
def more(n: int, limit: int = 6) -> bool:
    return n < limit


count = Flow("count", [step, more], entry="step", durability="strong")


def search(question: str) -> str:
    return f"found {question}"


@node(output="answer")
def agent(question: str, ctx: Context) -> str:
    return " ".join(ctx.step("search", search, f"{question} {k}") for k in range(3))


@node(output="messages")
def tell(answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": "why?"}, {"role": "assistant", "content": answer}]


talk = Flow("talk", [agent, tell], durability="strong")
FLOWS = [orders, many, count, talk]


def fill(host: Host) -> None:
    """Put runs into a store: completed, failed, halted, forked, mapped, with calls inside a node."""
    for customer in ("1", "7", "13", "21"):
        host.run(
            orders,
            {"customer": customer, "items": ["a", "b"]},
            run_id=f"order-{customer}",
            by="ann",
            tags=["vip"] if customer == "7" else (),
            attributes={"customer": customer},
        )
    host.answer(host.waits("order-1")[0].id, {"approved": True, "comment": "fine"}, by="bob")
    host.resume("order-1", orders)
    host.run(many, {"xs": list(range(20))}, run_id="many-1")
    host.run(count, {"n": 0}, run_id="count-1")
    host.resume(host.fork("count-1", at=4, inputs={"limit": 9}).run_id, count)
    host.run(talk, {"question": "why"}, run_id="talk-1")
