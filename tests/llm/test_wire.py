"""Many requests to one provider at once: each is answered by its own answer, over few connections per client, and nothing is left open."""

from __future__ import annotations

import asyncio

from proctor.llm.http import ModelWire
from tests.llm.provider_server import Asked, Said, provider


def test_many_requests_at_once_share_few_clients_and_get_their_own_answers() -> None:
    def answer(asked: Asked) -> Said:
        return Said(body={"number": asked.body["number"]})

    async def ask() -> tuple[list[int], int, int]:
        async with provider(answer) as server:
            wire = ModelWire(timeout_s=20, headers={})
            answers = await asyncio.gather(*(wire.post(f"{server.url}/v1", {"number": number}) for number in range(60)))
            again = await wire.post(f"{server.url}/v1", {"number": 60})
            lines = len(wire._lines)  # pyright: ignore[reportPrivateUsage] - how they are shared is what is tested
            await wire.close()
            return [answer["number"] for answer in (*answers, again)], lines, len(wire._lines)  # pyright: ignore[reportPrivateUsage]

    numbers, lines, left = asyncio.run(ask())
    assert numbers == list(range(61))
    assert 60 / 8 <= lines <= 16
    assert left == 0
