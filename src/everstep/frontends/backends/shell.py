"""Commands as the backend of task nodes, and as what tool nodes run; and what they are told of a stage."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from everstep.errors import BadRequest, OutputError
from everstep.frontends.backends.limits import LARGEST_PROMPT, OUTPUT, check_seconds, check_size, shorter
from everstep.frontends.backends.processes import SHELL, Ended, run_command
from everstep.frontends.pipelines.outcome import Outcome
from everstep.frontends.pipelines.stage import Stage
from everstep.model.durations import Span

_TRUE: Final = frozenset({"true", "1", "yes", "on"})
_LONGEST = 4096
"""Characters of a variable: the system has room for few."""


class Shell:
    """Gives each prompt to a command on its stdin; what it writes on stdout is the response.

    The command may write how the stage ended as JSON to the file that `$EVERSTEP_STATUS_FILE` names. Without
    that, exit code 0 is a success and any other a failure that may be tried again; with `needs_status`, a
    command that wrote none has failed, unless its node says `auto_status`. A text is run by /bin/sh, a list
    of words as it is.
    """

    name = "shell"
    keeps_time = True

    def __init__(
        self,
        command: str | Sequence[str],
        *,
        timeout: Span | None = 3600.0,
        output_limit: int = OUTPUT,
        needs_status: bool = False,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
    ) -> None:
        words = [SHELL, "-c", command] if isinstance(command, str) else list(command)
        if (
            not words
            or not words[-1]
            or not all(isinstance(word, str) and "\0" not in word for word in words)
        ):
            raise BadRequest(f"{command!r:.80} is no command.", fix="Give a text, or a list of words.")
        self._words = words
        self._timeout = check_seconds(timeout, "timeout")
        self._limit = check_size(output_limit, "output_limit")
        self._needs_status = needs_status
        self._env = check_environment(env)
        self._cwd = cwd

    def __repr__(self) -> str:
        # What stands behind the program's name may be a secret.
        first = self._words[-1].split(None, 1)[:1] if self._words[0] == SHELL else [self._words[0]]
        return f"Shell({Path(first[0]).name if first else '…'} …)"

    async def __call__(self, stage: Stage) -> Outcome:
        """Run the command on the stage's prompt."""
        prompt = stage.prompt.encode("utf-8", "replace")
        if len(prompt) > LARGEST_PROMPT:
            return Outcome.fail(
                f"the prompt of {len(prompt)} bytes is larger than {LARGEST_PROMPT}.",
                retryable=False,
                type="TooLarge",
            )
        with tempfile.TemporaryDirectory(prefix="everstep-", ignore_cleanup_errors=True) as made:
            folder = Path(made)
            write_files(stage, folder)
            timeout = shorter(self._timeout, stage)
            try:
                ended = await run_command(
                    self._words,
                    stdin=prompt,
                    env=variables_of(stage, folder, self._env),
                    cwd=self._cwd,
                    timeout=timeout,
                    output_limit=self._limit,
                )
            except OSError as error:
                return _not_started(error)
            told = read_status(folder, stage.node, self._limit) if ended.code is not None else None
        return self._judge(stage, ended, told, timeout)

    def _judge(self, stage: Stage, ended: Ended, told: Outcome | None, timeout: float | None) -> Outcome:
        metadata = _metadata(ended)
        if told is not None:
            response = told.response if told.response is not None else ended.text
            return told.but(response=response, metadata={**metadata, **told.metadata})
        if ended.code != 0:
            return _failed(ended, timeout).but(response=ended.text or None, metadata=metadata)
        if self._needs_status and not _is_true(stage.attributes.get("auto_status")):
            why = "it ended without a status file."
            return Outcome.fail(why, retryable=True, type="NoStatus").but(
                response=ended.text, metadata=metadata
            )
        return Outcome(response=ended.text, metadata=metadata)


class Tools:
    """Runs the `tool_command` of tool nodes with /bin/sh; only who asks for it has such commands run.

    What it writes on stdout is `tool.output` of the context, how it ended `tool.exit_code`. The command of
    `tool_hooks.pre` runs before it and may forbid it by an exit code other than 0, `tool_hooks.post` after.
    """

    name = "tools"
    keeps_time = True

    def __init__(
        self,
        *,
        timeout: Span | None = 600.0,
        output_limit: int = OUTPUT,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
    ) -> None:
        self._timeout = check_seconds(timeout, "timeout")
        self._limit = check_size(output_limit, "output_limit")
        self._env = check_environment(env)
        self._cwd = cwd

    def __repr__(self) -> str:
        return f"Tools(timeout={self._timeout}, output_limit={self._limit})"

    async def __call__(self, stage: Stage) -> Outcome:
        """Run the node's command between its hooks."""
        command = str(stage.attributes.get("tool_command") or "")
        if not command.strip():
            return Outcome.fail("the node has no tool_command.", retryable=False, type="NoCommand")
        timeout = shorter(self._timeout, stage)
        with tempfile.TemporaryDirectory(prefix="everstep-", ignore_cleanup_errors=True) as made:
            folder = Path(made)
            write_files(stage, folder)
            env = variables_of(stage, folder, self._env)
            try:
                before = await self._hook(stage, "tool_hooks.pre", env, timeout)
                if before is not None and before.code != 0:
                    why = f"tool_hooks.pre forbade it: {before.trouble(timeout)}"
                    return Outcome.fail(why, retryable=False, type="Forbidden")
                ended = await self._run(command, env, timeout)
                env["EVERSTEP_TOOL_EXIT_CODE"] = "" if ended.code is None else str(ended.code)
                after = await self._hook(stage, "tool_hooks.post", env, timeout)
            except (OSError, ValueError) as error:
                return _not_started(error)
        return _as_tool(ended, after, timeout)

    async def _hook(
        self, stage: Stage, which: str, env: Mapping[str, str], timeout: float | None
    ) -> Ended | None:
        command = str(stage.attributes.get(which) or "").strip()
        return await self._run(command, env, timeout) if command else None

    async def _run(self, command: str, env: Mapping[str, str], timeout: float | None) -> Ended:
        return await run_command(
            [SHELL, "-c", command], env=env, cwd=self._cwd, timeout=timeout, output_limit=self._limit
        )


def _as_tool(ended: Ended, after: Ended | None, timeout: float | None) -> Outcome:
    updates: dict[str, Any] = {"tool.output": ended.text, "tool.exit_code": ended.code}
    notes = "" if after is None or after.code == 0 else f"tool_hooks.post: {after.trouble(timeout)}"
    found = Outcome() if ended.code == 0 else _failed(ended, timeout)
    return found.but(context_updates=updates, response=ended.text, notes=notes, metadata=_metadata(ended))


def _failed(ended: Ended, timeout: float | None) -> Outcome:
    kind = "Timeout" if ended.code is None else "ExitCode"
    return Outcome.fail(ended.trouble(timeout), retryable=True, type=kind)


def _metadata(ended: Ended) -> dict[str, Any]:
    found: dict[str, Any] = {"exit_code": ended.code}
    if ended.cut:
        found["cut"] = ended.cut
    return found


def _not_started(error: OSError | ValueError) -> Outcome:
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return Outcome.fail(f"the command could not be started: {said}.", retryable=False, type="NotStarted")


def _is_true(value: object) -> bool:
    return value is True or (isinstance(value, str) and value.strip().lower() in _TRUE)


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
