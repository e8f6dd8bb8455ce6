"""Flows that fail, and a receiver that is up or down: what the tests of notices share."""

from __future__ import annotations

from everstep import Flow, node
from everstep.ports.durability import Notice


@node(output="x")
def fails(a: int) -> int:
    raise ValueError(f"{a} is too much")


@node(output="x")
def works(a: int) -> int:
    return a


FAILING = Flow("failing", [fails], notify="ops")


class Receiver:
    """What gets notices; while it is down, it raises."""

    def __init__(self) -> None:
        self.got: list[Notice] = []
        self.tried: list[str] = []
        self.is_down = False

    def __call__(self, notice: Notice) -> None:
        self.tried.append(notice.key)
        if self.is_down:
            raise ConnectionError("no line")
        self.got.append(notice)

    @property
    def ids(self) -> list[str]:
        return [notice.id for notice in self.got]
