"""A missing, wrong or rotated key at a shell: a clear word, nothing lost, nothing called damaged."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner

from everstep.cli.main import cli
from everstep.errors import BadRequest, KeyUnavailable
from tests.servers import warm

FILE = """
from pathlib import Path
from everstep import Flow, node

@node(output="secret")
def whisper(word: str) -> str:
    return word * 2

@node(output="told")
def tell(secret: str) -> str:
    if not Path(__file__).with_name("fixed").exists():
        raise ValueError("no one may know " + secret)
    return secret[::-1]

flow = Flow("gossip", [whisper, tell], durability="strong")
"""
OLD, NEW, WRONG = f"old:{'0a' * 32}", f"new:{'0b' * 32}", f"old:{'0c' * 32}"
BOTH = f"{NEW},{OLD}"


class Shell:
    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.file = str(folder / f"gossip_{uuid4().hex}.py")  # a module is loaded once
        self._patch = patch
        self.patch = patch.setenv

    def __call__(self, keys: str, *words: str) -> Any:
        self._patch.setenv("EVERSTEP_ENCRYPT_KEYS", keys)
        given = [*words, "--store", f"sqlite:///{self.folder}/runs.db"]
        return CliRunner().invoke(cli, given, standalone_mode=False)

    def work(self, keys: str, *more: str) -> None:
        """Let a worker do what is due, in a process of its own, which it ends."""
        command = [sys.executable, "-m", "everstep", "worker", self.file, "--once", *more]
        given = {
            **os.environ,
            "EVERSTEP_ENCRYPT_KEYS": keys,
            "EVERSTEP_STORE": f"sqlite:///{self.folder}/runs.db",
        }
        done = warm.run(command, env=given, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A failed run A, and a run B that was accepted, both encrypted with the old key."""
    made = Shell(tmp_path, monkeypatch)
    Path(made.file).write_text(FILE)
    assert made(OLD, "run", made.file, "-i", "word=psst", "--run-id", "A").return_value == 1
    started = made(OLD, "run", made.file, "-i", "word=hush", "--run-id", "B", "--start")
    assert started.return_value == 0
    (tmp_path / "fixed").touch()
    return made


@pytest.mark.parametrize("keys", ["", NEW, WRONG])
def test_without_the_right_key_commands_show_what_they_can_and_refuse_the_rest_by_name(
    shell: Shell, keys: str
) -> None:
    for words in (
        ("log", "A"),
        ("show", "A"),
        ("state", "A"),
        ("show", "A", "whisper"),
        ("diff", "A@1", "A@3"),
    ):
        for more in ((), ("--json",)):
            said = shell(keys, *words, *more)
            assert said.exception is None, (words, said.exception)
            assert "psst" not in said.output
    shown = shell(keys, "state", "A", "--json")
    assert "old" in shown.output
    for refused in (("resume", "A"), ("rekey", "A")) if keys else (("resume", "A"),):
        error = shell(keys, *refused).exception
        assert isinstance(error, KeyUnavailable) and "'old'" in str(error) and error.fix
    found = json.loads(shell(keys, "verify", "--json").output)
    assert found["is_sound"] and [(one["run_id"], one["locked_by"]) for one in found["runs"]] == [
        ("B", ["old"]),
        ("A", ["old"]),
    ]
    assert "for want of the key old" in shell(keys, "verify").output
    assert shell(OLD, "resume", "A", "--quiet").output.strip() == "told = 'tssptssp'"


@pytest.mark.parametrize("keys", ["", NEW, WRONG])
def test_a_worker_without_the_right_key_leaves_runs_to_those_who_have_it(shell: Shell, keys: str) -> None:
    shell.work(keys)
    assert shell(OLD, "runs", "--needs-repair").output.count("B") == 0
    assert json.loads(shell(OLD, "show", "B", "--json").output)["status"] == "running"
    shell.work(OLD)
    assert json.loads(shell(OLD, "show", "B", "--json").output)["status"] == "completed"


def test_a_rotated_key_is_used_for_what_is_new_and_rekey_brings_the_rest(shell: Shell) -> None:
    assert shell(BOTH, "resume", "A", "--quiet").output.strip() == "told = 'tssptssp'"
    assert isinstance(shell(OLD, "resume", "A").exception, KeyUnavailable)
    assert shell(BOTH, "rekey").return_value == 0
    assert shell(NEW, "state", "A").output.count("psst") and shell(NEW, "verify").return_value == 0
    assert "for want of the key" not in shell(NEW, "verify").output
    shell.work(NEW)
    assert json.loads(shell(NEW, "show", "B", "--json").output)["status"] == "completed"


@pytest.mark.parametrize("command", ["worker", "serve"])
def test_who_requires_encryption_and_has_no_keys_is_told_so(
    shell: Shell, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EVERSTEP_ENCRYPT_KEYS_FILE", raising=False)
    arguments = ["worker", shell.file] if command == "worker" else ["serve", "--no-auth", "--port", "0"]
    error = shell("", *arguments, "--encrypt-required").exception
    assert isinstance(error, BadRequest) and "encryption is required, and there are no keys" in str(error)


def test_a_worker_that_requires_encryption_drives_nothing_that_is_in_the_clear(shell: Shell) -> None:
    """What the option says counts, whatever the environment says."""
    assert shell("", "run", shell.file, "-i", "word=open", "--run-id", "C", "--start").return_value == 0
    shell.work(OLD, "--encrypt-required")
    found = {run: json.loads(shell(OLD, "show", run, "--json").output)["status"] for run in ("B", "C")}
    assert found == {"B": "completed", "C": "running"}
    assert shell("", "run", shell.file, "-i", "word=open", "--run-id", "D", "--start").return_value == 0
    shell.patch("EVERSTEP_ENCRYPT_REQUIRED", "1")
    shell.work(OLD, "--no-encrypt-required")
    shell.patch("EVERSTEP_ENCRYPT_REQUIRED", "0")
    assert json.loads(shell(OLD, "show", "D", "--json").output)["status"] == "completed"
