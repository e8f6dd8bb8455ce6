"""What surrounds the code of nodes: logs are kept, log lines say where they come from, spans are current.
Apart from the drive, as only runs with any of it load it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from everstep.graph.author.wait_options import Wait
from everstep.model.enums import Status
from everstep.model.records import visit_path
from everstep.runtime.drive.chain_writer import Journal
from everstep.runtime.drive.invoke import Call, describe_error
from everstep.runtime.live.at_work import AT_WORK, AtWork

if TYPE_CHECKING:
    from everstep.runtime.live.step_logs import LogWriter, StepLog


class Surroundings:
    """What surrounds the nodes of one drive, as far as its flow, its host or its program asked for it."""

    def __init__(self, journal: Journal, logs: LogWriter | None) -> None:
        self._journal = journal
        self._logs = logs
        self.trace = journal.trace

    async def during(self, run: Callable[[], Awaitable[Status]]) -> Status:
        """Drive a run with all of it in place."""
        with ExitStack() as stack:
            stack.enter_context(_at_work(AtWork(self._journal.run_id)))
            if self.trace is not None:
                stack.enter_context(self.trace.current())
            return await (run() if self._logs is None else self._keeping(run, self._logs))

    async def _keeping(self, run: Callable[[], Awaitable[Status]], logs: LogWriter) -> Status:
        logs.catching.begin()
        try:
            return await run()
        finally:
            logs.catching.end()
            lease = self._journal.lease
            if lease is not None:
                logs.end(lease.run_id, lease.epoch)
            await logs.settle()

    def of(self, call: Call) -> AroundCall:
        """Return what surrounds one attempt at a node."""
        lease, log = self._journal.lease, None
        if self._logs is not None and lease is not None:
            log = self._logs.log_of(lease.run_id, call.path, call.visit, lease.epoch, call.attempt)
        return AroundCall(self, self._journal.run_id, call, log)


class AroundCall:
    """What surrounds one attempt at a node, on its thread or in its task."""

    is_on = False
    """True once it was entered."""

    def __init__(self, around: Surroundings, run_id: str, call: Call, log: StepLog | None) -> None:
        self._around = around
        self._run_id = run_id
        self._path, self._visit = call.path, call.visit
        self._log = log

    @contextmanager
    def entered(self, call: Call) -> Iterator[None]:
        """Surround the code of the node."""
        self.is_on = True
        step = visit_path(self._path, self._visit)
        with ExitStack() as stack:
            stack.enter_context(_at_work(AtWork(self._run_id, step, call.attempt)))
            if self._around.trace is not None:
                stack.enter_context(self._traced(call))
            if self._log is not None:
                stack.enter_context(self._log.kept())
            yield
        if self._log is not None and call.units is not None and call.units.is_left:
            self._log.leave()

    @contextmanager
    def _traced(self, call: Call) -> Iterator[None]:
        trace = self._around.trace
        assert trace is not None
        given = {name: value for name, value in call.kwargs.items() if name != call.node.context_param}
        with trace.attempt(call.node.name, self._path, call.visit, call.attempt, given) as span:
            yield
            if call.error is not None:
                span.fail(call.error, describe_error(call.error))
            elif isinstance(call.returned, Wait) or (call.units is not None and call.units.is_left):
                span.halt()
            else:
                span.complete(call.returned)

    @contextmanager
    def unit(self, name: str, occurrence: int, attempt: int, given: Any) -> Iterator[Callable[[Any], None]]:
        """Surround an attempt at a durable call of the node; gives what is told of its result."""
        step = visit_path(f"{visit_path(self._path, self._visit)}/{name}", occurrence)
        with ExitStack() as stack:
            stack.enter_context(_at_work(AtWork(self._run_id, step, attempt)))
            trace = self._around.trace
            if trace is None:
                yield _untold
            else:
                yield stack.enter_context(trace.unit(name, self._path, self._visit, attempt, given)).complete


def _untold(returned: object) -> None:
    return


@contextmanager
def _at_work(place: AtWork) -> Iterator[None]:
    token = AT_WORK.set(place)
    try:
        yield
    finally:
        AT_WORK.reset(token)
