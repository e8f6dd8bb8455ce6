"""What a newcomer, an installer and a reader of the repository rely on."""

from __future__ import annotations

import os
import subprocess
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import everstep
from everstep.model.leases import RELEASE
from tests.architecture.sources import ROOT

COMMANDS = ["scripts/demo", "scripts/test"]

# Put together from halves, so that this file does not contain what it forbids.
FORBIDDEN = ["/wo" + "rk/", "pypi." + "org", "files.python" + "hosted.org", "registry.npm" + "js.org"]


def forbidden_text(content: bytes) -> list[str]:
    """Return the package index hosts and the machine's paths that `content` mentions."""
    return [text for text in FORBIDDEN if text.encode() in content]


def repository_files() -> list[Path]:
    """Return the files that git has or would take, as far as they still exist."""
    if not (ROOT / ".git").exists():
        assert os.environ.get("CI") != "true", "CI must look through the files, so it needs a git checkout"
        pytest.skip("not a git checkout, so there is no list of files to look through")
    # A container may check out as one user and test as another; git refuses that unless told.
    git = ["git", "-c", "safe.directory=*"]
    listing = [*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [path for name in names.split("\0") if name and (path := ROOT / name).is_file()]


@pytest.mark.parametrize("script", [*COMMANDS, ".ci/run"])
def test_script_is_executable(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)


@pytest.mark.parametrize("script", [*COMMANDS, "scripts/environment"])
def test_script_is_posix_shell(script: str) -> None:
    check = subprocess.run(["sh", "-n", ROOT / script], check=False, capture_output=True, text=True)
    assert (check.returncode, check.stderr) == (0, "")


@pytest.mark.parametrize("script", COMMANDS)
def test_script_asks_for_sh_and_nothing_more(script: str) -> None:
    assert (ROOT / script).read_text().startswith("#!/bin/sh\n")


def test_ci_runs_the_same_command_as_people() -> None:
    assert "scripts/test" in (ROOT / ".ci/run").read_text()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_page_shows_the_command(page: str, command: str) -> None:
    assert command in (ROOT / page).read_text(encoding="utf-8")


def test_no_file_names_a_package_index_or_a_path_of_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text}"
        for path in repository_files()
        for text in forbidden_text(path.read_bytes())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("text", FORBIDDEN)
def test_forbidden_text_is_found(text: str) -> None:
    assert forbidden_text(f"see {text} for more".encode()) == [text]


def test_every_exported_name_exists() -> None:
    assert [name for name in everstep.__all__ if not hasattr(everstep, name)] == []


def test_exported_names_are_sorted_and_unique() -> None:
    assert list(everstep.__all__) == sorted(set(everstep.__all__))


def test_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == everstep.__version__ == RELEASE


def test_changelog_has_an_entry_for_this_version() -> None:
    entry = "Unreleased" if ".dev" in everstep.__version__ else everstep.__version__
    assert f"## [{entry}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_changelog_says_everything_once_and_each_kind_under_one_heading() -> None:
    releases = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1:]
    lines = [line for release in releases for line in release.splitlines() if line.startswith("- ")]
    assert [line for line, times in Counter(lines).items() if times > 1] == []
    for release in releases:
        kinds = [line for line in release.splitlines() if line.startswith("### ")]
        assert len(kinds) == len(set(kinds)), release.splitlines()[0]
