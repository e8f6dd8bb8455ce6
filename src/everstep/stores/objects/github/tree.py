"""What lies in a folder of a branch, whatever its size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any, NamedTuple

from everstep.errors import StoreError
from everstep.stores.objects.github.api import Api, ApiAnswer

LISTED = 1000
"""GitHub lists no more of a folder than this; who wants all of it asks for its tree."""
_REMEMBERED = 200_000
"""Entries of trees that are remembered. A tree is named by what is in it, so that it never changes."""
NOTHING = (404, 409)
"""What GitHub says of a folder that is not there, and of an empty repository."""


class File(NamedTuple):
    path: str
    """From the root of the repository."""
    sha: str
    size: int


class _Entry(NamedTuple):
    name: str
    sha: str
    size: int
    is_folder: bool

    @property
    def order(self) -> str:
        """What sorts files and folders of one folder as the paths in them sort."""
        return f"{self.name}/" if self.is_folder else self.name


Wanted = Callable[[str], bool]
"""Says of a folder, by its path with a slash behind it, whether anything in it is wanted."""


class Folders:
    """Lists folders of one branch, with as few calls as that takes."""

    def __init__(self, api: Api, branch: str | None) -> None:
        self._api = api
        self._branch = branch
        self._ref = {} if branch is None else {"ref": branch}
        self._trees: OrderedDict[str, list[File]] = OrderedDict()
        self._remembered = 0
        self._lock = Lock()

    def files(self, folder: str, wanted: Wanted = lambda folder: True) -> Iterator[File]:
        """Yield every file below a folder, sorted by path."""
        head = f"{folder}/" if folder else ""
        for entry in sorted(self._entries(folder), key=lambda entry: entry.order):
            path = f"{head}{entry.name}"
            if not entry.is_folder:
                yield File(path, entry.sha, entry.size)
            elif wanted(f"{path}/"):
                yield from (file._replace(path=f"{path}/{file.path}") for file in self._tree(entry.sha))

    def paths(self, folder: str) -> list[str]:
        """Return the paths of all files below a folder, seen from it: two calls, however many there are."""
        sha = self._tree_sha(folder)
        return [] if sha is None else [file.path for file in self._tree(sha)]

    def _entries(self, folder: str) -> list[_Entry]:
        answer = self._api.get(_join("contents", folder), expected=NOTHING, **self._ref)
        if answer.status != 200 or not isinstance(answer.body, list):
            return []
        if len(answer.body) < LISTED:
            return [_Entry(e["name"], e["sha"], int(e["size"]), e["type"] == "dir") for e in answer.body]
        sha = self._tree_sha(folder)
        return [] if sha is None else self._level(sha)

    def _tree_sha(self, folder: str) -> str | None:
        """Return the name of a folder's tree, which the folder above it tells."""
        if not folder:
            answer = self._api.get(_join("git/trees", self._branch or "HEAD"), expected=NOTHING)
            return str(answer.body["sha"]) if answer.status == 200 else None
        above, _, name = folder.rpartition("/")
        return next((e.sha for e in self._entries(above) if e.is_folder and e.name == name), None)

    def _tree(self, sha: str) -> list[File]:
        """Return all files of a tree, with paths from its root."""
        with self._lock:
            known = self._trees.get(sha)
        if known is not None:
            return known
        answer = self._api.get(_join("git/trees", sha), recursive="1")
        if answer.body["truncated"]:
            files = self._piecemeal(sha)
        else:
            files = [File(e["path"], e["sha"], int(e.get("size", 0))) for e in _blobs(answer)]
        files.sort(key=lambda file: file.path)
        self._remember(sha, files)
        return files

    def _piecemeal(self, sha: str) -> list[File]:
        """Return the files of a tree that is too large for one answer: folder by folder."""
        files: list[File] = []
        for entry in self._level(sha):
            if entry.is_folder:
                below = self._tree(entry.sha)
                files += (file._replace(path=f"{entry.name}/{file.path}") for file in below)
            else:
                files.append(File(entry.name, entry.sha, entry.size))
        return files

    def _level(self, sha: str) -> list[_Entry]:
        answer = self._api.get(_join("git/trees", sha))
        if answer.body["truncated"]:
            raise StoreError(
                "a folder of the repository holds more than GitHub lists.",
                fix="Remove old runs (everstep gc), or go on in another folder or repository.",
            )
        return [
            _Entry(e["path"], e["sha"], int(e.get("size", 0)), e["type"] == "tree")
            for e in answer.body["tree"]
            if e["type"] in ("blob", "tree")
        ]

    def _remember(self, sha: str, files: list[File]) -> None:
        with self._lock:
            self._trees[sha] = files
            self._remembered += len(files) + 1
            while self._remembered > _REMEMBERED and len(self._trees) > 1:
                self._remembered -= len(self._trees.popitem(last=False)[1]) + 1


def _blobs(answer: ApiAnswer) -> Iterator[dict[str, Any]]:
    return (entry for entry in answer.body["tree"] if entry["type"] == "blob")


def _join(*parts: str) -> str:
    return "/".join(filter(None, parts))
