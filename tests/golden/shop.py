"""The flows that the golden files are made with: a bit of everything that a run can record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from everstep import END, Breaker, Budget, Context, Flow, Retry, node, route, wait


@dataclass
class Line:
    sku: str
    price: int


@node(output="lines")
def cart(skus: list[str]) -> list[Line]:
    return [Line(sku, 10 * len(sku)) for sku in skus]


@node(output="sku")
def check(lines: Line) -> str:
    if lines.sku == "gone":
        raise LookupError("gone is out of stock")
    return lines.sku.upper()


@node(output="total")
def add(lines: list[Line], sku: list[Any], ctx: Context) -> int:
    ctx.spend(usd=2)
    return sum(line.price for line in lines)


@node(output="slip")
def label(total: int) -> str:
    return f"slip for {total}"


packing = Flow("packing", [label])


@node(output="receipt", effects="effectful", idempotency_key="auto", on_unknown="stop")
def charge(total: int, approve: wait.ApprovalOutput) -> dict[str, Any]:
    if total == 70:  # the process ends in the middle of it
        raise KeyboardInterrupt
    return {"charged": total, "approved": approve.approved}


order = Flow(
    "order",
    [
        cart,
        check.map_over("lines", on_error="collect", max_concurrency=1),
        add,
        packing.as_node(),
        wait.approval("approve", context="slip", prompt="Ship it?", timeout="3d"),
        charge,
    ],
    budgets=[Budget("usd", 5)],
    durability="strong",
)


@node(output="n")
def count_up(n: int) -> int:
    return n + 1


@route("count_up", END)
def again(n: int, top: int = 2) -> str:
    return END if n >= top else "count_up"


counter = Flow("counter", [count_up, again], entry="count_up", durability="strong")


@node(output="quote", retry=Retry(1, first=0))
def quote(sku: str) -> int:
    raise ConnectionError(f"no price of {sku}")


pricing = Flow("pricing", [quote], breakers=[Breaker("prices", failures=2, shared=True)], notify="ops")


@node(output="odd")
def odd(plain: Any) -> dict[str, Any]:
    return {"keys": {1: "one"}, "marked": {"$type": "x"}, "none": float("nan"), "pair": (1, Line("tea", 3))}


@node(output="slept")
def rest(odd: Any) -> int:
    return len(odd)


oddities = Flow("oddities", [odd, rest], durability="strong")


@node(output="reply")
def reply(message: str) -> str:
    return f"you said {message}"


talk = Flow("talk", [wait.signal("message"), reply])
