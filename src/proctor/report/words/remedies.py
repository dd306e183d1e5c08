"""How to record missing evidence, for each kind of target."""

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
    "callable": (f"return the result, state or messages of your framework, or {_WHOLE}; or read its spans with capture: otel"),
    "http": (f"respond with {_CALLS} next to the text, all messages of the run, or a trace; one chat completion has only the last step"),
    "command": f"print one JSON object: {_WHOLE}, or the list of messages",
    "n8n": "set `api` and `api_key` of the target, so that proctor reads the execution with its nodes and tools",
    "flowise": "return `usedTools` or `agentReasoning` from the flow",
}
"""The remedy for each kind of target."""
_FOR_USAGE = {
    "callable": f"return the result of your framework, or {_USAGE} next to the text; or use capture: otel",
    "http": f"respond with {_USAGE} next to the text",
    "command": f"print {_USAGE} in the JSON object",
    "n8n": "set `api` and `api_key` of the target, so that proctor reads the execution",
}
_FOR_MODEL = {
    "callable": f"return {_MODEL} next to the text",
    "http": f"respond with {_MODEL} next to the text",
    "command": f"print {_MODEL} in the JSON object",
    "n8n": "read the execution",
}
_SPANS = " and "
"""Separates the reader of a value from the reader of its spans."""


def find_remedy(result: CaseResult) -> str | None:
    """Return how to record the calls or tokens that a claim lacks, or None."""
    if result.source is not None or result.account is None:
        return None
    reader = result.account.reader
    # A function has its own reader, or that of its framework.
    kind = "callable" if reader.endswith(" result") or _SPANS in reader else reader
    undecided = [verdict for verdict in result.verdicts if verdict.code == "missing_evidence"]
    lacking = {part for verdict in undecided for part in _list_lacking(verdict)}
    part: Part | None = next((part for part in _HELPED if part in lacking), None)
    return describe_remedy(part, kind, reader) if part is not None else None


def _list_lacking(verdict: Verdict) -> list[Part]:
    unknown = verdict.details.get("unknown", verdict.details.get("not_known"))
    if isinstance(unknown, dict):
        return [part for part in _HELPED if part in unknown]
    return [part for part in _HELPED if verdict.reason.startswith(PART_NAMES[part])]


def describe_remedy(part: Part, kind: str, reader: str) -> str | None:
    """Return how to record a part of the evidence with this kind of target and reader, or None."""
    if part not in _HELPED:
        return None
    return _describe_framework_remedy(kind, reader) or (_FOR_CALLS if part in CALL_PARTS else _FOR_USAGE).get(kind)


def _describe_framework_remedy(kind: str, reader: str) -> str | None:
    """Return the remedy if a function returned a framework's value, or None."""
    if kind != "callable" or reader in ("", "plain", "callable"):
        return None
    if _SPANS in reader:
        return "neither the returned value nor its spans contain it: check the options of the instrumentation"
    return f"the returned value ({reader}) does not contain it; read the framework's spans with --capture otel"


def describe_model_remedy(kind: str, reader: str) -> str | None:
    """Return how to record the name of the model."""
    return _describe_framework_remedy(kind, reader) or _FOR_MODEL.get(kind)
