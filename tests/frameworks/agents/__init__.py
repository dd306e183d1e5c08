"""The shop's agent, once for every framework: `prepare(settings)` returns what makes a conversation with `ask(text, streamed)`."""

from __future__ import annotations

import asyncio
from functools import cache


@cache
def shared_loop() -> asyncio.AbstractEventLoop:
    """One event loop for all conversations: clients keep connections that belong to the loop they were opened in."""
    return asyncio.new_event_loop()
