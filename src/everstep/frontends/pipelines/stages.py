"""What a node of a pipeline does at a visit: prepare the stage, take its outcome in, choose the edge."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from everstep.errors import (
    BadRequest,
    NoEdgeHolds,
    OutputError,
    PipelineFailed,
    RunCancelled,
    ValueNotStorable,
)
from everstep.frontends.dot.judging import MISSING
from everstep.frontends.pipelines import fidelity, layers
from everstep.frontends.pipelines.choice import Way, choose
from everstep.frontends.pipelines.kinds import Dialect
from everstep.frontends.pipelines.layers import LayeredContext
from everstep.frontends.pipelines.outcome import Outcome, StageError, StageStatus
from everstep.frontends.pipelines.reading import Pipeline, StageSpec, fill
from everstep.frontends.pipelines.stage import Handler, Stage
from everstep.frontends.pipelines.threads import on_own_thread
from everstep.graph.author.context import Context
from everstep.graph.author.node import END
from everstep.model.address import unvisited

MOST_PROMPT: Final = 1 << 20
"""Bytes that a prompt may have."""
GRACE: Final = 5.0
"""Seconds more than its own for a handler that ends in time by itself."""
SIMULATION: Final = "simulation"
JUDGES: Final = frozenset({"conditional", "fan_in"})
"""Kinds of nodes that look at what was done before them, unless they have a handler."""
_KEPT_NOTES: Final = 400


class StageRetry(Exception):
    """A stage failed and is to be tried again, not before so many seconds if they are named."""

    def __init__(self, reason: str, retry_after: Any = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


@dataclass(frozen=True)
class StagePlace:
    """Where in the lowered flow a stage stands: the whole pipeline, or a branch of it."""

    pipeline: Pipeline
    enter: Mapping[str, str]
    """For each node that can be gone to from here, what is chosen for that."""
    depth: int = 0
    """How many flows lie between it and its pipeline."""
    is_top: bool = True
    """True if what fails for good here fails the run."""
    last: str = END
    """What is chosen when this part is over."""
    meets_at: str = ""
    """The node where a branch ends."""
    head: str = ""
    """The node with which a branch or an inner pipeline begins."""

    @property
    def is_branch(self) -> bool:
        return self.depth > 0


class StageRunner:
    """The function of a node: called with the context of its step, returns what comes next."""

    def __init__(
        self, place: StagePlace, spec: StageSpec, handler: Handler | None, *, backend: Mapping[str, Any]
    ) -> None:
        self.place = place
        self.spec = spec
        self.handler = handler
        self._backend = backend
        self.__name__ = spec.name

    @property
    def is_async(self) -> bool:
        """True if it has to be awaited: so is its handler, or it has a time limit."""
        call = getattr(self.handler, "__call__", self.handler)  # noqa: B004  # an object's own, to inspect
        return (
            self.spec.timeout is not None
            or inspect.iscoroutinefunction(self.handler)
            or inspect.iscoroutinefunction(call)
        )

    @property
    def is_judge(self) -> bool:
        """True if it does no work and only looks at what was done before it."""
        return self.handler is None and self.spec.kind in JUDGES

    @property
    def _limit(self) -> float | None:
        """Seconds until the handler is called off; more if it ends by itself and tells what it has."""
        limit = self.spec.timeout
        return limit + GRACE if limit is not None and getattr(self.handler, "keeps_time", False) else limit

    # -- calling ------------------------------------------------------------------------------------------

    def function(self) -> Callable[..., Any]:
        """Return what the flow calls."""
        if self.handler is not None and self.is_async:

            async def visit_async(ctx: Context) -> str:
                return await self._visit_async(ctx)

            return visit_async

        def visit(ctx: Context) -> str:
            return self._visit(ctx)

        return visit

    def _visit(self, ctx: Context) -> str:
        context = LayeredContext(ctx)
        stage, outcome = self._begin(ctx, context)
        if outcome is None:
            try:
                outcome = Outcome.of(self._call(stage, context), self.spec.id)
            except Exception as error:  # the handler's own; a stage that fails is no failed step
                outcome = _failed(error)
        return self._end(ctx, context, stage, outcome)

    async def _visit_async(self, ctx: Context) -> str:
        context = LayeredContext(ctx)
        stage, outcome = self._begin(ctx, context)
        if outcome is None:
            try:
                async with asyncio.timeout(self._limit):
                    outcome = Outcome.of(await self._call_async(stage), self.spec.id)
            except TimeoutError as error:
                seconds = f"{self.spec.timeout:g} s" if self.spec.timeout is not None else ""
                reason = f"{self.spec.id} took longer than {seconds}." if seconds else str(error)
                outcome = Outcome.fail(reason or "it timed out.", type="TimeoutError")
            except Exception as error:  # as above
                outcome = _failed(error)
        return self._end(ctx, context, stage, outcome)

    def _call(self, stage: Stage, context: LayeredContext) -> Any:
        return None if self.handler is None else self.handler(stage)

    async def _call_async(self, stage: Stage) -> Any:
        assert self.handler is not None
        call = getattr(self.handler, "__call__", self.handler)  # noqa: B004  # an object's own, to inspect
        if inspect.iscoroutinefunction(self.handler) or inspect.iscoroutinefunction(call):
            return await self.handler(stage)  # type: ignore[misc]  # it is a coroutine
        returned = await on_own_thread(self.handler, stage)
        return await returned if inspect.isawaitable(returned) else returned

    # -- before and after ---------------------------------------------------------------------------------

    def _begin(self, ctx: Context, context: LayeredContext) -> tuple[Stage, Outcome | None]:
        """Return what the handler is given; an outcome if there is no need to call it."""
        spec, pipeline = self.spec, self.place.pipeline
        context.node = spec.id
        self._begin_layer(context)
        known = self._unrouted(context)
        if known is not None and context.here(layers.RESUMED) is not None:
            # A person said that the run begins here: it is done again.
            key, known = self._record_key(context), None
            context.channel.set(
                key, {k: v for k, v in context.channel.get(key).items() if k != layers.UNROUTED}
            )
        elif known is None:
            known = self._done_inside(context)
        is_resumed = self._is_resumed(ctx, context)
        edge = context.here(layers.EDGE) or {}
        came_by = edge if edge.get("to") == spec.id else {}
        told = fidelity.settle(
            came_by.get("fidelity", ""), spec.fidelity, pipeline.fidelity, is_resumed=is_resumed
        )
        goal = str(context.get("graph.goal", pipeline.goal))
        prompt = fill(spec.prompt, Variables(context, pipeline.variables, goal))
        size = len(prompt.encode(errors="surrogatepass"))
        wants_text = self.handler is not None
        stage = Stage(
            node=spec.id,
            kind=spec.kind,
            label=spec.label,
            prompt=prompt,
            goal=goal,
            attributes=spec.attributes,
            context=context,
            model=spec.model,
            choices=tuple(way.label for way in spec.ways if way.label),
            fidelity=told.mode,
            degraded_from=told.degraded_from,
            tell=lambda: self._preamble(told.mode, goal, context, ctx),
            thread_id=self._thread(came_by, context) if told.mode == "full" else "",
            timeout=spec.timeout,
            pipeline=pipeline.name,
            run_id=ctx.run_id,
            path=ctx.path,
            visit=self._visit_number(context),
            attempt=ctx.attempt,
            idempotency_key=ctx.idempotency_key,
            ctx=ctx,
        )
        if known is not None:
            return stage, known
        if wants_text and size > MOST_PROMPT:
            reason = (
                f"the prompt of {spec.id} has {size:,} bytes, more than {MOST_PROMPT:,}. "
                "Put the text into a file or an artifact and name that."
            )
            return stage, Outcome.fail(reason, retryable=False, type="PromptTooLarge")
        return stage, None

    def _unrouted(self, context: LayeredContext) -> Outcome | None:
        """Return how this very visit ended before its run failed because no edge led on: it is not repeated.

        What other stages did since then makes another visit of it.
        """
        if not self.place.is_top:
            return None
        record = context.channel.get(self._record_key(context)) or {}
        is_it = only_lacks_an_edge(record, context.visit, context.channel.get(layers.COUNT))
        return Outcome.kept(record) if is_it else None

    def _done_inside(self, context: LayeredContext) -> Outcome | None:
        """Return how it ended in a fork or an inner pipeline that failed its run and is gone through again.

        What succeeded there is passed once, with what it answered then.
        """
        if self.place.is_top or self.handler is None:
            return None
        record = context.channel.get(self._record_key(context)) or {}
        again = context.get(layers.AGAIN)
        is_it = is_done_inside(record, context.prefix, again, context.channel.get)
        return Outcome.kept(record) if is_it else None

    def _visit_number(self, context: LayeredContext) -> int:
        """Return which visit of the run to this node it is, over all visits to the flow around it."""
        if not context.prefix:
            return context.visit
        before = context.channel.get(self._record_key(context)) or {}
        return int(before.get("visit", 0)) + 1

    def _begin_layer(self, context: LayeredContext) -> None:
        """Forget what an earlier try left: a branch or an inner pipeline was begun anew before it ended."""
        if self.spec.id != self.place.head or self.spec.kind == "parallel":
            return
        edge = context.here(layers.EDGE)
        if context.here(layers.END) is not None or (edge is not None and edge.get("to") != self.spec.id):
            context.forget(context.prefix)

    def _is_resumed(self, ctx: Context, context: LayeredContext) -> bool:
        """True for the first stage that does work after a resume; one that does none passes it on."""
        is_resumed = ctx.is_resumed or context.here(layers.RESUMED) is not None
        if self.handler is not None or self.spec.kind == "exit":
            context.drop(layers.RESUMED)
        elif ctx.is_resumed:
            context.set(layers.RESUMED, True)
        return is_resumed

    def _preamble(self, mode: str, goal: str, context: LayeredContext, ctx: Context) -> str:
        if mode == "full":
            return ""
        found = [context.channel.get(key) for key in context.channel.keys(layers.STAGES)]
        history = sorted(found, key=lambda record: record["n"])
        return fidelity.preamble(mode, goal, history, context, ctx.run_id)

    def _thread(self, edge: Mapping[str, Any], context: LayeredContext) -> str:
        spec, variables = self.spec, self.place.pipeline.variables
        named = (
            spec.thread_id,
            edge.get("thread_id", ""),
            variables.get("thread_id", ""),
            *spec.classes[-1:],
        )
        return next((t for t in named if t), str(edge.get("from") or context.get("last_stage") or spec.id))

    def _end(self, ctx: Context, context: LayeredContext, stage: Stage, outcome: Outcome) -> str:
        """Take an outcome in and return what is chosen; raise to have the stage tried again."""
        wrong = self._wrong_with(context, outcome)
        if wrong:
            outcome = Outcome.fail(wrong, retryable=False, type="OutputError")
        outcome = self._settled(ctx, outcome)
        self._note(ctx, context, stage, outcome)
        return self._go_on(ctx, context, stage, outcome)

    def _wrong_with(self, context: LayeredContext, outcome: Outcome) -> str:
        """Return what keeps an outcome from being kept, or nothing."""
        wrong = layers.check_updates(outcome.context_updates, self.spec.id)
        if wrong or self.handler is None:
            return wrong
        try:
            context.check(outcome.context_updates)
            context.channel.check(self._record_key(context), outcome.but(context_updates={}).plain())
        except (BadRequest, ValueNotStorable) as error:
            return f"what {self.spec.id} returned cannot be kept: {error}"
        return ""

    def _settled(self, ctx: Context, outcome: Outcome) -> Outcome:
        """Return how the stage ended; raise `StageRetry` if it may be tried again and wants to be."""
        status = outcome.status
        if status not in (StageStatus.FAIL, StageStatus.RETRY):
            return outcome
        retryable = outcome.error.retryable if outcome.error is not None else None
        reason = outcome.failure_reason or outcome.notes or f"{self.spec.id} ended with {status.value}"
        if ctx.attempt <= self.spec.retry.times and (retryable is not False or status is StageStatus.RETRY):
            details = outcome.error.details if outcome.error is not None else {}
            self._keep_attempt(ctx, outcome.but(failure_reason=reason))
            raise StageRetry(reason, details.get("retry_after")) from outcome.cause
        if self.spec.allow_partial:
            return outcome.but(status=StageStatus.PARTIAL, notes=outcome.notes or reason)
        if status is StageStatus.RETRY:
            return outcome.but(status=StageStatus.FAIL, failure_reason=reason)
        return outcome if outcome.failure_reason else outcome.but(failure_reason=reason)

    def _note(self, ctx: Context, context: LayeredContext, stage: Stage, outcome: Outcome) -> None:
        """Write what every stage leaves in the context."""
        spec = self.spec
        for key, value in outcome.context_updates.items():
            context.set(key, value)
        context.set("outcome", outcome.status.value)
        context.set("preferred_label", outcome.preferred_label)
        context.set("current_node", spec.id)
        if self.handler is not None:
            context.set("last_stage", spec.id)
            if outcome.response is not None:
                context.set("last_response", outcome.response)
        if spec.is_gate:
            home = context.at(layers.outer(context.prefix, self.place.depth))
            home.set(layers.GATES + spec.id, outcome.status.value)
            if layers.is_satisfied(outcome.status, is_strict=self.place.pipeline.is_strict):
                home.drop(layers.MISSED + spec.id)
        if outcome.status.is_good:
            context.drop(layers.REDIRECTS + spec.id)

    def _go_on(self, ctx: Context, context: LayeredContext, stage: Stage, outcome: Outcome) -> str:
        """Choose what comes next, and keep the choice with its reason."""
        way, reason = self._way(context, outcome)
        if way is None and not self.spec.ways and outcome.status is not StageStatus.FAIL:
            return self._finish(ctx, context, stage, outcome)
        if way is None:
            return self._give_up(ctx, context, stage, outcome)
        if way.restarts:
            context.restart()
        return self._take(ctx, context, stage, outcome, way, reason)

    def _way(self, context: LayeredContext, outcome: Outcome) -> tuple[Way | None, str]:
        place, spec = self.place, self.spec
        open_ways = [way for way in spec.ways if way.target in place.enter]
        by_specificity = place.pipeline.dialect is Dialect.ROUND
        lookup, judges = lookup_of(outcome, context), spec.kind == "conditional"
        chosen = choose(open_ways, outcome, lookup, by_specificity=by_specificity, judges=judges)
        if chosen is not None:
            return chosen.way, chosen.reason
        if outcome.status is StageStatus.FAIL or spec.ways:
            return self._return(context)
        return None, ""

    def _return(self, context: LayeredContext) -> tuple[Way | None, str]:
        """Go back to where a failure is to be fixed, so often in a row as is allowed."""
        spec, key = self.spec, layers.REDIRECTS + self.spec.id
        target = next((t for t in spec.returns if t in self.place.enter), None)
        count = context.get(key, 0)
        if target is None or count >= spec.max_redirects:
            return None, ""
        context.set(key, count + 1)
        return Way(target), "retry_target"

    def _take(
        self, ctx: Context, context: LayeredContext, stage: Stage, outcome: Outcome, way: Way, reason: str
    ) -> str:
        spec, chosen = self.spec, self.place.enter[way.target]
        edge = {"from": spec.id, "to": way.target, "reason": reason, "label": way.label}
        if way.condition is not None:
            edge["condition"] = way.condition.text
        if outcome.status is StageStatus.FAIL:
            edge["after"] = "fail"
        self._keep(ctx, context, stage, outcome, edge)
        before = context.here(layers.EDGE) or {}
        if outcome.status is StageStatus.FAIL and self.is_judge and before.get("to") == spec.id:
            edge["failed"] = before.get("failed", before["from"])
        edge |= {k: v for k, v in (("fidelity", way.fidelity), ("thread_id", way.thread_id)) if v}
        context.set(layers.EDGE, edge)
        if chosen == self.place.last and self.place.is_branch:
            self._end_branch(context, outcome)
        return chosen

    def _finish(self, ctx: Context, context: LayeredContext, stage: Stage, outcome: Outcome) -> str:
        """End this part of the pipeline here."""
        self._keep(ctx, context, stage, outcome, None)
        return self._leave(context, outcome)

    def _leave(self, context: LayeredContext, outcome: Outcome) -> str:
        """Say how this part of the pipeline ended, and return what ends it."""
        if self.place.is_branch:
            self._end_branch(context, outcome)
        else:
            context.set(layers.END, self._ended(outcome))
        return self.place.last

    def _give_up(self, ctx: Context, context: LayeredContext, stage: Stage, outcome: Outcome) -> str:
        """Nothing leads on from here: the run fails, or the branch or the inner pipeline does."""
        spec = self.spec
        has_failed = outcome.status is StageStatus.FAIL
        self._keep(ctx, context, stage, outcome, None)
        if not self.place.is_top:
            reason = f"no edge leads on from {spec.id} after {outcome.status.value}"
            reason = outcome.failure_reason or reason if has_failed else reason
            return self._leave(context, outcome.but(status=StageStatus.FAIL, failure_reason=reason))
        ctx.keeps_changes = True
        context.drop(layers.REDIRECTS + spec.id)  # a resume may send the run back as often as before
        if not has_failed:
            raise self._no_edge(context, outcome)
        why = outcome.failure_reason.rstrip(".")
        raise PipelineFailed(
            f"stage {spec.id!r} failed, and nothing leads on from there: {why}.",
            fix="Repair what failed and resume the run, or give the node an edge with "
            'condition="outcome=fail", or a retry_target.',
            stage=spec.id,
        ) from outcome.cause

    def _no_edge(self, context: LayeredContext, outcome: Outcome) -> NoEdgeHolds:
        """Keep that the stage is done and only its edge is to be chosen; return why its run fails."""
        key = self._record_key(context)
        context.channel.set(key, {**context.channel.get(key), layers.UNROUTED: context.visit})
        asked = [w.condition.text for w in self.spec.ways if w.condition is not None and w.condition.text]
        told = f": {'; '.join(asked[:3])}{'; …' if len(asked) > 3 else ''}" if asked else ""
        return NoEdgeHolds(
            f"stage {self.spec.id!r} ended with {outcome.status.value}, and none of its edges holds{told}.",
            fix="Its edge is chosen again, without calling it again, in a fork with another context, or in a "
            f"pipeline with one more edge and migrations=[accept({self.spec.name!r})]. To have it called "
            f"again, resume the run with start={self.spec.name!r}.",
            stage=self.spec.id,
        )

    def _ended(self, outcome: Outcome) -> dict[str, Any]:
        ended: dict[str, Any] = {"status": outcome.status.value, "node": self.spec.id}
        if outcome.status is StageStatus.FAIL:
            ended["failure_reason"] = outcome.failure_reason
        return ended

    def _end_branch(self, context: LayeredContext, outcome: Outcome) -> None:
        ended = self._ended(outcome)
        if outcome.notes:
            ended["notes"] = outcome.notes[:_KEPT_NOTES]
        score = outcome.metadata.get("score", context.get("score"))
        if isinstance(score, (int, float)):
            ended["score"] = score
        context.set(layers.END, ended)
        branch = unvisited(context.prefix).rstrip("/").rpartition("/")[2]
        context.at(layers.outer(context.prefix, 1)).add(layers.DONE, branch)

    def _keep(
        self,
        ctx: Context,
        context: LayeredContext,
        stage: Stage,
        outcome: Outcome,
        edge: Mapping[str, Any] | None,
    ) -> None:
        """Keep the record of this visit: what it was asked, how it ended, where it went."""
        key = self._record_key(context)
        if self._unrouted(context) is not None:
            # It was told when it ended that it did, and what it was asked: only the edge is new.
            record = {k: v for k, v in context.channel.get(key).items() if k != layers.UNROUTED}
        elif self._done_inside(context) is not None:
            record = {**context.channel.get(key), layers.PASSED: context.prefix}
            record.pop("edge", None)
        else:
            ctx.outcome = outcome.status.value
            record = {**self._record(context, outcome), **self._asked(context, stage)}
            if ctx.attempt > 1:
                record["retries"] = ctx.attempt - 1
                context.drop(layers.ATTEMPTS + self.spec.name)
        if edge is not None:
            record["edge"] = {k: v for k, v in edge.items() if v and k != "from"}
        context.channel.set(key, record)

    def _keep_attempt(self, ctx: Context, outcome: Outcome) -> None:
        """Keep how an attempt ended that is followed by another; nothing else comes of it."""
        context = LayeredContext(ctx)
        told = {"node": self.spec.id, "attempt": ctx.attempt, **outcome.plain()}
        context.set(layers.ATTEMPTS + self.spec.name, told)
        ctx.outcome = StageStatus.RETRY.value
        ctx.keeps_changes = True

    def _asked(self, context: LayeredContext, stage: Stage) -> dict[str, Any]:
        """Return what is kept of what the stage was asked."""
        if self.handler is None:
            return {}
        is_kept = 0 < len(stage.prompt.encode(errors="surrogatepass")) <= MOST_PROMPT
        told = {
            "prompt": stage.prompt if is_kept else "",
            "fidelity": stage.fidelity,
            "degraded_from": stage.degraded_from,
            "preamble": stage.told,
        }
        return {key: value for key, value in told.items() if value}

    def _inside(self, context: LayeredContext) -> str:
        """Return the prefix of the newest visit to the flow of the same name, which is the one it follows.

        That is not its own visit: a resume goes through the flow once more, for the visit that failed here.
        """
        return context.newest(f"{context.prefix}{self.spec.name}", context.visit)

    def _record_key(self, context: LayeredContext) -> str:
        return layers.STAGES + unvisited(context.prefix + self.spec.name)

    def _record(self, context: LayeredContext, outcome: Outcome) -> dict[str, Any]:
        """Return what is kept of every visit: the outcome, and the place of the stage among all."""
        number = context.channel.atomic_add(layers.COUNT)
        record: dict[str, Any] = {
            "node": self.spec.id,
            "kind": self.spec.kind,
            "n": number,
            **outcome.plain(),
        }
        if self.place.is_top or self.handler is None:
            record.pop("context_updates", None)  # they are in the context, and it is not passed again
        if context.prefix:
            record["visit"] = self._visit_number(context)
        return record


def only_lacks_an_edge(record: Mapping[str, Any], visit: int, count: Any) -> bool:
    """True if this visit to a stage did its work, no edge led on, and no stage has ended since."""
    return record.get(layers.UNROUTED) == visit and record.get("n") == count


def is_done_inside(
    record: Mapping[str, Any], prefix: str, again: str | None, read_key: Callable[[str], Any]
) -> bool:
    """True if a stage succeeded inside a fork or an inner pipeline that a resume goes through again.

    A visit to the same stage in the same round after it was passed is another one.
    """
    around = unvisited(prefix)
    if not again or not around.startswith(f"{again}/"):
        return False
    status = StageStatus.read(str(record.get("status", "")))
    if status is None or not status.is_good or record.get(layers.PASSED) == prefix:
        return False
    since, until = (read_key(layers.STAGES + again) or {}).get(layers.INSIDE, (0, 0))
    return bool(since < record["n"] < until)


class Variables(Mapping[str, Any]):
    """What `$name` in a prompt stands for."""

    def __init__(self, context: Mapping[str, Any], graph: Mapping[str, str], goal: str) -> None:
        self._context, self._graph, self._goal = context, graph, goal

    def __getitem__(self, name: str) -> Any:
        if name == "goal":
            return self._goal
        if name in self._context:
            return self._context[name]
        if name.startswith("context."):
            return self._context[name.removeprefix("context.")]
        return self._graph[name.removeprefix("graph.")]

    def __iter__(self) -> Any:
        return iter(self._context)

    def __len__(self) -> int:
        return len(self._context)


def lookup_of(outcome: Outcome, context: Mapping[str, Any]) -> Callable[[str], Any]:
    """Return what conditions find: a key of the outcome, else of the context; `context.key` only there."""
    fields = {
        "outcome": outcome.status.value,
        "status": outcome.status.value,
        "preferred_label": outcome.preferred_label,
        "notes": outcome.notes,
        "failure_reason": outcome.failure_reason,
        "response": outcome.response,
        **{f"metadata.{key}": value for key, value in outcome.metadata.items()},
    }

    def lookup(key: str) -> Any:
        bare = key.removeprefix("outcome.") if key != "outcome" else key
        if key in fields:
            return fields[key] if fields[key] is not None else MISSING
        if bare in fields:
            return fields[bare]
        if key.startswith("context."):
            key = key.removeprefix("context.")
        try:
            return context[key]
        except KeyError:
            return MISSING

    return lookup


def _failed(error: Exception) -> Outcome:
    if isinstance(error, RunCancelled):
        raise error
    message = str(error) or type(error).__name__
    retryable = False if isinstance(error, OutputError) else getattr(error, "retryable", None)
    details = StageError(
        type=type(error).__name__,
        message=message,
        retryable=retryable if isinstance(retryable, bool) else None,
    )
    return Outcome(
        status=StageStatus.FAIL,
        failure_reason=f"{type(error).__name__}: {message}",
        error=details,
        cause=error,
    )
