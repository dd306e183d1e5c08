"""What driving an agent costs around the agent itself: against a bare semaphore-and-gather loop over the same client and stub.

The clock runs around one whole call of each: ours from the suite in memory to the result in memory, with the run folder made, every
result forced to disk and read back; the loop from its first request to its last answer. Importing is not part of either, nor is
reading the cases and compiling their checks: all of them have run once before. All open a client of the same settings inside the measured
time. Peers run for comparison if installed; they store what they store by default, and have no bound.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import proctor
from benchmarks.live_peers import Drive, peers
from benchmarks.report import Figure
from proctor.actions.running.run import RunOptions, drive
from proctor.runner.limits import RunSettings
from proctor.targets.shared.wire import new_client

CASES = 400
CONCURRENCY = 20
ROUNDS = 5
PEER_ROUNDS = 2
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
    gate = asyncio.Semaphore(CONCURRENCY)
    async with new_client(certificates=False) as client:

        async def one(number: int) -> None:
            async with gate:
                answer = await client.post(url, json={"input": f"hello {number}"})
                assert "hello" in answer.json()["text"]

        await asyncio.gather(*(one(number) for number in range(CASES)))


def _suite() -> proctor.Suite:
    cases = "\n".join(f"  - {{id: c{number}, input: hello {number}, expect: [response_contains: hello]}}" for number in range(CASES))
    return proctor.parse_suite(f"proctor: 1\ncases:\n{cases}\n")


async def _ours(suite: proctor.Suite, url: str, home: Path) -> None:
    options = RunOptions(settings=RunSettings(concurrency=CONCURRENCY))
    live = await drive(suite, options, target={"type": "http", "url": url}, home=home)
    assert live.result.counts["pass"] == CASES, live.result.counts


def _contenders() -> dict[str, Drive]:
    suite = _suite()

    def bare(url: str, home: Path) -> None:
        asyncio.run(_bare(url))

    def ours(url: str, home: Path) -> None:
        asyncio.run(_ours(suite, url, home))

    return {"bare": bare, "proctor": ours, **peers(CASES, CONCURRENCY)}


class _Best(NamedTuple):
    """The least time of several runs, in seconds."""

    wall: float = float("inf")
    cpu: float = float("inf")


def _measured(seconds: float, contenders: dict[str, Drive]) -> dict[str, _Best]:
    """Turn by turn, so that a slow moment of the machine hits all alike."""
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=_server, args=(seconds, theirs), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{ours.recv()}/chat"
    best = dict.fromkeys(contenders, _Best())
    try:
        for number in range(ROUNDS + 1):
            for name, drive in contenders.items():
                if number > PEER_ROUNDS and name not in ("bare", "proctor"):
                    continue
                with tempfile.TemporaryDirectory() as home:
                    gc.collect()
                    started, spent = time.monotonic(), time.process_time()
                    drive(url, Path(home))
                    wall, cpu = time.monotonic() - started, time.process_time() - spent
                if number:  # the first round imports and compiles
                    best[name] = _Best(min(best[name].wall, wall), min(best[name].cpu, cpu))
    finally:
        server.terminate()
        server.join()
    return best


def figures() -> Iterator[Figure]:
    """Wall time at 100 ms, and CPU per case at 0 ms."""
    contenders = _contenders()
    at_100 = _measured(0.1, contenders)
    bare, ours = at_100["bare"], at_100["proctor"]
    note = f"{ours.wall:.2f} s against {bare.wall:.2f} s, {CASES} cases, {CONCURRENCY} at once, durable"
    yield Figure("100 ms agent: proctor run / bare loop, wall time", ours.wall / bare.wall, at_most=1.05, note=note)
    others = [name for name in contenders if name not in ("bare", "proctor")]
    for name in others:
        note = f"{at_100[name].wall:.2f} s"
        yield Figure(f"100 ms agent: {name} / bare loop, wall time", at_100[name].wall / bare.wall, note=note)
    at_0 = _measured(0.0, contenders)
    bare, ours = at_0["bare"], at_0["proctor"]
    yield Figure("0 ms agent: CPU per case above the bare loop, ms", (ours.cpu - bare.cpu) / CASES * 1000, at_most=0.32)
    yield Figure("0 ms agent: proctor run / bare loop, CPU", ours.cpu / bare.cpu, note=f"{ours.cpu / CASES * 1000:.2f} ms a case")
    for name in others:
        cpu = at_0[name].cpu
        yield Figure(f"0 ms agent: {name} / bare loop, CPU", cpu / bare.cpu, note=f"{cpu / CASES * 1000:.2f} ms a case")
