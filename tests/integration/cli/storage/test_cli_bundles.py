"""What the shell says of runs that are carried elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from everstep import Flow, Host, Node
from everstep.cli.commands.fleet.workers import workers
from everstep.cli.commands.runs.list import runs
from everstep.cli.commands.runs.show import show
from everstep.cli.commands.store.copy import copy
from everstep.cli.commands.store.export import export, import_
from everstep.cli.main import main
from tests.integration.runtime.bundles.carried import ASK, CRAWL, GIVEN


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    with Host("sqlite:///runs.db") as host:
        host.run(CRAWL, GIVEN, run_id="A17")
        host.run(ASK, GIVEN, run_id="H1")
    return "runs.db"


def said(command: Any, *words: str, code: int = 0) -> str:
    done = CliRunner().invoke(command, [*words], catch_exceptions=False, standalone_mode=False)
    assert (done.return_value or 0) == code, done.output
    return done.stdout


def failed(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert isinstance(caught.value.code, int)
    shown = capsys.readouterr()
    return caught.value.code, shown.out + shown.err


class TestExportAndImport:
    def test_there_and_back(self, store: str) -> None:
        text = said(export, "A17", "--store", store)
        assert text.startswith("written: A17.everstep (1 run, 4 checkpoints, 1 artifact, ")
        text = said(import_, "A17.everstep", "--store", "other.db", "--dry-run")
        assert text == "would be imported: run A17 (completed, 4 checkpoints)\n"
        assert "imported: run A17 (completed, 4 checkpoints)" in said(
            import_, "A17.everstep", "--store", "other.db"
        )
        assert said(import_, "A17.everstep", "--store", "other.db") == "there already: run A17\n"

    def test_secrets_stay_behind_and_are_given_back(self, store: str) -> None:
        text = said(export, "A17", "x.everstep", "--store", store, "--without-secrets", "--leave-out", "user")
        assert "left out: api_token, user\n" in text
        told = json.loads(said(import_, "x.everstep", "--store", "a.db", "--json"))
        assert [one["name"] for one in told["missing"]] == ["api_token", "user"]
        text = said(
            import_,
            "x.everstep",
            "--store",
            "b.db",
            "--value",
            "api_token=hush-hush",
            "--value",
            'user="ann"',
        )
        assert "missing" not in text

    def test_an_unfinished_run_is_said_to_wait(self, store: str) -> None:
        text = said(export, "H1", "--store", store)
        assert "left out: 1 token; to make new ones: everstep answer WAIT --reissue" in text
        text = said(import_, "H1.everstep", "--store", "other.db")
        assert "workers leave H1 alone" in text and "everstep resume H1 --store other.db" in text
        assert "halted (set aside)" in said(runs, "--store", "other.db")
        shown = said(show, "H1", "--store", "other.db")
        assert "set aside it was imported, and may still be driven where it comes from. Workers" in shown
        assert "need" not in said(workers, "--store", "other.db")
        told = json.loads(said(import_, "H1.everstep", "--store", "live.db", "--live", "--json"))
        assert told["set_aside"] == [] and told["restored"] == ["H1"]

    def test_a_file_that_is_there_is_refused(self, store: str, capsys: pytest.CaptureFixture[str]) -> None:
        said(export, "A17", "--store", store)
        code, text = failed("export", "A17", "--store", store, capsys=capsys)
        assert code == 2 and "--force" in text
        told = json.loads(said(export, "A17", "--store", store, "--force", "--json"))
        assert told["runs"][0]["run_id"] == "A17" and told["path"] == "A17.everstep"

    def test_what_is_no_bundle_is_refused_by_name(
        self, store: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        Path("bad.everstep").write_bytes(b"PK\x03\x04" + b"\0" * 100)
        code, text = failed("import", "bad.everstep", "--store", "other.db", "--json", capsys=capsys)
        assert code == 2 and json.loads(text)["error"]["code"] == "bundle.invalid"

    def test_one_checkpoint_is_no_run(self, store: str, capsys: pytest.CaptureFixture[str]) -> None:
        code, text = failed("export", "A17@2", "--store", store, capsys=capsys)
        assert code == 2 and "everstep fork A17@2" in text

    def test_another_id_is_refused_with_the_way(self, store: str, capsys: pytest.CaptureFixture[str]) -> None:
        said(export, "A17", "--store", store)
        code, text = failed("import", "A17.everstep", "--as", "B", "--store", "other.db", capsys=capsys)
        assert code == 2 and "keeps its id" in text and "everstep fork" in text


class TestForms:
    def test_a_checkpoint_is_printed_or_written_as_json(self, store: str) -> None:
        assert json.loads(said(export, "A17", "--form", "pipeline", "--store", store))["run_id"] == "A17"
        said(export, "A17@2", "a.json", "--form", "004", "--store", store)
        assert json.loads(Path("a.json").read_text())["sequence_number"] == 2

    def test_three_files_are_written_and_read(self, store: str) -> None:
        text = said(export, "A17", "sets/a17", "--form", "session", "--store", store)
        assert text == "written: sets/a17.everstep, .state.json and .meta.json\n"
        assert said(import_, "sets/a17.meta.json", "--store", "b.db") == "imported: run A17 (completed)\n"

    def test_options_of_bundles_are_refused_there(
        self, store: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, _ = failed("export", "A17", "--form", "phases", "--decrypt", "--store", store, capsys=capsys)
        assert code == 2


class TestCopy:
    def test_some_and_all_and_moved(self, store: str) -> None:
        text = said(copy, "A17", "--from", store, "--to", "other.db")
        assert text == "run A17: copied (4 checkpoints, 1 artifact)\n1 run copied\n"
        again = said(copy, "A17", "--from", store, "--to", "other.db")
        assert again.endswith("\n0 runs copied, 1 already there\n")
        told = json.loads(said(copy, "--all", "--from", store, "--to", "other.db", "--move", "--json"))
        assert {one["run_id"]: one["outcome"] for one in told["runs"]} == {"A17": "moved", "H1": "moved"}

    def test_what_fails_is_named_and_exits_with_one(self, store: str) -> None:
        with Host("sqlite:///other.db") as other:
            other.run(CRAWL, {**GIVEN, "user": "bob"}, run_id="A17")
        text = said(copy, "--all", "--from", store, "--to", "other.db", code=1)
        assert "run A17: failed: another run is called 'A17' there." in text
        assert text.endswith("1 run copied, 1 failed\n")

    @pytest.mark.parametrize("words", [[], ["A17", "--all"], ["A17", "--flow", "crawl"]])
    def test_which_runs_must_be_said(
        self, store: str, words: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, text = failed("copy", *words, "--from", store, "--to", "other.db", capsys=capsys)
        assert code == 2 and "--all" in text


STRANGE = """
from pathlib import Path

from everstep import Flow, node

Path("loaded").touch()


@node(output="y")
def double(x: int) -> int:
    return x + x if x != 13 else 1 // 0


flow = Flow("strange", [double])
"""


class TestStrangers:
    @pytest.mark.parametrize(
        "words", [("resume", "R"), ("explain", "R"), ("replay", "R", "double"), ("resume", "F")]
    )
    def test_an_imported_run_names_no_code(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        words: tuple[str, ...],
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with Host("sqlite:///theirs.db") as theirs:
            flow = Flow("strange", [Node(lambda x: 1 // 0, name="double", output="y")])
            flow.source = "strange_module:flow"  # as a run of `everstep run` remembers it
            theirs.run(flow, {"x": 13}, run_id="R")
            theirs.transfer.export("R", "R.everstep")
        with Host("sqlite:///ours.db") as ours:
            ours.transfer.import_("R.everstep")
            ours.fork("R", at=1, fork_id="F")
            ours.transfer.copy("sqlite:///copied.db", ["R", "F"])
        (tmp_path / "strange_module.py").write_text(STRANGE)
        for store in ("ours.db", "copied.db"):
            code, text = failed(*words, "--store", store, capsys=capsys)
            assert code == 2
            assert "names no code" in text or words[1] == "F"
            assert "FILE.py:strange" in text
            assert not (tmp_path / "loaded").exists()
