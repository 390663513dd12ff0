"""`profile-sd3 mcp`: programs ask about runs, over the Model Context Protocol."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from profiler.cli.subcommands import Subcommand, arg, cli_options
from profiler.errors import ProfilerError, needing


@cli_options
class McpOptions:
    """Options of `profile-sd3 mcp`."""

    folder: Path = arg(
        "FOLDER  Where the bundles are; nothing else is read.", default=Path("traces")
    )


def mcp(options: McpOptions) -> None:
    """Answer programs about the runs of a folder, over MCP.

    Read-only, on stdin and stdout: list runs, their summaries and findings, tables, SQL with the
    limits of `query`, and the difference of two runs.
    """
    from profiler.cli.commands.query import Questions
    from profiler.trace.version import __version__

    with needing("mcp", "mcp", "mcp", "duckdb"):
        import duckdb  # noqa: F401
        from mcp.server import MCPServer
        from mcp.types import ToolAnnotations

    asked = Questions(options.folder)
    server = MCPServer("profile-sd3", version=__version__, log_level="ERROR")
    read_only = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    tools: tuple[Callable[..., Any], ...] = (
        *(asked.list_runs, asked.summary, asked.findings),
        *(asked.tables, asked.sql, asked.diff),
    )
    for tool in tools:
        server.tool(annotations=read_only)(_told(tool))
    server.run("stdio")


def _told(tool: Callable[..., Any]) -> Callable[..., Any]:
    """`tool`, whose errors are sentences for whoever asked."""
    from mcp.server.mcpserver.exceptions import ToolError

    @wraps(tool)
    def answered(*args: Any, **named: Any) -> Any:
        try:
            return tool(*args, **named)
        except ProfilerError as error:
            raise ToolError(str(error)) from None

    return answered


SUBCOMMAND = Subcommand(mcp, place=130, advanced=True)
