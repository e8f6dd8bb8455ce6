"""Looks a store over: can it be written to, how fast, what does it keep, and what can it lose."""

from __future__ import annotations

from statistics import median

import msgspec

from everstep.errors import StoreError
from everstep.model.leases import SKEW
from everstep.model.shapes import shown
from everstep.ports.health import CheckedStore, Finding, Health, Level
from everstep.ports.system import Clock, time_for_store
from everstep.runtime.services import Services

PROBES = 7
SLOW_MS = 20.0


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at a store found."""

    url: str
    """Where it is, without a password."""
    server: str
    durable: bool
    """What is written survives the end of this process."""
    single_writer: bool
    """Stale owners are refused inside the write, so that many workers may share it."""
    can_write: bool
    write_ms: float | None
    """How long a durable write takes: the median of a few."""
    slowest_ms: float | None
    skew_seconds: float | None
    """How far the server's clock is ahead of this machine's; none if the store has no clock of its own."""
    size_bytes: int | None = None
    """How much room runs take in it; none if it cannot say."""
    findings: tuple[Finding, ...]

    @shown
    def is_well(self) -> bool:
        """True if nothing stands in the way of keeping runs here."""
        return all(finding.level is not Level.PROBLEM for finding in self.findings)


async def examine(services: Services, url: str) -> Diagnosis:
    """Look at a host's store; what is written on the way is removed again."""
    store = services.store
    findings: list[Finding] = []
    health, times, skew = Health(server="unknown"), [], None
    if isinstance(store, CheckedStore):
        before = services.clock.now()
        health = await store.health()
        if health.now is not None and time_for_store(services.clock) is None:
            middle = before + (services.clock.now() - before) / 2
            skew = round((health.now - middle).total_seconds(), 3)
        findings += health.findings
        try:
            times = await _timed(store, services.clock)
        except StoreError as error:
            findings.append(Finding(Level.PROBLEM, f"it cannot be written to: {error.message}", error.fix))
    else:
        findings.append(Finding(Level.WARNING, "this kind of store cannot say how it is."))
    if skew is not None and abs(skew) > SKEW:
        findings.append(_about_skew(skew))
    if times and median(times) > SLOW_MS:
        text = f"a write takes {median(times):.0f} ms; every step of a strong flow waits for one."
        findings.append(Finding(Level.WARNING, text, "Move the store nearer, or use flush='before_effects'."))
    if not store.capabilities.single_writer:
        text = "it cannot keep two workers apart, so workers do not run on it."
        findings.append(Finding(Level.WARNING, text, "Drive its runs with host.run, from one process."))
    return Diagnosis(
        url=url,
        server=health.server,
        durable=store.capabilities.durable,
        single_writer=store.capabilities.single_writer,
        can_write=bool(times),
        write_ms=round(median(times), 3) if times else None,
        slowest_ms=round(max(times), 3) if times else None,
        skew_seconds=skew,
        size_bytes=health.size_bytes,
        findings=tuple(findings),
    )


async def _timed(store: CheckedStore, clock: Clock) -> list[float]:
    times = []
    for _ in range(PROBES):
        began = clock.monotonic()
        await store.write_probe()
        times.append((clock.monotonic() - began) * 1000)
    return times


def _about_skew(skew: float) -> Finding:
    which = "ahead of" if skew > 0 else "behind"
    return Finding(
        Level.WARNING,
        f"the server's clock is {abs(skew):.1f} s {which} this machine's. Leases go by the server's alone, "
        "and so do due times; the times in records come from this machine's, and are wrong by as much.",
        "Set both by NTP.",
    )
