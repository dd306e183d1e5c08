"""The shop's agent for every framework: `prepare(settings)` returns a factory of conversations with `ask(text, streamed)`."""

from __future__ import annotations

import asyncio
from functools import cache


@cache
def shared_loop() -> asyncio.AbstractEventLoop:
    """One event loop for all conversations: clients keep connections that belong to the loop they were opened in."""
    return asyncio.new_event_loop()
