"""A node that is renamed while durable calls of it are recorded: they are kept, and so are their keys."""

from __future__ import annotations

import pytest

from everstep import Context, Flow, Host, migrate, node, wait

pytestmark = pytest.mark.stores("memory", "sqlite")


class Desk:
    """A flow whose node makes calls before and behind a wait."""

    def __init__(self) -> None:
        self.made: list[tuple[str, str]] = []

    def _call(self, what: str, idempotency_key: str) -> str:
        self.made.append((what, idempotency_key))
        return what.upper()

    def flow(self, name: str, *migrations: migrate.Migration) -> Flow:
        def body(question: str, ctx: Context) -> str:
            first = ctx.step("look", self._call, question)
            ok = ctx.wait(wait.approval("ok"))
            return f"{first} {ctx.step('more', self._call, 'more')} {ok.approved}"

        agent = node(name=name, output="answer", halts=True)(body)
        return Flow("desk", [agent], migrations=list(migrations))

    def run(self, host: Host, run_id: str, then: Flow) -> str:
        assert host.run(self.flow("agent"), {"question": "why"}, run_id=run_id).status == "halted"
        host.answer(host.waits(run_id)[0].id, {"approved": True})
        [planned] = host.explain(run_id, then).pending
        assert planned.calls == ("$look@1",)
        answer: str = host.resume(run_id, then)["answer"]
        return answer


def test_calls_of_a_renamed_node_are_not_made_again_and_keep_their_keys(host: Host) -> None:
    renamed, whole = Desk(), Desk()
    then = renamed.flow("clerk", migrate.rename_node("agent", "clerk"))
    assert renamed.run(host, "A1", then) == "WHY MORE True"
    assert all(found.is_sound for found in host.storage.verify("A1"))
    with Host("memory:") as plain:
        assert whole.run(plain, "A1", whole.flow("agent")) == "WHY MORE True"
    assert renamed.made == whole.made
    assert [what for what, _ in renamed.made] == ["why", "more"]
