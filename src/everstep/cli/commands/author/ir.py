"""`everstep ir`."""

from __future__ import annotations

import click

from everstep.cli.args.loading import load_flow
from everstep.cli.args.options import json_option
from everstep.cli.view.text import write_json
from everstep.graph.ir.check import schema


@click.command()
@click.argument("flow", metavar="[FILE.py[:FLOW]]", required=False)
@click.option("--schema", "wants_schema", is_flag=True, help="Print the JSON Schema of the Flow IR.")
@json_option
def ir(flow: str | None, wants_schema: bool, as_json: bool) -> int:
    """Print a flow as JSON, without its functions: the Flow IR.

    \b
    Examples:
      everstep ir orders.py
      everstep ir --schema > flow-ir.schema.json
    """
    if (flow is None) == (not wants_schema):
        raise click.UsageError("Name a flow, or ask for the --schema.")
    write_json(schema() if flow is None else load_flow(flow, runs=False).to_ir())
    return 0
