"""An MCP server with one tool, which acts where it is seen: `python mcp_server.py URL KEY`."""

from __future__ import annotations

import sys

from tests.integration.agents.life import Place, act

try:
    from mcp.server import MCPServer
except ImportError:  # as it was called before version 2
    from mcp.server.fastmcp import FastMCP as MCPServer  # type: ignore[no-redef,attr-defined]

server = MCPServer("there")


@server.tool()
def fetch(n: int) -> str:
    """Fetch a thing by its number."""
    return act("fetch", n)


if __name__ == "__main__":
    Place.url, Place.pid = sys.argv[1], sys.argv[2]
    server.run()
