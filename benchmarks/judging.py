"""What judging costs around the judge's model: against a bare semaphore-and-gather loop over the same client and stub.

1,000 answers, a stub of half a second (what the quickest judges take; most take longer), 50 requests at once. The loop sends requests that
were rendered before the clock started, and decodes the replies; ours goes from questions to opinions: rendering, sending, reading, and once
more with an empty cache that it fills. Waiting hides much of what we add, so the processor time has its own bound.
"""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import re
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.report import Figure
from proctor.cassettes.ports import LIVE
from proctor.judge.cached import FolderCache
from proctor.judge.llm_judge import LlmJudge
from proctor.judge.prompt import load_prompt
from proctor.judge.request import render_request
from proctor.judge.settings import JudgeSettings
from proctor.llm.build import build_model
from proctor.llm.ports import ChatModel, ChatRequest
from proctor.llm.settings import ModelSettings
from proctor.model.judgement import Material, Question

ANSWERS = 1_000
CONCURRENCY = 50
STUB_S = 0.5
ROUNDS = 2
BOUND = 1.1
CPU_BOUND = 1.5

_ID = re.compile(rb"check-1-[0-9a-f]{12}")
_REPLY = json.dumps({"results": [{"id": "check-1-000000000000", "quotes": [], "reason": "It names the day.", "pass": True}]})
_BODY = json.dumps(
    {
        "model": "stub",
        "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": _REPLY}}],
        "usage": {"prompt_tokens": 900, "completion_tokens": 30, "total_tokens": 930},
    }
).encode()


async def _serve(ready: Connection) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
                found = _ID.search(await reader.readexactly(length))
                await asyncio.sleep(STUB_S)
                body = _BODY.replace(b"check-1-000000000000", found[0] if found else b"")
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _server(ready: Connection) -> None:
    asyncio.run(_serve(ready))


def _questions() -> list[list[Question]]:
    return [
        [Question(criterion="The answer names a day.", material=Material(subject=f"Parcel {number} arrives on Monday before noon."))]
        for number in range(ANSWERS)
    ]


def _requests(questions: list[list[Question]]) -> list[ChatRequest]:
    prompt, settings = load_prompt(), JudgeSettings()
    rendered = (render_request(each, prompt=prompt, max_chars=settings.max_chars, order_seed=settings.order_seed) for each in questions)
    return [
        ChatRequest(
            messages=each.messages,
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            answer_schema=each.schema,
            answer_name=each.schema_name,
        )
        for each in rendered
    ]


async def _bare(model: ChatModel, requests: list[ChatRequest]) -> None:
    gate = asyncio.Semaphore(CONCURRENCY)

    async def one(request: ChatRequest) -> None:
        async with gate:
            assert json.loads((await model.complete(request)).text)["results"][0]["pass"]

    await asyncio.gather(*(one(request) for request in requests))
    await model.close()


async def _ours(model: ChatModel, questions: list[list[Question]], cache: FolderCache | None) -> None:
    judge = LlmJudge([model], JudgeSettings(concurrency=CONCURRENCY), cache=cache)

    async def one(number: int, batch: list[Question]) -> None:
        (opinion,) = await judge.judge(batch, case=str(number), attempt=0, tape=LIVE)
        assert opinion.outcome == "pass", opinion

    await asyncio.gather(*(one(number, batch) for number, batch in enumerate(questions)))
    await judge.close()


def _seconds(work: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    """Wall time and processor time."""

    async def timed() -> tuple[float, float]:
        gc.collect()
        began, began_cpu = time.perf_counter(), time.process_time()
        await work()
        return time.perf_counter() - began, time.process_time() - began_cpu

    return asyncio.run(timed())


def figures() -> Iterator[Figure]:
    """Time of judging, as a ratio to the bare loop."""
    mine, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_server, args=(theirs,), daemon=True)
    process.start()
    address = f"http://127.0.0.1:{mine.recv()}/v1"
    questions = _questions()
    requests = _requests(questions)

    def model() -> ChatModel:
        return build_model(ModelSettings(provider="openai", model="stub", base_url=address))

    best: dict[str, tuple[float, float]] = {}
    try:
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory() as folder:
                remembering = FolderCache(Path(folder))
                for name, work in (
                    ("bare", lambda: _bare(model(), requests)),
                    ("ours", lambda: _ours(model(), questions, None)),
                    ("filling", lambda cache=remembering: _ours(model(), questions, cache)),
                    ("remembered", lambda cache=remembering: _ours(model(), questions, cache)),
                ):
                    wall, cpu = _seconds(work)
                    known = best.get(name, (wall, cpu))
                    best[name] = min(known[0], wall), min(known[1], cpu)
    finally:
        process.terminate()
        process.join()
    (bare, bare_cpu), (ours, ours_cpu), (filling, _), (remembered, _) = (best[name] for name in ("bare", "ours", "filling", "remembered"))
    print(f"  bare loop {bare:.2f} s for {ANSWERS:,} answers, {bare_cpu:.2f} s of it at work; everything remembered {remembered:.2f} s")
    yield Figure("judging against the bare loop", ours / bare, BOUND)
    yield Figure("judging, and remembering, against the bare loop", filling / bare, BOUND)
    yield Figure("processor time of judging against the bare loop", ours_cpu / bare_cpu, CPU_BOUND)
