"""How to record what was not seen of an agent: the next step, for each kind of target."""

from __future__ import annotations

from proctor.model.account import CALL_PARTS, PART_NAMES, Part
from proctor.model.result import CaseResult
from proctor.model.verdict import Verdict
from proctor.report.catalogue import Catalogue, speak

_HELPED: tuple[Part, ...] = (*CALL_PARTS, "usage")
_CALLS = '"tool_calls": [{"name": ..., "arguments": {...}, "result": ...}]'
_USAGE = '"usage": {"input_tokens": ..., "output_tokens": ...}'

_WHOLE = f'{{"text": ..., {_CALLS}}}'
_MODEL = '"model": "NAME"'
_FOR_CALLS: dict[str, tuple[str, dict[str, str]]] = {
    "callable": ("remedy.calls_callable", {"object": _WHOLE}),
    "http": ("remedy.calls_http", {"calls": _CALLS}),
    "command": ("remedy.calls_command", {"object": _WHOLE}),
    "n8n": ("remedy.calls_execution", {}),
    "flowise": ("remedy.calls_flow", {}),
}
"""The sentence for each kind of target, and what is written in it as it is to be typed."""
_FOR_USAGE: dict[str, tuple[str, dict[str, str]]] = {
    "callable": ("remedy.usage_callable", {"usage": _USAGE}),
    "http": ("remedy.usage_http", {"usage": _USAGE}),
    "command": ("remedy.usage_command", {"usage": _USAGE}),
    "n8n": ("remedy.usage_execution", {}),
}
_FOR_MODEL: dict[str, tuple[str, dict[str, str]]] = {
    "callable": ("remedy.model_callable", {"model": _MODEL}),
    "http": ("remedy.model_http", {"model": _MODEL}),
    "command": ("remedy.model_command", {"model": _MODEL}),
    "n8n": ("remedy.model_execution", {}),
}
_SPANS = " and "
"""Stands between the two readers of a value and of its spans."""


def tell_remedy(result: CaseResult, words: Catalogue | None = None) -> str | None:
    """Return what to do so that a claim of a driven case finds the calls or tokens it lacks; None where that is unknown."""
    if result.source is not None or result.account is None:
        return None
    reader = result.account.reader
    # A function is read as itself, or as the value of its framework.
    kind = "callable" if reader.endswith(" result") or _SPANS in reader else reader
    undecided = [verdict for verdict in result.verdicts if verdict.code == "missing_evidence"]
    lacking = {part for verdict in undecided for part in _list_lacking(verdict)}
    part: Part | None = next((part for part in _HELPED if part in lacking), None)
    return tell_how(part, kind, reader, words) if part is not None else None


def _list_lacking(verdict: Verdict) -> list[Part]:
    told = verdict.details.get("unknown", verdict.details.get("not_known"))
    if isinstance(told, dict):
        return [part for part in _HELPED if part in told]
    return [part for part in _HELPED if verdict.reason.startswith(PART_NAMES[part])]


def tell_how(part: Part, kind: str, reader: str, words: Catalogue | None = None) -> str | None:
    """Return what records a part of an exchange with a target of this kind, whose evidence this reader read; None where nobody knows."""
    if part not in _HELPED:
        return None
    found = (_FOR_CALLS if part in CALL_PARTS else _FOR_USAGE).get(kind)
    return _tell_of_framework(kind, reader, words) or (None if found is None else speak(words).say(found[0], **found[1]))


def _tell_of_framework(kind: str, reader: str, words: Catalogue | None) -> str | None:
    """Return what helps where a function returned the value of a framework, which says only what it says; None for other values."""
    if kind != "callable" or reader in ("", "plain", "callable"):
        return None
    if _SPANS in reader:
        return speak(words).say("remedy.spans_silent")
    return speak(words).say("remedy.framework_silent", reader=reader)


def tell_how_model(kind: str, reader: str, words: Catalogue | None = None) -> str | None:
    """Return what records the name of the model."""
    found = _FOR_MODEL.get(kind)
    return _tell_of_framework(kind, reader, words) or (None if found is None else speak(words).say(found[0], **found[1]))
