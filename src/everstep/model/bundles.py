"""What a bundle says of itself, and what is left out of it."""

from __future__ import annotations

from fnmatch import fnmatchcase

import msgspec

BUNDLE_FORMAT = "everstep-bundle"
BUNDLE_VERSION = 1
MANIFEST = "manifest.json"

SET_ASIDE = "set aside: "
"""What a mark begins with for which workers leave a run alone that is not damaged."""
IMPORTED = f"{SET_ASIDE}it was imported, and may still be driven where it comes from"
COPIED = f"{SET_ASIDE}it is a copy, and may still be driven where it comes from"
MOVED = f"{SET_ASIDE}it was moved to "


def moved_to(mark: str | None) -> str | None:
    """Return where a run is that has such a mark; none if it was not moved."""
    return mark.removeprefix(MOVED) if mark is not None and mark.startswith(MOVED) else None


SECRETS = (
    *("*password*", "*passwd*", "*passphrase*", "*secret*", "*token*", "*api_key*", "*apikey*"),
    *("*access_key*", "*private_key*", "*credential*", "*authorization*", "*cookie*", "*webhook_url*"),
)
"""Names of values that are taken for secrets."""


class LeaveOut(msgspec.Struct, frozen=True, kw_only=True):
    """What an export leaves out. Digests stay: the chain stays whole, and a value can be given back later."""

    values: tuple[str, ...] = ()
    """Names of values, with `*` and `?`, whatever their case; of nested ones the last part counts."""
    tokens: bool = True
    """True to leave out the hashes of tokens that answer waits."""

    @classmethod
    def secrets(cls, *more: str) -> LeaveOut:
        """Return what leaves out values whose names say that they are secrets, and those named here."""
        return cls(values=(*SECRETS, *more))

    def is_left_out(self, name: str) -> bool:
        """True if a value of this name stays behind."""
        last = name.rpartition("/")[2].lower()
        return any(fnmatchcase(last, pattern.lower()) for pattern in self.values)


class BundledRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a bundle."""

    run_id: str
    flow_id: str
    flow_version: str
    status: str
    checkpoints: int
    checkpoint_id: str
    """The newest one."""
    digest: str
    """Covers its whole history."""
    is_wanted: bool = True
    """False if it came along because another one was forked from it."""


class LeftOut(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One thing that stayed behind."""

    run_id: str
    what: str
    """`value`, `token`, `answer` or `signal`."""
    name: str
    """Of a value its name, otherwise the id of the wait."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a bundle says of itself. It stands last in the file."""

    format: str
    version: int
    schema_version: int
    """That of the newest record in it."""
    runs: tuple[BundledRun, ...]
    """Those that others were forked from first."""
    artifacts: int
    left_out: tuple[LeftOut, ...] = ()
    keys: tuple[str, ...] = ()
    """The ids of the keys that values in it are encrypted with."""
    elsewhere: tuple[str, ...] = ()
    """What belongs to the runs and is kept neither in their chains nor here, such as `channel`."""
    content: str
    """SHA-256 of everything that stands before."""
