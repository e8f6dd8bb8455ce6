"""Commits of a branch: one that changes many files at once, and when each file was last written. Apart from
the bucket, which knows files and no branches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from everstep.errors import StoreUnavailable
from everstep.stores.objects.github.api import Api
from everstep.stores.objects.github.tree import NOTHING

AT_ONCE = 500
"""How many files one commit changes."""
BYTES = 16 * 1024 * 1024
"""How much of them one commit takes: it is one call, which must end within its time."""
TRIES = 6
"""How often a commit is made anew because the branch has moved; each time costs five calls."""
PAGE = 100
PAGES = 20
"""So many pages of commits are read at least before a file is asked for alone."""
FIRST = datetime(1970, 1, 1, tzinfo=UTC)


class Commits:
    def __init__(self, api: Api, branch: str | None, on_made: Callable[[str], None]) -> None:
        self._api = api
        self._branch = branch
        self._on_made = on_made

    def head(self) -> str:
        """Return the newest commit; nothing if there is none."""
        answer = self._api.get(f"git/ref/heads/{self._name()}", expected=NOTHING)
        return str(answer.body["object"]["sha"]) if answer.status == 200 else ""

    def _name(self) -> str:
        if self._branch is None:
            self._branch = str(self._api.get("").body["default_branch"])
        return self._branch

    def change(self, files: Mapping[str, str | None], message: str) -> None:
        """Write texts, and remove files that are there; whatever others commit meanwhile stays.

        It costs five calls, however many files there are, unless they are large.
        """
        part: dict[str, str | None] = {}
        size = 0
        for path, text in files.items():
            if part and (len(part) == AT_ONCE or size + len(text or "") > BYTES):
                self._change(part, message)
                part, size = {}, 0
            part[path] = text
            size += len(text or "")
        if part:
            self._change(part, message)

    def _change(self, files: Mapping[str, str | None], message: str) -> None:
        for failures in range(1, TRIES + 1):
            branch, head = self._name(), self.head()
            base = self._api.get(f"git/commits/{head}").body["tree"]["sha"]
            tree = [_entry(path, text) for path, text in files.items()]
            made = self._api.ask("POST", "git/trees", body={"base_tree": base, "tree": tree}, expected=(422,))
            if made.status == 422 and failures < TRIES:  # another client removed one of them
                files = {p: text for p, text in files.items() if text or self._is_there(p, head)}
                if not files:
                    return
                continue
            if made.status == 422:
                raise self._api.refused(made)
            body = {"message": message, "tree": made.body["sha"], "parents": [head]}
            commit = self._api.ask("POST", "git/commits", body=body).body["sha"]
            # Without force: it fails if the branch has moved since, so that no commit is lost.
            moved = self._api.ask(
                *("PATCH", f"git/refs/heads/{branch}"),
                body={"sha": commit, "force": False},
                expected=(409, 422),
            )
            if moved.status == 200:
                self._on_made(commit)
                return
            self._api.pause(failures)
        raise StoreUnavailable(
            f"{len(files)} files could not be changed: the branch moves all the time.",
            fix="It is safe to try again.",
        )

    def _is_there(self, path: str, commit: str) -> bool:
        return self._api.get(f"contents/{path}", expected=NOTHING, ref=commit).status == 200

    def times(self, paths: Sequence[str]) -> dict[str, datetime]:
        """Return when each of these files was last committed.

        Our messages name the file, so that a page of commits tells of many; of the others each costs a call.
        """
        left, times = set(paths), dict[str, datetime]()
        for page in range(1, max(len(paths), PAGES) + 1):
            if not left:
                break
            commits = self._page("", page)
            for commit in commits:
                for path in left & set(commit["commit"]["message"].split()):
                    times[path] = _date(commit)
                    left.discard(path)
            if len(commits) < PAGE:
                break
        for path in left:
            times[path] = next(map(_date, self._page(path, 1, most=1)), FIRST)
        return times

    def _page(self, path: str, page: int, most: int = PAGE) -> list[dict[str, Any]]:
        params = {"page": str(page), "per_page": str(most)} | ({"path": path} if path else {})
        params |= {} if self._branch is None else {"sha": self._branch}
        answer = self._api.ask("GET", "commits", params=params, expected=NOTHING)
        return list(answer.body) if answer.status == 200 else []


def _entry(path: str, text: str | None) -> dict[str, object]:
    what = {"sha": None} if text is None else {"content": text}
    return {"path": path, "mode": "100644", "type": "blob", **what}


def _date(commit: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(commit["commit"]["committer"]["date"])
