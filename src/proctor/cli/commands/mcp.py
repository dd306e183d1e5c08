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
from typing import TYPE_CHECKING, Any

from proctor.cli.exit_codes import Exit, end_process, find_signals, handle_signals
from proctor.cli.parser import add_flags, add_trust_flag, make_parser
from proctor.cli.stored import add_database_flags, open_hub, require_database
from proctor.mcp_server.stdio import over_stdio

if TYPE_CHECKING:
    from proctor.mcp_server.tool import Desk

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

    require_database("`proctor mcp`")
    asyncio.run(_serve(options))
    return Exit.PASSED


async def _serve(options: Any) -> None:
    opening, opened = asyncio.Lock(), list["Desk"]()

    async def open_desk() -> Desk:
        # With the first call: many clients list the tools and call none.
        async with opening:
            if not opened:
                opened.append(await _open_desk(options, ending))
            return opened[0]

    async with contextlib.AsyncExitStack() as ending:
        with _end_by_signals(ending):
            await over_stdio(open_desk)


async def _open_desk(options: Any, ending: contextlib.AsyncExitStack) -> Desk:
    from proctor.mcp_server.local_runs import LocalRuns  # these are optional parts, and slow to load
    from proctor.mcp_server.tool import Desk
    from proctor.service.access.keys import get_organization_caller

    async with contextlib.AsyncExitStack() as opened:
        hub = await opened.enter_async_context(open_hub(options))
        caller = await get_organization_caller(hub, options.organization)
        runs = LocalRuns(hub.settings.home, Path.cwd(), trust=options.trust)
        opened.push_async_callback(runs.close)
        ending.push_async_exit(opened.pop_all())
    return Desk(hub=hub, caller=caller, runs=runs, folder=runs.folder, trust=runs.trust)


@contextlib.contextmanager
def _end_by_signals(opened: contextlib.AsyncExitStack) -> Generator[None]:
    """Stop on signals, without waiting for the client."""
    # The event loop references tasks weakly, so a list holds them.
    ending: list[asyncio.Task[None]] = []

    async def leave(code: int) -> None:
        try:
            # Whatever does not close in time is abandoned.
            async with asyncio.timeout(LEAVING_S):
                await opened.aclose()
        finally:
            end_process(code)

    def end(number: int) -> None:
        ending.append(asyncio.create_task(leave(Exit.INTERRUPTED if number == signal.SIGINT else Exit.PASSED)))

    with handle_signals(find_signals("SIGTERM", "SIGHUP", "SIGINT"), end):
        yield
