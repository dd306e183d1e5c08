"""Which words for the kind of an event mean a tool call, a phase of one, or something else."""

from __future__ import annotations

import functools
import re
from typing import Literal

from proctor.evidence.unknowns.statuses import to_snake_case
from proctor.evidence.values.access import split_words
from proctor.model.evidence import Json

Kind = Literal["call", "start", "end", "other"]

KINDS = split_words("""
    event event_type eventType type kind run_type runType span_type spanType log_type logType message_type messageType
    msg stage category role
    """)
"""Fields with the kind of an entry."""
_TOOLS = split_words("tool tools toolcall function functions mcp command commands computer code")
_CALLS = split_words("call calls action actions invocation invoke invoked used")
_STARTS = split_words("start started starting begin began begun request requested pending")
_ENDS = split_words("""
    end ended finish finished result results output outputs response return returned complete completed done observation
    error errors failed failure progress delta update stream chunk
    """)
# An action of the user and a call of the model are no tool calls.
_NEVER = split_words("user human customer llm chat model generation completion embedding")
_OTHERS = _NEVER | split_words("""
    assistant agent bot ai message answer reply chain run session conversation workflow graph trace root prompt parser
    thought think thinking reason reasoning plan planner final question score eval evaluation evaluator guardrail
    """)


@functools.lru_cache(maxsize=1024)
def classify_kind(word: str) -> Kind | None:
    """Return the meaning of a kind such as `tool_call`, `on_tool_end` and `run_start`, or None for an unrecognised one."""
    words = frozenset(re.split(r"[^a-z0-9]+", to_snake_case(word)))
    if words & _TOOLS or (words & _CALLS and not words & _NEVER):
        return "end" if words & _ENDS else "start" if words & _STARTS else "call"
    if words & _OTHERS:
        return "other"
    return "end" if words & _ENDS else None


_PRECEDENCE: tuple[Kind, ...] = ("call", "start", "end", "other")


def find_kind(entry: dict[str, Json]) -> tuple[Kind | None, str]:
    """Return the meaning of the kind of an entry, and its words; a kind that mentions tools wins."""
    words = (value for key, value in entry.items() if key in KINDS and isinstance(value, str) and len(value) <= 40)
    kinds = {classify_kind(word): word for word in words}
    found: Kind | None = next((kind for kind in _PRECEDENCE if kind in kinds), None)
    return found, kinds.get(found, "")
