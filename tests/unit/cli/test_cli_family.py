"""`everstep log --graph`: a family of runs as git would draw it."""

from __future__ import annotations

from everstep import END, Flow, Host, ifelse, node
from everstep.cli.commands.runs.log import BranchLine, draw, family_of


@node(output="n")
def step(n: int) -> int:
    return n + 1


@ifelse(when_true="step", when_false=END)
def more(n: int, limit: int) -> bool:
    return n < limit


LOOP = Flow("loop", [step, more], entry="step", durability="strong")


def drawn(host: Host, run_id: str) -> list[str]:
    def text(line: BranchLine) -> str:
        name = f" ({line.head.run_id})" if line.head is not None else ""
        return f"{line.branches} {line.text}{name}".rstrip().replace("  ", " ")

    return [text(line) for line in draw(host, family_of(host, run_id))]


def run(host: Host, limit: int = 2) -> None:
    host.run(LOOP, {"n": 0, "limit": limit}, run_id="run")


def test_a_run_without_forks_is_one_line_of_checkpoints(host: Host) -> None:
    run(host)
    assert drawn(host, "run") == [
        "* 5 completed more (run)",
        "* 4 step",
        "* 3 step more",
        "* 2 step",
        "* 1 admission inputs",
    ]


def test_forks_branch_off_where_they_began(host: Host) -> None:
    run(host)
    host.fork("run", at=3, fork_id="left", inputs={"limit": 1})
    host.resume("left", LOOP)
    host.fork("left", at=4, fork_id="inner")
    host.fork("run", at=3, fork_id="right")
    expected = [
        "* 5 completed more (run)",
        "* 4 step",
        "| * 4 fork (right)",
        "|/",
        "| * 5 completed more (left)",
        "| | * 5 fork (inner)",
        "| |/",
        "| * 4 fork",
        "|/",
        "* 3 step more",
        "* 2 step",
        "* 1 admission inputs",
    ]
    for member in ("run", "left", "inner", "right"):
        assert drawn(host, member) == expected


def test_a_fork_of_the_newest_checkpoint_stays_in_line(host: Host) -> None:
    run(host, limit=1)
    host.fork("run", fork_id="first")
    host.fork("run", fork_id="second")
    assert drawn(host, "run") == [
        "* 4 fork (second)",
        "| * 4 fork (first)",
        "|/",
        "* 3 completed more (run)",
        "* 2 step",
        "* 1 admission inputs",
    ]


def test_a_long_stretch_is_cut_short(host: Host) -> None:
    run(host, limit=500)
    host.fork("run", at=600, fork_id="fork")
    assert drawn(host, "fork") == [
        "* 1001 completed more (run)",
        "* 1000 step",
        ": … 397 checkpoints …",
        "* 602 step",
        "* 601 step more",
        "| * 601 fork (fork)",
        "|/",
        "* 600 step",
        "* 599 step more",
        ": … 596 checkpoints …",
        "* 2 step",
        "* 1 admission inputs",
    ]


def test_a_lineage_of_many_forks_is_drawn(host: Host) -> None:
    run(host, limit=1)
    run_id = "run"
    for k in range(1100):
        run_id = host.fork(run_id, fork_id=f"fork-{k}").run_id
    lines = drawn(host, "fork-500")
    assert lines[0] == "* 1103 fork (fork-1099)"
    assert len(lines) == 1103
