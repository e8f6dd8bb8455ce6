"""What tests use of the agent frameworks: they take seconds to load, so only processes that need them do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agents import Agent as OpenAIAgent
from agents import (
    LocalShellTool,
    Model,
    ModelBehaviorError,
    RunConfig,
    SQLiteSession,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from agents import ModelResponse as OpenAIResponse
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from everstep.agents.openai import DurableRunner
from everstep.agents.pydantic_ai import EverstepDurability

__all__ = [
    "AbstractCapability",
    "Agent",
    "AgentInfo",
    "DeltaToolCall",
    "DurableRunner",
    "Dying",
    "EverstepDurability",
    "FunctionModel",
    "LocalShellTool",
    "ModelBehaviorError",
    "ModelMessage",
    "ModelRequest",
    "ModelResponse",
    "ModelStep",
    "OpenAIAgent",
    "RunConfig",
    "SQLiteSession",
    "Scripted",
    "ScriptedModel",
    "TextPart",
    "ToolCallPart",
    "UserPromptPart",
    "assistant_message",
    "function_call",
    "function_tool",
    "nothing",
    "set_tracing_disabled",
]


class Scripted(Model):
    """A model whose words follow from what it is told, as those of the other framework's `FunctionModel`."""

    def __init__(self, says: Callable[[list[Any]], list[Any]]) -> None:
        self.says = says
        self.asked = 0

    async def get_response(
        self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any
    ) -> OpenAIResponse:
        self.asked += 1
        items = [{"role": "user", "content": input}] if isinstance(input, str) else input
        return OpenAIResponse(
            output=self.says(items),
            usage=Usage(requests=1, input_tokens=3, output_tokens=2, total_tokens=5),
            response_id=None,
        )

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


class Dying(SQLiteSession):
    """A session whose process may end right after an item is added, before anything is recorded."""

    dies = False

    async def add_items(self, items: list[Any], *args: Any, **kwargs: Any) -> None:
        await super().add_items(items, *args, **kwargs)
        if self.dies:
            self.dies = False
            raise ConnectionError("the process is gone")


@function_tool
def nothing() -> str:
    return "nothing"
