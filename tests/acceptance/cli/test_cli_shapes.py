"""Inner flows, maps, groups, the channel and tasks as a shell sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli.test_cli import Everstep, parsed
from tests.acceptance.cli.test_cli import everstep as everstep  # the fixture

SHAPES = """
from pathlib import Path
from everstep import Context, Flow, ifelse, node, parallel

@node(output="text")
def begin(topic: str, text: str = ""):
    return text + topic

@node(output="vector")
def embed(text: str):
    return [len(text) + Path("drift").exists()]

@node(output="docs")
def find(vector: list):
    if Path("down").exists():
        raise ConnectionError("no index")
    return [f"doc {k}" for k in range(vector[0])]

rag = Flow("rag", [embed, find])

@ifelse(when_true="begin", when_false="list_up")
def again(docs: list):
    return len(docs) < 2

@node(output="raws")
def list_up(count: int):
    return [f" item {k} " for k in range(count)]

@node(output="clean")
def strip(raw: str):
    return raw.strip()

@node(output="size")
def measure(clean: str):
    if clean in ("item 3", "item 15"):
        raise ValueError(f"no {clean}")
    return len(clean)

check = Flow("check", [strip, measure])

@node(output="total")
def add_up(size: list, ctx: Context):
    ctx.channel.append("notes", f"for {ctx.channel['user']}")
    ctx.next_task("mail", to="ann", priority=2)
    return len(size)

@node
def mail(to: str):
    return f"mailed {to}"

@node
async def quick(total: int):
    return "quick"

@node
async def slow(total: int):
    import asyncio
    await asyncio.sleep(60)

@node(output="report")
def report(total: int):
    return f"{total} items"

flow = Flow(
    "shapes",
    [
        begin, rag.as_node(), again, list_up,
        check.as_node().with_inputs(raw="raws").map_over("raw", on_error="collect", max_concurrency=1),
        add_up >> parallel(quick, slow, join="first_success", name="race") >> report,
    ],
    entry="begin", tasks=[mail], channel={"user": str, "notes": list}, durability="strong",
)
"""

BAD = """
from pathlib import Path
from everstep import END, Context, Flow, at_least, ifelse, node, parallel

@node(output="y")
def double(x):
    return x * 2

@node(output="xs")
def give(x):
    return x

no_list = Flow("no_list", [give, double.with_inputs(x="xs").map_over("x")])

@node
def one(x: int):
    raise ValueError("one is down")

@node
def two(x: int):
    raise OSError("two is down")

group = Flow("group", [parallel(one, two, policy=at_least(1), name="both")])

@node
def mail(to: str):
    raise ValueError("no")

@node
def call(to: str): ...

@node
def ask(x: int, ctx: Context):
    ctx.next_task("mail" if x else "mial", to="ann")

tasks = Flow("tasks", [ask], tasks=[call if Path("gone").exists() else mail], durability="strong")

@ifelse(when_true="keep", when_false=END)
def is_big(x: int):
    return x > 5

@node(output="kept")
def keep(x: int):
    return x

lift = Flow("lift", [Flow("inner", [is_big, keep]).as_node().lift("kept")], durability="strong")
"""


@pytest.fixture
def shapes(everstep: Everstep, tmp_path: Path) -> Everstep:
    (tmp_path / "shapes.py").write_text(SHAPES)
    done = everstep(
        "run", "shapes.py", "-i", "topic=a", "-i", "count=40", "--channel", "user=7", "--run-id", "A"
    )
    assert done.returncode == 0, done.stderr
    (tmp_path / "progress").write_text(done.stderr)
    (tmp_path / "result").write_text(done.stdout)
    return everstep


def steps_of(shapes: Everstep) -> list[tuple[int, dict[str, Any]]]:
    """Return every step with the number of its checkpoint."""
    found = parsed(shapes("log", "A", "--json"))["checkpoints"]
    return [(checkpoint["sequence"], step) for checkpoint in found for step in checkpoint["steps"]]


def test_run_finds_the_outermost_flow_and_tells_of_a_map_in_a_few_lines(
    shapes: Everstep, tmp_path: Path
) -> None:
    progress = (tmp_path / "progress").read_text()
    assert "  ✓ rag@2/embed  " in progress
    assert "  ▶ check  goes over 40 items\n" in progress
    assert "  ✗ check#15/measure  ValueError: no item 15\n" in progress
    assert "  ⊘ slow  cancelled\n" in progress
    assert "Traceback" not in progress
    assert sum("check" in line for line in progress.splitlines()) < 16
    result = (tmp_path / "result").read_text()
    assert "report = '40 items'" in result
    assert "<values" not in result


def test_log_is_a_tree(shapes: Everstep) -> None:
    told = [" ".join(line.split()[2:]) for line in shapes("log", "A").stdout.splitlines()]
    text = shapes("log", "A").stdout
    assert "step rag@1 begins" in told
    assert "40 items, 2 failed, clean = [" in text
    assert "#15/measure@1" in text
    assert "✗ ValueError: no item 15" in text
    assert "38 completed, 2 failed" in text
    assert "total = 40; channel: notes = ['for 7']; queues mail(to='ann') with priority 2" in text
    assert "join of quick (completed), slow (not done)" in text
    assert "⊘ cancelled" in text
    assert "check#" not in text
    full = shapes("log", "A", "--full").stdout
    assert full.count("/strip@1") == 40


def test_log_as_json_has_every_step_with_its_whole_path(shapes: Everstep) -> None:
    steps = [s for c in parsed(shapes("log", "A", "--json"))["checkpoints"] for s in c["steps"]]
    assert sum(step["node"].startswith("check#") for step in steps) == 120
    [embed] = [step for step in steps if step["node"] == "rag@2/embed"]
    assert embed["address"] == "rag@2/embed@1"
    assert embed["writes"][0]["value"] == [2]
    [asked] = [step for step in steps if step["queued"]]
    assert asked["queued"] == [{"number": 1, "node": "mail", "priority": 2, "arguments": {"to": "ann"}}]
    assert [step["items"] for step in steps if step["items"]] == [40]


def test_show_is_a_tree_and_takes_every_address(shapes: Everstep) -> None:
    shown = shapes("show", "A").stdout
    assert "40 items: 38 completed 2 failed" in shown
    assert "joins quick, slow: the first success" in shown
    for address, says in {
        "rag/embed": ["rag@2/embed@1", "read      text = 'aa'", "wrote     vector = [2]"],
        "rag@1/embed": ["rag@1/embed@1", "read      text = 'a'"],
        "rag@1": ["inside", "embed@1", "find@1"],
        "check#15": ["check@1#15  failed", "#15/strip@1", "✗ ValueError: no item 15"],
        "check#7/strip": ["read      raw = ' item 7 '", "wrote     clean = 'item 7'"],
        "mail": ["task      1, asked for by add_up", "given     to = 'ann'"],
        "add_up": ["queued    mail(to='ann') with priority 2", "channel   notes = ['for 7']"],
        "slow": ["cancelled"],
    }.items():
        done = shapes("show", "A", address)
        assert done.returncode == 0, done.stderr
        for text in says:
            assert text in done.stdout, address
    nodes = {n["node"]: n for n in parsed(shapes("show", "A", "--json"))["nodes"]}
    assert nodes["check"]["items"] == {"count": 40, "completed": 38, "failed": 2}
    assert nodes["rag/embed"]["visits"] == 2


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("check/strip", "Name one, such as check#"),
        ("rag/embd", "no step 'rag/embd'"),
        ("rag@9/embed", "rag@9/embed was not reached"),
        ("a//b", "no step 'a//b'"),
    ],
)
def test_show_says_why_an_address_leads_nowhere(shapes: Everstep, address: str, says: str) -> None:
    done = shapes("show", "A", address)
    assert done.returncode == 2
    assert says in done.stderr


def test_state_groups_values_by_flow_and_channel(shapes: Everstep) -> None:
    shown = shapes("state", "A").stdout
    assert "rag@2\n  docs as above" in shown
    assert "channel\n  user = '7'\n  notes = ['for 7']\n" in shown
    assert "@channel" not in shown
    steps = [
        (c["sequence"], s) for c in parsed(shapes("log", "A", "--json"))["checkpoints"] for s in c["steps"]
    ]
    asked = next(at for at, step in steps if step["queued"])
    assert (
        "queued\n  mail(to='ann')  asked for by add_up, priority 2\n" in shapes("state", f"A@{asked}").stdout
    )
    inside = next(at for at, step in steps if step["node"] == "rag@2/embed")
    shown = shapes("state", "A", str(inside), "rag").stdout
    assert "rag@2  under way\n" in shown
    assert "vector = [2]" in shown
    assert "topic" not in shown
    assert parsed(shapes("state", "A", "channel", "--json"))["channel"] == {"user": "7", "notes": ["for 7"]}
    done = shapes("state", "A", "chek")
    assert done.returncode == 2
    assert "Did you mean 'check'?" in done.stderr


def test_state_shows_one_item_of_an_open_map(shapes: Everstep) -> None:
    steps = [
        (c["sequence"], s) for c in parsed(shapes("log", "A", "--json"))["checkpoints"] for s in c["steps"]
    ]
    at = next(str(at) for at, step in steps if step["node"] == "check#15" and step["status"] == "failed")
    shown = shapes("state", "A", at).stdout
    assert "of 40 items completed" in shown
    assert "#15\n    ✗ ValueError: no item 15" in shown
    assert "strip" not in shown
    assert "clean = 'item 0'" in shapes("state", "A", at, "check#0").stdout


def test_steps_inside_are_replayed(shapes: Everstep, tmp_path: Path) -> None:
    assert "It came out as recorded" in shapes("replay", "A", "rag/embed").stdout
    assert shapes("replay", "A", "check#15/measure").returncode == 0
    (tmp_path / "drift").touch()
    done = shapes("replay", "A", "rag@1/embed")
    assert done.returncode == 1
    assert done.stdout.startswith("rag@1/embed@1 of run A")
    assert "such as check#0/strip" in shapes("replay", "A", "check").stderr


def test_bisect_names_the_inner_step_by_an_address_that_replay_takes(
    shapes: Everstep, tmp_path: Path
) -> None:
    (tmp_path / "drift").touch()
    words = ["-i", "topic=aa", "-i", "count=4", "--channel", "user=7", "-q"]
    shapes("run", "shapes.py", *words, "--run-id", "bad")
    (tmp_path / "drift").unlink()
    shapes("run", "shapes.py", *words, "--run-id", "good")
    done = shapes("bisect", "good", "bad")
    assert done.returncode == 1
    assert done.stdout.startswith("rag@1/embed@1 is the first that differs")
    assert "everstep replay bad rag@1/embed@1" in done.stdout
    assert shapes("replay", "bad", "rag@1/embed@1").returncode == 1


def test_diff_counts_what_differs_inside_many_items(shapes: Everstep) -> None:
    steps = [
        (c["sequence"], s) for c in parsed(shapes("log", "A", "--json"))["checkpoints"] for s in c["steps"]
    ]
    begun = next(at for at, step in steps if step["items"])
    ended = next(at for at, step in steps if step["node"] == "check" and step["status"] == "completed")
    words = ["diff", "A", "--from", str(begun), "--to", str(ended - 1)]
    done = shapes(*words)
    assert done.returncode == 1
    assert "~ check#…/clean: " in done.stdout
    assert len(done.stdout.splitlines()) < 30
    assert "check#7/clean" in shapes(*words, "--full").stdout


def test_fork_edits_a_value_inside_a_failed_flow(shapes: Everstep, tmp_path: Path) -> None:
    (tmp_path / "down").touch()
    words = ["-i", "topic=aa", "-i", "count=1", "--channel", "user=7", "-q"]
    failed = shapes("run", "shapes.py", *words, "--run-id", "F")
    assert failed.returncode == 1
    again = shapes("run", "shapes.py", "--run-id", "F")
    assert "run F failed before, at rag/find" in again.stderr
    (tmp_path / "down").unlink()
    forked = shapes("fork", "F", "--set", "rag/vector=[3]", "--channel", "user=8", "--as", "G")
    assert forked.returncode == 0, forked.stderr
    assert shapes("resume", "G", "-q").returncode == 0
    shown = parsed(shapes("state", "G", "--json"))
    assert shown["values"]["docs"] == ["doc 0", "doc 1", "doc 2"]
    assert shown["channel"]["user"] == "8"
    refused = shapes("fork", "G", "--set", "rag/vector=[3]")
    assert refused.returncode == 2
    assert "rag had ended at checkpoint" in refused.stderr
    assert "Edit what it gave: docs, vector; or fork earlier." in refused.stderr


def test_fork_edits_an_item_of_a_map(shapes: Everstep) -> None:
    steps = [
        (c["sequence"], s) for c in parsed(shapes("log", "A", "--json"))["checkpoints"] for s in c["steps"]
    ]
    at = next(at for at, step in steps if step["node"] == "check#39/strip")
    assert shapes("fork", f"A@{at}", "--set", "check#39/clean=long item", "--as", "B").returncode == 0
    assert shapes("resume", "B", "-q").returncode == 0
    assert parsed(shapes("state", "B", "--json"))["values"]["size"][39] == len("long item")


def test_resume_starts_at_a_node(shapes: Everstep) -> None:
    done = shapes("resume", "A", "--start", "report")
    assert done.returncode == 0, done.stderr
    assert "✓ report@2" in done.stderr
    assert "begin" not in done.stderr
    assert "has no node 'repot'" in shapes("resume", "A", "--start", "repot").stderr


def test_checkpoints_gather_the_items_of_a_map(shapes: Everstep) -> None:
    assert "check (1 item)" in shapes("checkpoints", "A").stdout


@pytest.mark.parametrize(
    ("flow", "x", "says"),
    [
        ("no_list", "3", "error [map.bad_input]: MapInputError: 'double' goes over 'xs', which is int."),
        ("group", "1", "error [group.failed]: GroupFailed: group 'both' failed: 0 of 1 needed members"),
        ("group", "1", "✗ one  ValueError: one is down"),
        ("tasks", "0", "error [task.unknown]: UnknownTask: node 'ask' asked for 'mial'"),
        ("lift", "1", "error [flow.not_lifted]: LiftError: 'inner' was to give 'kept'"),
    ],
)
def test_errors_of_the_shapes_say_what_to_do(
    everstep: Everstep, tmp_path: Path, flow: str, x: str, says: str
) -> None:
    (tmp_path / "bad.py").write_text(BAD)
    done = everstep("run", f"bad.py:{flow}", "-i", f"x={x}", "--run-id", "R")
    assert done.returncode == 1
    assert says in done.stderr
    assert f"→ Continue with: everstep resume R bad.py:{flow}" in done.stderr


def test_task_whose_node_is_gone_is_refused(everstep: Everstep, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(BAD)
    assert everstep("run", "bad.py:tasks", "-i", "x=1", "--run-id", "R").returncode == 1
    (tmp_path / "gone").touch()
    done = everstep("resume", "R")
    assert done.returncode == 2
    assert "error [task.gone]: flow 'tasks' has changed since run 'R' was written" in done.stderr
    assert "A task is queued for 'mail', which its flow no longer has." in done.stderr
    assert parsed(everstep("resume", "R", "--json"))["error"]["code"] == "task.gone"
