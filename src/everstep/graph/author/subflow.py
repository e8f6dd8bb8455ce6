"""A flow as one node of another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from everstep.errors import BadRequest, FlowError, close_matches
from everstep.graph.author.channel import RESULT_SUFFIX
from everstep.graph.author.node import Node, Param, undo_node
from everstep.graph.check.hints import UNKNOWN
from everstep.graph.compile.plan import Plan


class Subflow(Node):
    """A flow in the place of a node: its inputs are the flow's, its outputs what the flow's nodes write.

    Nested, its steps are recorded one by one and a resume goes on inside. Atomic, it is one step: nothing of
    it is kept but what is lifted, and a crash inside runs it again from its beginning.
    """

    flow: Any = None
    """The flow that it was made from; none if the plan was read from a store."""

    def __init__(
        self,
        plan: Plan,
        *,
        name: str,
        inputs: Iterable[tuple[str, bool, Any]],
        is_atomic: bool,
        select: Iterable[str] | None,
    ) -> None:
        super().__init__(_cannot_be_called, name=name)
        self.inner = plan
        self.is_atomic = is_atomic
        self._weigh()
        self.params = tuple(Param(n, n, required, hint) for n, required, hint in inputs)
        self.returns = UNKNOWN
        self.inner_outputs = tuple(plan.writers)
        # What a node without outputs returned stays inside: nodes around may have the same name.
        self.outputs = tuple(o for o in plan.writers if not o.endswith(RESULT_SUFFIX))
        self.exports = {o: o for o in self.outputs}
        chosen = self.inner_outputs if select is None else tuple(select)
        self.selected = frozenset(self._known(chosen, "select"))

    def _weigh(self) -> None:
        super()._weigh()
        if self.is_atomic:
            # It is one step: an effect anywhere inside makes it one effect, and what is not to be made a
            # second time is written with it.
            assert isinstance(self.inner, Plan)
            self.is_effectful = self.acts_in_call = self.inner.has_effects
            self.is_kept_at_once = self.inner.has_kept_at_once

    def _be_undone_by(self, undo: Any) -> None:
        """Take what undoes a visit to it."""
        self.undo = undo_node(undo, self.name)

    def _with_flow(self, flow: Any) -> Self:
        """Return the node with its flow as a flow around it declares it."""
        twin = self._copy(flow=flow, inner=flow.plan)
        twin._weigh()
        return twin

    @property
    def selects_unlifted(self) -> frozenset[str]:
        """What it was told to show in results and does not lift; none if it was told nothing."""
        if self.selected == set(self.inner_outputs):
            return frozenset()
        return self.selected - self.exports.keys()

    def lift(self, *names: str, required: bool = True) -> Self:
        """Return the node giving only these outputs to the flow around it.

        A visit that ends without one of them fails, unless they are not `required`.
        """
        known = self._known(names, "lift")
        exports = {inner: self.exports.get(inner, inner) for inner in known}
        return self._copy(exports=exports, outputs=tuple(exports.values()), must_lift=required)

    def _renamed(self, outputs: tuple[str, ...]) -> Self:
        return self._copy(outputs=outputs, exports=dict(zip(self.exports, outputs, strict=True)))

    def _known(self, names: Iterable[str], what: str) -> tuple[str, ...]:
        listed = (names,) if isinstance(names, str) else tuple(names)
        for name in listed:
            if name not in self.inner_outputs:
                close = close_matches(name, self.inner_outputs, n=1)
                fix = f"Did you mean {close[0]!r}?" if close else f"It writes {list(self.inner_outputs)}."
                raise BadRequest(f"{what}: no node of flow {self.name!r} writes {name!r}.", fix=fix)
        return tuple(dict.fromkeys(listed))

    def describe(self) -> dict[str, Any]:
        assert isinstance(self.inner, Plan)
        return {
            **super().describe(),
            "flow": self.inner.shape,
            "atomic": self.is_atomic,
            "exports": dict(self.exports),
            "select": sorted(self.selected),
            "must_lift": self.must_lift,
        }


def _cannot_be_called() -> None:
    raise FlowError(
        "a flow used as a node cannot be called.", fix="Run the flow itself: host.run(flow, ...)."
    )
