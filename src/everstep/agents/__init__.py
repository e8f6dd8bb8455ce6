"""Agent frameworks: their model, tool and MCP calls as steps of the node that runs them.

`pydantic_ai` has a capability for agents of Pydantic AI, `openai` a runner for the OpenAI Agents SDK, and
`calls` what both need: which call is which. Read `calls` first. Nothing imports this room, and each module
loads the framework it is named after. May import what users do: errors, steps, waits, and their options.
"""
