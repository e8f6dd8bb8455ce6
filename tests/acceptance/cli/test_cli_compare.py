"""`diff`, `bisect` and `replay` as a shell sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.cli.test_cli import Everstep, parsed
from tests.acceptance.cli.test_cli import everstep as everstep  # the fixture

SHOP = """
from dataclasses import dataclass
from pathlib import Path
from everstep import Flow, ifelse, node

@dataclass
class Line:
    item: str
    price: float

@node(output="order")
def make(order_id: str, lines: int = 2):
    return {"id": order_id, "lines": [Line(f"tea {k}", 1.5) for k in range(lines)]}

@node(output="total")
def price(order):
    print("a node prints")
    if Path("raise").exists():
        raise ValueError("no\\nway")
    return sum(line.price for line in order["lines"]) * (10 if Path("broken").exists() else 1)

@ifelse(when_true="big", when_false="small")
def is_big(total: float):
    return total > 10

@node(output="label")
def big(total: float):
    return "x" * 5000

@node(output="label")
def small(total: float):
    return "small"

@node(output="receipt", effects="effectful", idempotency_key="auto")
def charge(total: float):
    with open("charged", "a") as charged:
        charged.write("x")
    return total

flow = Flow("shop", [make, price, is_big, big, small, charge], durability="strong", max_concurrency=1)
"""


@pytest.fixture
def shop(everstep: Everstep, tmp_path: Path) -> Everstep:
    """A good run, and a bad one whose price was wrong."""
    (tmp_path / "shop.py").write_text(SHOP)
    everstep("run", "shop.py", "-i", "order_id=A", "--run-id", "good", "-q")
    (tmp_path / "broken").touch()
    everstep("run", "shop.py", "-i", "order_id=A", "--run-id", "bad", "-q")
    (tmp_path / "broken").unlink()
    return everstep


def test_diff_shows_both_sides_and_exits_1(shop: Everstep) -> None:
    done = shop("diff", "good", "bad")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("run good at checkpoint 6 → run bad at checkpoint 6\n")
    assert "~ total\n  - 3.0\n  + 30.0\n" in done.stdout
    assert "~ label\n  - 'small'\n  + 'xxx" in done.stdout
    assert "(5,000 characters)" in done.stdout
    assert "small  completed → not run" in done.stdout
    assert "--full or --json shows all of it" in done.stderr
    assert "\x1b" not in done.stdout
    assert "x" * 5000 in shop("diff", "good", "bad", "--full").stdout


def test_diff_of_what_is_equal_exits_0(shop: Everstep) -> None:
    for words in (["good", "good"], ["good@2", "bad@2"], ["good", "bad", "--from", "2", "--to", "2"]):
        done = shop("diff", *words)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.endswith("\nnothing differs\n")


def test_diff_of_one_run_is_between_two_checkpoints(shop: Everstep) -> None:
    done = shop("diff", "good", "--from", "2", "--to", "3")
    assert done.returncode == 1
    assert "+ total = 3.0\n" in done.stdout
    assert shop("diff", "good@2", "good@3").stdout == done.stdout
    assert "run good at checkpoint 1 → run good at checkpoint 6" in shop("diff", "good").stdout


def test_json_of_a_diff_is_one_object(shop: Everstep) -> None:
    done = shop("diff", "good@3", "bad@3", "--json")
    shown = parsed(done)
    assert (done.returncode, shown["is_equal"]) == (1, False)
    assert shown["values"] == [{"path": "total", "kind": "changed", "before": 3.0, "after": 30.0}]
    assert (shown["before"]["run_id"], shown["after"]["checkpoint"]) == ("good", 3)
    assert parsed(shop("diff", "good", "--from", "2", "--to", "3", "--json"))["nodes"] == [
        {"node": "price", "visits": [0, 1], "status": [None, "completed"]}
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["good", "unknown"], "there is no run 'unknown'"),
        (["good@9", "bad"], "has no checkpoint 9"),
        (["good@2", "bad", "--from", "3"], "the checkpoint is given twice"),
        (["good", "bad@2", "--to", "3"], "the checkpoint is given twice"),
        (["good@", "bad"], "is not a checkpoint of a run"),
    ],
)
def test_diff_that_cannot_be_made_exits_2(shop: Everstep, words: list[str], said: str) -> None:
    done = shop("diff", *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_bisect_names_the_culprit_and_how_to_run_it_alone(shop: Everstep) -> None:
    done = shop("bisect", "good", "bad")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("price@1 is the first that differs\n")
    assert "good  run good, checkpoint 3: completed" in done.stdout
    assert "item='tea 0'" in done.stdout and "(equal)" in done.stdout
    assert "~ total\n      - 3.0\n      + 30.0\n" in done.stdout
    assert "the difference comes from price itself" in done.stdout
    assert "everstep replay bad price@1" in done.stdout
    assert "shop:Line" in done.stderr


def test_bisect_of_runs_with_other_inputs_says_so(shop: Everstep) -> None:
    shop("run", "shop.py", "-i", "order_id=A", "-i", "lines=3", "--run-id", "more", "-q")
    done = shop("bisect", "good", "more", "--load", "shop.py")
    assert "~ lines\n      - 2\n      + 3\n" not in done.stdout  # the default was no value of the run
    assert "+ lines = 3" in done.stdout
    assert "+ order.lines[2] = Line(item='tea 2', price=1.5)" in done.stdout
    assert "the inputs differ, or a run was edited" in done.stdout
    assert done.stderr == ""


def test_bisect_finds_a_failure_and_nothing_in_equal_runs(shop: Everstep, tmp_path: Path) -> None:
    (tmp_path / "raise").touch()
    shop("run", "shop.py", "-i", "order_id=A", "--run-id", "failed", "-q")
    failed = shop("bisect", "good", "failed")
    assert "failed" in failed.stdout and "ValueError: no way" in failed.stdout
    assert "- total = 3.0" in failed.stdout
    equal = shop("bisect", "good", "good")
    assert (equal.returncode, equal.stdout) == (
        0,
        "every finished step of run good is the same in run good\n",
    )
    assert parsed(shop("bisect", "good", "good", "--json")) == {
        "good": "good",
        "bad": "good",
        "divergence": None,
    }


def test_json_of_a_bisection_has_both_sides(shop: Everstep) -> None:
    found = parsed(shop("bisect", "good", "bad", "--json"))["divergence"]
    assert (found["node"], found["visit"], found["is_culprit"]) == ("price", 1, True)
    assert found["good"]["checkpoint"] == found["bad"]["checkpoint"] == 3
    assert [(r["name"], r["is_equal"]) for r in found["reads"]] == [("order", True)]
    [output] = found["outputs"]
    assert (output["good"], output["bad"], output["is_equal"]) == (3.0, 30.0, False)


def test_replay_finds_the_flow_by_itself_and_compares(shop: Everstep, tmp_path: Path) -> None:
    same = shop("replay", "good", "price")
    assert same.returncode == 0, same.stderr
    assert "price@1 of run good, checkpoint 3, run again\n" in same.stdout
    assert "Line(item='tea 0', price=1.5)" in same.stdout
    assert "= total = 3.0  (equal)\n" in same.stdout
    assert same.stdout.endswith("It came out as recorded.\n")
    other = shop("replay", "bad", "price@1", "shop.py:flow")
    assert other.returncode == 1
    assert "~ total\n      - 30.0\n      + 3.0\n" in other.stdout
    assert other.stdout.endswith("It came out differently.\n")
    gate = shop("replay", "good", "is_big")
    assert "chose small  (equal)" in gate.stdout


def test_replay_reports_what_a_node_raises(shop: Everstep, tmp_path: Path) -> None:
    (tmp_path / "raise").touch()
    done = shop("replay", "good", "price")
    assert done.returncode == 1
    assert "error [node.failed] ValueError: no way" in done.stdout
    assert 'raise ValueError("no\\nway")' in done.stdout
    assert "- total = 3.0" in done.stdout
    shop("run", "shop.py", "-i", "order_id=A", "--run-id", "failed", "-q")
    again = shop("replay", "failed", "price")
    assert again.returncode == 0
    assert "recorded ValueError: no way" in again.stdout


def test_replay_of_an_effect_has_to_be_asked_for(shop: Everstep, tmp_path: Path) -> None:
    before = (tmp_path / "charged").read_text()
    refused = shop("replay", "good", "charge")
    assert refused.returncode == 2
    assert "--effects" in refused.stderr
    assert (tmp_path / "charged").read_text() == before
    assert shop("replay", "good", "charge", "--effects").returncode == 0
    assert (tmp_path / "charged").read_text() == before + "x"


def test_json_of_a_replay_is_one_object_even_if_the_node_prints(shop: Everstep) -> None:
    done = shop("replay", "bad", "price", "--json")
    shown = parsed(done)
    assert (done.returncode, done.stderr) == (1, "a node prints\n")
    assert (shown["node"], shown["visit"], shown["checkpoint"], shown["is_equal"]) == ("price", 1, 3, False)
    assert shown["inputs"]["order"]["lines"][0] == {"$type": "shop.Line", "item": "tea 0", "price": 1.5}
    assert shown["outputs"] == [
        {
            "name": "total",
            "is_equal": False,
            "recorded": 30.0,
            "now": 3.0,
            "changes": [{"path": "total", "kind": "changed", "before": 30.0, "after": 3.0}],
        }
    ]
    assert (shown["error"], shown["decision"]) == (None, None)


def test_replay_says_which_steps_there_are_and_how_to_name_the_flow(shop: Everstep, tmp_path: Path) -> None:
    unknown = shop("replay", "good", "price@2")
    assert unknown.returncode == 2
    assert "It has steps of make, price" in unknown.stderr
    (tmp_path / "own.py").write_text(
        "from everstep import Host\nfrom shop import flow\n"
        "with Host() as host: host.run(flow, {'order_id': 'A'}, run_id='own')\n"
    )
    assert shop("replay", "good", "price", "own.py").returncode == 0  # which makes another run on its way
    done = shop("replay", "own", "price")
    assert done.returncode == 2
    assert "everstep replay own price FILE.py:shop" in done.stderr
    assert shop("replay", "own", "price", "shop.py").returncode == 0
