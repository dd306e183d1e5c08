"""`proctor mcp`"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.cli.exit_codes import Exit, end_process, find_signals, handle_signals
from proctor.cli.parser import add_flags, add_trust_flag, make_parser
from proctor.cli.stored import add_database_flags, use_hub
from proctor.errors import MissingExtra

if TYPE_CHECKING:
    from proctor.mcp_server.local_runs import LocalRuns
    from proctor.service.hub import Hub

LEAVING_S = 10.0


def run(arguments: list[str]) -> int:
    """Serve MCP until the client closes standard input; returns the exit code."""
    parser = make_parser(
        "mcp",
        "The MCP server on standard input and output, for a coding agent on this machine: write, validate and run suites, check evidence,\n"
        "author criteria and read results. Works on the workspace and its database; no service needs to run.\n\n"
        "Over HTTP the same server is at /mcp of `proctor serve`.",
        ["proctor mcp", "proctor mcp --home shop"],
    )
    add_flags(parser, "--organization")
    add_trust_flag(parser, "do what suites name that are sent as text, or that lie elsewhere")
    add_database_flags(parser)
    options = parser.parse_args(arguments)
    # Standard output belongs to the protocol.
    logging.basicConfig(stream=sys.stderr, level=os.environ.get("PROCTOR_LOG_LEVEL", "WARNING"))

    async def use(hub: Hub) -> None:
        try:
            from proctor.mcp_server.local_runs import LocalRuns  # an optional part, and slow to load
            from proctor.mcp_server.server import over_stdio
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in ("mcp", "mcp_types", "pydantic", "starlette"):
                raise
            raise MissingExtra("`proctor mcp`", "serve") from None
        from proctor.service.access.keys import get_organization_caller  # an optional part, and slow to load

        caller = await get_organization_caller(hub, options.organization)
        runs = LocalRuns(hub.settings.home, Path.cwd(), trust=options.trust)
        with _end_by_signals(hub, runs):
            await over_stdio(hub, caller, runs)

    use_hub(options, use)
    return Exit.PASSED


@contextlib.contextmanager
def _end_by_signals(hub: Hub, runs: LocalRuns) -> Generator[None]:
    """Stop on signals. Standard input is read by a thread that cannot be woken, so it is not awaited."""
    # The event loop references tasks weakly, so a list holds them.
    ending: list[asyncio.Task[None]] = []

    async def leave(code: int) -> None:
        try:
            # Whatever does not close in time is abandoned.
            async with asyncio.timeout(LEAVING_S):
                await runs.close()
                await hub.database.close()
        finally:
            end_process(code)

    def end(number: int) -> None:
        ending.append(asyncio.create_task(leave(Exit.INTERRUPTED if number == signal.SIGINT else Exit.PASSED)))

    with handle_signals(find_signals("SIGTERM", "SIGHUP", "SIGINT"), end):
        yield
