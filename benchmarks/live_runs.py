"""What driving an agent costs around the agent itself: against a bare semaphore-and-gather loop over the same client and stub."""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import proctor
from benchmarks.report import Figure
from proctor.actions.run import drive
from proctor.runner.run import RunSettings

CASES = 400
CONCURRENCY = 20
ANSWER = b'{"text": "hello there"}'


async def _serve(seconds: float, ready: Connection) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
                await reader.readexactly(length)
                if seconds:
                    await asyncio.sleep(seconds)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _server(seconds: float, ready: Connection) -> None:
    asyncio.run(_serve(seconds, ready))


async def _bare(url: str) -> None:
    import httpx2

    gate = asyncio.Semaphore(CONCURRENCY)
    async with httpx2.AsyncClient(timeout=30, limits=httpx2.Limits(max_connections=None)) as client:

        async def one(number: int) -> None:
            async with gate:
                answer = await client.post(url, json={"input": f"hello {number}"})
                assert "hello" in answer.json()["text"]

        await asyncio.gather(*(one(number) for number in range(CASES)))


def _suite() -> proctor.Suite:
    cases = "\n".join(f"  - {{id: c{number}, input: hello {number}, expect: [response_contains: hello]}}" for number in range(CASES))
    return proctor.parse_suite(f"proctor: 1\ncases:\n{cases}\n")


async def _ours(suite: proctor.Suite, url: str, home: Path) -> None:
    live = await drive(suite, target={"type": "http", "url": url}, home=home, settings=RunSettings(concurrency=CONCURRENCY))
    assert live.result.counts["pass"] == CASES, live.result.counts


def _measured(seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=_server, args=(seconds, theirs), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{ours.recv()}/chat"
    suite = _suite()
    wall, cpu = {"bare": 9e9, "proctor": 9e9}, {"bare": 9e9, "proctor": 9e9}
    try:
        for _ in range(5):
            for name in wall:
                with tempfile.TemporaryDirectory() as home:
                    work = _bare(url) if name == "bare" else _ours(suite, url, Path(home))
                    started, spent = time.monotonic(), time.process_time()
                    asyncio.run(work)
                    wall[name] = min(wall[name], time.monotonic() - started)
                    cpu[name] = min(cpu[name], time.process_time() - spent)
    finally:
        server.terminate()
        server.join()
    return wall, cpu


def figures() -> Iterator[Figure]:
    """Wall time at 100 ms, and CPU per case at 0 ms."""
    wall, _ = _measured(0.1)
    note = f"{wall['proctor']:.2f} s against {wall['bare']:.2f} s, {CASES} cases, {CONCURRENCY} at once, durable"
    yield Figure("100 ms agent: proctor run / bare loop, wall time", wall["proctor"] / wall["bare"], at_most=1.05, note=note)
    _, cpu = _measured(0.0)
    yield Figure("0 ms agent: CPU per case above the bare loop, ms", (cpu["proctor"] - cpu["bare"]) / CASES * 1000, at_most=1.0)
