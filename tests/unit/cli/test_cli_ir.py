"""`everstep ir` prints what a program can read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from everstep import Flow
from everstep.cli.main import cli
from everstep.graph.ir.check import schema

FILE = """
from everstep import Flow, node

@node(output="y")
def double(x: int) -> int:
    return 2 * x

flow = Flow("doubling", [double])
"""


def ir(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["ir", *arguments])


def test_a_flow_is_printed_as_json_that_can_be_read_back(tmp_path: Path) -> None:
    file = tmp_path / "cli_ir_flow.py"
    file.write_text(FILE)
    printed = json.loads(ir(f"{file}:flow").stdout)
    assert printed["nodes"][0]["identifier"] == "cli_ir_flow:double"
    flow = Flow.from_ir(printed, {"cli_ir_flow:double": lambda x: x})
    assert flow.plan.hash == printed["metadata"]["structure"]
    assert json.loads(ir(str(file), "--json").stdout) == printed


def test_the_schema_is_printed_as_it_is_published() -> None:
    assert json.loads(ir("--schema").stdout) == schema()


@pytest.mark.parametrize("arguments", [[], ["orders.py", "--schema"]])
def test_a_flow_or_the_schema_must_be_asked_for(arguments: list[str]) -> None:
    done = ir(*arguments)
    assert done.exit_code == 2
    assert "Name a flow, or ask for the --schema." in done.output
