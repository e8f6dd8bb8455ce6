"""The stages that do no work of their own: the ends of a pipeline, conditions, and where branches meet."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Any

from everstep.errors import PipelineFailed
from everstep.frontends.dot.judging import evaluate
from everstep.frontends.pipelines import layers
from everstep.frontends.pipelines.choice import Way
from everstep.frontends.pipelines.kinds import Dialect
from everstep.frontends.pipelines.layers import LayeredContext
from everstep.frontends.pipelines.outcome import Outcome, StageStatus
from everstep.frontends.pipelines.reading import Pipeline, StageSpec
from everstep.frontends.pipelines.stage import Stage
from everstep.frontends.pipelines.stages import JUDGES, StageRunner, lookup_of
from everstep.graph.author.context import Context
from everstep.model.address import unvisited

_RANKS = ("success", "partial_success", "retry", "skipped", "fail")


class StartRunner(StageRunner):
    """Puts what the run begins with into the context."""

    def function(self) -> Callable[..., Any]:
        if not self.place.is_top:
            return super().function()
        if self.handler is not None and self.is_async:

            async def begin_async(ctx: Context, context: dict[str, Any] | None = None) -> str:
                self._set_up(LayeredContext(ctx), context or {})
                return await self._visit_async(ctx)

            return begin_async

        def begin(ctx: Context, context: dict[str, Any] | None = None) -> str:
            self._set_up(LayeredContext(ctx), context or {})
            return self._visit(ctx)

        return begin

    def _begin_layer(self, context: LayeredContext) -> None:
        super()._begin_layer(context)
        if not self.place.is_top:
            self._set_up(context, {})

    def _set_up(self, context: LayeredContext, given: Mapping[str, Any]) -> None:
        if context.here(layers.GIVEN) is not None:
            return
        wrong = layers.check_updates(given, "the input")
        if wrong:
            raise PipelineFailed(wrong, fix="Give other names.")
        pipeline = self.place.pipeline
        graph = {"graph.name": pipeline.name, **({"graph.goal": pipeline.goal} if pipeline.goal else {})}
        if isinstance(given.get("goal"), str):
            graph["graph.goal"] = given["goal"]
        begins = {**graph, **given}
        for key, value in begins.items():
            context.set(key, value)
        for gate in pipeline.gates:
            context.set(layers.GATES + gate.id, layers.PENDING)
        if pipeline.gates and pipeline.is_strict:
            context.set(layers.STRICT, True)
        context.set(layers.GIVEN, begins)
        if self.place.is_top:
            context.set(layers.BACKEND, dict(self._backend))


class ConditionalRunner(StageRunner):
    """Looks at how the stage before it ended, and hands that on."""

    def _call(self, stage: Stage, context: LayeredContext) -> Any:
        if self.handler is not None:
            return super()._call(stage, context)
        status = StageStatus.read(context.get("outcome", "success")) or StageStatus.SUCCESS
        reason = ""
        if status is StageStatus.FAIL:
            came_by = context.here(layers.EDGE) or {}
            reason = f"{came_by.get('from', 'the stage before')} failed"
        return Outcome(
            status=status, preferred_label=str(context.get("preferred_label", "")), failure_reason=reason
        )


class ExitRunner(StageRunner):
    """Ends the pipeline, unless a goal gate is not satisfied: then it sends the run back."""

    def _go_on(self, ctx: Context, context: LayeredContext, stage: Stage, outcome: Outcome) -> str:
        if self.place.is_branch:
            self._keep(ctx, context, stage, outcome, None)
            return self._leave(context, self._branch_end(context, outcome))
        missed = missed_gates(self.place.pipeline, lambda key: context.here(key))
        if not missed:
            return self._finish(ctx, context, stage, outcome)
        gate, status = missed[0]
        key = layers.MISSED + gate.id
        count = context.get(key, 0)
        target = way_back(self.place.pipeline, gate, self.place.enter)
        if target is not None and count < gate.max_redirects:
            context.set(key, count + 1)
            waiting = outcome.but(status=StageStatus.RETRY, notes=f"goal gate {gate.id} is {status}")
            return self._take(ctx, context, stage, waiting, Way(target), "goal_gate")
        reason = f"the goal gate {gate.id!r} is {status}"
        if not self.place.is_top:
            return self._finish(ctx, context, stage, Outcome.fail(reason))
        self._keep(ctx, context, stage, Outcome.fail(reason), None)
        ctx.keeps_changes = True
        context.drop(key)  # a resume may send the run back as often as before
        why = f"after {count} more tries" if count else "and nothing leads back to it"
        raise PipelineFailed(
            f"the pipeline cannot end: {reason}, {why}.",
            fix="Repair what keeps it from succeeding and resume the run: it goes back to that gate.",
            stage=gate.id,
        )

    def _branch_end(self, context: LayeredContext, outcome: Outcome) -> Outcome:
        """Return how a branch ends that comes here: as one that comes to where branches meet by this edge."""
        edge = context.here(layers.EDGE) or {}
        if edge.get("to") != self.spec.id or edge.get("after") != "fail":
            return outcome
        return Outcome.fail(f"{edge.get('failed', edge['from'])} failed")


def missed_gates(pipeline: Pipeline, read: Callable[[str], Any]) -> list[tuple[StageSpec, str]]:
    """Return the goal gates that are not satisfied, each with how it stands.

    In the round dialect every gate must have succeeded, in the square one every gate that was visited.
    """
    found = []
    for gate in pipeline.gates:
        status = StageStatus.read(read(layers.GATES + gate.id))
        if status is None and not pipeline.is_strict:
            continue
        if not layers.is_satisfied(status, is_strict=pipeline.is_strict):
            found.append((gate, status.value if status is not None else "not reached"))
    return found


def way_back(pipeline: Pipeline, gate: StageSpec, enter: Mapping[str, str]) -> str | None:
    """Return where a run goes whose goal gate is not satisfied."""
    usual = (gate.id,) if pipeline.dialect is Dialect.ROUND else ()
    return next((target for target in (*gate.returns, *usual) if target in enter), None)


class FanInRunner(StageRunner):
    """Picks the best of the branches that meet here."""

    def _call(self, stage: Stage, context: LayeredContext) -> Any:
        return judged(context) if self.handler is None else super()._call(stage, context)


def judged(context: Mapping[str, Any]) -> Outcome:
    """Return the outcome of a fan-in: that of its best branch, by status, then score, then name."""
    results = context.get("parallel.results") or []
    if not results:
        return Outcome(notes="no branches met here")
    best = min(results, key=lambda r: (_rank(r), -float(r.get("score") or 0), r["branch"]))
    if best["status"] == StageStatus.FAIL or context.get("outcome") == StageStatus.FAIL:
        won = sum(result["status"] != StageStatus.FAIL for result in results)
        return Outcome.fail(f"only {won} of {len(results)} branches succeeded", retryable=False)
    updates = {"parallel.fan_in.best_id": best["branch"], "parallel.fan_in.best_outcome": best["status"]}
    return Outcome(context_updates=updates, notes=f"{best['branch']} is the best of {len(results)} branches")


def _rank(result: Mapping[str, Any]) -> int:
    return _RANKS.index(result["status"]) if result["status"] in _RANKS else len(_RANKS)


class _BehindRunner(StageRunner):
    """Behind a flow: what failed in it is tried again by going through it once more."""

    def _tries_left(self, context: LayeredContext, outcome: Outcome) -> int:
        if outcome.status is not StageStatus.FAIL:
            return 0
        return self.spec.retry.times - int(context.here(layers.TRIES + self.spec.id) or 0)

    def _settled(self, ctx: Context, outcome: Outcome) -> Outcome:
        if outcome.status is not StageStatus.FAIL or self._tries_left(LayeredContext(ctx), outcome) > 0:
            return outcome
        reason = outcome.failure_reason or f"{self.spec.id} failed"
        final = Outcome.fail(reason, retryable=False)
        return super()._settled(ctx, outcome.but(failure_reason=reason, error=final.error))

    def _way(self, context: LayeredContext, outcome: Outcome) -> tuple[Way | None, str]:
        key = layers.TRIES + self.spec.id
        if self._tries_left(context, outcome) > 0:
            context.set(key, (context.here(key) or 0) + 1)
            return Way(self.spec.id), "retry"
        context.drop(key)
        return self._way_on(context, outcome)

    def _way_on(self, context: LayeredContext, outcome: Outcome) -> tuple[Way | None, str]:
        return super()._way(context, outcome)

    def _keep(
        self,
        ctx: Context,
        context: LayeredContext,
        stage: Stage,
        outcome: Outcome,
        edge: Mapping[str, Any] | None,
    ) -> None:
        key = self._record_key(context)
        before = context.channel.get(key) or {}
        super()._keep(ctx, context, stage, outcome, edge)
        if not self.place.is_top:
            return
        is_again = context.here(layers.AGAIN) == unvisited(context.prefix + self.spec.name)
        if outcome.status is StageStatus.FAIL and self._failed_inside(context):
            record = context.channel.get(key)
            since = before[layers.INSIDE][0] if is_again and layers.INSIDE in before else before.get("n", 0)
            context.channel.set(key, {**record, layers.INSIDE: [since, record["n"]]})
        if is_again:
            context.drop(layers.AGAIN)

    def _failed_inside(self, context: LayeredContext) -> bool:
        """True if a stage inside is why it failed."""
        return True


class JoinRunner(_BehindRunner):
    """Behind a parallel node: gathers what its branches left, and goes on to where they meet."""

    def __init__(
        self, *args: Any, branches: Mapping[str, str], meets_at: str, need: int | None, **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self._branches = branches
        self.meets_at = meets_at
        self._need = need

    def _call(self, stage: Stage, context: LayeredContext) -> Any:
        home = self._inside(context)
        ended_in_order = context.at(home).here(layers.DONE) or []
        # One that was begun anew after it had ended is there twice: its last end counts.
        newest = reversed(dict.fromkeys(reversed(ended_in_order)))
        done = [name for name in newest if name in self._branches]
        results, updates = [], {}
        winners = 0
        for name in done:
            layer = context.at(f"{home}{name}/")
            ended = layer.here(layers.END) or {"status": "fail", "failure_reason": "it never ended"}
            left = {key: layer[key] for key in layer.own(layer.prefix) if key not in layers.OWN}
            is_good = ended["status"] in ("success", "partial_success")
            said = layer.here("last_response")
            answer = {} if said is None else {"response": said}
            results.append({"branch": self._branches[name], **ended, **answer, "context": left})
            if self._need is None or (is_good and winners < self._need):
                updates.update(left)
            winners += is_good
        context.forget(home)
        results.sort(key=lambda result: list(self._branches.values()).index(result["branch"]))
        updates["parallel.results"] = results
        return self._outcome(results, updates, winners)

    def _outcome(self, results: list[dict[str, Any]], updates: dict[str, Any], winners: int) -> Outcome:
        notes = f"{winners} of {len(self._branches)} branches succeeded"
        if self._need is not None:
            if winners >= self._need:
                return Outcome(context_updates=updates, notes=notes)
        elif winners == len(self._branches):
            return Outcome(context_updates=updates, notes=notes)
        elif winners:
            return Outcome(status=StageStatus.PARTIAL, context_updates=updates, notes=notes)
        reasons = "; ".join(f"{r['branch']}: {r.get('failure_reason', r['status'])}" for r in results)
        failed = Outcome.fail(f"{notes}: {reasons}", retryable=False)
        return failed.but(context_updates=updates)

    def _way_on(self, context: LayeredContext, outcome: Outcome) -> tuple[Way | None, str]:
        way, reason = super()._way_on(context, outcome)
        if way is not None and reason != "retry_target":
            return way, reason
        is_bad = outcome.status is StageStatus.FAIL
        leads_on = self.meets_at and self.meets_at in self.place.enter
        judges = leads_on and self.place.pipeline.kinds[self.meets_at] in JUDGES
        if leads_on and (not is_bad or (way is None and judges)):
            return Way(self.meets_at), "join"
        return way, reason


class ReturnRunner(_BehindRunner):
    """Behind an inner pipeline: takes what it left into the context, and lets it go round again."""

    def __init__(self, *args: Any, stop: Any = None, cycles: int = 1, **more: Any) -> None:
        super().__init__(*args, **more)
        self._stop = stop
        self._cycles = cycles

    def _call(self, stage: Stage, context: LayeredContext) -> Any:
        layer = context.at(self._inside(context))
        ended = layer.here(layers.END) or {"status": "success"}
        kept = [key for key in layer.own(layer.prefix) if key not in layers.OWN]
        left = {key: layer[key] for key in kept if not key.startswith("graph.")}
        context.forget(layer.prefix)
        status = StageStatus.read(ended["status"]) or StageStatus.SUCCESS
        return Outcome(
            status=status, context_updates=left, failure_reason=str(ended.get("failure_reason", ""))
        )

    def _settled(self, ctx: Context, outcome: Outcome) -> Outcome:
        """Count the round; one that was the last and did not meet the stop condition has failed."""
        context = LayeredContext(ctx)
        context.drop(self._unmet)
        if self._stop is not None and outcome.status is not StageStatus.FAIL:
            seen = ChainMap(dict(outcome.context_updates), context)  # type: ignore[arg-type]  # it is only read
            count = (context.here(self._rounds) or 0) + 1
            is_over = evaluate(self._stop, lookup_of(outcome, seen))
            is_last = count >= self._cycles
            context.set(self._rounds, 0 if is_over or is_last else count)
            if is_last and not is_over:
                context.set(self._unmet, True)
                reason = f"its stop_condition was not met in {count} rounds: {self._stop.text}"
                outcome = outcome.but(status=StageStatus.FAIL, failure_reason=reason)
        return super()._settled(ctx, outcome)

    def _failed_inside(self, context: LayeredContext) -> bool:
        return not context.here(self._unmet)  # then nothing failed: the next round is a whole one

    @property
    def _unmet(self) -> str:
        return f"{layers.INTERNAL}unmet.{self.spec.id}"

    @property
    def _rounds(self) -> str:
        return f"{layers.INTERNAL}cycles.{self.spec.id}"

    def _way_on(self, context: LayeredContext, outcome: Outcome) -> tuple[Way | None, str]:
        if outcome.status is not StageStatus.FAIL and context.here(self._rounds):
            return Way(self.spec.id), "stop_condition"
        context.drop(self._rounds)
        return super()._way_on(context, outcome)
