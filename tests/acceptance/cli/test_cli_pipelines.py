"""Pipelines as a shell sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.cli.test_cli import Everstep, parsed
from tests.acceptance.cli.test_cli import everstep as everstep  # the fixture

ENDS = "start [shape=Mdiamond]; exit [shape=Msquare];"
REVIEW = f"""digraph review {{ goal="ship it"; {ENDS}
  write [prompt="Write $goal"];
  count [shape=parallelogram, tool_command="echo counted | wc -c"];
  ask [shape=hexagon, label="Merge it?"];
  start -> write -> count -> ask;
  ask -> exit [label="[Y] Yes"]; ask -> write [label="[N] No"];
}}"""
PLAIN = REVIEW.replace("count [shape=parallelogram, tool_command=", "count [prompt=")


def test_a_pipeline_runs_halts_is_answered_and_resumed(everstep: Everstep, tmp_path: Path) -> None:
    file = tmp_path / "review.dot"
    file.write_text(REVIEW)
    refused = everstep("run", str(file), "--run-id", "r")
    assert (
        refused.returncode == 2 and "pipeline.tools" in refused.stderr and "--allow-tools" in refused.stderr
    )
    assert "there are no runs yet" in everstep("show", "r").stderr
    halted = everstep("run", str(file), "--run-id", "r", "--allow-tools")
    assert halted.returncode == 3 and "Merge it?" in halted.stdout
    assert everstep("answer", "r", "--choose", "perhaps").returncode == 2
    assert everstep("answer", "r", "--choose", "y").returncode == 0
    assert everstep("resume", "r").returncode == 2, "what was allowed once is not allowed for ever"
    done = everstep("resume", "r", "--allow-tools")
    assert done.returncode == 0 and "human.gate.label = 'Yes'" in done.stdout
    assert "tool.output" in done.stdout
    log = everstep("log", "r").stdout
    assert "→ exit; by answer [Y] Yes" in log and "internal." not in log


def test_handlers_and_backends_are_named_on_the_command_line(everstep: Everstep, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(
        "def agent(stage):\n    return f'agent did {stage.node}'\n"
        "handlers = {'count': lambda stage: {'context_updates': {'words': 7}}}\n"
    )
    file = tmp_path / "plain.dot"
    file.write_text(PLAIN)
    work = str(tmp_path / "work.py")
    done = everstep(
        "run", str(file), "--backend", f"{work}:agent", "--handlers", work, "--auto-approve", "--json"
    )
    values = parsed(done)["values"]
    assert done.returncode == 0 and values["words"] == 7 and values["last_response"] == "agent did write"
    shell = everstep("run", str(file), "--backend", "shell:tr a-z A-Z", "--auto-approve", "--json")
    assert "ECHO COUNTED" in parsed(shell)["values"]["last_response"]
    for wrong in ("shell:", "nonsense", f"{work}:missing", f"{work}:handlers"):
        assert everstep("run", str(file), "--backend", wrong).returncode == 2


def test_a_run_does_not_slip_into_a_simulation(everstep: Everstep, tmp_path: Path) -> None:
    file = tmp_path / "plain.dot"
    file.write_text(PLAIN)
    assert everstep("run", str(file), "--run-id", "r", "--backend", "shell:cat").returncode == 3
    everstep("answer", "r", "--choose", "n")
    refused = everstep("resume", "r")
    assert refused.returncode == 1 and "pipeline.backend_changed" in refused.stderr
    assert "halted" in everstep("show", "r").stdout
    assert everstep("resume", "r", "--backend", "shell:cat").returncode == 3, "and nothing was lost"


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (f'{ENDS} start -> a -> exit; a [label="open', "dot.invalid", "1:"),
        (f"{ENDS} start -> a -> exit; a [type=mystery]", "pipeline.unknown_handler", "'mystery'"),
        (f'{ENDS} start -> a; a -> exit [condition="outcome = = x"]', "pipeline.condition", "1:"),
        (f'{ENDS} start -> a -> exit; a [prompt="{"x" * 10_000_000}"]', "pipeline.prompt_size", "10,000,000"),
        (f"{ENDS} start -> a; exit -- a", "dot.invalid", "--"),
        ("", "pipeline.single_start", "start"),
    ],
)
def test_what_is_wrong_with_a_pipeline_is_said_with_its_place(
    everstep: Everstep, tmp_path: Path, body: str, code: str, said: str
) -> None:
    file = tmp_path / "bad.dot"
    file.write_text(f"digraph bad {{ {body} }}")
    run = everstep("run", str(file))
    assert run.returncode == 2 and code in run.stderr and said in run.stderr and "Traceback" not in run.stderr
    told = everstep("run", str(file), "--json")
    assert parsed(told)["error"]["details"]["problems"][0]["line"] >= 1
    assert everstep("validate", str(file)).returncode in (1, 2)


def test_a_mistake_in_the_text_is_shown_where_it_is(everstep: Everstep, tmp_path: Path) -> None:
    file = tmp_path / "bad.dot"
    file.write_text('digraph x {\n  a -> b [label="open }\n')
    lines = everstep("run", str(file)).stderr.splitlines()
    assert lines[-1].index("^") == lines[-2].index('"')
