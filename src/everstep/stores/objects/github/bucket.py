"""Named bytes as files of a branch: each write is a commit, which is read back before it counts."""

from __future__ import annotations

import hashlib
import logging
from base64 import b64decode, b64encode
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from threading import RLock

import httpx2

from everstep.errors import StoreError, StoreUnavailable
from everstep.ports.health import Health
from everstep.ports.system import Clock
from everstep.stores.objects.bucket import Found, Listed
from everstep.stores.objects.github.address import GithubAddress
from everstep.stores.objects.github.api import ATTEMPTS, Api, ApiAnswer
from everstep.stores.objects.github.commits import Commits
from everstep.stores.objects.github.health import look_at
from everstep.stores.objects.github.messages import describe
from everstep.stores.objects.github.parts import (
    LARGEST,
    Packed,
    is_beside,
    is_list,
    join,
    missing,
    pack,
    parts_of,
)
from everstep.stores.objects.github.quota import RequestQuota
from everstep.stores.objects.github.tree import NOTHING, File, Folders
from everstep.stores.objects.naming import checked

log = logging.getLogger("everstep")
PASSING = ("beats/", "workers/")
"""What is said again and again, and holds for a while only: it is not read back."""
LOGS = "runs/"
SMALL = 64 * 1024
_REMEMBERED = 1000
FEW = 3
"""Up to so many files are removed one by one; more of them in one commit."""

Describe = Callable[[str, bytes], str]
"""Says in a commit's message what is written under a name."""


class GithubBucket:
    """A folder in a branch of a repository. Calls that write come one after the other, as GitHub asks."""

    is_local = False

    def __init__(
        self,
        address: GithubAddress,
        clock: Clock,
        *,
        describe: Describe = describe,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self.place = address.shown
        self._address = address
        self._describe = describe
        self._api = Api(address, clock, transport)
        self._folders = Folders(self._api, address.branch)
        self._commits = Commits(self._api, address.branch, lambda made: self._made.append(made))
        self._writing = RLock()
        self._is_checked = False
        self._made: deque[str] = deque(maxlen=_REMEMBERED)
        """The newest commits that were made here."""
        self._foreign = ""
        self._own: OrderedDict[str, str] = OrderedDict()
        """What was last written here, by git's name for it: replacing or removing that needs no lookup."""

    @property
    def quota(self) -> RequestQuota:
        """What is known of the calls that are left."""
        return self._api.quota

    @property
    def is_rationed(self) -> bool:
        """True while so few calls are left that they should be saved."""
        return self._api.quota.is_low or self._api.quota.seconds_closed > 0

    def get(self, name: str) -> Found | None:
        self._check()
        found = self._read(self._path(checked(name)))
        if found is None or (wanted := parts_of(name, found.data)) is None:
            return found
        pieces = []
        for part in wanted.parts:
            piece = self._read(self._path(part.path))
            if piece is None:
                raise missing(name, part)
            pieces.append(piece.data)
        return found._replace(data=join(name, wanted, pieces))

    def create(self, name: str, data: bytes) -> bool:
        """Keep bytes under a free name. False also where others stand there now: the caller reads them."""
        self._check()
        with self._writing:
            packed = self._packed(name, data)
            return self._create(self._path(checked(name)), packed.content, self._describe(name, data))

    def mark(self, names: Sequence[str]) -> None:
        self._check()
        with self._writing:
            for name in names:
                self._create(self._path(checked(name)), b"", self._describe(name, b""), reads_back=False)

    def swap(self, name: str, data: bytes, tag: str) -> bool:
        self._check()
        with self._writing:
            packed = self._packed(name, data)
            path, message = self._path(checked(name)), self._describe(name, data)
            # What is replaced in a log says the same with fewer bytes, and GitHub has named what it kept.
            return self._replace(path, packed.content, tag, message, reads_back=not name.startswith(LOGS))

    def put(self, name: str, data: bytes) -> None:
        self._check()
        path, message = self._path(checked(name)), self._describe(name, data)
        with self._writing:
            packed = self._packed(name, data)
            if name.startswith(PASSING) and self._overwrite(path, packed.content, message):
                return
            for failures in range(1, ATTEMPTS + 1):
                found = self._read(path)
                if found is not None and found.data == packed.content:
                    return
                if found is None and self._create(path, packed.content, message):
                    return
                if found is not None and self._replace(path, packed.content, found.tag, message):
                    return
                self._api.pause(failures)
        raise self._contended(path)

    def delete(self, names: Iterable[str]) -> None:
        self._check()
        paths = [self._path(checked(name)) for name in names]
        with self._writing:
            if len(paths) > FEW:
                self._commits.change(dict.fromkeys(self._with_parts(paths)), f"Remove {len(paths)} files")
                return
            for path in paths:
                self._remove(path)

    def tell(self, files: Mapping[str, bytes | None], message: str) -> None:
        """Keep texts that follow from what is kept already, in one commit; they are not read back."""
        self._check()
        with self._writing:
            self._commits.change(
                {
                    self._path(checked(name)): None if text is None else text.decode()
                    for name, text in files.items()
                },
                message,
            )

    def tell_of(self, heads: Mapping[str, int]) -> int:
        """Write what people read of runs, if that is kept here and behind; returns of how many."""
        return 0

    def names(self, prefix: str, *, after: str = "", limit: int | None = None) -> list[str]:
        self._check()
        found = (self._name(file.path) for file in self._below(prefix, after))
        return list(islice(found, limit))

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the sizes of what `names` tells of; to tell times as well would cost more calls."""
        self._check()
        return {self._name(file.path): file.size for file in self._below(prefix)}

    def listed(self, prefix: str) -> Iterable[Listed]:
        self._check()
        files = list(self._below(prefix))
        times = self._commits.times([file.path for file in files])
        for file in files:
            yield Listed(self._name(file.path), file.size, times[file.path])

    def now(self) -> datetime:
        if not self._api.time.is_known:
            self._check()
        return self._api.time.now()

    def changes(self) -> int | None:
        """Return none: only a call could tell."""
        return None

    def head(self) -> str:
        """Return the newest commit of another client; asking again costs no quota while it stays."""
        self._check()
        newest = self._commits.head()
        if newest not in self._made:
            self._foreign = newest
        return self._foreign

    def ends(self) -> dict[str, int]:
        """Return the last place of the log of every run, in two calls."""
        self._check()
        ends: dict[str, int] = {}
        for path in self._folders.paths(self._path("runs")):
            run, log, place = (*path.split("/"), "", "")[:3]
            if log == "log" and place.isdecimal():
                ends[run] = max(int(place), ends.get(run, 0))
        return ends

    def health(self) -> Health:
        return look_at(self._api, self._address)

    def close(self) -> None:
        self._api.close()

    def _check(self) -> None:
        """Look once whether repository and branch are there, so that a 404 later means a file."""
        if self._is_checked:
            return
        repository = self._api.get("").body
        branch = self._address.branch
        if branch not in (None, repository["default_branch"]):
            answer = self._api.get(f"branches/{branch}", expected=(404,))
            if answer.status == 404:
                raise StoreError(
                    f"{self.place} has no branch {branch}.",
                    fix=f"Make it, or use {repository['default_branch']}, the default branch.",
                )
        self._is_checked = True

    def _path(self, name: str) -> str:
        return "/".join(filter(None, (self._address.path, name)))

    def _name(self, path: str) -> str:
        return path.removeprefix(f"{self._address.path}/") if self._address.path else path

    def _below(self, prefix: str, after: str = "") -> Iterator[File]:
        """Yield the files whose names begin with a prefix and sort behind `after`, sorted."""
        first, last = self._path(prefix), self._path(after) if after else ""
        if not prefix and self._address.path:
            first += "/"

        def is_wanted(folder: str) -> bool:
            is_on_the_way = folder.startswith(first) or first.startswith(folder)
            return is_on_the_way and (folder > last or last.startswith(folder)) and not is_beside(folder)

        for file in self._folders.files(self._path(prefix.rpartition("/")[0]), is_wanted):
            if file.path.startswith(first) and file.path > last and not is_beside(file.path):
                yield file

    def _read(self, path: str) -> Found | None:
        """Return the bytes of a file, checked against the name that git has for them."""
        ref = {} if self._address.branch is None else {"ref": self._address.branch}
        for failures in range(1, ATTEMPTS + 1):
            answer = self._api.get(f"contents/{path}", expected=NOTHING, **ref)
            if answer.status != 200 or isinstance(answer.body, list):
                return None
            data = self._content(answer)
            if data is not None and blob_name(data) == answer.body["sha"]:
                return Found(data, answer.body["sha"])
            self._api.pause(failures)
        raise StoreUnavailable(
            f"{self.place}: {path} came back other than it is kept.", fix="It is safe to try again."
        )

    def _content(self, answer: ApiAnswer) -> bytes | None:
        """Return the bytes that an answer holds; those of a file above a megabyte are asked for apart."""
        body = answer.body
        if body.get("encoding") != "base64" or (body["size"] and not body.get("content")):
            body = self._api.get(f"git/blobs/{body['sha']}").body
        try:
            return b64decode(body["content"])
        except (KeyError, TypeError, ValueError):
            return None

    def _packed(self, name: str, data: bytes) -> Packed:
        """Split what is too large, and write the parts, so that only the list of them is left to write."""
        packed = pack(name, data)
        if len(data) > LARGEST:
            log.warning(
                "%s: %s has %.1f MB, and is kept in %d files; large values belong into Host(url, blobs=...)",
                *(self.place, name, len(data) / 1e6, len(packed.sides)),
            )
        for path, piece in packed.sides:
            self._create(self._path(path), piece, f"Keep {path}")
        return packed

    def _create(self, path: str, content: bytes, message: str, *, reads_back: bool = True) -> bool:
        was_written, wrong = False, None
        for failures in range(1, ATTEMPTS + 1):
            sha = self._write(path, content, message, wrong)
            if sha == blob_name(content):
                was_written, wrong = True, None
                if not reads_back or self._is_there(path, content):
                    return True
            elif sha is not None:
                wrong = sha  # other bytes were kept than were sent: these are to be replaced
            elif (found := self._read(path)) is not None:
                # Our own bytes, of which we know that they were taken, only came back late.
                return was_written and found.data == content
            self._api.pause(failures)
        raise self._contended(path)

    def _replace(self, path: str, content: bytes, sha: str, message: str, *, reads_back: bool = True) -> bool:
        for failures in range(1, ATTEMPTS + 1):
            kept = self._write(path, content, message, sha)
            if kept == blob_name(content):
                if reads_back and not self._is_there(path, content):
                    log.warning("%s: %s was replaced again before it was read back", self.place, path)
                return True
            if kept is not None:
                sha = kept  # other bytes were kept than were sent: these are to be replaced
            elif (found := self._read(path)) is None or found.tag != sha:
                return False
            self._api.pause(failures)
        raise self._contended(path)

    def _overwrite(self, path: str, content: bytes, message: str) -> bool:
        """Replace what was last written here, in one call; false if something else is there."""
        own = self._own.get(path)
        return own is not None and self._write(path, content, message, own) == blob_name(content)

    def _write(self, path: str, content: bytes, message: str, sha: str | None = None) -> str | None:
        """Commit one file, and return git's name for what was kept.

        None if the file, or the branch, was not as expected: read what is there, and judge.
        """
        body: dict[str, object] = {"content": b64encode(content).decode()}
        body["message"] = f"{message}\n\n{path}"  # listings read the path here
        body |= {} if sha is None else {"sha": sha}
        body |= {} if self._address.branch is None else {"branch": self._address.branch}
        answer = self._api.ask("PUT", f"contents/{path}", body=body, expected=(409, 422))
        if answer.status == 409 or (answer.status == 422 and _is_about_the_file(answer.message)):
            self._own.pop(path, None)
            return None
        if answer.status == 422:
            raise self._api.refused(answer)
        self._made.append(str(answer.body["commit"]["sha"]))
        kept = str(answer.body["content"]["sha"])
        if len(content) <= SMALL and not is_list(content):
            self._own[path] = kept
            self._own.move_to_end(path)
            while len(self._own) > _REMEMBERED:
                self._own.popitem(last=False)
        return kept

    def _is_there(self, path: str, content: bytes) -> bool:
        """Read back what was written; GitHub may show it a moment later."""
        for failures in range(1, ATTEMPTS + 1):
            found = self._read(path)
            if found is not None:
                return found.data == content
            self._api.pause(failures)
        return False

    def _remove(self, path: str) -> None:
        for failures in range(1, ATTEMPTS + 1):
            own = self._own.pop(path, None)
            found = self._read(path) if own is None else Found(b"", own)
            if found is None:
                return
            body: dict[str, object] = {"message": f"Remove {path}", "sha": found.tag}
            body |= {} if self._address.branch is None else {"branch": self._address.branch}
            answer = self._api.ask("DELETE", f"contents/{path}", body=body, expected=(404, 409, 422))
            if answer.status < 300:
                self._made.append(str(answer.body["commit"]["sha"]))
                if is_list(found.data):
                    self._commits.change(
                        dict.fromkeys(self._with_parts([path])), f"Remove the parts of {path}"
                    )
                return
            if answer.status != 404:  # else another client removed it, or it may not be written: look
                self._api.pause(failures)
        raise self._contended(path)

    def _with_parts(self, paths: Sequence[str]) -> list[str]:
        """Return those of these paths that are there, and the parts of each."""
        wanted, found = set(paths), []
        for folder in sorted({path.rpartition("/")[0] for path in paths}):
            for file in self._folders.files(folder, lambda below: below.partition("+/")[0] in wanted):
                if file.path in wanted or file.path.partition("+/")[0] in wanted:
                    found.append(file.path)
        return found

    def _contended(self, path: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self.place}: {path} could not be written in {ATTEMPTS} attempts: the branch moves all the "
            "time, or what was written does not show.",
            fix="It is safe to try again. Give the runs a branch of their own: ?branch=runs",
        )


def blob_name(data: bytes) -> str:
    """Return the name that git gives to bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _is_about_the_file(message: str) -> bool:
    said = message.lower()
    return "sha" in said or "already exists" in said or "does not exist" in said
