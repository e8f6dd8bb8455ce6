"""Which nodes of a flow can ever run."""

from __future__ import annotations

from everstep.graph.node import END, Gate
from everstep.graph.plan import Plan


def startable(plan: Plan) -> set[int]:
    """Return the nodes that some run may come to, whatever inputs it brings."""
    given = plan.free_inputs | plan.seeds
    missing = [len(names - given) for names in plan.required]
    called = [not (plan.is_target[i] or plan.is_led[i]) or i in plan.entry for i in range(len(plan.nodes))]
    """True once something leads there: a gate, an edge, a task, or nothing has to."""
    found: set[int] = set()
    todo = [i for i in range(len(plan.nodes)) if called[i] and not missing[i]]
    written = set(given)
    asked = not plan.tasks
    while todo:
        i = todo.pop()
        if i in found:
            continue
        found.add(i)
        n = plan.nodes[i]
        led = list(plan.follows.get(i, ()))
        if isinstance(n, Gate):
            led += [plan.index[t] for t in n.targets if t != END]
        if not asked and n.context_param is not None:
            asked = True
            led += plan.tasks
        for t in led:
            called[t] = True
        fresh = [o for o in n.outputs if o not in written]
        written.update(fresh)
        for output in fresh:
            for r in plan.needed_by.get(output, ()):
                missing[r] -= 1
                led.append(r)
        # Who asks for a task brings its arguments.
        todo += [t for t in led if called[t] and (not missing[t] or t in plan.tasks)]
    return found
