"""Private parts of other packages that we use: each is listed, bounded below the next version that may change it, and present."""

from __future__ import annotations

import argparse
import asyncio
import inspect
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import aiosqlite
import httpcore2
import httpx2
import pytest
from supply_chain.bounds import read_bounds
from supply_chain.locked import ROOT

import proctor
from proctor.network.guard import Guard, GuardedTransport
from proctor.store.sql.sqlite_driver import connect
from tests.supply_chain.private_names import private_uses
from tests.tables import load

ROWS = load("supply_chain/cases/private_apis.yaml")
NOTE = (ROOT / "design" / "private-apis.md").read_text(encoding="utf-8")
UNBOUNDED = {"Python", "pytest"}
"""Chosen by the user; the jobs with the lowest and the newest versions test them."""


@pytest.mark.timeout(300)
def test_the_table_lists_exactly_the_private_apis_that_are_used() -> None:
    listed = {tuple(use) for row in ROWS for use in row["uses"]}
    assert private_uses(Path(proctor.__file__).parent) == listed


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_every_private_api_is_explained_and_its_package_bounded_above(row: dict[str, Any]) -> None:
    for file, part in row["uses"]:
        assert f"`{part.rpartition('.')[2]}`" in NOTE and f"`{file}`" in NOTE, (file, part)
    if row["package"] not in UNBOUNDED:
        bounds = [bound for bound in read_bounds() if bound.name == row["package"]]
        assert bounds and all(bound.highest is not None for bound in bounds)


def test_the_pattern_engine_has_its_limits_and_can_be_stopped() -> None:
    import _quickjs  # the part itself

    context = _quickjs.Context()
    context.set_memory_limit(64_000_000)
    context.set_max_stack_size(200_000)
    context.set_time_limit(0.05)
    search = context.eval("(function (pattern, text) { return new RegExp(pattern).exec(text) === null; })")
    with pytest.raises(_quickjs.JSException, match="interrupted"):
        search("^(a+)+$", "a" * 40 + "b")
    context = _quickjs.Context()
    context.set_memory_limit(1_000_000)
    with pytest.raises((_quickjs.JSException, MemoryError)):
        context.eval("'x'.repeat(100_000_000) + 'y'.repeat(100_000_000)")


async def test_the_connection_of_the_sqlite_driver_has_a_thread_a_way_there_and_the_connection_itself() -> None:
    connection = connect(":memory:")
    assert isinstance(connection, aiosqlite.Connection) and connection._thread.daemon
    await connection
    try:
        assert connection._thread.is_alive()
        assert await connection._execute(lambda: connection._conn.execute("select 1").fetchone()) == (1,)
    finally:
        await connection.close()
    connection._thread.join(10)
    assert not connection._thread.is_alive()


def test_the_guard_wraps_the_connections_of_the_http_client() -> None:
    pool = GuardedTransport(Guard())._pool
    assert isinstance(httpx2.AsyncHTTPTransport()._pool, httpcore2.AsyncConnectionPool)
    assert type(pool._network_backend).__name__ == "_GuardedBackend"
    assert "self._pool.handle_async_request" in inspect.getsource(httpx2.AsyncHTTPTransport.handle_async_request)


def test_without_the_place_of_its_connections_the_guard_lets_nothing_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "__init__", lambda self, **named: setattr(self, "_connections", None))
    with pytest.raises(RuntimeError, match="stores its connection pool elsewhere"):
        GuardedTransport(Guard())


def test_a_session_of_mcp_sends_through_its_dispatcher() -> None:
    from mcp import ClientSession  # slow to import

    class Sent(Exception):
        pass

    class Dispatcher:
        async def send_raw_request(self, method: str, params: Any, opts: Any = None, **more: Any) -> dict[str, Any]:
            raise Sent(method)

    session = ClientSession(dispatcher=Dispatcher())  # type: ignore[arg-type]  # unused attributes are missing
    assert isinstance(session._dispatcher, Dispatcher)
    with pytest.raises(Sent, match="ping"):
        asyncio.run(session.send_ping())


def test_a_failure_in_pytest_is_made_of_these_parts() -> None:
    from _pytest._code.code import ReprExceptionInfo, ReprFileLocation, ReprTracebackNative  # the parts themselves

    shown = ReprExceptionInfo(ReprTracebackNative(["what is wrong\n"]), ReprFileLocation("suite.yaml", 3, "in one line"))
    assert "what is wrong" in str(shown) and shown.reprcrash is not None and shown.reprcrash.message == "in one line"


async def test_a_child_process_of_asyncio_has_a_transport_that_closes_its_pipes() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "", stdin=asyncio.subprocess.PIPE)
    await process.wait()
    process._transport.close()  # type: ignore[attr-defined]
    assert process._transport.is_closing()  # type: ignore[attr-defined]


def test_a_parser_knows_its_options() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--colour")
    assert [option for action in parser._actions for option in action.option_strings] == ["-h", "--help", "--colour"]


def test_an_unknown_name_in_a_template_is_distinguished_from_a_missing_member() -> None:
    from jinja2 import Environment, UndefinedError

    from proctor.pages.undefined import UnknownName

    environment = Environment(undefined=UnknownName, autoescape=True)
    assert environment.from_string("[{{ row.left_out }}]").render(row={}) == "[]"
    with pytest.raises(UndefinedError, match="'nobody' is undefined"):
        environment.from_string("{{ nobody }}").render()


def test_the_position_of_a_thread_can_be_queried() -> None:
    assert sys._current_frames()[threading.get_ident()].f_code is sys._getframe().f_code


def test_the_handler_of_an_interrupt_in_a_runner_is_called_as_we_think() -> None:
    found: list[str] = []

    async def look() -> None:
        handler: Any = signal.getsignal(signal.SIGINT)
        found.append(getattr(handler, "func", handler).__name__)

    asyncio.run(look())
    assert found == ["_on_sigint"] and "`_on_sigint`" in NOTE


def test_parts_that_are_not_private_and_not_promised_either_are_there() -> None:
    from fhirpathpy.engine import do_eval  # slow to import
    from fhirpathpy.engine.invocations import invocation_registry
    from fhirpathpy.parser.ASTPathListener import ASTPathListener
    from uvicorn import Server
    from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
    from yaml.scanner import Scanner

    assert callable(do_eval) and "matches" in invocation_registry and hasattr(ASTPathListener(), "parentStack")
    for name in ("connection_made", "connection_lost", "data_received", "pause_writing", "on_response_complete", "send_400_response"):
        assert callable(getattr(H11Protocol, name)), name
    assert {"response_complete", "response_started", "disconnected", "message_event"} <= set(
        RequestResponseCycle.__init__.__code__.co_names
    )
    assert callable(Server.capture_signals) and callable(Server.handle_exit)
    assert Scanner.ESCAPE_REPLACEMENTS["n"] == "\n" and Scanner.ESCAPE_CODES["x"] == 2
    for word in ("H11Protocol", "RequestResponseCycle", "capture_signals", "invocation_registry", "ESCAPE_REPLACEMENTS"):
        assert f"`{word}`" in NOTE, word
