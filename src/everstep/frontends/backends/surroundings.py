"""What a command is told of its stage: variables, and files in a folder of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from everstep.errors import BadRequest, OutputError
from everstep.frontends.pipelines.outcome import Outcome
from everstep.frontends.pipelines.stage import Stage

_LONGEST = 4096
"""Characters of a variable: the system has room for few."""


def variables_of(stage: Stage, folder: Path, more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command: this process's without what is everstep's own, and the stage."""
    told = {
        "RUN_ID": stage.run_id,
        "PIPELINE": stage.pipeline,
        "NODE": stage.node,
        "PATH": stage.path or stage.node,
        "LABEL": stage.label,
        "GOAL": stage.goal,
        "VISIT": str(stage.visit),
        "ATTEMPT": str(stage.attempt),
        "IDEMPOTENCY_KEY": stage.idempotency_key,
        "FIDELITY": stage.fidelity,
        "THREAD_ID": stage.thread_id,
        "MODEL": str(stage.model.get("llm_model", "")),
        "CHOICES": json.dumps(stage.choices, ensure_ascii=False),
        "STATUS_FILE": str(status_file(folder)),
        "CONTEXT_FILE": str(folder / "context.json"),
        "PROMPT_FILE": str(folder / "prompt.md"),
        "PREAMBLE_FILE": str(folder / "preamble.md"),
    }
    # What is called EVERSTEP_ may be a key or a token of the host, and is none of the command's business.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("EVERSTEP_")}
    own = {f"EVERSTEP_{name}": value.replace("\0", "")[:_LONGEST] for name, value in told.items()}
    return {**inherited, **more, **own}


def write_files(stage: Stage, folder: Path) -> None:
    """Write prompt, preamble and context where the variables say that they are."""
    (folder / "prompt.md").write_text(stage.prompt, encoding="utf-8", errors="replace")
    (folder / "preamble.md").write_text(stage.preamble, encoding="utf-8", errors="replace")
    (folder / "context.json").write_text(
        json.dumps(dict(stage.context), ensure_ascii=False, default=str), encoding="utf-8", errors="replace"
    )


def status_file(folder: Path) -> Path:
    """Return where a command may write how its stage ended."""
    return folder / "status.json"


def read_status(folder: Path, node: str, limit: int) -> Outcome | None:
    """Return the outcome that a command wrote, or none; what cannot be read is a failed one that says why."""
    path = status_file(folder)
    try:
        if path.is_symlink() or not path.is_file():
            if not path.exists() and not path.is_symlink():
                return None
            return _bad("it is no file")
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        return _bad(str(error.strerror or error))
    if len(data) > limit:
        return _bad(f"it is larger than {limit} bytes")
    try:
        found: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return _bad(f"it is not JSON: {error!s:.120}")
    if not isinstance(found, dict):
        return _bad(f"it holds {found!r:.60} and no object")
    try:
        return Outcome.of(found, node)
    except OutputError as error:
        return _bad(str(error))


def _bad(why: str) -> Outcome:
    return Outcome.fail(
        f"the status file cannot be taken: {why.rstrip('.')}.", retryable=False, type="BadStatus"
    )


def check_environment(given: Mapping[str, str] | None) -> dict[str, str]:
    """Return variables that a command is to have besides, if they can be some."""
    found = dict(given or {})
    for name, value in found.items():
        is_good = isinstance(name, str) and name and not set(name) & {"=", "\0"}
        if not is_good or not isinstance(value, str) or "\0" in value:
            raise BadRequest(f"the variable {name!r:.40} cannot be set.", fix="Give names and texts.")
    return found
