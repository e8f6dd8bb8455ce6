"""Runs that spend: whatever kills them, what was spent before is on record, to the cent and once."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

from everstep import Breaker, Context, Flow, Host, node
from everstep.results import RunResult
from tests.acceptance.crash.flows.waits import answering
from tests.acceptance.crash.scenarios import AT_ONCE, RUN, Bodies, Facts, Parts, Scenario

CENT = Decimal("0.01")


class Bank:
    """Where the money really goes. The amounts tell the payments apart: 0.01, 0.02, 0.04, 0.08, …"""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "bank.txt"

    def _lines(self) -> list[str]:
        return self._file.read_text().split() if self._file.exists() else []

    def _write(self, word: str) -> None:
        with self._file.open("a") as file:
            file.write(f"{word}\n")

    def begun(self) -> set[int]:
        return {int(line[1:]) for line in self._lines() if line[0] == "b"}

    def counted(self) -> set[int]:
        return {int(line[1:]) for line in self._lines() if line[0] == "c"}

    def pay(self, ctx: Context) -> None:
        number = len(self.begun())
        self._write(f"b{number}")
        ctx.spend(usd=CENT * 2**number, calls=1)
        self._write(f"c{number}")

    def check(self, host: Host) -> None:
        """Every payment that was counted is on record, once; and nothing is that was never made."""
        spent = host.state(RUN).guards.spent
        total, calls = spent["usd"], spent["calls"]
        found = {k for k in range(60) if int(total / CENT) >> k & 1}
        assert total == sum((CENT * 2**k for k in found), Decimal(0)) and calls == len(found)
        assert self.counted() <= found <= self.begun(), (self.counted(), found, self.begun())


def spending_parts(body: Bodies) -> Parts:
    bank = Bank(body.folder)

    @node(output="plan")
    def think(question: str, ctx: Context) -> str:
        with body("think", ctx):
            bank.pay(ctx)
            bank.pay(ctx)
            return question.upper()

    @node(output="answer", retry=AT_ONCE)
    def ask(plan: str, ctx: Context) -> str:
        with body("ask", ctx):
            bank.pay(ctx)
            if ctx.attempt == 1:
                raise ConnectionError("what was paid is gone")
            return plan + "!"

    @node(output="thanks")
    def close(answer: str) -> int:
        with body("close"):
            return len(answer)

    return {"nodes": [think, ask, close], "budgets": {"usd": 10**9}}


class Audited(Scenario):
    """Runs whose records are held against the bank once they have ended."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, program=self._run, **options)

    def flow(self, name: str, bodies: Bodies) -> Flow:
        self._bank = Bank(bodies.folder)
        return super().flow(name, bodies)

    def _run(self, host: Host, flow: Flow, inputs: Facts) -> RunResult:
        result = host.run(flow, inputs, run_id=RUN)
        self._bank.check(host)
        return result


def tripping_parts(body: Bodies) -> Parts:
    """A service that fails twice, so that its breaker opens, and is well again at the first try."""

    @node(output="order")
    def take(name: str) -> str:
        with body("take"):
            return name.upper()

    @node(output="receipt", effects="effectful", idempotency_key="auto", retry=AT_ONCE, destructive=True)
    def pay(order: str, ctx: Context) -> str:
        with body("pay", ctx):
            if ctx.attempt <= 2:
                raise ConnectionError(f"down at attempt {ctx.attempt}")
            return f"{order} paid"

    @node(output="thanks", expensive=True)
    def thank(receipt: str) -> str:
        with body("thank"):
            return f"thanks for {receipt}"

    return {"nodes": [take, pay, thank], "breakers": [Breaker("payments", failures=2)]}


SPENDING = {
    "spending": Audited(spending_parts, {"question": "why"}, "strong"),
    "tripped": Scenario(tripping_parts, {"name": "ada"}, "strong", program=answering()),
}
