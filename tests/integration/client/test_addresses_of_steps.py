"""`A17/rag` names a part of a run, wherever a run can be named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from everstep import END, Flow, Host, node, route, wait
from everstep.cli.main import cli
from everstep.errors import BadRequest, LeaseConflict, RunNotFound
from tests.integration.noise import noise


@node(output="words")
def split(text: str) -> list[str]:
    return text.split()


@node(output="count")
def number(words: list[str]) -> int:
    return len(words)


@node(output="score")
def rate(item: int) -> int:
    return item * 10


@node(output="total")
def sum_up(count: int) -> int:
    return count * 21


measure = Flow("measure", [split, number])
check = Flow("check", [rate, wait.question("fine", context="score", kind="text")])
asking = Flow("asking", [wait.question("name", kind="text"), wait.question("mood", kind="text")])
FLOW = Flow(
    "essay",
    [
        measure.as_node().lift("count"),
        check.as_node().map_over("item").with_inputs(item="items").lift("score").with_outputs(score="scores"),
        sum_up,
        wait.question("sure", kind="text"),
        asking.as_node(),
    ],
    durability="strong",
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    found = f"sqlite:///{tmp_path}/runs.db"
    with Host(found) as host:
        host.run(FLOW, {"text": "a b c", "items": [1, 2, 3]}, run_id="r1")
    return found


def paths(host: Host, address: str) -> set[str]:
    return {step.path for record in host.history(address) for step in record.steps}


def test_the_history_of_a_part_has_its_steps_alone(host: Host) -> None:
    assert paths(host, "r1/measure") == {"measure", "measure/split", "measure/number"}
    assert paths(host, "r1/measure/split") == {"measure/split"}
    inside = {f"check#{k}/{name}" for k in range(3) for name in ("rate", "fine")}
    assert paths(host, "r1/check") == {"check", *inside}
    assert paths(host, "r1/check#1") == {"check#1/rate", "check#1/fine"}
    assert paths(host, "r1/sum_up") == {"sum_up"}
    digests = {record.sequence: record.digest for record in host.history("r1")}
    assert all(digests[record.sequence] == record.digest for record in host.history("r1/measure"))
    [last] = host.history("r1/measure", count=1)
    assert [step.path for step in last.steps] == ["measure/number", "measure"]


def test_the_checkpoints_of_a_part_are_those_that_hold_its_steps(host: Host) -> None:
    whole = {info.sequence: info for info in host.checkpoints("r1")}
    found = host.checkpoints("r1/measure")
    assert 0 < len(found) < len(whole)
    assert all(path.startswith("measure") for info in found for path in info.nodes)
    assert [info.sequence for info in found] == [
        n for n, info in whole.items() if any(path.startswith("measure") for path in info.nodes)
    ]


def test_the_state_of_a_part_has_the_values_inside_it(host: Host) -> None:
    state = host.state("r1/measure")
    assert dict(state) == {"measure/words": ["a", "b", "c"], "measure/count": 3}
    assert set(state.nodes) <= {"measure", "measure/split", "measure/number"}
    assert state.run_id == "r1"
    assert dict(host.state("r1/check#1")) == {"check#1/score": 20}
    assert dict(host.state("r1/sum_up")) == {"total": 63}  # of a node that is no flow, what it writes
    at = next(info.sequence for info in host.checkpoints("r1/measure/split"))
    assert "measure/count" not in host.state(f"r1@{at}/measure")
    assert dict(host.state("r1/measure", at)) == dict(host.state(f"r1@{at}/measure"))


def test_waits_explanations_and_events_are_those_of_the_part(host: Host) -> None:
    assert len(host.waits("r1")) == 6
    assert [w.node for w in host.waits("r1/check#1")] == ["check#1/fine"]
    assert {w.node for w in host.waits("r1/asking")} == {"asking/name", "asking/mood"}
    assert [w.node for w in host.waits("r1/asking/mood", limit=1)] == ["asking/mood"]
    told = host.explain("r1/asking", FLOW)
    assert {w.path for w in told.waits} == {"asking/name", "asking/mood"}
    assert {step.path for step in told.recorded} <= {"asking"}
    assert "measure" in {step.path for step in host.explain("r1", FLOW).recorded}
    events = list(host.events("r1/measure", live=False))
    assert {event.node for event in events} == {"measure", "measure/split", "measure/number"}


def test_two_items_of_a_map_can_be_compared(host: Host) -> None:
    found = host.debug.diff("r1/check#1", "r1/check#2")
    assert {(c.path, c.before, c.after) for c in found.values} == {("score", 20, 30)}
    assert not host.debug.diff("r1/check#1", "r1/check#1")
    grown = host.debug.diff("r1/measure")
    assert {change.path for change in grown.values} == {"words", "count"}
    host.run(FLOW, {"text": "a b", "items": [1]}, run_id="r2")
    assert {c.path.partition("[")[0] for c in host.debug.diff("r1/measure", "r2/measure").values} == {
        "words",
        "count",
    }


def test_a_fork_of_a_part_is_a_fork_of_its_run_that_edits_inside(host: Host) -> None:
    at = next(info.sequence for info in host.checkpoints("r1/measure/split"))
    fork = host.fork(f"r1@{at}/measure", state={"words": ["x"]})
    assert (fork.parent_run_id, fork.forked_at) == ("r1", at)
    assert host.resume(fork.run_id, FLOW).nested("measure")["count"] == 1


def test_what_is_about_whole_runs_takes_the_run_or_refuses_the_part(host: Host, tmp_path: Path) -> None:
    [checked] = host.storage.verify(["r1/measure", "r1"])
    assert (checked.run_id, checked.is_sound) == ("r1", True)
    written = host.transfer.export("r1/measure", tmp_path / "r1.everstep")
    assert [run.run_id for run in written.runs] == ["r1"]
    assert host.info("r1/measure").run_id == "r1"
    assert host.resume("r1/asking", FLOW).run_id == "r1"
    assert host.debug.replay("r1/measure", "number", FLOW).is_equal
    with pytest.raises(BadRequest, match=r"'r1/measure' is a part of a run.*everstep cancel r1"):
        host.cancel("r1/measure")
    for act in (
        host.retention.pin,
        host.retention.erase,
        host.retention.clean_up,
        host.storage.rekey,
        host.retention.gc,
    ):
        with pytest.raises(BadRequest, match=r"whole runs|encrypt|keys"):
            act("r1/measure")
    assert host.info("r1").status == "halted"


def test_a_part_that_the_run_does_not_have_is_named_with_what_is_near(host: Host) -> None:
    for look in (host.state, host.history, host.checkpoints, host.waits, host.info, host.storage.verify):
        with pytest.raises(RunNotFound, match=r"'r1' has no part 'mesure'. Did you mean 'measure'"):
            look("r1/mesure")
    with pytest.raises(
        RunNotFound, match=r"runs once for each item of check. Name one, such as r1/check#0/rate"
    ):
        host.state("r1/check/rate")
    for unreached in ("measure@2", "check#7", "measure/split@3"):
        with pytest.raises(RunNotFound, match=r"not reached, or has no such visit or item"):
            host.state(f"r1/{unreached}")
    with pytest.raises(RunNotFound, match=r"no run 'nope'"):
        host.state("nope/measure")
    with pytest.raises(BadRequest, match=r"not the path of a step"):
        host.state("r1/measure//split")
    with pytest.raises(RunNotFound, match=r"up to checkpoint 1:"):
        host.state("r1@1/measure")
    with pytest.raises(BadRequest, match=r"names a checkpoint"):
        host.explain("r1@2/measure", FLOW)
    with pytest.raises(LeaseConflict, match=r"everstep fork r1@2"):
        host.resume("r1@2", FLOW)


def test_a_visit_that_is_left_out_is_the_last(tmp_path: Path) -> None:
    @node(output="m")
    def count_up(n: int) -> int:
        return n + 1

    inner = Flow("inner", [count_up])

    @route("inner", END)
    def again(n: int) -> str:
        return END if n >= 3 else "inner"

    lifted = inner.as_node().lift("m").with_outputs(m="n")
    flow = Flow("loop", [lifted, again], entry="inner", durability="strong")
    with Host(f"sqlite:///{tmp_path}/loop.db") as host:
        host.run(flow, {"n": 0}, run_id="L")
        assert paths(host, "L/inner") == {"inner", "inner@3/count_up"}
        assert {step.visit for r in host.history("L/inner") for step in r.steps if step.path == "inner"} == {
            3
        }
        assert paths(host, "L/inner@1") == {"inner", "inner/count_up"}
        assert set(host.state("L/inner")) == {"inner@3/m"}


def test_a_part_whose_steps_were_removed_still_has_its_values(tmp_path: Path) -> None:
    @node(output=("n", "page"))
    def count_up(n: int) -> tuple[int, str]:
        return n + 1, noise(n, 9_000)  # enough of them make a keyframe

    @route("count_up", END)
    def again(n: int) -> str:
        return END if n >= 30 else "count_up"

    flow = Flow("f", [measure.as_node(), count_up >> again], entry="count_up", durability="strong")
    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        host.run(flow, {"text": "a b", "n": 0}, run_id="A")
        assert host.retention.clean_up("A", keep=1) > 0
        assert dict(host.state("A/measure")) == {"measure/words": ["a", "b"], "measure/count": 2}
        assert host.history("A/measure") == []


# -- at a shell ------------------------------------------------------------------------------------------


def shell(url: str, *words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--store", url], standalone_mode=False)


def told(url: str, *words: str) -> Any:
    done = shell(url, *words, "--json")
    assert done.exception is None, done.output
    return json.loads(done.stdout)


def test_every_command_takes_the_address_of_a_part(url: str, tmp_path: Path) -> None:
    logged = told(url, "log", "r1/measure")
    assert (logged["run_id"], logged["path"]) == ("r1", "measure")
    assert {s["node"] for c in logged["checkpoints"] for s in c["steps"]} == {
        "measure",
        "measure/split",
        "measure/number",
    }
    assert "sum_up" not in shell(url, "log", "r1/measure").stdout
    assert "check#1/rate" in shell(url, "log", "r1/check#1").stdout.replace("#1/rate@1", "check#1/rate")
    assert told(url, "show", "r1/measure", "number") == told(url, "show", "r1", "measure/number")
    assert set(told(url, "state", "r1/check#1")["values"]) == {"check#1/score"}
    assert set(told(url, "state", "r1/measure", "words")["values"]) == {"measure/words"}
    assert told(url, "state", "r1/sum_up")["values"] == {"total": 63}
    listed = told(url, "checkpoints", "r1/measure")
    assert all(n.startswith("measure") for c in listed["checkpoints"] for n in c["nodes"])
    assert {w["node"] for w in told(url, "waits", "r1/asking")["waits"]} == {"asking/name", "asking/mood"}
    differs = json.loads(shell(url, "diff", "r1/check#1", "r1/check#2", "--json").stdout)
    assert {v["path"] for v in differs["values"]} == {"score"}
    assert [run["run_id"] for run in told(url, "verify", "r1/measure")["runs"]] == ["r1"]
    assert "the whole run is meant" in shell(url, "verify", "r1/measure").stderr
    assert told(url, "export", "r1/measure", str(tmp_path / "x.everstep"))["runs"][0]["run_id"] == "r1"
    at = listed["checkpoints"][0]["sequence"]
    forked = told(url, "fork", f"r1@{at}/measure", "--set", 'words=["x"]', "--as", "f1")
    assert (forked["run_id"], forked["parent_run_id"]) == ("f1", "r1")
    refused = shell(url, "cancel", "r1/measure")
    assert isinstance(refused.exception, BadRequest)
    assert "everstep cancel r1" in refused.exception.fix
    for command in ("log", "show", "state", "checkpoints", "waits", "verify", "explain", "export"):
        missing = shell(url, command, "r1/mesure")
        assert isinstance(missing.exception, RunNotFound), command
