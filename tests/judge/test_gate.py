"""How many requests run at once."""

from __future__ import annotations

import asyncio

import pytest

from proctor.judge.gated_model import RequestGate


async def test_refusals_of_one_round_halve_the_limit_once_and_successes_raise_it() -> None:
    gate = RequestGate(8)
    tickets = [await gate.enter() for _ in range(8)]
    for ticket in tickets:
        gate.slow_down(ticket)
        gate.leave()
    assert gate.limit == 4
    later = await gate.enter()
    gate.slow_down(later)
    gate.leave()
    assert gate.limit == 2
    for expected in (2, 3, 3, 3, 4):
        gate.note_success()
        assert gate.limit == expected
    for _ in range(100):
        gate.note_success()
    assert gate.limit == 8


async def test_one_request_always_runs() -> None:
    gate = RequestGate(1)
    for _ in range(3):
        gate.slow_down(await gate.enter())
        gate.leave()
    assert gate.limit == 1


async def test_slots_are_granted_in_order_up_to_the_limit() -> None:
    gate, order = RequestGate(2), list[int]()

    async def one(number: int) -> None:
        await gate.enter()
        order.append(number)
        assert gate.inside <= 2
        await asyncio.sleep(0)
        gate.leave()

    await asyncio.gather(*(one(number) for number in range(10)))
    assert order == list(range(10))
    assert gate.inside == 0


async def test_a_pause_delays_every_request_and_ends_by_itself() -> None:
    loop = asyncio.get_running_loop()
    gate = RequestGate(4)
    started = loop.time()
    gate.slow_down(await gate.enter(), 0.05)
    gate.leave()
    async with asyncio.timeout(5):
        await asyncio.gather(gate.enter(), gate.enter())
    assert loop.time() - started >= 0.045


@pytest.mark.parametrize("given_first", [False, True])
async def test_a_request_cancelled_while_waiting_takes_no_slot(given_first: bool) -> None:
    gate = RequestGate(1)
    await gate.enter()
    waiting = asyncio.ensure_future(gate.enter())
    next_one = asyncio.ensure_future(gate.enter())
    await asyncio.sleep(0)
    if given_first:
        gate.leave()
        waiting.cancel()
    else:
        waiting.cancel()
        gate.leave()
    async with asyncio.timeout(5):
        await next_one
    assert waiting.cancelled()
    assert gate.inside == 1
