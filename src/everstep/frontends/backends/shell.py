"""Commands as the backend of task nodes, and as what tool nodes run."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from everstep.errors import BadRequest
from everstep.frontends.backends.limits import LARGEST_PROMPT, OUTPUT, check_seconds, check_size, shorter
from everstep.frontends.backends.processes import SHELL, Ended, run_command
from everstep.frontends.backends.surroundings import (
    check_environment,
    read_status,
    variables_of,
    write_files,
)
from everstep.frontends.pipelines.outcome import Outcome
from everstep.frontends.pipelines.stage import Stage
from everstep.model.durations import Span

_TRUE: Final = frozenset({"true", "1", "yes", "on"})


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
