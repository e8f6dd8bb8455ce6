"""What a repository says of itself: who may write, how many calls are left, and who may read. Apart, as only
`doctor` asks.
"""

from __future__ import annotations

from collections.abc import Iterator

from everstep.ports.health import Finding, Health, Level
from everstep.stores.objects.github.address import GithubAddress
from everstep.stores.objects.github.api import Api, ApiAnswer
from everstep.stores.objects.github.quota import LOW, RequestQuota


def look_at(api: Api, address: GithubAddress) -> Health:
    """Ask the repository what it is and how it is set up."""
    answer = api.get("")
    version = answer.headers.get("x-github-enterprise-version")
    server = f"GitHub Enterprise {version}" if version else "GitHub"
    findings = [*_about_rights(answer), *_about_branch(api, address, answer), *_about_quota(api.quota)]
    return Health(server=server, now=api.time.now(), findings=(*findings, _HISTORY))


_HISTORY = Finding(
    Level.WARNING,
    "what is removed here stays in the history of the repository, for all who may read that.",
    "Encrypt what must be erasable, and drop its key; or keep such runs in another store.",
)


def _about_rights(answer: ApiAnswer) -> Iterator[Finding]:
    repository = answer.body
    if not repository.get("private", True):
        text = "the repository is public: everybody can read what runs keep in it."
        yield Finding(Level.WARNING, text, "Make it private, or encrypt: Host(url, encrypt=KeyRing(...)).")
    if repository.get("archived"):
        yield Finding(Level.PROBLEM, "it was archived, so it is read-only.", "Unarchive it.")
    elif not repository.get("permissions", {}).get("push", True):
        text = "the token may read it, and not write to it."
        yield Finding(Level.PROBLEM, text, "Give the token the right to write the repository's contents.")
    if scopes := answer.headers.get("x-oauth-scopes"):
        more = sorted({scope.strip() for scope in scopes.split(",")} - {"repo", "public_repo"})
        text = f"the token has the scopes {scopes}."
        fix = "A fine-grained token with contents: read and write, for this repository alone, is enough."
        yield Finding(Level.WARNING if more else Level.FINE, text, fix if more else "")


def _about_branch(api: Api, address: GithubAddress, answer: ApiAnswer) -> Iterator[Finding]:
    default = answer.body["default_branch"]
    branch = address.branch or default
    found = api.get(f"branches/{branch}", expected=(404,))
    if found.status == 404 and address.branch not in (None, default):
        yield Finding(Level.PROBLEM, f"there is no branch {branch}.", f"Make it, or use {default}.")
    elif found.status == 404:
        yield Finding(Level.FINE, f"the repository is empty; the first write makes its branch {branch}.")
    elif found.body.get("protected"):
        text = f"the branch {branch} is protected, so that direct commits may be refused."
        yield Finding(Level.WARNING, text, "Give the runs a branch of their own: ?branch=runs")
    elif branch == default:
        text = f"runs are committed to {branch}, the default branch, among everything else."
        yield Finding(Level.FINE, text, "A branch of their own keeps its history clean: ?branch=runs")
    else:
        yield Finding(Level.FINE, f"runs are committed to the branch {branch}; the default one is {default}.")


def _about_quota(quota: RequestQuota) -> Iterator[Finding]:
    left = quota.last_remaining
    if left is None:
        yield Finding(Level.FINE, "the server tells of no quota.")
        return
    text = (
        f"{left} calls are left until {quota.resets}; {quota.calls_this_run} were made since it was opened."
    )
    if left < LOW:
        fix = "Until then several checkpoints share a file, and what cannot be written waits on this machine."
        yield Finding(Level.WARNING, text, fix)
    else:
        yield Finding(Level.FINE, text)
