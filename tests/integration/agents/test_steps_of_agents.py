"""What an agent's calls are to its node: steps with keys, and what cannot be one is refused."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
import tomllib
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from everstep import AsyncContext, Context, Flow, Host, Retry, current, node
from everstep.errors import BadRequest
from tests.architecture.sources import ROOT

if TYPE_CHECKING:
    from tests.integration.agents.frameworks import (
        AbstractCapability,
        Agent,
        AgentInfo,
        DeltaToolCall,
        DurableRunner,
        Dying,
        EverstepDurability,
        FunctionModel,
        LocalShellTool,
        ModelBehaviorError,
        ModelMessage,
        ModelRequest,
        ModelResponse,
        ModelStep,
        OpenAIAgent,
        RunConfig,
        Scripted,
        ScriptedModel,
        SQLiteSession,
        TextPart,
        ToolCallPart,
        UserPromptPart,
        assistant_message,
        function_call,
        function_tool,
        nothing,
        set_tracing_disabled,
    )

pytestmark = pytest.mark.stores("sqlite")


@pytest.fixture(autouse=True, scope="module")
def frameworks() -> None:
    """Load the frameworks where these tests run: every process of a test run imports this module."""
    globals().update(vars(import_module("tests.integration.agents.frameworks")))


@pytest.fixture(autouse=True)
def no_tracing() -> None:
    set_tracing_disabled(True)


def turns_of(messages: list[ModelMessage]) -> int:
    return sum(isinstance(message, ModelResponse) for message in messages)


def question_of(messages: list[ModelMessage]) -> str:
    assert isinstance(messages[0], ModelRequest)
    assert isinstance(messages[0].parts[0], UserPromptPart)
    return str(messages[0].parts[0].content)


def calls_twice_with_one_id(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if (turns := turns_of(messages)) < 2:
        return ModelResponse(parts=[ToolCallPart("look", {"n": turns}, tool_call_id="same")])
    said = [part.content for message in messages for part in message.parts if part.part_kind == "tool-return"]
    return ModelResponse(parts=[TextPart(f"{question_of(messages)} {said}")])


def looking(made: list[int], **options: Any) -> Agent[None, str]:
    agent = Agent(
        FunctionModel(calls_twice_with_one_id), name="a/b", capabilities=[EverstepDurability(**options)]
    )

    @agent.tool_plain
    def look(n: int) -> str:
        made.append(n)
        return f"saw {n}"

    return agent


def paths_of(host: Host, run_id: str) -> list[str]:
    return [step.path for checkpoint in host.history(run_id) for step in checkpoint.steps]


def test_tool_call_with_an_id_that_a_model_uses_again_is_another_call(host: Host) -> None:
    made: list[int] = []

    @node(output="said")
    async def ask() -> str:
        return (await looking(made).run("so")).output

    result = host.run(Flow("f", [ask]), run_id="A")
    assert result["said"] == "so ['saw 0', 'saw 1']"
    assert made == [0, 1]
    assert len([path for path in paths_of(host, "A") if "$a_b.look=" in path]) == 2


def test_runs_of_one_agent_at_the_same_time_keep_their_calls_apart(host: Host) -> None:
    made: list[int] = []
    agent = looking(made)

    @node(output="said", retry=1)
    async def ask(ctx: Context) -> list[str]:
        found = await asyncio.gather(*(agent.run(f"q{n}") for n in range(5)))
        if ctx.attempt == 1:
            raise ConnectionError
        return [result.output for result in found]

    result = host.run(Flow("f", [ask]))
    assert result["said"] == [f"q{n} ['saw 0', 'saw 1']" for n in range(5)]
    assert sorted(made) == [0] * 5 + [1] * 5


def test_agent_outside_a_node_and_inside_a_step_is_as_it_was(host: Host) -> None:
    made: list[int] = []
    agent = looking(made)
    assert asyncio.run(agent.run("so")).output == "so ['saw 0', 'saw 1']"

    async def inside() -> str:
        return (await agent.run("in")).output

    @node(output="said")
    async def ask(ctx: Context) -> str:
        return await ctx.step("all", inside)

    assert host.run(Flow("f", [ask]), run_id="A")["said"] == "in ['saw 0', 'saw 1']"
    assert [path for path in paths_of(host, "A") if "$" in path] == ["ask/$all"]


def test_tool_options_come_with_its_metadata_and_unknown_ones_are_named(host: Host) -> None:
    made: list[str] = []

    def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turns = turns_of(messages)
        return ModelResponse(parts=[TextPart("over") if turns else ToolCallPart(question_of(messages), {})])

    agent = Agent(FunctionModel(script), name="a", capabilities=[EverstepDurability()])

    @agent.tool_plain(metadata={"everstep": {"retry": 2}})
    def flaky() -> str:
        made.append("flaky")
        if len(made) < 3:
            raise ConnectionError
        return "there"

    async def mine() -> str:
        return "mine"

    @agent.tool_plain(metadata={"everstep": False})
    async def plain() -> str:
        return await current().step("own", mine)

    @agent.tool_plain(metadata={"everstep": {"retries": 2}})
    def odd() -> str:
        return ""

    @node(output="said")
    async def ask(tool: str) -> str:
        return (await agent.run(tool)).output

    flow = Flow("f", [ask])
    assert host.run(flow, {"tool": "flaky"})["said"] == "over"
    assert made == ["flaky"] * 3
    assert host.run(flow, {"tool": "plain"}, run_id="P")["said"] == "over"
    assert "ask/$own" in paths_of(host, "P")
    assert "['retries']" in str(host.run(flow, {"tool": "odd"}).error)


def test_other_question_in_a_later_life_is_said(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    agent = looking([])

    @node(output="said", retry=1)
    async def ask(ctx: Context) -> str:
        await agent.run(f"attempt {ctx.attempt}")
        if ctx.attempt == 1:
            raise ConnectionError
        return "over"

    with caplog.at_level(logging.WARNING, "everstep"):
        host.run(Flow("f", [ask]))
    assert "is recorded with other arguments" in caplog.text


@pytest.mark.parametrize("made", ["EverstepDurability", "DurableRunner"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": {"retri": 3}}, "model is {'retri': 3}. Give a dict with any of retry, timeout"),
        ({"tools": 5}, "tools is 5. Give a dict"),
        ({"model": {"timeout": "soon"}}, "the timeout of a step is 'soon', which is no span of time"),
        ({"timeout": "soon"}, "timeout is 'soon', which is no span of time"),
    ],
)
def test_options_that_no_step_has_are_refused_where_they_are_given(
    made: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        globals()[made](**options)
    assert said in str(refused.value)


def test_tool_that_acts_here_and_is_no_function_is_refused(host: Host) -> None:
    shell = LocalShellTool(executor=lambda request: "")
    agent = OpenAIAgent[Any](name="a", model=ScriptedModel([[assistant_message("x")]]), tools=[shell])

    @node(output="said")
    async def ask() -> str:
        return str((await DurableRunner().run(agent, "so")).final_output)

    result = host.run(Flow("f", [ask]))
    assert "is no function tool" in str(result.error)


def test_models_of_a_run_configuration_are_durable_too(host: Host) -> None:
    model = ScriptedModel([[function_call("nothing", {}, call_id="c")], [assistant_message("x")]])
    agent = OpenAIAgent[Any](name="a", tools=[nothing])

    @node(output="said", retry=1)
    async def ask(ctx: Context) -> str:
        result = await DurableRunner().run(agent, "so", run_config=RunConfig(model=model))
        if ctx.attempt == 1:
            raise ConnectionError
        return str(result.final_output)

    assert host.run(Flow("f", [ask]))["said"] == "x"
    assert len(model.calls) == 2


def test_failed_model_call_is_made_again_by_the_next_attempt(host: Host) -> None:
    model = ScriptedModel([ModelStep.raise_error(ModelBehaviorError("no")), [assistant_message("x")]])
    agent = OpenAIAgent[Any](name="a", model=model)

    @node(output="said", retry=1)
    async def ask() -> str:
        return str((await DurableRunner().run(agent, "so")).final_output)

    assert host.run(Flow("f", [ask]))["said"] == "x"


def test_approvals_outside_a_node_are_refused() -> None:
    agent = OpenAIAgent[Any](name="a", model=ScriptedModel([[assistant_message("x")]]))

    async def outside() -> None:
        runner = DurableRunner()
        result = await runner.run(agent, "so")
        assert result.final_output == "x"
        await runner.approvals(result)

    with pytest.raises(Exception, match="approvals are waited for in nodes"):
        asyncio.run(outside())


class Asked:
    """An agent of either framework that deletes what it is asked to, once that is approved, and says so."""

    def __init__(self, framework: str) -> None:
        self.deleted: list[int] = []
        self.asked = 0
        self.make = self._pydantic if framework == "pydantic" else self._openai

    def _delete(self, n: int) -> str:
        self.deleted.append(n)
        return f"deleted {n}"

    def _pydantic(self, name: str = "a") -> Callable[[str], Any]:
        def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            self.asked += 1
            if turns_of(messages):
                last = messages[-1].parts[-1]
                return ModelResponse(parts=[TextPart(f"{question_of(messages)}: {last.content}")])  # type: ignore[union-attr]
            return ModelResponse(parts=[ToolCallPart("delete", {"n": int(question_of(messages))}, "c")])

        agent = Agent(FunctionModel(script), name=name, capabilities=[EverstepDurability()])
        agent.tool_plain(name="delete", requires_approval=True)(self._delete)

        async def ask(question: str) -> Any:
            return (await agent.run(question)).output

        return ask

    def _openai(self, name: str = "a") -> Callable[[str], Any]:
        def says(items: list[Any]) -> list[Any]:
            self.asked += 1
            question = items[0]["content"]
            if "output" in items[-1]:
                return [assistant_message(f"{question}: {items[-1]['output']}")]
            return [function_call("delete", {"n": int(question)}, call_id="c")]

        tool = function_tool(self._delete, name_override="delete", needs_approval=True)
        agent = OpenAIAgent[Any](name=name, model=Scripted(says), tools=[tool])

        async def ask(question: str) -> Any:
            return (await DurableRunner().run(agent, question)).final_output

        return ask


async def search(question: str, is_slow: bool) -> str:
    await asyncio.sleep(0.02 if is_slow else 0)
    return question


@pytest.mark.parametrize("framework", ["pydantic", "openai"])
def test_runs_that_come_in_another_order_keep_their_calls_and_their_approvals(
    host: Host, framework: str
) -> None:
    """The first is behind the second as long as its search is not recorded, and before it once it is."""
    asked = Asked(framework)
    agent = asked.make()

    @node(output="said", halts=True)
    async def ask(ctx: AsyncContext) -> list[str]:
        async def one(question: str, is_slow: bool) -> str:
            found = await ctx.step("search", search, question, is_slow, key=question)
            return str(await agent(found))

        return list(await asyncio.gather(one("1", True), one("2", False)))

    flow = Flow("f", [ask])
    seen: list[int] = []
    while host.run(flow, run_id="A").status == "halted":
        (wait,) = host.waits("A")
        seen.append(wait.context["arguments"]["n"])
        host.answer(wait.id, {"approved": seen[-1] == 2, "comment": f"not {seen[-1]}"})
    assert sorted(seen) == [1, 2]
    assert asked.deleted == [2]
    assert host.run(flow, run_id="A")["said"] == ["1: not 1", "2: deleted 2"]
    assert asked.asked == 4


@pytest.mark.parametrize("framework", ["pydantic", "openai"])
def test_agent_that_is_renamed_calls_nothing_again_and_that_is_said(
    host: Host, framework: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Asked(framework)
    names = ["before", "after"]

    @node(output="said", halts=True)
    async def ask() -> str:
        return str(await asked.make(names[0])("1"))

    flow = Flow("f", [ask])
    assert host.run(flow, run_id="A").status == "halted"
    host.answer(host.waits("A")[0].id, {"approved": True})
    names.pop(0)
    with caplog.at_level(logging.WARNING, "everstep"):
        assert host.run(flow, run_id="A")["said"] == "1: deleted 1"
    assert asked.asked == 2
    assert "agent 'before' of node 'ask' is another than when its run began: its name changed" in caplog.text
    assert not [path for path in paths_of(host, "A") if "after." in path]


@pytest.mark.parametrize("framework", ["pydantic_ai", "agents"])
def test_framework_that_is_missing_or_old_is_named_with_its_extra(
    framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = {"pydantic_ai": "everstep.agents.pydantic_ai", "agents": "everstep.agents.openai"}[framework]
    extra = {"pydantic_ai": "pydantic-ai", "agents": "openai-agents"}[framework]
    for name in [ours, "everstep.agents.openai_parts"]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, framework, None)
    with pytest.raises(BadRequest, match=rf"this needs .* or newer\. .*everstep\[{extra}\]"):
        importlib.import_module(ours)
    monkeypatch.setitem(sys.modules, framework, ModuleType(framework))
    with pytest.raises(BadRequest, match=rf"what is installed is older .*everstep\[{extra}\]"):
        importlib.import_module(ours)


def test_pydantic_ai_that_would_not_be_durable_is_refused_with_the_version_that_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those before the oldest that is asked for have all names, and give each life another id of the run."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (wanted,) = project["optional-dependencies"]["pydantic-ai"]
    oldest = wanted.partition(">=")[2]
    monkeypatch.delattr(AbstractCapability, "get_default_run_id")
    monkeypatch.delitem(sys.modules, "everstep.agents.pydantic_ai")
    with pytest.raises(
        BadRequest, match=rf"needs Pydantic AI {oldest} or newer, and what is installed is older"
    ):
        importlib.import_module("everstep.agents.pydantic_ai")
    told = (ROOT / "docs/how-to/pydantic-ai-agents.md").read_text(encoding="utf-8")
    assert f"from Pydantic AI {oldest} on" in told


def test_events_of_tools_are_heard_once_in_whichever_order_they_end(host: Host) -> None:
    heard: list[tuple[str, str]] = []

    async def script(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if turns_of(messages):
            yield "over"
            return
        for index, (which, pause) in enumerate([("slow", 0.02), ("fast", 0)]):
            yield {index: DeltaToolCall("look", f'{{"pause": {pause}}}', tool_call_id=which)}

    async def hear(ctx: Any, events: Any) -> None:
        async for event in events:
            if event.event_kind == "function_tool_result":
                heard.append((event.event_kind, event.part.tool_call_id))
                if len(heard) == 2:
                    raise ConnectionError

    durability = EverstepDurability[None](event_stream_handler=hear)
    agent = Agent(FunctionModel(stream_function=script), name="a", capabilities=[durability])

    @agent.tool_plain
    async def look(pause: float) -> str:
        await asyncio.sleep(pause)
        return "seen"

    @node(output="said", retry=Retry(1, first=0))
    async def ask() -> str:
        return (await agent.run("so")).output

    assert host.run(Flow("f", [ask]))["said"] == "over"
    assert [which for _, which in heard] == ["fast", "slow", "slow"]


@pytest.mark.parametrize("framework", ["pydantic", "openai"])
def test_what_model_calls_cost_is_spent_once(host: Host, framework: str) -> None:
    def costs(usage: Any) -> dict[str, int]:
        return {"tokens": usage.total_tokens}

    def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart("over")])

    pydantic = Agent(FunctionModel(script), name="a", capabilities=[EverstepDurability[None](costs=costs)])
    openai = OpenAIAgent[Any](name="a", model=Scripted(lambda items: [assistant_message("over")]))

    @node(output="said", retry=Retry(1, first=0))
    async def ask(ctx: Context) -> str:
        if framework == "pydantic":
            result = await pydantic.run("so")
            said = result.output
        else:
            said = str((await DurableRunner(costs=costs).run(openai, "so")).final_output)
        if ctx.attempt == 1:
            raise ConnectionError
        return said

    result = host.run(Flow("f", [ask]))
    assert result["said"] == "over"
    assert result.guards.spent["tokens"] == (52 if framework == "pydantic" else 5)


def questions_in(items: list[Any]) -> list[str]:
    return [item["content"] for item in items if item.get("role") == "user"]


def test_items_that_were_added_before_a_crash_are_not_added_again(host: Host) -> None:
    session = Dying("talk")
    agent = OpenAIAgent[Any](name="a", model=Scripted(lambda items: [assistant_message("yes")]))

    @node(output="said", retry=Retry(1, first=0))
    async def ask(ctx: Context, dies: bool) -> list[Any]:
        session.dies = dies and ctx.attempt == 1
        await DurableRunner().run(agent, "again", session=session)
        return questions_in(await session.get_items())

    flow = Flow("f", [ask])
    assert host.run(flow, {"dies": True})["said"] == ["again"]
    assert host.run(flow, {"dies": False})["said"] == ["again"] * 2
    assert host.run(flow, {"dies": True})["said"] == ["again"] * 3


def test_item_like_the_newest_is_added_if_it_was_not(host: Host) -> None:
    session = SQLiteSession("talk")
    agent = OpenAIAgent[Any](name="a", model=Scripted(lambda items: [assistant_message("yes")]))
    asyncio.run(session.add_items([{"role": "user", "content": "again"}]))  # of a run that came to nothing
    reads = session.get_items
    fails = [True]

    @node(output="said", retry=Retry(1, first=0))
    async def ask() -> list[Any]:
        async def broken(*args: Any, **kwargs: Any) -> None:
            if fails and fails.pop():
                raise ConnectionError
            await SQLiteSession.add_items(session, *args, **kwargs)

        vars(session)["add_items"] = broken
        await DurableRunner().run(agent, "again", session=session)
        return questions_in(await reads())

    assert host.run(Flow("f", [ask]))["said"] == ["again"] * 2
