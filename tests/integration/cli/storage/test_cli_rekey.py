"""What the shell says of keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from everstep import Context, Flow, Host, node, wait
from everstep.cli.commands.runs.list import runs
from everstep.cli.commands.runs.log import log
from everstep.cli.commands.runs.state import state
from everstep.cli.commands.store.rekey import rekey
from everstep.cli.main import main

OLD, NEW = f"2025:{'0a' * 32}", f"2026:{'0b' * 32}"


@node(output="total")
def price(quantity: int) -> int:
    if quantity < 0:
        raise ValueError("a secret reason")
    return 250 * quantity


FLOW = Flow("orders", [price])


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("EVERSTEP_ENCRYPT_KEYS", OLD)
    found = f"sqlite:///{tmp_path}/runs.db"
    with Host(found) as host:
        host.run(FLOW, {"quantity": 3}, run_id="A17")
        host.run(FLOW, {"quantity": -1}, run_id="A18")
    return found


def said(command: Any, *words: str) -> str:
    done = CliRunner().invoke(command, [*words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def failed(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert isinstance(caught.value.code, int)
    shown = capsys.readouterr()
    return caught.value.code, shown.out + shown.err


def test_rekey_says_what_it_would_do_and_what_it_did(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERSTEP_ENCRYPT_KEYS", f"{NEW},{OLD}")
    assert said(rekey, "--store", url, "--dry-run").splitlines()[-1] == "2 runs: 2 would be encrypted anew"
    assert said(rekey, "A17", "--store", url) == "run A17: 2 checkpoints\n1 run: 1 encrypted anew\n"
    told = json.loads(said(rekey, "--store", url, "--json"))
    assert {one["run_id"]: one["checkpoints"] for one in told["runs"]} == {"A17": 0, "A18": 2}
    assert told["dry_run"] is False
    assert said(rekey, "--store", url) == "2 runs: 0 encrypted anew\n"
    monkeypatch.setenv("EVERSTEP_ENCRYPT_KEYS", NEW)
    assert "750" in said(state, "A17", "--store", url)


def test_rekey_counts_what_lies_beside_the_records(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @node(output="said")
    def says(n: int, ctx: Context) -> int:
        print("a logged secret")
        ctx.emit("told", word="an emitted secret")
        return n

    flow = Flow("talk", [says, wait.question("reply", kind="text")], streams=True, logs=True)
    with Host(url) as host:
        host.run(flow, {"n": 1}, run_id="A19")
        host.send("A19", "later", "a secret")
    monkeypatch.setenv("EVERSTEP_ENCRYPT_KEYS", f"{NEW},{OLD}")
    told = json.loads(said(rekey, "A19", "--store", url, "--dry-run", "--json"))
    assert {k: told["runs"][0][k] for k in ("waits", "signals", "emitted", "logs")} == {
        "waits": 1,
        "signals": 1,
        "emitted": 1,
        "logs": 1,
    }
    shown = said(rekey, "A19", "--store", url).splitlines()
    assert shown[0].endswith(" checkpoints, 1 wait, 1 signal, 1 stream part, 1 log")
    assert said(rekey, "A19", "--store", url) == "1 run: 0 encrypted anew\n"


def test_commands_take_their_keys_from_the_environment(url: str) -> None:
    assert "750" in said(state, "A17", "--store", url)
    assert "a secret reason" in said(log, "A18", "--store", url)


def test_without_the_key_runs_are_listed_and_the_missing_key_is_named(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("EVERSTEP_ENCRYPT_KEYS")
    assert "A17" in said(runs, "--store", url)
    assert "encrypted with the key '2025'" in said(state, "A17", "--store", url)
    told = json.loads(said(state, "A17", "--store", url, "--json"))
    assert "encrypted with the key '2025'" in json.dumps(told) and "750" not in json.dumps(told)
    code, shown = failed("rekey", "--store", url, capsys=capsys)
    assert code == 2 and "no key to encrypt with" in shown


def test_a_key_that_is_none_is_never_printed(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ("2025:hunter2hunter2", "hunter2hunter2", f"{'hunter2' * 10}:x"):
        monkeypatch.setenv("EVERSTEP_ENCRYPT_KEYS", text)
        code, shown = failed("runs", "--store", url, capsys=capsys)
        assert code == 2 and "hunter2" not in shown


def test_the_log_of_a_run_without_its_key_shows_the_steps(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVERSTEP_ENCRYPT_KEYS")
    shown = said(log, "A18", "--store", url)
    assert "price" in shown and "a secret reason" not in shown and "encrypted with the key '2025'" in shown
