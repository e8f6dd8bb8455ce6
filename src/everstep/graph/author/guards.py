"""Asking a person before a node may start: a budget is spent, or a breaker is open."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from everstep.errors import BadRequest, close_matches
from everstep.graph.author.wait_options import Wait
from everstep.model.breakers import Breaker
from everstep.model.budgets import Budget, plain
from everstep.model.ledger import BreakerAt

BUDGET: Final = "budget:"
BREAKER: Final = "breaker:"
"""How the names of guards begin in records."""
_CURRENCIES: Final = frozenset(
    re.findall(
        r"[a-z]{3}",
        """aed afn all amd ang aoa ars aud awg azn bam bbd bdt bgn bhd bif bmd bnd bob brl bsd btn bwp byn bzd
        cad cdf chf clp cny cop crc cup cve czk djf dkk dop dzd egp ern etb eur fjd fkp gbp gel ghs gip gmd
        gnf gtq gyd hkd hnl htg huf idr ils inr iqd irr isk jmd jod jpy kes kgs khr kmf kpw krw kwd kyd kzt
        lak lbp lkr lrd lsl lyd mad mdl mga mkd mmk mnt mop mru mur mvr mwk mxn myr mzn nad ngn nio nok npr
        nzd omr pab pen pgk php pkr pln pyg qar ron rsd rub rwf sar sbd scr sdg sek sgd shp sle sos srd ssp
        stn syp szl thb tjs tmt tnd top try ttd twd tzs uah ugx usd uyu uzs ves vnd vuv wst xaf xcd xof xpf
        yer zar zmw btc eth""",
    )
)
"""What money is counted in."""


@dataclass(frozen=True, kw_only=True)
class GuardWait(Wait):
    """A wait that stands before a node, and not for it."""

    guard: str = ""


def for_more(path: str, budget: Budget, spent: Decimal, limit: Decimal, raise_by: Decimal) -> GuardWait:
    """Return the wait in which a person approves of spending more."""
    name = budget.name
    return GuardWait(
        kind="approval",
        notify=budget.notified or None,
        prompt=f"{plain(spent)} of {plain(limit)} {name} are spent. "
        f"May {path} start, with {plain(raise_by)} more?",
        context={
            "guard": "budget",
            "budget": name,
            "spent": plain(spent),
            "limit": plain(limit),
            "raise_by": plain(raise_by),
            "node": path,
        },
        guard=BUDGET + name,
    )


def for_review(
    path: str, breaker: Breaker, at: BreakerAt, until: datetime | None, also: Iterable[str]
) -> GuardWait:
    """Return the wait in which a person says whether what a breaker guards may be tried."""
    name = breaker.name
    return GuardWait(
        kind="approval",
        notify=breaker.notify or None,
        prompt=f"Breaker {name} is open: {at.reason}. May {path} try again?",
        context={
            "guard": "breaker",
            "breaker": name,
            "reason": at.reason,
            "since": None if at.since is None else at.since.isoformat(),
            "trips": at.trips,
            "also": list(also),
            "node": path,
        },
        until=until,
        guard=BREAKER + name,
    )


def check_known(node: str, amounts: Iterable[str], budgets: Mapping[str, Any]) -> None:
    """Refuse a name that was probably meant to be that of a budget: it would be spent past the limit."""
    currencies = [name for name in budgets if name in _CURRENCIES]
    for name in amounts:
        if name in budgets or not budgets:
            continue
        is_other = name in _CURRENCIES and currencies
        meant = currencies[:1] if is_other else close_matches(name, budgets, n=1, cutoff=0.8)
        if meant:
            raise BadRequest(
                f"node {node!r} spends {name!r}, and the flow has a budget {meant[0]!r}.",
                fix=f"Spend {meant[0]!r}, or give {name!r} a budget of its own.",
            )
