"""What runs side by side: threads that exit, locks of calls that nobody waits for any more."""

from __future__ import annotations

import pytest

from everstep import Flow, Host, node


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_exiting_in_one_of_several_threads_ends_the_call_and_not_the_run(
    host: Host, kind: type[BaseException]
) -> None:
    exits = [True]

    @node(output="y")
    def work(x: int) -> int:
        if x == 1 and exits:
            raise kind(3)
        return x * 2

    flow = Flow("f", [work.map_over("x")], durability="strong")
    with pytest.raises(kind):
        host.run(flow, {"x": [0, 1, 2, 3]}, run_id="r")
    exits.clear()
    assert host.resume("r", flow)["y"] == [0, 2, 4, 6]
