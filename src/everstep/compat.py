"""What the core has from front ends: `Flow.from_dot`, `flow.to_dot`, and whose the data of nodes is.

The core knows none of this. `everstep.registry` finds this module by its name, and without it flows are
built and run all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from everstep.graph.author.extension import EXTENSIONS
from everstep.graph.author.flow import Flow as CoreFlow

if TYPE_CHECKING:
    from everstep.frontends.pipelines.interviewers import Interviewer
    from everstep.frontends.pipelines.stage import Handler


class Flow(CoreFlow):
    """`everstep.Flow` as type checkers and editors see it; when a program runs, it is that of the core."""

    @classmethod
    def from_dot(
        cls,
        text: str | bytes,
        *,
        handlers: Mapping[str, Handler] | None = None,
        backend: Handler | None = None,
        tools: Handler | None = None,
        human: Interviewer | None = None,
        children: Mapping[str, str] | None = None,
        file: str = "",
        name: str | None = None,
        **options: Any,
    ) -> Self:
        """Return the flow of a pipeline written in DOT; each of its nodes becomes a node of that name.

        handlers  who does the work of nodes, by their id, their `type`, or their kind: functions of a `Stage`
        backend   who does that of all other task nodes; by default a simulation
        tools     what runs the commands of tool nodes, `backends.Tools()`; without it they are refused
        human     who answers for people; by default the run halts and asks
        children  texts of the pipelines and style sheets it names, by name; else they are read beside `file`
        file      where the text is from, for messages

        Any other option is one of a flow's; `durability` is "strong" unless told. A run takes an input
        `context` with what its context begins with.
        """
        from everstep.frontends.pipelines.building import Workers, build

        workers = Workers(handlers, backend, tools, human)
        return build(
            cls, text, file=file, workers=workers, children=children or {}, name=name, options=options
        )

    def to_dot(self) -> str:
        """Return the flow as a digraph: its steps by path, and what leads where.

        Of a flow that came from DOT it is the pipeline: `from_dot` makes the same one of it.
        """
        from everstep.frontends.pipelines.building import dot_of

        return dot_of(self)


EXTENSIONS.add("phase", "everstep.frontends.phases.progress:PROCESS", is_old_field=True)
EXTENSIONS.add_results("stages.", "everstep.client.exports.stage_records:result_keys")
for name in ("from_dot", "to_dot"):
    setattr(CoreFlow, name, vars(Flow)[name])
