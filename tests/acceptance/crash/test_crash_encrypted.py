"""The crash matrix with encryption and compression: nothing that is stored looks as it does without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from everstep import Flow, Host, node
from tests.acceptance.crash.judge import judge
from tests.acceptance.crash.test_crash_matrix import report
from tests.acceptance.crash.test_crash_stores import marked

DEFAULT = ("large",)


@node(output="word")
def one() -> str:
    return "secret"


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks) for name, marks in marked(DEFAULT)])
def test_an_encrypted_run_killed_at_any_point_ends_as_if_it_had_not_been(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERSTEP_ENCRYPT_KEYS", f"now:{'0f' * 32},before:{'1e' * 32}")
    monkeypatch.setenv("EVERSTEP_COMPRESS", "1")
    judge(name, report("matrix", name, tmp_path, "none"))
    with Host(f"sqlite:///{tmp_path}/seen.db") as host:  # as the processes that were killed opened theirs
        host.run(Flow("one", [one]))
    assert b"aes-256-gcm" in b"".join(path.read_bytes() for path in tmp_path.glob("seen.db*"))
