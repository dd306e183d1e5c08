"""Agents that are functions, for the tests of `callable`."""

from __future__ import annotations

from typing import Any

NOT_A_FUNCTION = 3


def shout(message: str) -> str:
    return message.upper()


async def whisper(message: str, *, context: dict[str, Any], history: list[dict[str, Any]]) -> dict[str, Any]:
    return {"text": message.lower(), "tool_calls": [{"name": "seen", "arguments": {"context": context, "before": len(history)}}]}


def without_message() -> str:
    return ""


def with_stranger(message: str, sesion_id: str) -> str:
    return message + sesion_id


class Holder:
    @staticmethod
    def answer(message: str) -> str:
        return f"held {message}"
