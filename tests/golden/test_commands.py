"""What every command says with `--json`, and some of them to people, as golden files have it."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from everstep.cli.main import COMMANDS, cli, main
from everstep.model.leases import Driven, WorkerRow
from everstep.registry import open_store
from everstep.runtime.system import SystemClock
from tests.golden.comparing import FILES, Told, differences

KEYS = [f"2025:{'0a' * 32}", f"2026:{'0b' * 32},2025:{'0a' * 32}"]


class Case(NamedTuple):
    name: str
    words: str
    code: int = 0
    keys: int | None = None
    typed: str = ""


def said(name: str, words: str = "", code: int = 0, keys: int | None = None, typed: str = "") -> Case:
    return Case(name, f"{words or name} --json", code, keys, typed)


def shown(name: str, words: str, code: int = 0) -> Case:
    """A case for people: text in place of JSON."""
    return Case(name, words, code)


ORDER = '--input skus=\'["tea","gone","cup"]\''
CASES = [
    said("run", "run shop.py:counter --input n=0 --run-id C1 --as ann"),
    said("run-halted", f"run shop.py:order {ORDER} --run-id A1 --as ann --comment first", 3),
    said("run-failed", "run shop.py:pricing --input sku=tea --run-id P1", 1),
    said("run-start", "run shop.py:counter --input n=0 --run-id C2 --start --priority 3 --group g"),
    shown("run-shown", "run shop.py:counter --input n=0 --run-id C3"),
    said("run-odd", "run shop.py:oddities --input plain='{\"$type\": 1}' --run-id O1 --all"),
    said("log-odd", "log O1"),
    said("state-odd", "state O1"),
    said("show-odd", "show O1 rest"),
    said("diff-odd", "diff O1 --from 1 --to 2", 1),
    said("replay-odd", "replay O1 odd shop.py:oddities"),
    said("worker", "worker shop.py:counter --once"),
    said("runs", "runs"),
    said("runs-of-one-flow", "runs --flow order --status halted"),
    said("workers", "workers --store fleet.db"),
    said("waits", "waits"),
    said("waits-shown", "waits --show A1/approve"),
    said("checkpoints", "checkpoints A1"),
    said("log", "log A1"),
    shown("log-shown", "log A1"),
    shown("log-full", "log A1 --full"),
    said("log-last", "log C1 --last 1"),
    said("show", "show A1"),
    shown("show-shown", "show A1"),
    shown("show-counter", "show C1"),
    shown("show-failed", "show P1"),
    said("show-step", "show A1 check#1"),
    shown("show-step-shown", "show A1 check"),
    shown("show-inside", "show A1 packing"),
    said("show-checkpoint", "show A1 1"),
    said("state", "state A1"),
    shown("state-shown", "state A1"),
    said("state-at", "state A1 --at 2"),
    said("explain", "explain A1 shop.py:order"),
    said("compat", "compat changed.py:order"),
    said("migrate", "migrate A1 changed.py:order --dry-run"),
    said("answer", "answer A1/approve --approve --as bo --comment fine"),
    said("resume", "resume A1 shop.py:order"),
    said("log-answered", "log A1"),
    shown("log-answered-shown", "log A1"),
    shown("show-answered", "show A1"),
    said("fork", "fork A1 --at 1 --as A2"),
    shown("log-graph", "log A1 --graph"),
    said("log-graph-json", "log A1 --graph"),
    said("diff", "diff A1 A2", 1),
    said("diff-within", "diff A1 --from 1 --to 3", 1),
    said("bisect", "bisect C1 C3"),
    said("replay", "replay A1 add shop.py:order"),
    said("run-waiting", "run shop.py:order --input skus='[\"pot\"]' --run-id W1 --key-file key --tokens", 3),
    said("reissue", "answer W1/approve --reissue --key-file key"),
    said("run-uranium", "run shop.py:order --input skus='[\"uranium\"]' --run-id U1", 3),
    said("answer-uranium", "answer U1/approve --approve"),
    Case("interrupted", "resume U1 shop.py:order --quiet", 130),
    said("resume-unknown", "resume U1 shop.py:order", 3),
    said("settle", "settle U1 charge --done '{\"charged\": 1}'"),
    said("send", 'send W1 note \'{"text": "hurry"}\' --id note-1 --as ann'),
    said("publish", 'publish paid \'{"order": "W1"}\' --id paid-1 --keep 1d --as ann'),
    said("inbox", "inbox W1"),
    Case("inbox-shown", "inbox W1"),
    said("drop-refused", "inbox W1 --drop note-2", 2),
    said("drop", "inbox W1 --drop note-1 --as ann"),
    said("turn-halted", "send A2 note 1 --drive shop.py:order", 3),
    said("turn", "send A2 approve '{\"approved\": true}' --drive shop.py:order --id ok-1 --as bo"),
    said("pause", "pause W1 --as ann"),
    said("pauses", "pauses"),
    shown("pause-flow-shown", "pause --flow order --group acme --comment 'a look'"),
    shown("pauses-shown", "pauses"),
    said("limits", "limits"),
    shown("limits-shown", "limits"),
    said("runs-paused", "runs --paused"),
    shown("show-paused-shown", "show W1"),
    said("resume-paused", "resume W1", 2),
    said("unpause", "unpause W1 --as ann"),
    said("unpause-again", "unpause W1 --as ann", 1),
    shown("unpause-flow-shown", "unpause --flow order --group acme"),
    said("undo-refused", "undo A1 --as ann", 2),
    said("cancel", "cancel W1 --as ann"),
    said("notices", "notices"),
    shown("notices-shown", "notices P1 --state pending"),
    said("notices-again", "notices --again P1-1 --as ann"),
    said("notices-again-missing", "notices --again P1-9", 2),
    said("notices-again-all", "notices --again-all --as ann"),
    said("breakers", "breakers"),
    said("breakers-reset", "breakers --reset prices --as ann"),
    said("pin", "pin A1 'the audit' --as ann"),
    said("runs-pinned", "runs --pinned"),
    said("unpin", "unpin A1 --as ann"),
    said("tag", "tag A1 vip team=blue"),
    said("runs-tagged", "runs --tag team=blue --labels"),
    said("bulk-dry-run", "bulk tag --add vip --where 'flow = order' --dry-run"),
    shown("bulk-dry-run-shown", "bulk cancel --where 'status is set' --dry-run"),
    said("bulk", "bulk tag --add vip --where 'flow = order' --yes --as ann"),
    shown("bulk-shown", "bulk tag --add vip --where 'flow = order' --yes"),
    said("count", "count"),
    said("durations", "durations pricing"),
    said("ack", "ack A1 --as ann"),
    said("verify", "verify"),
    said("doctor", "doctor"),
    said("drain", "drain"),
    said("migrate-store", "migrate-store --dry-run"),
    said("after-restore", "after-restore"),
    said("export", "export A1 A1.everstep"),
    said("import", "import A1.everstep --store other.db"),
    said("copy", "copy C1 --from runs.db --to other.db"),
    said("clean-up", "clean-up C1 --keep 1"),
    said("erase", "erase C3 --yes --as ann"),
    said("gc", "gc --keep-for 30d"),
    said("gc-log", "gc --log"),
    said("audit", "audit A1"),
    shown("audit-shown", "audit --act erase"),
    said("run-encrypted", "run shop.py:counter --input n=0 --run-id E1 --store sealed.db", keys=0),
    said("rekey", "rekey --store sealed.db", keys=1),
    said("chat", "chat shop.py:talk --run-id T1", typed="hello\n"),
    said("validate", "validate shop.py:order"),
    said("report", "report shop.py:order"),
    said("ir", "ir shop.py:packing"),
    said("bench", "bench --quick --only w8 --rounds 1 --dir ."),
    Case("error", "show nothing --json", 2),
]
MEASURED = {"bench"}
"""What only the keys are compared of."""


def test_every_command_says_what_its_golden_file_says(
    quick_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    different = differences("commands", _played(quick_folder, monkeypatch))
    assert not different, "\n".join(different)


def _played(folder: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    text = (FILES / "shop.py").read_text(encoding="utf-8")
    (folder / "shop.py").write_text(text)
    rules = 'version="2", migrations=[migrate.rename_node("add", "price")], budgets='
    changed = text.replace("def add(", "def price(").replace("        add,\n", "        price,\n")
    changed = changed.replace("budgets=", rules, 1).replace(" END, ", " END, migrate, ")
    (folder / "key").write_text("k" * 32)
    (folder / "changed.py").write_text(changed)
    patch.chdir(folder)
    patch.setenv("EVERSTEP_STORE", "runs.db")
    patch.setenv("EVERSTEP_AS", "ann")
    patch.setenv("COLUMNS", "200")
    patch.setattr(os, "_exit", _exit)
    asyncio.run(_report_worker())
    found: dict[str, Any] = {}
    for case in CASES:
        patch.setenv("EVERSTEP_ENCRYPT_KEYS", KEYS[case.keys] if case.keys is not None else "")
        patch.setattr("sys.stdin", io.StringIO(case.typed))
        found[case.name] = _said(case, folder)
    return found


async def _report_worker() -> None:
    now = datetime.now(UTC)
    row = WorkerRow(
        worker_id="w1",
        host="box",
        pid=7,
        flows=("counter", "order"),
        concurrency=8,
        started_at=now,
        driving=1,
        longest=(Driven(run_id="C0", flow_id="counter", since=now),),
    )
    await open_store("sqlite:///fleet.db", SystemClock()).store.report(row, timedelta(days=1))


def _exit(code: int) -> None:
    raise SystemExit(code)


def _said(case: Case, folder: Path) -> Any:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(shlex.split(case.words))
    told = Told(folder)
    assert ended.value.code == case.code, f"{case.words}: {out.getvalue()}{err.getvalue()}"
    if "--json" not in case.words:
        return told.screen(f"$ everstep {case.words}\n{out.getvalue()}---\n{err.getvalue()}")
    speaks_in_lines = case.words.startswith(("worker ", "chat "))
    lines = out.getvalue().splitlines() if speaks_in_lines else [out.getvalue()]
    found = told.plain([json.loads(line) for line in lines if line])
    return _keys(found) if case.name in MEASURED else found[0] if len(lines) == 1 else found


def _keys(value: Any) -> Any:
    match value:
        case dict():
            return {key: _keys(item) for key, item in value.items()}
        case list():
            return [_keys(item) for item in value[:1]]
    return type(value).__name__


def test_every_command_that_speaks_json_has_a_golden_file() -> None:
    cased = {case.words.split()[0] for case in CASES if "--json" in case.words}
    context = click.Context(cli)
    speaking = {
        name
        for name in COMMANDS
        if (command := cli.get_command(context, name)) is not None
        and any("--json" in option.opts for option in command.params)
    }
    assert speaking - cased == set()
