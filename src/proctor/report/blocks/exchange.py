"""A shortened input and answer, shown next to the verdicts.

Stored evidence has no secrets; texts and arguments are cut here, and the evidence has all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import msgspec

from proctor.model.case import Case
from proctor.model.evidence import Evidence, Json, ToolCall
from proctor.model.lazy_cases import map_sequence
from proctor.model.result import CaseResult, RunResult
from proctor.model.run import RunEntry
from proctor.model.show import shorten, show
from proctor.report.words.ranges import add_ranges

MOST_TEXT = 2000
"""Characters of an input or an answer."""
MOST_ARGUMENTS = 500
"""Characters of the arguments of one call, as JSON."""
MOST_CALLS = 50
MOST_TURNS = 20


def write_exchange(case: Case, evidence: Evidence) -> dict[str, Json]:
    """Return `input`, `answer`, `tool_calls` and `tokens` of a run; parts that were not recorded are null."""
    inputs = [turn.input for turn in evidence.turns or case.turns if turn.input is not None]
    prompt: Json = evidence.input if evidence.input is not None else case.input
    calls = evidence.tool_calls
    if calls is None and evidence.turns:
        by_turn = [turn.tool_calls for turn in evidence.turns if turn.tool_calls is not None]
        calls = tuple(call for each in by_turn for call in each) if by_turn else None
    usage = evidence.usage
    exchange: dict[str, Json] = {
        "input": [shorten(text, MOST_TEXT) for text in inputs[:MOST_TURNS]] if len(inputs) > 1 else _cut(inputs[0] if inputs else prompt),
        "answer": None if evidence.text is None else shorten(evidence.text, MOST_TEXT),
        "tool_calls": None if calls is None else [_write_call(call) for call in calls[:MOST_CALLS]],
        "tokens": None if usage is None else {"input": usage.input_tokens, "output": usage.output_tokens, "total": usage.total()},
    }
    if calls is not None and len(calls) > MOST_CALLS:
        exchange["more_tool_calls"] = len(calls) - MOST_CALLS
    return exchange


def with_exchange(result: CaseResult, evidence: Evidence | None, *, ranges: bool = True) -> CaseResult:
    """Return the result with its exchange and the ranges of its verdicts, if there is evidence."""
    if evidence is None:
        return result
    with_ranges = add_ranges(result, evidence) if ranges else result
    return msgspec.structs.replace(with_ranges, exchange=write_exchange(result.case, evidence))


def add_exchanges(run: RunResult, entries: Mapping[tuple[str, int], RunEntry], *, only_failed: bool = False) -> RunResult:
    """Return a stored run with the exchange of every case with evidence, or only of failed ones."""

    def add(result: CaseResult) -> CaseResult:
        if only_failed and result.outcome not in ("fail", "error"):
            return result
        entry = entries.get((result.case.id, result.attempt))
        return with_exchange(result, None if entry is None else entry.evidence)

    return msgspec.structs.replace(run, cases=map_sequence(run.cases, add, remember=1))


def drop_exchanges(run: RunResult) -> RunResult:
    """Return the run without exchanges."""
    return msgspec.structs.replace(run, cases=tuple(msgspec.structs.replace(result, exchange=None) for result in run.cases))


def describe_exchange(exchange: dict[str, Json]) -> list[tuple[str, str]]:
    """Return the exchange as labelled lines."""
    lines: list[tuple[str, str]] = []
    prompt: Json = exchange["input"]
    for text in prompt if isinstance(prompt, list) else [prompt]:
        if text is not None:
            lines.append(("input", text if isinstance(text, str) else show(text, MOST_TEXT)))
    if exchange["answer"] is not None:
        lines.append(("answered", str(exchange["answer"])))
    calls: Sequence[dict[str, Json]] = exchange["tool_calls"] or ()
    described = [f"{call['name']} {show(call['arguments'], 200)}" + (" (failed)" if call["failed"] else "") for call in calls]
    for text, repeats in groupby(described):
        count = len(list(repeats))
        # A looping agent repeats the same call.
        lines.append(("called", text if count == 1 else f"{text}, {count:,} times"))
    tokens: dict[str, Json] | None = exchange["tokens"]
    if tokens is not None and tokens["total"] is not None:
        lines.append(("tokens", f"{tokens['total']:,}"))
    return lines


def _write_call(call: ToolCall) -> dict[str, Json]:
    return {"name": shorten(call.name, 200), "arguments": _cut(call.arguments, MOST_ARGUMENTS), "failed": call.failed()}


def _cut(value: Json, limit: int = MOST_TEXT) -> Json:
    """Return a short value as it is, else its start and end as text."""
    if isinstance(value, str):
        return shorten(value, limit)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    try:
        # Only tests the length: `show` writes long values and stops early.
        short = len(msgspec.json.encode(value)) <= limit
    except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError):
        short = False
    return value if short else show(value, limit)
