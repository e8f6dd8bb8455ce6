"""Where what lies in a bucket. All that an index says is in its names.

runs/{run}/log/{place}            what happened to a run, one object after the other: the authority
beats/{run}/{epoch}               until when its owner has prolonged its lease
flows/{hash}                      the structure of a flow
index/{newest first}~{flow}~{run} runs in the order they came in
live/{run}~{place}                it is due, or has an owner
waiting/{due}~{run}~{place}       it has waits and no owner
waits/{two digits}/{wait}~{run}   which run a wait belongs to
tokens/{two digits}/{token}~{run} which run a token belongs to
children/{parent}/{run}~{base}    its forks, and the checkpoint they go on from
started/{run}/{newest first}~{run} runs that its nodes started, in the order they came in
blobs/{two digits}/{digest}       artifacts
topics/{event}/{shape}~{topic}~{run}~{place}~{wait} open waits for events, and where each was opened
shapes/{event}/{shape}            which fields waits for an event go by
events/{event}/{id}~{until}       events that are kept
audit/{newest first}~{run}~{place} who did what: the place of the run's log that says so; 0 if the row is here
audited/{run}/{newest first}~{place} the same, of one run
quotas/{flow}                     claims that are about to be made, and what counts for the limits of its runs
limits/{key}                      what counts for a limit that calls share
workers/{worker}
notices/{due}~{run}~{place}       it has notices that were not sent
"""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from everstep.ports.events import Wanted
from everstep.stores.columns import to_int

_SAFE = re.compile(r"[^A-Za-z0-9._-]")
_READ = 16_384
"""How many names are remembered with what they say: who claims reads those of all runs that are due."""
_ORDERS = 10**17
_TIMES = 10**18
_NEVER = "never"
_PART = "[A-Za-z0-9._=-]+"
_OURS = re.compile(
    rf"runs/{_PART}/log/\d{{10}}|live/{_PART}~\d+|(?:waiting|notices)/(?:{_NEVER}|\d{{19}})~{_PART}~\d+"
    rf"|(?:index|erased)/\d{{17}}~[0-9a-f]{{12}}~{_PART}|removals/\d{{17}}|unfinished/{_PART}~\d+"
    rf"|(?:waits|tokens)/[0-9a-f]{{2}}/[0-9a-f]{{32}}~{_PART}|children/{_PART}/{_PART}~\d*|started/{_PART}/\d{{17}}~{_PART}"
    rf"|blobs/[0-9a-f]{{2}}/[0-9a-f]{{64}}|topics/[0-9a-f]{{32}}/[0-9a-f]{{16}}~[0-9a-f]{{16}}~{_PART}~\d+~[0-9a-f]{{12}}"
    r"|shapes/[0-9a-f]{32}/[0-9a-f]{16}|events/[0-9a-f]{32}/[0-9a-f]{32}~\d{19}"
    rf"|audit/\d{{17}}~{_PART}~\d+|audited/{_PART}/\d{{17}}~\d+"
)
_KEPT = re.compile(
    rf"(?:runs/{_PART}/log|live|waiting|index|erased|removals|unfinished|waits|tokens|children|started|blobs|topics"
    r"|shapes|events|audit|audited|notices)/"
)


@lru_cache(4096)
def quoted(text: str) -> str:
    """Return text as a part of a name; an id that is safe stays as it is."""
    safe = _SAFE.sub(lambda found: "".join(f"={byte:02X}" for byte in found[0].encode()), text)
    return f"=2E{safe[1:]}" if safe.startswith(".") else safe or "=00"


def unquoted(part: str) -> str:
    if "=" not in part:
        return part
    if part == "=00":
        return ""
    pieces = re.sub(rb"=([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), part.encode())
    return pieces.decode()


def is_ours(name: str) -> bool:
    """False for foreign files between objects: a backup of one, or what a file manager leaves."""
    return _KEPT.match(name) is None or _OURS.fullmatch(name) is not None


def short(text: str | bytes) -> str:
    """Return what stands for text of any length."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()[:32]


TOPICS = "topics/"


class TopicMark(NamedTuple):
    """A wait for events that the entry at a place of its run's log opens."""

    run_id: str
    place: int
    name: str


def topic_prefix(wanted: Wanted) -> str:
    """Return where waits for these events are marked."""
    return f"{TOPICS}{short(wanted.name)}/{short(wanted.shape)[:16]}~{short(wanted.topic)[:16]}~"


def topic_name(wanted: Wanted, run_id: str, place: int, wait_id: str) -> str:
    return f"{topic_prefix(wanted)}{quoted(run_id)}~{place}~{short(wait_id)[:12]}"


def read_topic(name: str) -> TopicMark:
    _, _, run, place, _ = name.rpartition("/")[2].split("~")
    return TopicMark(unquoted(run), int(place), name)


def shapes_prefix(event: str) -> str:
    return f"shapes/{short(event)}/"


def shape_name(wanted: Wanted) -> str:
    return f"{shapes_prefix(wanted.name)}{short(wanted.shape)[:16]}"


def events_prefix(event: str) -> str:
    return f"events/{short(event)}/"


def event_name(event: str, event_id: str, until: datetime) -> str:
    """Return where an event is kept: under another name once it is kept anew, so each is written once."""
    return f"{events_prefix(event)}{short(event_id)}~{_time(until)}"


def kept_until(name: str) -> int:
    """Return until when an event is kept, in microseconds."""
    return int(name.rpartition("~")[2]) - _TIMES


def place_name(run_id: str, place: int) -> str:
    return f"runs/{quoted(run_id)}/log/{place:010d}"


def log_prefix(run_id: str) -> str:
    return f"runs/{quoted(run_id)}/log/"


def place_of(name: str) -> int:
    return int(name.rpartition("/")[2])


def beat_name(run_id: str, epoch: int) -> str:
    return f"beats/{quoted(run_id)}/{epoch}"


def flow_name(flow_hash: str) -> str:
    return f"flows/{quoted(flow_hash)}"


RUNS = "runs/"
INDEX = "index/"
LIVE = "live/"
WAITING = "waiting/"


def index_name(order: int, flow_id: str, run_id: str) -> str:
    return f"{INDEX}{_ORDERS - order:017d}~{flow_mark(flow_id)}~{quoted(run_id)}"


def read_index(name: str) -> tuple[str, str]:
    """Return the mark of the flow and the run."""
    _, flow, run = name.rpartition("/")[2].split("~")
    return flow, unquoted(run)


def order_of(name: str) -> int:
    """Return where a run stands in the order they came in."""
    return _ORDERS - int(name.removeprefix(INDEX).partition("~")[0])


ERASED = "erased/"
REMOVALS = "removals/"
UNFINISHED = "unfinished/"


def erased_name(order: int, flow_id: str, run_id: str) -> str:
    return f"{ERASED}{_ORDERS - order:017d}~{flow_mark(flow_id)}~{quoted(run_id)}"


def removal_name(number: int) -> str:
    return f"{REMOVALS}{_ORDERS - number:017d}"


def removal_number(name: str) -> int:
    return _ORDERS - int(name.removeprefix(REMOVALS))


def unfinished_name(run_id: str, place: int) -> str:
    return f"{UNFINISHED}{quoted(run_id)}~{place}"


def read_unfinished(name: str) -> Marker:
    run, place = name.removeprefix(UNFINISHED).split("~")
    return Marker(unquoted(run), int(place), name)


AUDIT = "audit/"


class AuditMark(NamedTuple):
    """A row of the audit log: of no run, or of one; and the place of its log that has it, or 0."""

    number: int
    run_id: str | None
    place: int

    @property
    def name(self) -> str:
        """Where it is listed; without a place, also where the row is."""
        run = "" if self.run_id is None else self.run_id
        return f"{AUDIT}{_ORDERS - self.number:017d}~{quoted(run)}~{self.place}"

    @property
    def names(self) -> list[str]:
        """All names that lead to it."""
        if self.run_id is None:
            return [self.name]
        return [self.name, f"{audit_prefix(self.run_id)}{_ORDERS - self.number:017d}~{self.place}"]


def audit_prefix(run_id: str | None) -> str:
    """Return where the rows of a run are listed, or all."""
    return AUDIT if run_id is None else f"audited/{quoted(run_id)}/"


def read_audit(name: str) -> AuditMark:
    """Return what a name of either kind says."""
    if name.startswith(AUDIT):
        number, run, place = name.removeprefix(AUDIT).split("~")
    else:
        _, run, rest = name.split("/")
        number, place = rest.split("~")
    return AuditMark(_ORDERS - int(number), unquoted(run) or None, int(place))


@lru_cache(1024)
def flow_mark(flow_id: str) -> str:
    return short(flow_id)[:12]


class Marker(NamedTuple):
    """A run that is to be looked at, and the place that this was written for."""

    run_id: str
    place: int
    name: str


def live_name(run_id: str, place: int) -> str:
    return f"{LIVE}{quoted(run_id)}~{place}"


@lru_cache(_READ)
def read_live(name: str) -> Marker:
    run, place = name.removeprefix(LIVE).split("~")
    return Marker(unquoted(run), int(place), name)


def waiting_name(due: datetime | None, run_id: str, place: int) -> str:
    return f"{WAITING}{_time(due)}~{quoted(run_id)}~{place}"


def _time(due: datetime | None) -> str:
    number = to_int(due)
    return _NEVER if number is None else f"{_TIMES + number:019d}"


def waiting_bound(at: datetime) -> str:
    """Return a name behind those of everything that is due at a time, before all that is due later."""
    return f"{WAITING}{_time(at)}~~"


@lru_cache(_READ)
def read_waiting(name: str) -> Marker:
    _, run, place = name.removeprefix(WAITING).split("~")
    return Marker(unquoted(run), int(place), name)


NOTICES = "notices/"


def notices_name(due: datetime | None, run_id: str, place: int) -> str:
    return f"{NOTICES}{_time(due)}~{quoted(run_id)}~{place}"


def notices_bound(at: datetime) -> str:
    """Return a name behind those of everything that is due at a time, before all that is due later."""
    return f"{NOTICES}{_time(at)}~~"


def run_with_notices(name: str) -> str:
    """Return the run that has them."""
    return unquoted(name.split("~")[1])


def waiting_due(name: str) -> int | None:
    """Return when it is due, in microseconds."""
    text = name.partition("/")[2].partition("~")[0]
    return None if text == _NEVER else int(text) - _TIMES


def wait_prefix(wait_id: str) -> str:
    mark = short(wait_id)
    return f"waits/{mark[:2]}/{mark}~"


def token_prefix(mark: str) -> str:
    """Return what the name of a token begins with, by what stands for it."""
    return f"tokens/{mark[:2]}/{mark}~"


def run_behind(name: str) -> str:
    """Return the run that the name of a wait or token leads to."""
    return unquoted(name.rpartition("~")[2])


def child_prefix(parent: str) -> str:
    return f"children/{quoted(parent)}/"


def child_name(parent: str, run_id: str, forked_at: int | None) -> str:
    return f"{child_prefix(parent)}{quoted(run_id)}~{'' if forked_at is None else forked_at}"


def read_child(name: str) -> tuple[str, int | None]:
    """Return the run, and the checkpoint of its parent that it goes on from."""
    run, base = name.rpartition("/")[2].split("~")
    return unquoted(run), int(base) if base else None


STARTED = "started/"


def started_prefix(starter: str) -> str:
    return f"{STARTED}{quoted(starter)}/"


def started_name(starter: str, order: int, run_id: str) -> str:
    return f"{started_prefix(starter)}{_ORDERS - order:017d}~{quoted(run_id)}"


def blob_name(key: str) -> str:
    return f"blobs/{key[:2]}/{key}"


QUOTAS = "quotas/"
LIMITS = "limits/"


def quota_name(flow_id: str) -> str:
    return f"{QUOTAS}{short(flow_id)}"


def limit_name(key: str) -> str:
    """Return where it is kept what counts for a limit that calls share."""
    return f"{LIMITS}{quoted(key)}"


def read_limit(name: str) -> str:
    return unquoted(name.removeprefix(LIMITS))


WORKERS = "workers/"
PAUSES = "pauses/"


def pause_name(flow_id: str, group: str) -> str:
    """Return where it is kept that a flow or a group is paused."""
    return f"{PAUSES}{quoted(flow_id)}/{quoted(group)}"


def worker_name(worker_id: str) -> str:
    return f"{WORKERS}{quoted(worker_id)}"
