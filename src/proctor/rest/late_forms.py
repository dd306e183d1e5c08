"""Receives forms of visitors who are refused before their screen is reached, so that what they typed can be given back.

Whoever sends a cookie may be anybody: whether it ever was a session cannot be told when the session is gone or the database is away. So
only what our own pages could have sent is received at all, for a short time, into a small room that all such forms share. When the room
is full, the address that holds the most of it makes room (`body_room.py`): forms that are half sent deny nothing to anybody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from proctor.pages.forms import LARGEST_FORM, is_form
from proctor.pages.session_cookie import LOGIN_PATH, find_session_token
from proctor.rest.body_room import BodyRoom, HeldBody
from proctor.rest.limits import promises_at_most
from proctor.service.refusals import Refusal

LATE_FORM_S = 5.0
"""How long such a form may take altogether."""
LATE_FORM_BYTES = 20 * LARGEST_FORM
"""Bytes of all such forms that are held at one moment."""


class LateForms:
    """The forms that come in from visitors who are refused."""

    def __init__(self) -> None:
        self._room = BodyRoom(LATE_FORM_BYTES)

    @asynccontextmanager
    async def receive_form(self, scope: Scope, receive: Receive) -> AsyncGenerator[bytes]:
        """Yield the body of a form, held for as long as the block lasts; nothing of one that came too slowly or found no room."""
        client = scope.get("client")
        # Whose organization it is cannot be told, so that the address alone says who holds the most.
        held = self._room.enter("", client[0] if client else "")
        try:
            yield await _read_body(receive, held)
        finally:
            held.release()


def is_late_form(scope: Scope) -> bool:
    """Return whether a request brings a form that our own page could have sent from a session: whole, small, and as forms are written."""
    headers = Headers(scope=scope)
    return (
        scope["method"] == "POST"
        and scope["path"] not in (LOGIN_PATH, "/ui/logout")
        and is_form(headers)
        and promises_at_most(headers, LARGEST_FORM)
        and find_session_token(scope) is not None
    )


async def _read_body(receive: Receive, held: HeldBody) -> bytes:
    """Return a body that is soon there and finds room. Any other is passed over: many clients only listen when they have spoken."""
    parts: list[bytes] = []
    seen, kept = 0, True
    try:
        async with asyncio.timeout(LATE_FORM_S) as held.arriving:
            while True:
                message = await receive()
                part: bytes = message.get("body", b"")
                seen += len(part)
                if message["type"] != "http.request" or seen > LARGEST_FORM:
                    break
                held.last = asyncio.get_running_loop().time()
                kept = kept and _has_room(held, len(part))
                if kept:
                    parts.append(part)
                else:
                    parts.clear()
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        pass  # its time is over, or others needed the room
    finally:
        held.arriving = None
    return b""


def _has_room(held: HeldBody, count: int) -> bool:
    """Hold so many bytes more and return True; let go of all where there is no room for them."""
    try:
        held.add(count)
    except Refusal:
        held.drop(held.size)
        return False
    return True
