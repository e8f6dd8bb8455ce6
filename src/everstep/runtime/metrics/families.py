"""Every metric of a host by name: what it means, its labels, and where its numbers are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

from everstep.model.enums import Status
from everstep.model.leases import WorkerRow
from everstep.model.ledger import BreakerState
from everstep.on_demand import on_demand
from everstep.runtime.metrics.exposition import Family, Labels, Sample, one, spelled, written
from everstep.runtime.metrics.histogram import Histogram
from everstep.runtime.metrics.meter import FlowMeter, Meter, NodeMeter
from everstep.runtime.metrics.store_view import Answer, Seen, due, oldest, untaken
from everstep.runtime.metrics.this_process import process_families
from everstep.runtime.operations.untaken import backlog_of
from everstep.runtime.runs import Runs
from everstep.runtime.services import Services
from everstep.runtime.workers.lease_renewal import LeaseKeeper

if TYPE_CHECKING:
    from everstep.runtime.operations.limits import limits_of, waiting_by_limit
else:
    limits_of = on_demand("everstep.runtime.operations.limits:limits_of")
    waiting_by_limit = on_demand("everstep.runtime.operations.limits:waiting_by_limit")


async def seen_of(services: Services) -> Seen:
    """Look at the store of a host, on the event loop of this thread."""
    services = services.twin()
    store, is_gone = services.store, services.processes.is_gone
    runs = Runs(services, LeaseKeeper(store, services.blocking, services.system))
    workers = [row for row in await store.workers() if row.process is None or not is_gone(row.process)]
    await services.time.hear()
    return Seen(
        counts=await store.counts(),
        breakers={name: at.state for name, at in (await runs.shared.all()).items()},
        workers=workers,
        backlog=await backlog_of(services),
        waiting=waiting_by_limit(await limits_of(services, workers)) if _have_limits(workers) else {},
        now=services.time.now(),
    )


def _have_limits(workers: Iterable[WorkerRow]) -> bool:
    return any(one.limits for worker in workers for one in worker.takes)


def text_of(services: Services) -> str:
    """Return all metrics of a host, as Prometheus reads them."""
    return written(families_of(services))


def families_of(services: Services) -> Iterator[Family]:
    """Yield all metrics of a host: what it counts itself only if it was asked to."""
    yield from _of_store(services.store_view(seen_of).look())
    yield from _of_guards(services)
    if services.meter is not None:
        meter = services.meter
        outages = services.weather.outages + (services.weather.error is not None)
        yield Family(
            "everstep_store_outages_total",
            "counter",
            "Times that the store was out of reach for runs driven here.",
            one(outages),
        )
        with meter.lock:  # for no longer than it takes to read the numbers
            counted = [*_of_runs(meter), *_of_steps(meter), *_of_the_rest(meter)]
        yield from counted
        yield from _of_workers(meter)
    yield from process_families()


def _of_store(answer: Answer) -> Iterator[Family]:
    yield Family("everstep_store_up", "gauge", "1 if the store answers, 0 if not.", one(answer.is_up))
    seen = answer.seen
    yield Family(
        "everstep_store_seen_seconds",
        "gauge",
        "For how many seconds the numbers are known that the store gave.",
        one(answer.age if seen is not None else None),
    )
    if seen is None:
        return
    yield _labelled("everstep_runs", "gauge", "Runs by status.", "status", seen.counts.runs)
    yield _labelled("everstep_open_waits", "gauge", "Open waits by kind.", "kind", seen.counts.waits)
    yield Family(
        "everstep_breakers",
        "gauge",
        "Shared breakers by name and state: 1 for the one it is in.",
        [
            Sample("", (("breaker", name), ("state", state.value)), spelled(state is now))
            for name, now in sorted(seen.breakers.items())
            for state in BreakerState
        ],
    )
    yield from _of_fleet(seen)


def _of_fleet(seen: Seen) -> Iterator[Family]:
    yield Family("everstep_workers", "gauge", "Workers of the store that are alive.", one(len(seen.workers)))
    if seen.backlog is None:
        return
    yield _labelled(
        "everstep_due_runs", "gauge", "Runs that are due and not driven.", "flow", due(seen.backlog)
    )
    yield _labelled(
        "everstep_oldest_due_seconds",
        "gauge",
        "For how long the first of the due runs has been due.",
        "flow",
        oldest(seen.backlog, seen.now),
    )
    yield _labelled(
        "everstep_untaken_runs",
        "gauge",
        "Due runs that no live worker will take: none has this version of their flow.",
        "flow",
        untaken(seen.backlog, seen.workers),
    )
    yield _labelled(
        "everstep_limit_waiting_runs",
        "gauge",
        "Runs that are due and wait for room in a limit, or for their turn.",
        "limit",
        seen.waiting,
    )


def _of_guards(services: Services) -> Iterator[Family]:
    spent, warnings, trips = services.tally.counts()
    yield _labelled("everstep_spent_total", "counter", "Spent by runs driven here.", "name", spent)
    yield _labelled("everstep_budget_warnings_total", "counter", "Budgets nearly spent.", "budget", warnings)
    yield _labelled("everstep_breaker_trips_total", "counter", "Breakers that opened.", "breaker", trips)


def _of_runs(meter: Meter) -> Iterator[Family]:
    def by_flow(name: str, help_text: str, number: Callable[[FlowMeter], int]) -> Family:
        numbers = {flow.name: many for flow in meter.flows.values() if (many := number(flow))}
        return _labelled(name, "counter", help_text, "flow", numbers)

    yield by_flow(
        "everstep_runs_started_total", "Runs that were started or forked here.", lambda it: it.began
    )
    yield Family(
        "everstep_runs_ended_total",
        "counter",
        "Runs that ended here, by what became of them.",
        [
            Sample("", (("flow", name), ("status", status)), str(many))
            for name, flow in sorted(meter.flows.items())
            for status, many in sorted(flow.ended.items())
        ],
    )
    yield by_flow("everstep_runs_halted_total", "Times that runs halted here to wait.", lambda it: it.halted)
    yield by_flow("everstep_runs_claimed_total", "Runs that workers here claimed.", lambda it: it.claimed)
    yield by_flow(
        "everstep_takeovers_total",
        "Runs claimed in the middle, as their owner died or gave them back, or they were reopened.",
        lambda it: it.taken_over,
    )


def _of_steps(meter: Meter) -> Iterator[Family]:
    """Yield what became of attempts. One that is to be tried again is `retrying`, else `failed`."""

    def began(nodes: Callable[[FlowMeter], Mapping[str, NodeMeter]]) -> list[Sample]:
        return [Sample("", labels, str(node.began)) for labels, node in _nodes(meter, nodes) if node.began]

    def ended(nodes: Callable[[FlowMeter], Mapping[str, NodeMeter]]) -> list[Sample]:
        return [
            Sample("", (*labels, ("status", status.value)), str(many))
            for labels, node in _nodes(meter, nodes)
            for status, many in sorted({Status.COMPLETED: node.completed, **node.other_ends}.items())
            if many
        ]

    def took(nodes: Callable[[FlowMeter], Mapping[str, NodeMeter]]) -> list[Sample]:
        found = _nodes(meter, nodes)
        return [
            sample for labels, node in found if sum(node.took.counts) for sample in node.took.samples(labels)
        ]

    def steps(flow: FlowMeter) -> Mapping[str, NodeMeter]:
        return flow.nodes

    def calls(flow: FlowMeter) -> Mapping[str, NodeMeter]:
        return flow.calls

    yield Family("everstep_steps_started_total", "counter", "Attempts of nodes that began.", began(steps))
    yield Family(
        "everstep_steps_ended_total",
        "counter",
        "Attempts of nodes by what became of them: retrying is failed and tried again.",
        ended(steps),
    )
    yield Family("everstep_step_seconds", "histogram", "How long attempts of nodes took.", took(steps))
    yield Family(
        "everstep_calls_ended_total",
        "counter",
        "Attempts of durable calls inside nodes by what became of them.",
        ended(calls),
    )
    yield Family(
        "everstep_call_seconds", "histogram", "How long durable calls inside nodes took.", took(calls)
    )


def _of_the_rest(meter: Meter) -> Iterator[Family]:
    yield Family(
        "everstep_due_to_claimed_seconds",
        "histogram",
        "How long after it was accepted a run was claimed, or after its wait was over it went on.",
        [
            *_histograms(meter.accepted, ("why", "accepted")),
            *_histograms(meter.woken, ("why", "woken")),
        ],
    )
    yield Family(
        "everstep_timer_drift_seconds",
        "histogram",
        "How long after it was due a wait was ended by the clock.",
        _histograms(meter.drift),
    )
    yield Family(
        "everstep_commit_seconds",
        "histogram",
        "How long the store took for a put.",
        [*meter.commit_seconds.samples()],
    )
    yield Family(
        "everstep_commit_size",
        "histogram",
        "How many checkpoints were in one put.",
        [*meter.commit_sizes.samples()],
    )
    for name, is_told, help_text in (
        ("everstep_notified_total", True, "Calls of notifiers that went through."),
        ("everstep_notifier_failures_total", False, "Calls of notifiers that failed; they are tried again."),
    ):
        numbers = {alias: many for (alias, told), many in meter.notified.items() if told is is_told}
        yield _labelled(name, "counter", help_text, "notifier", numbers)
    yield Family("everstep_artifacts_total", "counter", "Artifacts written.", one(meter.artifacts))
    yield Family(
        "everstep_artifact_bytes_total",
        "counter",
        "Bytes of artifacts written, before they are compressed.",
        one(meter.artifact_bytes),
    )


def _of_workers(meter: Meter) -> Iterator[Family]:
    used, slots = meter.slots()
    let_go = meter.let_go()
    yield Family("everstep_slots", "gauge", "How many runs the workers here may drive at once.", one(slots))
    yield Family("everstep_slots_used", "gauge", "How many runs the workers here drive.", one(used))
    yield Family(
        "everstep_runs_handed_back_total",
        "counter",
        "Runs that workers here let go of before they ended or halted.",
        one(let_go["handed_back"]),
    )
    yield Family(
        "everstep_runs_set_aside_total",
        "counter",
        "Runs that were found damaged, and are left to a person.",
        one(let_go["set_aside"]),
    )


def _labelled(
    name: str, kind: str, help_text: str, label: str, values: Mapping[str, int | float | Decimal]
) -> Family:
    samples = [Sample("", ((label, key),), _number(value)) for key, value in sorted(values.items())]
    return Family(name, "gauge" if kind == "gauge" else "counter", help_text, samples)


def _number(value: float | Decimal) -> str:
    return f"{value:f}" if isinstance(value, Decimal) else spelled(value)


def _histograms(by_flow: Mapping[str, Histogram], *more: tuple[str, str]) -> list[Sample]:
    return [
        sample for flow, kept in sorted(by_flow.items()) for sample in kept.samples((("flow", flow), *more))
    ]


def _nodes(
    meter: Meter, nodes: Callable[[FlowMeter], Mapping[str, NodeMeter]]
) -> Iterable[tuple[Labels, NodeMeter]]:
    for name, flow in sorted(meter.flows.items()):
        for path, node in sorted(nodes(flow).items()):
            yield (("flow", name), ("node", path)), node
