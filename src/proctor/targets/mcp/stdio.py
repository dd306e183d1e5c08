"""An MCP server as a child process: newline-delimited JSON-RPC over its standard input and output.

Why not the transport of the `mcp` package: it needs half a minute for a result of 50 MB (each chunk is joined to all before it), and has
neither the exit code nor standard error, which has the reason of a failed start.

* Lines on standard output that are not JSON-RPC messages are skipped; the first is stored for messages.
* A line of more than `MOST_LINE_BYTES` ends the connection.
* Ending: standard input is closed, then the process group gets SIGTERM, then SIGKILL, each after a bounded wait. A cancelled caller
    waits for that too, so no child keeps running, nor its process group. If this process is killed, its guard does the same
    (`processes/guard.py`).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

import anyio

from proctor.evidence.values.json_bytes import mend_surrogates
from proctor.model.show import shorten
from proctor.processes.programs import Program, finish_despite_cancel

if TYPE_CHECKING:  # the package takes a third of the start of a service, and is loaded with the first server
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.shared.message import SessionMessage

MOST_LINE_BYTES = 256_000_000
"""Maximum bytes of a message; a server that sends more would fill the memory."""
GRACE_S = 2.0
"""Seconds for a server to end by itself, and again after SIGTERM."""
_WATCH_S = 0.1
"""Seconds between checks of a server whose output another process may hold open."""
_CHUNK = 1 << 20

Streams: TypeAlias = "tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]"


class ChildServer:
    """A transport for `mcp.Client` that starts the server and ends it."""

    most_line_bytes = MOST_LINE_BYTES
    reads_to_end = False
    """Whether lines that it writes while it ends are delivered, too."""
    grace_s = GRACE_S
    """Seconds for it to end by itself."""

    def __init__(self, command: str, args: tuple[str, ...] = (), *, env: dict[str, str] | None = None, cwd: str | None = None) -> None:
        self._command = (command, *args)
        self._env = env or {}
        self._cwd = cwd
        self._program: Program | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False
        self.ended = False
        """Whether the server's output has ended: no more requests are possible."""
        self.noise: str | None = None
        """The first line of standard output that was not a message."""
        self.fault: str | None = None
        """Why we stopped listening, if we did."""
        self.needed_signal = ""
        """The signal that ended it; empty if it ended by itself when its input was closed."""

    async def __aenter__(self) -> Streams:
        from mcp.client.stdio import get_default_environment  # needs the optional `mcp` package

        self._program = await Program.start(self._command, env={**get_default_environment(), **self._env}, cwd=self._cwd, limit=_CHUNK)
        # No await from here on: a cancellation would lose the process.
        # Unbuffered: a server that sends faster than its messages are read must wait, and nothing accumulates here.
        incoming: MemoryObjectSendStream[SessionMessage | Exception]
        outgoing: MemoryObjectReceiveStream[SessionMessage]
        incoming, self._read_end = anyio.create_memory_object_stream(0)
        self._write_end, outgoing = anyio.create_memory_object_stream(0)
        self._incoming = incoming
        self._outgoing = outgoing
        # Other code refers to these tasks by index: 0 reads, 1 writes, 2 reads standard error.
        work = (self._read(incoming), self._write(outgoing), self._program.read_errors(), self._watch_exit())
        self._tasks = [asyncio.create_task(coroutine) for coroutine in work]
        return self._read_end, self._write_end

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await finish_despite_cancel(self._end_process())

    @property
    def exit_code(self) -> int | None:
        """The exit code; negative for the number of a signal."""
        return None if self._program is None else self._program.process.returncode

    def stderr_tail(self) -> str:
        """Return the last lines that the server wrote on standard error."""
        return self._program.quote_errors() if self._program is not None else ""

    async def wait_for_last_words(self) -> None:
        """Wait a moment for the exit code and the rest of standard error of a server whose output has ended."""
        if self._program is not None:
            await self._program.wait_for_exit(0.5)
        await asyncio.wait(self._tasks[2:3], timeout=0.5)

    async def _read(self, incoming: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        assert self._program is not None and self._program.process.stdout is not None
        stdout = self._program.process.stdout
        parts: list[bytes] = []
        size = 0
        try:
            while chunk := await stdout.read(_CHUNK):
                if self.fault or (self._closing and not self.reads_to_end):
                    continue  # a server that cannot write cannot end, so its output is read and dropped
                # Pieces of a line are joined once, at its end: joining each to all before it takes quadratic time.
                first, *others = chunk.split(b"\n")
                parts.append(first)
                size += len(first)
                for line in others:
                    await self._deliver(b"".join(parts), incoming)
                    parts, size = [line], len(line)
                if size > self.most_line_bytes:
                    self.fault = f"wrote a line of more than {self.most_line_bytes:,} bytes"
                    parts, size = [], 0
                    incoming.close()
        finally:
            self.ended = True
            incoming.close()

    async def _deliver(self, line: bytes, incoming: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        from mcp.shared.message import SessionMessage  # these need the optional `mcp` package
        from mcp_types import jsonrpc_message_adapter

        if not line.strip():
            return
        try:
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                repaired = mend_surrogates(line)
                if repaired is None:
                    raise
                message = jsonrpc_message_adapter.validate_json(repaired, by_name=False)
        except ValueError:
            if self.noise is None:
                self.noise = shorten(line[:1000].decode("utf-8", "replace").strip())
            return
        # The caller has gone; a late answer is dropped.
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await incoming.send(SessionMessage(message))

    def _encode(self, message: SessionMessage) -> bytes:
        return message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"

    async def _write(self, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
        assert self._program is not None and self._program.process.stdin is not None
        stdin = self._program.process.stdin
        try:
            async for message in outgoing:
                stdin.write(self._encode(message))
                await stdin.drain()
        except (OSError, anyio.ClosedResourceError):
            self._incoming.close()  # a request that was never sent must not be waited for
        finally:
            outgoing.close()

    async def _watch_exit(self) -> None:
        """Detect that the server ended although one of its children still holds its output open."""
        while self.exit_code is None:
            await asyncio.sleep(_WATCH_S)
        # Its last output may still be in the pipe.
        await asyncio.wait(self._tasks[:1], timeout=_WATCH_S)
        self.ended = True
        self._incoming.close()

    async def _end_process(self) -> None:
        program = self._program
        if program is None:
            return
        try:
            self._closing = True
            self._read_end.close()
            self._write_end.close()
            await asyncio.wait(self._tasks[1:2], timeout=0.5)  # accepted requests are still sent
            # The order that MCP sets for stdio: the end of its input first, then SIGTERM, then SIGKILL.
            if program.process.stdin is not None:
                program.process.stdin.close()
            if not await program.wait_for_exit(self.grace_s):
                program.send_signal("SIGTERM")
                self.needed_signal = "SIGTERM" if await program.wait_for_exit(GRACE_S) else "SIGKILL"
                program.kill_strays()
            program.send_signal("SIGKILL")
            await program.wait_for_exit(GRACE_S)
            await asyncio.wait(self._tasks, timeout=0.2)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for stream in (self._incoming, self._outgoing):
                stream.close()
        finally:
            # Also if the server itself is gone, because its children may not be; and if there is no time left for a clean exit.
            program.release()
