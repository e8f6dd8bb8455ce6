"""Everything that can be said of a flow before it runs, on a host or on none."""

from __future__ import annotations

import inspect
import re
import string
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Never, NoReturn, Protocol

from everstep.codec.values import Values
from everstep.errors import (
    BadRequest,
    HaltNeedsDurability,
    KeyMissing,
    NotCheckpointable,
    NotReplayable,
    ServiceMissing,
    UnknownNotifier,
    UnknownScheduler,
    ValueNotStorable,
    close_matches,
)
from everstep.graph.author.flow import Flow
from everstep.graph.author.node import END, Gate, Node
from everstep.graph.author.profiles import objections
from everstep.graph.author.subflow import Subflow
from everstep.graph.check.diagnostics import Diagnostic, Diagnostics, Severity
from everstep.graph.check.hints import UNKNOWN, may_hold, spell, unstorable
from everstep.graph.check.structure import did_you_mean
from everstep.graph.compile.leaves import Leaves
from everstep.graph.compile.loops import components
from everstep.graph.compile.plan import Plan, deep_nodes
from everstep.model.enums import Determinism, Mode, OnError, Persist
from everstep.model.items import ItemError
from everstep.on_demand import on_demand

_RANK = {Mode.OFF: 0, Mode.PARTIAL: 1, Mode.STRONG: 2}
_NO_RESULT = (UNKNOWN, None, type(None), NoReturn, Never)
_PLAIN_VALUES = Values()
STORE = "checkpoint_store"
BLOBS = "checkpoint_blob_store"


class Offers(NamedTuple):
    """What a host has for the flows that run on it."""

    services: frozenset[str] = frozenset()
    """Such as `checkpoint_store`, `resume_scheduler`, and what the host `provides`."""
    schedulers: frozenset[str] = frozenset()
    notifiers: frozenset[str] = frozenset()
    """Aliases."""
    max_mode: Mode = Mode.STRONG
    """The most that it keeps of a run."""
    rules: tuple[Rule, ...] = ()
    holds_waits: bool = True
    """False if its store cannot keep what a run waits for."""
    objection: Callable[[type], tuple[str, str] | None] | None = None
    """Says why no value of a class can be kept, and what to do; none if it is not known how values are."""


Rule = Callable[[Any, Offers | None], Iterable[Diagnostic]]
"""A check of your own: it gets the flow and what the host offers, and yields what it finds."""


class HasOffers(Protocol):
    """A host."""

    @property
    def offers(self) -> Offers: ...


def offers_of(host: HasOffers | Offers | None) -> Offers | None:
    """Return what a host has; what is no host says so itself."""
    if host is None or isinstance(host, Offers):
        return host
    offers = getattr(host, "offers", None)
    if not isinstance(offers, Offers):
        raise BadRequest(f"{host!r:.60} is no host.", fix="Give a Host, an AsyncHost or Offers.")
    return offers


def mode_on(flow: Flow, host: HasOffers | Offers | None) -> Mode:
    """Return what a host makes of a flow's mode: without a store nothing is kept."""
    offers = offers_of(host)
    return Mode.OFF if offers is not None and offers.max_mode is Mode.OFF else flow.durability.mode


def validate(flow: Flow, host: HasOffers | Offers | None = None, rules: Iterable[Rule] = ()) -> Diagnostics:
    """Return everything that is wrong or odd about a flow; with a host, also what the host lacks.

    A flow with errors does not start. `rules` are checks of your own, beside those of the flow and the host.
    """
    if not isinstance(flow, Flow):
        raise BadRequest(f"{flow!r} is not a flow.", fix="Build one with Flow(name, nodes).")
    offers = offers_of(host)
    subject = Subject(flow, offers)
    found = list(flow.problems)
    for check in CHECKS if not _is_sound(subject) else CHECKS_OF_HOST:
        found += check(subject)
    for rule in (*flow.rules, *(offers.rules if offers is not None else ()), *rules):
        found += _ruled(rule, flow, offers)
    return Diagnostics(flow.name, found)


def is_judged_by_others(flow: Flow) -> bool:
    """True if rules of users judge a flow or one inside it, or their serializers what its nodes return."""
    if flow.rules or any(True for _ in _doubtful(Subject(flow, None))):
        return True
    holding = [n for _, n in flow.plan.deep if n.inner is not None]
    return any(isinstance(n, Subflow) and n.flow is not None and n.flow.rules for n in holding)


def _ruled(rule: Rule, flow: Flow, offers: Offers | None) -> Iterator[Diagnostic]:
    """Yield what a rule of the user's finds; one that returns nothing has found nothing."""
    if not callable(rule):
        raise BadRequest(f"{rule!r:.60} is no rule.", fix="Give a function of the flow and the host.")
    severities = [str(severity) for severity in Severity]
    for found in rule(flow, offers) or ():
        if not isinstance(found, Diagnostic) or found.severity not in severities:
            name = getattr(rule, "__name__", repr(rule))
            fix = f"Yield Diagnostic(code, severity, ...) with {' or '.join(map(repr, severities))}."
            raise BadRequest(f"rule {name} found {found!r:.80}.", fix=fix)
        yield found


class Subject:
    """A flow under examination."""

    def __init__(self, flow: Flow, offers: Offers | None) -> None:
        self.flow = flow
        self.offers = offers
        self.plan: Plan | None = vars(flow).get("plan")
        self.mode = mode_on(flow, offers)

    @cached_property
    def nodes(self) -> Sequence[tuple[str, Node]]:
        """Every node at any depth, with its path; also of a draft that cannot be compiled."""
        if self.plan is not None:
            return self.plan.deep
        found: list[tuple[str, Node]] = []
        for n in self.flow.nodes:
            if isinstance(n, Node):
                found.append((n.name, n))
                if isinstance(n.inner, Plan):
                    found += deep_nodes(n.inner, f"{n.name}/")
        return found

    @cached_property
    def plans(self) -> list[tuple[str, Plan]]:
        """The flow and those inside it, each with what the paths of its nodes begin with."""
        if self.plan is None:
            return []
        inner = [(f"{path}/", n.inner) for path, n in self.nodes if isinstance(n.inner, Plan)]
        return [("", self.plan), *inner]

    @cached_property
    def hidden(self) -> dict[str, bool]:
        """The nodes inside atomic flows, each with whether what it writes is lifted out of there."""
        found: dict[str, bool] = {}
        if self.plan is not None:
            _note_hidden(self.plan, "", None, found)
        return found

    def passes_by(self, code: str, path: str, n: Node) -> bool:
        """True if nothing is kept of a node that a strong flow could not keep."""
        if code == NotReplayable.code:
            return path in self.hidden or not n.outputs
        return self.hidden.get(path) is False

    @cached_property
    def resume_path(self) -> Collection[str]:
        """The nodes that a resume may come to: under `partial`, halt nodes and what is behind them."""
        if self.mode is Mode.OFF:
            return ()
        if self.mode is Mode.STRONG:
            return {path for path, _ in self.nodes}
        if self.plan is None or not any(n.halts for _, n in self.nodes):
            return {path for path, n in self.nodes if n.halts}
        leaves = Leaves(self.plan)
        halting = [k for k, leaf in enumerate(leaves.nodes) if leaf.node.halts]
        found: set[str] = set()
        for k in leaves.behind(halting):
            leaf = leaves.nodes[k]
            found.add(leaf.path)
            if isinstance(leaf.node.inner, Plan):
                found.update(path for path, _ in deep_nodes(leaf.node.inner, f"{leaf.path}/"))
        return found


def _note_hidden(plan: Plan, prefix: str, lifted: Collection[str] | None, found: dict[str, bool]) -> None:
    """Note what lies inside atomic flows; `lifted` is what such a flow gives, none outside of one."""
    for n in plan.nodes:
        path = prefix + n.name
        if lifted is not None:
            found[path] = any(o in lifted for o in n.outputs)
        if not isinstance(n.inner, Plan):
            continue
        given: Collection[str] | None = None
        if lifted is not None or n.is_atomic:
            given = {inner for inner, outer in n.exports.items() if lifted is None or outer in lifted}
        _note_hidden(n.inner, f"{path}/", given, found)


if TYPE_CHECKING:
    from everstep.graph.check.undoing import undo_findings
else:
    undo_findings = on_demand("everstep.graph.check.undoing:undo_findings")

Check = Callable[[Subject], Iterable[Diagnostic]]


def _of_plan(check: Check) -> Check:
    """Make a check once for each plan and mode: one that looks at nothing else, neither flow nor host."""

    def known(it: Subject) -> Iterable[Diagnostic]:
        if it.plan is None:
            return check(it)
        found: Iterable[Diagnostic] | None = it.plan.findings.get((check, it.mode))
        if found is None:
            found = it.plan.findings[check, it.mode] = tuple(check(it))
        return found

    known.is_of_plan = True  # type: ignore[attr-defined]
    return known


def _is_sound(it: Subject) -> bool:
    """True if no check that looks at the plan alone has found anything in this one."""
    if it.plan is None:
        return False
    known: bool | None = it.plan.findings.get((_is_sound, it.mode))
    if known is None:
        of_plan = [check for check in CHECKS if check not in CHECKS_OF_HOST]
        known = it.plan.findings[_is_sound, it.mode] = not any(map(list, (check(it) for check in of_plan)))
    return known


def _halts(it: Subject) -> Iterator[Diagnostic]:
    for path, n in it.nodes:
        if not n.halts:
            if n.on_unknown == "stop":
                yield from _holds_none(it, path, "stops for an operator")
            continue
        if it.flow.durability.mode is Mode.OFF:
            yield Diagnostic(
                HaltNeedsDurability.code,
                node=path,
                message=f"Halt node {path!r} requires durability != off.",
                fix="Use durability 'partial' or 'strong'.",
            )
        elif it.offers is not None and STORE not in it.offers.services:
            yield Diagnostic(
                ServiceMissing.code,
                node=path,
                message=f"Halt node {path!r} requires CheckpointStore capability: durability::{STORE}.",
                fix="Open the host on a store, such as sqlite:///runs.db.",
                services=(f"durability::{STORE}",),
            )
        else:
            yield from _holds_none(it, path, "halts")


def _holds_none(it: Subject, path: str, does: str) -> Iterator[Diagnostic]:
    """Say that a node would wait where nothing can be waited for."""
    if it.offers is None or it.offers.holds_waits or it.mode is Mode.OFF:
        return
    yield Diagnostic(
        ServiceMissing.code,
        node=path,
        message=f"{path!r} {does}, and the store of this host keeps no waits, times or tokens.",
        fix="Open the host on a store that does, such as sqlite:///runs.db.",
        services=("durability::resume_signal_source", "durability::resume_scheduler"),
    )


def _inner_rules(it: Subject) -> Iterator[Diagnostic]:
    """What the rules of inner flows find, each about its own flow."""
    for path, n in it.nodes:
        if isinstance(n, Subflow) and n.flow is not None:
            for rule in n.flow.rules:
                for found in _ruled(rule, n.flow, it.offers):
                    yield found._replace(node=f"{path}/{found.node}".rstrip("/"))


@_of_plan
def _shaky_effects(it: Subject) -> Iterator[Diagnostic]:
    """An atomic flow that is repeated makes its effects again: the same ones, if what led there is."""
    for path, n in it.nodes:
        if not (n.is_atomic and isinstance(n.inner, Plan)):
            continue
        leaves = Leaves(n.inner)
        told: set[int] = set()
        for k, leaf in enumerate(leaves.nodes):
            if leaf.node.is_deterministic or leaf.is_join:
                continue
            for behind in leaves.behind([k]) - {k} - told:
                if leaves.nodes[behind].node.is_effectful:
                    told.add(behind)
                    effect = f"{path}/{leaves.nodes[behind].path}"
                    message = (
                        f"If {path!r} is repeated after a crash, {effect!r} may be called with other inputs: "
                        f"{leaf.path!r} is not declared deterministic."
                    )
                    fix = "Declare it (determinism='strict', or effects='pure'), or use durability='nested'."
                    yield Diagnostic("flow.shaky_effect", Severity.WARNING, effect, None, message, fix)


def _undo(it: Subject) -> Iterator[Diagnostic]:
    if it.plan is not None and it.plan.has_undo:
        yield from undo_findings(it.plan, it.mode, it.hidden)


@_of_plan
def _collected(it: Subject) -> Iterator[Diagnostic]:
    """A map that collects errors gives them to its readers, among the values."""
    for prefix, plan in it.plans:
        collecting = {
            i for i, n in enumerate(plan.nodes) if n.over is not None and n.over.on_error is OnError.COLLECT
        }
        for reader in plan.nodes if collecting else ():
            for p in reader.params if reader.inner is None else ():
                for w in sorted(collecting.intersection(plan.writers.get(p.source, ()))):
                    if may_hold(p.hint, ItemError):
                        continue
                    path, by = prefix + reader.name, prefix + plan.paths[w]
                    message = (
                        f"{by!r} collects errors, so {p.source!r} may hold an ItemError; "
                        f"{path!r} wants {spell(p.hint)}."
                    )
                    fix = "Let the hint allow ItemError, or use on_error='skip' or 'finish'."
                    yield Diagnostic("flow.collected_error", Severity.WARNING, path, (by, path), message, fix)


@_of_plan
def _lost_results(it: Subject) -> Iterator[Diagnostic]:
    """A node without an output drops its result, unless nodes are wired or asked for as tasks.

    One that has an effect is called for that.
    """
    for path, n in it.nodes:
        is_step = not (
            n.outputs or n.is_gate or n.halts or n.is_built_in or n.inner is not None or n.is_effectful
        )
        if is_step and n.returns not in _NO_RESULT and not n.streams:
            message = f"{path!r} returns {spell(n.returns)} and has no output: what it returns is dropped."
            fix = "Name it: @node(output=...), or let the function return None."
            yield Diagnostic("flow.dropped_result", Severity.WARNING, path, None, message, fix)


def _unstorable(it: Subject) -> Iterator[Diagnostic]:
    """A node whose hint says that it returns what no codec takes would fail once it has run."""
    known = it.offers.objection if it.offers is not None else None
    judged: dict[int, Any] = {}
    for path, n in _doubtful(it) if it.mode is not Mode.OFF else ():
        if (hint := id(n.returns)) not in judged:
            judged[hint] = unstorable(n.returns, known or _PLAIN_VALUES.objection)
        found = judged[hint]
        if found is None:
            continue
        _, (reason, fix) = found
        # Without a host it is not known which serializers there will be.
        severity = Severity.ERROR if known is not None else Severity.WARNING
        message = f"{path!r} returns {spell(n.returns)}, which cannot be stored: {reason}."
        yield Diagnostic(ValueNotStorable.code, severity, path, None, message, fix)


def _doubtful(it: Subject) -> Iterable[tuple[str, Node]]:
    """Return the nodes whose hints say that they return what needs a serializer.

    A host takes what has a form of its own, and more: so the others are found once for each plan.
    """
    found: Iterable[tuple[str, Node]] | None = None
    if it.plan is not None:
        found = it.plan.findings.get(_doubtful)
    if found is None:
        found = tuple(_needing_serializers(it))
        if it.plan is not None:
            it.plan.findings[_doubtful] = found
    return found


def _needing_serializers(it: Subject) -> Iterator[tuple[str, Node]]:
    judged: dict[int, bool] = {id(UNKNOWN): False}
    for path, n in it.nodes:
        is_kept = n.outputs and not n.may_be_transient and it.hidden.get(path) is not False
        if not is_kept or n.inner is not None or n.halts or n.is_built_in:
            continue
        if (hint := id(n.returns)) not in judged:
            judged[hint] = unstorable(n.returns, _PLAIN_VALUES.objection) is not None
        if judged[hint]:
            yield path, n


@_of_plan
def _transient_effects(it: Subject) -> Iterator[Diagnostic]:
    """An effect is repeated with the same inputs, unless one is made again and comes out differently."""
    for prefix, plan in it.plans if it.mode is not Mode.OFF else ():
        for i, n in enumerate(plan.nodes):
            for source in plan.sources[i] if n.is_effectful else ():
                odd = next(
                    (w for w in plan.writers.get(source, ()) if not _comes_again(plan, w, set())), None
                )
                if odd is None:
                    continue
                path, by = prefix + n.name, prefix + plan.paths[odd]
                message = (
                    f"If {path!r} is repeated after a crash, {source!r} may be another value: {by!r} makes "
                    "it again, and is not declared deterministic."
                )
                fix = "Keep it (drop persist='no'), or declare determinism='strict' or 'stable' if it is so."
                yield Diagnostic("flow.transient_effect", Severity.WARNING, path, (by, path), message, fix)


def _comes_again(plan: Plan, w: int, seen: set[int]) -> bool:
    """True if what a node writes is kept, or is the same when it is made again."""
    n = plan.nodes[w]
    if not n.may_be_transient or w in seen:
        return True
    seen.add(w)
    sources = (v for source in plan.sources[w] for v in plan.writers.get(source, ()))
    return n.is_deterministic and all(_comes_again(plan, v, seen) for v in sources)


def _services(it: Subject) -> Iterator[Diagnostic]:
    if it.offers is None:
        return
    name, has, wanted = it.flow.name, it.offers.services, it.flow.durability.mode
    needed = {service for _, n in it.nodes for service in n.requires} - has
    lacking = tuple(sorted(f"durability::{service}" for service in needed))
    if lacking:
        yield Diagnostic(
            ServiceMissing.code,
            message=f"flow {name!r} needs {', '.join(lacking)}, which this host does not have.",
            fix=f"It has {', '.join(sorted(has)) or 'none'}.",
            services=lacking,
        )
    if it.offers.max_mode is not Mode.OFF and _RANK[wanted] > _RANK[it.offers.max_mode]:
        yield Diagnostic(
            ServiceMissing.code,
            message=(
                f"flow {name!r} wants durability {wanted.value!r}; "
                f"this host keeps at most {it.offers.max_mode.value!r}."
            ),
            fix="Ask for less, or raise max_durability_mode of the host.",
        )
    if it.mode is not Mode.OFF and BLOBS not in has:
        for path, n in it.nodes:
            if n.persist is Persist.REF:
                yield Diagnostic(
                    "durability.no_blob_store",
                    Severity.WARNING,
                    path,
                    message=f"{path!r} is kept as an artifact, but this host has no place for artifacts.",
                    fix="Its values stay in the records; use a store with artifacts if they are large.",
                )


def _aliases(it: Subject) -> Iterator[Diagnostic]:
    if it.offers is None:
        return
    told = [(b.name, b.notified) for b in it.flow.budgets] + [(b.name, b.notify) for b in it.flow.breakers]
    for name, aliases in told:
        for alias in aliases:
            if alias not in it.offers.notifiers:
                message = f"the guard {name!r}: this host has no notifier {alias!r}."
                fix = known_aliases(alias, it.offers.notifiers, "notifiers")
                yield Diagnostic(UnknownNotifier.code, message=message, fix=fix)
    for path, n in it.nodes:
        if not (n.schedulers or n.notifiers):
            continue
        kinds = (
            (UnknownScheduler.code, "scheduler", n.schedulers, it.offers.schedulers),
            (UnknownNotifier.code, "notifier", n.notifiers, it.offers.notifiers),
        )
        for code, kind, wanted, known in kinds:
            for alias in wanted:
                if alias and alias not in known:
                    message = f"{path!r}: this host has no {kind} {alias!r}."
                    yield Diagnostic(
                        code, node=path, message=message, fix=known_aliases(alias, known, f"{kind}s")
                    )


def known_aliases(wanted: object, known: Iterable[str], option: str) -> str:
    """Say what an alias may have been meant to be, and which there are."""
    names = sorted(name for name in known if name)
    close = close_matches(str(wanted), names, n=1)
    if close:
        return f"Did you mean {close[0]!r}? It has {', '.join(map(repr, names))}."
    if names:
        return f"It has {', '.join(map(repr, names))}."
    return f"It has none; give the host {option}={{{str(wanted)[:40]!r}: ...}}."


@_of_plan
def _profiles(it: Subject) -> Iterator[Diagnostic]:
    """The rules DAG-CKPT-001, 004 and 005: what cannot be resumed, in a flow that is to be."""
    for path, n in it.nodes:
        if n.inner is not None:
            continue
        if n.checkpointable is False and not n.reason:
            yield Diagnostic(
                "profile.no_reason",
                Severity.WARNING,
                path,
                message=f"{path!r} is not checkpointable, and does not say why.",
                fix='Add reason="...".',
            )
        for code, reason in objections(n):
            if code == KeyMissing.code:
                fix = 'Give it idempotency_key="auto", or a template such as "order-{order_id}".'
                if path in it.resume_path:
                    message = f"Effectful node {path!r} on resume path must declare idempotency."
                    yield Diagnostic(code, node=path, message=message, fix=fix)
                elif it.mode is not Mode.OFF:
                    message = (
                        f"A crash in {path!r} may repeat its effect, and no key says that it is the same."
                    )
                    yield Diagnostic("flow.unkeyed_effect", Severity.WARNING, path, None, message, fix)
            elif it.mode is Mode.STRONG and not it.passes_by(code, path, n):
                yield _not_strong(code, path, reason)


def _not_strong(code: str, path: str, reason: str) -> Diagnostic:
    if code == NotCheckpointable.code:
        message = f"Node {path!r} is not checkpointable; cannot use durability=strong: {reason}."
        return Diagnostic(code, node=path, message=message, fix="Use durability 'partial'.")
    assert code == NotReplayable.code
    message = f"Streaming node {path!r} is not replayable; cannot checkpoint mid-stream."
    fix = (
        "If it yields the same again, say replayable=True. If the chunks are only for those who watch, send "
        "them with ctx.emit and return the whole. Else make it part of an atomic flow, or use durability "
        "'partial'."
    )
    return Diagnostic(code, node=path, message=message, fix=fix)


@_of_plan
def _asked(it: Subject) -> Iterator[Diagnostic]:
    for path, n in it.nodes:
        for code, what, said in (
            ("flow.bad_key", f"The idempotency key of {path!r} cannot be made", key_problem(n)),
            ("flow.bad_probe", f"The probe of {path!r} cannot be called", probe_problem(n)),
        ):
            if said:
                yield Diagnostic(
                    code, node=path, message=f"{what}: {said}.", fix="Ask for inputs of the node."
                )


@_of_plan
def _choices(it: Subject) -> Iterator[Diagnostic]:
    for path, n in it.nodes:
        is_open = n.persist is Persist.AUTO and n.skip_on_resume is False and n.inner is None
        if is_open and n.determinism is Determinism.NONDETERMINISTIC and it.mode is not Mode.OFF:
            yield Diagnostic(
                "flow.unmade_choice",
                Severity.WARNING,
                path,
                message=(
                    f"{path!r} may run again and come out differently, and does not say whether a resume "
                    "is to use the value it had. It will."
                ),
                fix="Say persist='inline' or 'ref' for the value it had, persist='no' for a new one.",
            )


@_of_plan
def _tasks(it: Subject) -> Iterator[Diagnostic]:
    for prefix, plan in it.plans:
        if any(n.context_param is not None for n in plan.nodes):
            continue
        for i in sorted(plan.tasks):
            path = prefix + plan.paths[i]
            message = f"No node can ask for {path!r}, so it never runs."
            fix = "Let a node take a Context and ask for it with ctx.next_task, or leave it out."
            yield Diagnostic("flow.unasked_task", Severity.WARNING, path, None, message, fix)


@_of_plan
def _exits(it: Subject) -> Iterator[Diagnostic]:
    for prefix, plan in it.plans:
        if not plan.looping:
            continue
        for members in components(plan.graph):
            inside = {plan.paths[m] for m in members}
            gates = [n for n in (plan.nodes[m] for m in members) if isinstance(n, Gate)]
            is_loop = len(members) > 1 or members[0] in plan.graph[members[0]]
            if not is_loop or any(m in plan.tasks for m in members):
                continue
            if not any(g.multi or any(t == END or t not in inside for t in g.targets) for g in gates):
                first = prefix + plan.paths[members[0]]
                message = f"The loop around {first!r} has no way out: no gate in it leads elsewhere."
                fix = "Let a gate lead to END or to a node behind the loop."
                yield Diagnostic("flow.no_exit", Severity.WARNING, first, None, message, fix)


@_of_plan
def _unread(it: Subject) -> Iterator[Diagnostic]:
    """What the last nodes write is the result, so only nodes that something follows are looked at."""
    for i, n in enumerate(it.plan.nodes if it.plan is not None else ()):
        assert it.plan is not None
        if n.inner is not None or n.halts or not it.plan.graph[i]:
            continue
        for output in n.outputs:
            if output != n.result_name and output not in it.plan.readers:
                message = f"No node reads {output!r}, which {n.name!r} writes."
                fix = "Leave it out, unless it is for the result."
                yield Diagnostic("flow.unread_output", Severity.INFO, n.name, None, message, fix)


def _migrations(it: Subject) -> Iterator[Diagnostic]:
    """What a rename leads to must be there, unless a later rule leads on from it."""
    rules = it.flow.migrations
    if it.plan is None or not rules:
        return
    known = {path for path, _ in it.nodes}
    for k, rule in enumerate(rules):
        to = rule.place + "/" * bool(rule.place) + rule.to.rpartition("/")[2]
        if rule.kind != "rename_node" or to in known or any(later.name == to for later in rules[k + 1 :]):
            continue
        message = f"{rule}: this flow has no node {to!r}."
        fix = f"Name one of its nodes.{did_you_mean(to, known)}"
        yield Diagnostic("flow.rename_to_nothing", Severity.WARNING, to, None, message, fix)


CHECKS: tuple[Check, ...] = (
    *(_halts, _services, _aliases, _profiles, _asked, _tasks, _exits, _choices, _unread, _migrations),
    *(_inner_rules, _shaky_effects, _transient_effects, _collected, _lost_results, _unstorable),
    _undo,
)
CHECKS_OF_HOST = tuple(check for check in CHECKS if not hasattr(check, "is_of_plan"))
"""Those that look at more than the plan."""


ABOUT_THE_VISIT = frozenset({"run_id", "visit", "node", "path"})
"""What a template may name beside the inputs."""


def key_problem(node: Node) -> str:
    """Say why the key of a node can never be made; empty if it may be."""
    rule = node.idempotency_key
    if rule is None or rule == "auto":
        return ""
    known = _inputs(node)
    return _missing(rule, known) if callable(rule) else _unfilled(rule, known | ABOUT_THE_VISIT)


def probe_problem(node: Node) -> str:
    """Say why the probe of a node can never be called; empty if it may be."""
    return "" if node.probe is None else _missing(node.probe, _inputs(node) | {"idempotency_key"})


def _inputs(node: Node) -> frozenset[str]:
    return frozenset({p.name for p in node.params} | (node.defaults.keys() - {node.context_param}))


def _unfilled(template: str, known: Collection[str]) -> str:
    try:
        fields = list(_fields(template))
    except ValueError as error:
        return f"{template!r} is no template: {error}"
    for field in fields:
        name = re.split(r"[.\[]", field, maxsplit=1)[0]
        if name not in known:
            return f"{template!r} asks for {name!r}; there is {_listed(known)}"
        if "._" in field:
            return f"{template!r} asks for what is private: {field!r}"
    return ""


def _fields(template: str) -> Iterator[str]:
    for _, field, spec, conversion in string.Formatter().parse(template):
        if field is None:
            continue
        if conversion not in (None, "s", "r", "a"):
            raise ValueError(f"unknown conversion {conversion!r}")
        yield field
        yield from _fields(spec or "")


def _missing(fn: Callable[..., Any], known: Collection[str]) -> str:
    try:
        params = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # what it takes is unknown
        return ""
    for p in params:
        is_needed = p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        if is_needed and (p.name not in known or p.kind is p.POSITIONAL_ONLY):
            return f"{getattr(fn, '__name__', fn)} asks for {p.name!r}; there is {_listed(known)}"
    return ""


def _listed(known: Collection[str]) -> str:
    return ", ".join(sorted(known)) or "nothing"
