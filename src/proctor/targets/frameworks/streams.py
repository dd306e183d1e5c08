"""Reads streams to their end: generators, asynchronous generators, and the stream objects of frameworks.

A stream is read within the time limit of the call and within size limits; a larger one is unreadable. Some frameworks complete a result
object while its stream is read: then that object is returned, otherwise the items of the stream.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, cast

import msgspec

from proctor.targets.answers.plain_values import Unreadable
from proctor.targets.frameworks.base import MAX_ITEMS, call_member, is_instance_of, read_member
from proctor.targets.frameworks.simplify import MAX_BYTES


class Streamed(msgspec.Struct):
    """The items of a stream."""

    items: list[object]


class ReplyHistory(msgspec.Struct):
    """All events of a reply of AG2, which must be awaited."""

    events: list[object]


class _Collected:
    """Collects the items of a stream, within limits."""

    def __init__(self) -> None:
        self.items: list[object] = []
        self._left = MAX_BYTES

    def add(self, item: object) -> None:
        # Only texts are measured here; the content of other items is counted when they are read (`Budget`).
        self._left -= len(item) if isinstance(item, (str, bytes)) else 0
        if len(self.items) >= MAX_ITEMS or self._left < 0:
            raise Unreadable(f"its stream holds more than {MAX_ITEMS} items or {MAX_BYTES} bytes of text")
        self.items.append(item)


def drain(value: object, given_up: threading.Event) -> object:
    """Read a blocking stream in the thread of the function; return any other value unchanged."""
    if is_instance_of(value, "autogen", "RunResponse"):
        # The result is filled in while the events are read, which is possible only once.
        if not read_member(value, "messages"):
            _collect(cast("Iterable[object]", read_member(value, "events")), given_up)
        return value
    if is_instance_of(value, "pydantic_ai", "StreamedRunResultSync"):
        if read_member(value, "is_complete") is not True:
            value.get_output()  # type: ignore[attr-defined]  # known by the name of its class
        return value
    if is_crew_stream(value) and not _is_async_crew_stream(value):
        if read_member(value, "is_completed") is not True:
            _collect(cast("Iterable[object]", value), given_up)
        return value
    return Streamed(_collect(cast("Iterable[object]", value), given_up)) if _is_iterator(value) else value


async def drain_async(value: object) -> object:
    """Read an asynchronous stream; return any other value unchanged."""
    if is_instance_of(value, "agents", "RunResultStreaming"):
        if read_member(value, "is_complete") is not True:
            await _collect_async(call_member(value, "stream_events"))
        return value
    if is_instance_of(value, "autogen", "AsyncRunResponse"):
        if not read_member(value, "_messages"):
            await _collect_async(read_member(value, "events"))
        return value
    if is_instance_of(value, "pydantic_ai", "AgentRun"):
        # Its nodes can be read only within its context; afterwards it may have the result.
        return value
    if is_instance_of(value, "pydantic_ai", "_RunStreamEventsContext"):
        async with value as events:  # type: ignore[attr-defined]  # known by the name of its class
            return Streamed(await _collect_async(events))
    if _is_async_crew_stream(value):
        if read_member(value, "is_completed") is not True:
            await _collect_async(value)
        return value
    if is_instance_of(value, "ag2", "AgentReply"):
        # The history may be stored elsewhere, so it must be awaited.
        return ReplyHistory(list(cast("Iterable[object]", await call_member(read_member(value, "history"), "get_events"))))
    if is_instance_of(value, "agent_framework", "ResponseStream"):
        return await call_member(value, "get_final_response")
    is_stream = isinstance(value, (AsyncIterator, AsyncIterable)) and not isinstance(value, Mapping)
    return Streamed(await _collect_async(value)) if is_stream else value


def is_blocking_stream(value: object) -> bool:
    """Return whether reading this value blocks its thread."""
    is_crew = is_crew_stream(value) and not _is_async_crew_stream(value)
    return is_crew or _is_iterator(value) or is_instance_of(value, "autogen", "RunResponse")


def is_crew_stream(value: object) -> bool:
    """Return whether a value is a CrewAI stream, which has the result after it was read."""
    return is_instance_of(value, "crewai", "StreamingOutputBase", "CrewStreamingOutput", "StreamSessionBase")


def _is_async_crew_stream(value: object) -> bool:
    # One class serves both blocking and awaited crews; its source distinguishes them.
    return is_instance_of(value, "crewai", "AsyncStreamSession") or (
        is_crew_stream(value) and read_member(value, "_sync_iterator") is None and read_member(value, "_async_iterator") is not None
    )


def _is_iterator(value: object) -> bool:
    return isinstance(value, Iterator) and not isinstance(value, Mapping)


def _collect(stream: Iterable[object], given_up: threading.Event) -> list[object]:
    collected = _Collected()
    for item in stream:
        # The caller has timed out, and a thread cannot be stopped from outside: an endless stream would be read forever.
        if given_up.is_set():
            break
        collected.add(item)
    return collected.items


async def _collect_async(stream: Any) -> list[object]:
    collected = _Collected()
    async for item in cast("AsyncIterable[object]", stream):
        collected.add(item)
    return collected.items
