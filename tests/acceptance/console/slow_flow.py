"""A flow whose process can be killed while its second node is at work."""

from __future__ import annotations

import sys
import time

from everstep import Flow, Host, node


@node(output="a")
def first(x: int) -> int:
    return x + 1


@node(output="b")
def second(a: int) -> int:
    time.sleep(float(a))
    return a + 1


@node(output="c")
def third(b: int) -> int:
    return b + 1


slow = Flow("slow", [first, second, third], durability="strong")

if __name__ == "__main__":
    with Host(sys.argv[1]) as host:
        host.run(slow, {"x": int(sys.argv[3])}, run_id=sys.argv[2])
