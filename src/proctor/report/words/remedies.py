"""How to record what was not seen of an agent: the next step, for each kind of target."""

from __future__ import annotations

from proctor.model.account import CALL_PARTS, PART_NAMES, Part
from proctor.model.result import CaseResult
from proctor.model.verdict import Verdict

_HELPED: tuple[Part, ...] = (*CALL_PARTS, "usage")
_CALLS = '"tool_calls": [{"name": ..., "arguments": {...}, "result": ...}]'
_USAGE = '"usage": {"input_tokens": ..., "output_tokens": ...}'

_WHOLE = f'{{"text": ..., {_CALLS}}}'
_MODEL = '"model": "NAME"'
_FOR_CALLS = {
    "callable": (
        f"return what your framework returned (its result, state or messages), or {_WHOLE}; or let its spans be read: capture: otel"
    ),
    "http": (
        f"answer with {_CALLS} beside the text, with all messages of the run, or with a trace; one chat completion shows the last step only"
    ),
    "command": f"print one JSON object: {_WHOLE}, or the list of messages",
    "n8n": "give the target `api` and `api_key`: then the execution is read, with its nodes and tools",
    "flowise": "let the flow return its `usedTools` or `agentReasoning`",
}
"""The remedy for each kind of target."""
_FOR_USAGE = {
    "callable": f"return what your framework returned, or {_USAGE} beside the text; or capture: otel",
    "http": f"answer with {_USAGE} beside the text",
    "command": f"print {_USAGE} in the JSON object",
    "n8n": "give the target `api` and `api_key`: then the execution is read",
}
_FOR_MODEL = {
    "callable": f"return {_MODEL} beside the text",
    "http": f"answer with {_MODEL} beside the text",
    "command": f"print {_MODEL} in the JSON object",
    "n8n": "read the execution",
}
_SPANS = " and "
"""Stands between the two readers of a value and of its spans."""


def tell_remedy(result: CaseResult) -> str | None:
    """Return what to do so that a claim of a driven case finds the calls or tokens it lacks; None where that is unknown."""
    if result.source is not None or result.account is None:
        return None
    reader = result.account.reader
    # A function is read as itself, or as the value of its framework.
    kind = "callable" if reader.endswith(" result") or _SPANS in reader else reader
    undecided = [verdict for verdict in result.verdicts if verdict.code == "missing_evidence"]
    lacking = {part for verdict in undecided for part in _list_lacking(verdict)}
    part: Part | None = next((part for part in _HELPED if part in lacking), None)
    return tell_how(part, kind, reader) if part is not None else None


def _list_lacking(verdict: Verdict) -> list[Part]:
    told = verdict.details.get("unknown", verdict.details.get("not_known"))
    if isinstance(told, dict):
        return [part for part in _HELPED if part in told]
    return [part for part in _HELPED if verdict.reason.startswith(PART_NAMES[part])]


def tell_how(part: Part, kind: str, reader: str) -> str | None:
    """Return what records a part of an exchange with a target of this kind, whose evidence this reader read; None where nobody knows."""
    if part not in _HELPED:
        return None
    return _tell_of_framework(kind, reader) or (_FOR_CALLS if part in CALL_PARTS else _FOR_USAGE).get(kind)


def _tell_of_framework(kind: str, reader: str) -> str | None:
    """Return what helps where a function returned the value of a framework, which says only what it says; None for other values."""
    if kind != "callable" or reader in ("", "plain", "callable"):
        return None
    if _SPANS in reader:
        return "neither the returned value nor its spans tell it: see what the instrumentation can switch on"
    return f"what was returned ({reader}) does not tell it; let the spans of the framework be read: --capture otel"


def tell_how_model(kind: str, reader: str) -> str | None:
    """Return what records the name of the model."""
    return _tell_of_framework(kind, reader) or _FOR_MODEL.get(kind)
