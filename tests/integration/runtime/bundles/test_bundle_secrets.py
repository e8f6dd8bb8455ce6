"""What is left out of a bundle, and what stays encrypted in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from everstep import Flow, Host, KeyRing, Status, node, wait
from everstep.errors import (
    BadRequest,
    KeyUnavailable,
    StateCorrupted,
    ValueLeftOut,
)
from everstep.types import LeaveOut
from tests.integration.runtime.bundles.carried import (
    ASK,
    CRAWL,
    GIVEN,
    same,
)


class TestSecrets:
    def test_values_named_like_secrets_stay_behind(self, here: Host, there: Host, file: Path) -> None:
        here.run(CRAWL, GIVEN, run_id="A17")
        done = here.transfer.export("A17", file, leave_out=LeaveOut.secrets())
        assert [one.name for one in done.left_out] == ["api_token"]
        assert b"hush-hush" not in file.read_bytes()
        assert [one.name for one in there.transfer.import_(file).missing] == ["api_token"]
        assert same(here, there, "A17") and there.storage.verify("A17")[0].is_sound
        state = there.state("A17")
        assert state["size"] == 12_002
        with pytest.raises(ValueLeftOut, match="left out when the run was exported"):
            state["api_token"]

    def test_the_same_value_under_another_name_stays_behind_too(
        self, here: Host, there: Host, file: Path
    ) -> None:
        @node(output="copy")
        def pass_on(api_token: str) -> str:
            return api_token

        here.run(Flow("leak", [pass_on]), {"api_token": "hush-hush"}, run_id="A17")
        done = here.transfer.export("A17", file, leave_out=LeaveOut.secrets())
        assert [one.name for one in done.left_out] == ["api_token", "copy"]
        assert b"hush-hush" not in file.read_bytes()
        there.transfer.import_(file)

    def test_an_artifact_stays_behind(self, here: Host, there: Host, file: Path) -> None:
        here.run(CRAWL, GIVEN, run_id="A17")
        done = here.transfer.export("A17", file, leave_out=LeaveOut(values=("PAGE",)))
        assert (done.artifacts, [one.name for one in done.left_out]) == (0, ["page"])
        assert b"a long page" not in file.read_bytes()
        assert [one.name for one in there.transfer.import_(file).missing] == ["page"]
        with pytest.raises(StateCorrupted):
            there.state("A17")["page"]
        assert there.state("A17")["size"] == 12_002

    def test_a_value_is_given_back_and_must_be_the_one(self, here: Host, there: Host, file: Path) -> None:
        here.run(CRAWL, GIVEN, run_id="A17")
        here.transfer.export("A17", file, leave_out=LeaveOut.secrets("page"))
        with pytest.raises(BadRequest, match="not the one that was left out"):
            there.transfer.import_(file, values={"api_token": "guessed"})
        with pytest.raises(BadRequest, match="was not left out"):
            there.transfer.import_(file, values={"user": "ann"})
        assert there.runs() == []
        given = {"api_token": "hush-hush", "page": "a long page " * 1_000}
        assert there.transfer.import_(file, values=given).missing == ()
        assert dict(there.state("A17")) == dict(here.state("A17"))

    def test_a_run_goes_on_that_needs_none_of_them(self, here: Host, there: Host, file: Path) -> None:
        here.start(ASK, GIVEN, run_id="A17")
        here.resume("A17", ASK)
        here.transfer.export("A17", file, leave_out=LeaveOut.secrets())
        there.transfer.import_(file)
        there.answer(there.waits("A17")[0].id, {"approved": True})
        assert there.resume("A17", ASK)["agreed"].approved

    def test_a_run_that_needs_one_says_which(self, here: Host, there: Host, file: Path) -> None:
        here.start(CRAWL, GIVEN, run_id="A17")
        here.transfer.export("A17", file, leave_out=LeaveOut.secrets())
        there.transfer.import_(file)
        with pytest.raises(ValueLeftOut, match="api_token"):
            there.resume("A17", CRAWL).raise_for_status()

    def test_an_answer_that_became_one_stays_behind(self, here: Host, there: Host, file: Path) -> None:
        flow = Flow("pin", [wait.question("secret_word", kind="text", prompt="Which?")])
        here.run(flow, {}, run_id="A17")
        here.answer(here.waits("A17")[0].id, "hush-hush")
        here.resume("A17", flow)
        done = here.transfer.export("A17", file, leave_out=LeaveOut.secrets())
        assert {one.what for one in done.left_out} >= {"value", "answer"}
        assert b"hush-hush" not in file.read_bytes()
        there.transfer.import_(file)
        assert there.info("A17").status is Status.COMPLETED


@node(output="length")
def measure_word(word: str) -> int:
    return len(word)


class TestEncryption:
    def test_what_is_encrypted_stays_so(self, tmp_path: Path, file: Path) -> None:
        keys = KeyRing({"2026": b"2" * 32})
        with Host(f"sqlite:///{tmp_path}/a.db", encrypt=keys) as here:
            here.run(CRAWL, GIVEN, run_id="A17")
            assert here.transfer.export("A17", file).keys == ("2026",)
        assert b"hush" not in file.read_bytes() and b"a long page" not in file.read_bytes()
        with Host(f"sqlite:///{tmp_path}/b.db", encrypt=False) as there:
            assert there.transfer.import_(file).keys == ("2026",)
            with pytest.raises(KeyUnavailable):
                there.state("A17")["user"]
        with Host(f"sqlite:///{tmp_path}/b.db", encrypt=keys) as there:
            assert there.state("A17")["api_token"] == "hush-hush" and there.storage.verify("A17")[0].is_sound
            assert len(there.state("A17")["page"]) == 12_000

    def test_decrypt_writes_it_in_the_clear_and_an_encrypting_host_closes_it_again(
        self, tmp_path: Path, file: Path
    ) -> None:
        with Host(f"sqlite:///{tmp_path}/a.db", encrypt=KeyRing({"2026": b"2" * 32})) as here:
            here.run(CRAWL, GIVEN, run_id="A17")
            done = here.transfer.export("A17", file, decrypt=True)
            digests = [r.digest for r in here.history("A17")]
        assert done.keys == () and b"hush-hush" in file.read_bytes()
        with Host(f"sqlite:///{tmp_path}/b.db", encrypt=KeyRing({"other": b"3" * 32})) as there:
            there.transfer.import_(file)
            assert [r.digest for r in there.history("A17")] == digests
            assert len(there.state("A17")["page"]) == 12_000
        stored = b"".join(p.read_bytes() for p in tmp_path.rglob("b.db*") if p.is_file())
        stored += b"".join(p.read_bytes() for p in (tmp_path / "b.db.artifacts").rglob("*") if p.is_file())
        assert b"hush-hush" not in stored and b"a long page" not in stored

    def test_what_is_asked_and_answered_is_treated_alike(self, tmp_path: Path, file: Path) -> None:
        flow = Flow("ask", [wait.question("word", kind="text", prompt="a quiet question"), measure_word])
        with Host(f"sqlite:///{tmp_path}/a.db", encrypt=KeyRing({"2026": b"2" * 32})) as here:
            here.run(flow, {}, run_id="A17")
            here.answer(here.waits("A17")[0].id, "a quiet answer")
            assert here.transfer.export("A17", file).keys == ("2026",)
            assert b"quiet" not in file.read_bytes()
            here.transfer.export("A17", file, decrypt=True, force=True)
        with Host(f"sqlite:///{tmp_path}/b.db", encrypt=KeyRing({"other": b"3" * 32})) as there:
            there.transfer.import_(file)
            assert there.waits("A17", status=None)[0].prompt == "a quiet question"
            assert there.resume("A17", flow)["length"] == 14
        stored = b"".join(p.read_bytes() for p in tmp_path.rglob("b.db*") if p.is_file())
        assert b"quiet" not in stored

    def test_compressed_values_are_carried(self, tmp_path: Path, file: Path, there: Host) -> None:
        with Host(f"sqlite:///{tmp_path}/a.db", compress=True) as here:
            here.run(CRAWL, GIVEN, run_id="A17")
            here.transfer.export("A17", file)
        assert file.stat().st_size < 12_000
        there.transfer.import_(file)
        assert len(there.state("A17")["page"]) == 12_000
