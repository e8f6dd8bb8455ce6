"""The flow that answers a question, as workers drive it: they have the code that is asked for."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from everstep.errors import EverstepError, NoAnswer
from everstep.graph.author.flow import Flow
from everstep.graph.author.node import node
from everstep.model.commits import asking_about
from everstep.model.durability import Durability
from everstep.model.retention import Retention
from everstep.runtime.operations.asking.answers import compat_on, findings_on, report_on
from everstep.runtime.operations.asking.question import ANSWER, About, Question, question_of, refusal
from everstep.runtime.reader import RunReader
from everstep.runtime.services import Services
from everstep.runtime.travel.explain import explain

log = logging.getLogger("everstep")
_SPARE = timedelta(seconds=0.5)
"""An answer is to be there so long before its asker goes away."""
_DURABILITY = Durability(blob_threshold=1 << 24, max_resume_attempts=1)
"""An answer lies in its record, with which it goes, and one that kills a worker is not asked of many."""
_RETENTION = Retention(keep_for="1h", abandoned_for="1h")
"""Who asks takes the answer away; `gc` removes what those left who were killed meanwhile."""


def ask_flow(services: Services, runs: RunReader, name: str, flows: Sequence[Flow] = ()) -> Flow:
    """Return the flow that answers questions about a flow, given in the versions that this process has."""

    @node(output=ANSWER, effects="read_only")
    async def answer(question: dict[str, Any]) -> Any:
        asked = question_of(question)
        if services.time.now() >= asked.until:
            return refusal(NoAnswer("the time to answer was over."))
        try:
            return msgspec.to_builtins(await _answered(services, runs, flows, asked))
        except EverstepError as error:
            return refusal(error)
        except Exception as error:  # a bug in code of the flow, such as an up-cast
            log.exception("question about flow %r failed: %s", name, asked.about)
            said = f"a worker with flow {name!r} met {type(error).__name__} while it answered."
            return refusal(NoAnswer(said, fix="The worker's log says more.", flow=name))

    return Flow(asking_about(name), [answer], durability=_DURABILITY, retention=_RETENTION)


async def _answered(
    services: Services, runs: RunReader, flows: Sequence[Flow], asked: Question
) -> msgspec.Struct:
    flow = flows[-1]
    match asked.about:
        case About.EXPLAIN:
            [run_id] = asked.runs
            row = await runs.row(run_id)
            same = (one for one in flows if one.plan.hash == row.flow_hash)
            return await explain(services, runs, run_id, next(same, flow))
        case About.COMPAT:
            until = asked.until - _SPARE
            return await compat_on(services, runs, flow, asked.runs, is_whole=True, until=until)
        case About.REPORT:
            return report_on(services, flow)
        case About.FINDINGS:
            return findings_on(services, flow)
