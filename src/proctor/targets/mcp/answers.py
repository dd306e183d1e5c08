"""Bounds and completes the answers of an MCP server over HTTP, and those of its token endpoint.

The `mcp` package reads an answer as a whole, however large, and a packed one may be a million times what was sent. So:

* Compressed answers are neither requested nor unpacked.
* A body is counted as it comes and ends with an error above `MAX_ANSWER_BYTES`, whatever length it claims.
* A stream of events may grow for ever: there the package bounds each event. It counts as one only where the package reads it so.

A result of a tool without `content` has none of it, as the TypeScript package reads it, by which the original systems work; the Python one
would refuse it.

These are hooks of the client rather than a transport around its own, which would take the proxies of the environment from it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, cast

import httpx2
from mcp import ClientSession

from proctor.model.show import shorten
from proctor.targets.shared.wire import MAX_ANSWER_BYTES


class _BoundedBody(httpx2.AsyncByteStream):
    """The body of an answer, up to the limit."""

    def __init__(self, inner: httpx2.AsyncByteStream, response: httpx2.Response) -> None:
        self._inner = inner
        self._response = response

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        length = 0
        pieces = self._inner.__aiter__()
        try:
            async for piece in pieces:
                _refuse_packed(self._response)
                length += len(piece)
                if length > MAX_ANSWER_BYTES:
                    why = f"it is larger than {MAX_ANSWER_BYTES / 2**20:g} MB"
                    raise httpx2.DecodingError(why, request=self._response.request)
                yield piece
        finally:
            # A generator that is left half way is otherwise closed whenever the garbage collector finds it, and not by this task.
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _refuse_compression(request: httpx2.Request) -> None:
    request.headers["accept-encoding"] = "identity"


async def _bound_answer(response: httpx2.Response) -> None:
    if _is_event_stream(response):
        _refuse_packed(response)  # at once: the package would take an error while it reads for the end of the stream
    else:
        response.stream = _BoundedBody(cast(httpx2.AsyncByteStream, response.stream), response)


def _is_event_stream(response: httpx2.Response) -> bool:
    request = response.request
    return (
        response.is_success
        and request.method in ("GET", "POST")
        and "text/event-stream" in request.headers.get("accept", "")
        and response.headers.get("content-type", "").partition(";")[0].strip().lower() == "text/event-stream"
    )


def _refuse_packed(response: httpx2.Response) -> None:
    given = response.headers.get("content-encoding", "")
    if any(each.strip().lower() not in ("", "identity") for each in given.split(",")):
        why = f"it is compressed (content-encoding: {shorten(given, 100)}), which was not requested"
        raise httpx2.DecodingError(why, request=response.request)


def add_missing_content(session: ClientSession) -> None:
    """Give results of tools that lack `content` an empty one, before the package validates them."""
    dispatcher: Any = session._dispatcher  # pyright: ignore[reportPrivateUsage] - the package has no place of its own for this
    send = dispatcher.send_raw_request

    async def send_raw_request(method: str, params: Any, opts: Any = None, **more: Any) -> dict[str, Any]:
        raw = await send(method, params, opts, **more)
        if method == "tools/call" and "content" not in raw and raw.get("resultType", "complete") == "complete":
            return {**raw, "content": []}
        return raw

    dispatcher.send_raw_request = send_raw_request


HOOKS: dict[str, list[Any]] = {"request": [_refuse_compression], "response": [_bound_answer]}
"""For `event_hooks` of the client that speaks with a server; requests for tokens go through them too."""
