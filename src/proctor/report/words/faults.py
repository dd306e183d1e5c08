"""Faults shown once instead of at every claim: a judge that does not answer, and cases that could not be decided at all.

For missing evidence: how to record it, for each kind of target.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from proctor.model.account import CALL_PARTS, PART_NAMES, Part
from proctor.model.result import CaseResult
from proctor.model.verdict import Verdict
from proctor.report.words.findings import quote_unreadable_reply
from proctor.report.words.wording import count_noun

MOST_KINDS = 100
"""Different faults that are counted; others are shown with their claims."""


class Touched(msgspec.Struct):
    """What one fault affects."""

    replied: str
    """The first unusable reply of the judge, if any."""
    checks: int = 0
    cases: int = 0

    def describe(self) -> str:
        """Return what is affected: `3 checks in 2 cases`."""
        return f"{count_noun(self.checks, 'check')} in {count_noun(self.cases, 'case')}"


class JudgeFaults:
    """All faults of the judge in a run."""

    def __init__(self) -> None:
        self._touched: dict[tuple[str, str], Touched] = {}

    def add(self, result: CaseResult) -> None:
        """Count the faults of one result."""
        faults: set[tuple[str, str]] = set()
        for verdict in result.verdicts:
            key = find_fault(verdict)
            touched = self._touched.get(key) if key is not None else None
            if key is None or (touched is None and len(self._touched) >= MOST_KINDS):
                continue
            if touched is None:
                touched = self._touched[key] = Touched(quote_unreadable_reply(verdict))
            touched.checks += 1
            touched.cases += key not in faults
            faults.add(key)

    def is_repeated(self, verdict: Verdict) -> bool:
        """Return whether this fault affects several checks."""
        touched = self._touched.get(find_fault(verdict) or ("", ""))
        return touched is not None and touched.checks > 1

    def list_repeated(self) -> list[tuple[str, str, Touched]]:
        """List code, reason and reach of faults that affect several checks, widest first."""
        several = [(code, reason, touched) for (code, reason), touched in self._touched.items() if touched.checks > 1]
        return sorted(several, key=lambda row: -row[2].checks)


def find_fault(verdict: Verdict) -> tuple[str, str] | None:
    """Return code and reason of a verdict that the judge left open, or None."""
    code = verdict.code
    if verdict.outcome != "error" or code is None or not code.startswith("judge_"):
        return None
    return code, verdict.reason


MOST_FAILURES = 1_000
"""Different failures that are collected; others are shown separately."""

Failure = tuple[object, ...]


class Alike(msgspec.Struct):
    """Later results with the same failure."""

    count: int = 0
    names: list[str] = []
    others: bool = False
    """Whether there are more names."""


class Repeats:
    """Failures that several results share: by default faults of whole cases, which name the cases."""

    def __init__(
        self,
        find_failure: Callable[[CaseResult], Failure | None] | None = None,
        name: Callable[[CaseResult], str] = lambda result: result.case.id,
        *,
        most_names: int = 10,
    ) -> None:
        self._find_failure = find_failure or find_case_fault
        self._name = name
        self._most_names = most_names
        self._alike: dict[Failure, Alike] = {}

    def is_repeat(self, result: CaseResult) -> bool:
        """Return whether an earlier result had the same failure; then count this one with it."""
        failure = self._find_failure(result)
        if failure is None:
            return False
        alike = self._alike.get(failure)
        if alike is None:
            if len(self._alike) < MOST_FAILURES:
                self._alike[failure] = Alike()
            return False
        alike.count += 1
        name = self._name(result)
        if name not in alike.names:
            # Attempts of one case count once.
            if len(alike.names) < self._most_names:
                alike.names.append(name)
            else:
                alike.others = True
        return True

    def forget(self, result: CaseResult) -> None:
        """Forget a failure that was not shown, so that later results are not merged into it."""
        self._alike.pop(self._find_failure(result) or (), None)

    def find_alike(self, result: CaseResult) -> Alike | None:
        """Return the later results with the same failure, if any."""
        alike = self._alike.get(self._find_failure(result) or ())
        return alike if alike is not None and alike.count else None


def find_case_fault(result: CaseResult) -> Failure | None:
    """Return code and reason of a case that could not be decided, or None."""
    if result.outcome != "error" or result.code is None or not result.reason:
        return None
    return (result.code, result.reason) if all(verdict.code == result.code for verdict in result.verdicts) else None


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
