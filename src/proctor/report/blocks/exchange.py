"""What was asked and what came back, short enough to stand beside the verdicts of a case.

Kept evidence has no secrets any more; texts and arguments are cut here, and the whole is in the evidence itself.
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
    """Return `input`, `answer`, `tool_calls` and `tokens` of a run; a part that was not recorded is null."""
    asked = [turn.input for turn in evidence.turns or case.turns if turn.input is not None]
    given: Json = evidence.input if evidence.input is not None else case.input
    calls = evidence.tool_calls
    if calls is None and evidence.turns:
        told = [turn.tool_calls for turn in evidence.turns if turn.tool_calls is not None]
        calls = tuple(call for each in told for call in each) if told else None
    usage = evidence.usage
    exchange: dict[str, Json] = {
        "input": [shorten(text, MOST_TEXT) for text in asked[:MOST_TURNS]] if len(asked) > 1 else _cut(asked[0] if asked else given),
        "answer": None if evidence.text is None else shorten(evidence.text, MOST_TEXT),
        "tool_calls": None if calls is None else [_write_call(call) for call in calls[:MOST_CALLS]],
        "tokens": None if usage is None else {"input": usage.input_tokens, "output": usage.output_tokens, "total": usage.total()},
    }
    if calls is not None and len(calls) > MOST_CALLS:
        exchange["more_tool_calls"] = len(calls) - MOST_CALLS
    return exchange


def with_exchange(result: CaseResult, evidence: Evidence | None, *, ranges: bool = True) -> CaseResult:
    """Return the result with what was asked and answered, and the characters its verdicts are about, where there is evidence of it."""
    if evidence is None:
        return result
    shown = add_ranges(result, evidence) if ranges else result
    return msgspec.structs.replace(shown, exchange=write_exchange(result.case, evidence))


def add_exchanges(run: RunResult, entries: Mapping[tuple[str, int], RunEntry], *, only_failed: bool = False) -> RunResult:
    """Return a kept run with what was asked and answered in every case that left evidence, or in those alone that did not pass."""

    def add(result: CaseResult) -> CaseResult:
        if only_failed and result.outcome not in ("fail", "error"):
            return result
        entry = entries.get((result.case.id, result.attempt))
        return with_exchange(result, None if entry is None else entry.evidence)

    return msgspec.structs.replace(run, cases=map_sequence(run.cases, add, remember=1))


def drop_exchanges(run: RunResult) -> RunResult:
    """Return the run without them, for a report that has no room."""
    return msgspec.structs.replace(run, cases=tuple(msgspec.structs.replace(result, exchange=None) for result in run.cases))


def describe_exchange(exchange: dict[str, Json]) -> list[tuple[str, str]]:
    """Return the same in lines, each with the name of its label; what was not recorded is left out."""
    lines: list[tuple[str, str]] = []
    asked: Json = exchange["input"]
    for text in asked if isinstance(asked, list) else [asked]:
        if text is not None:
            lines.append(("asked", text if isinstance(text, str) else show(text, MOST_TEXT)))
    if exchange["answer"] is not None:
        lines.append(("answered", str(exchange["answer"])))
    calls: Sequence[dict[str, Json]] = exchange["tool_calls"] or ()
    told = [f"{call['name']} {show(call['arguments'], 200)}" + (" (failed)" if call["failed"] else "") for call in calls]
    for text, same in groupby(told):
        count = len(list(same))
        # An agent that goes round in circles makes the same call again and again.
        lines.append(("called", text if count == 1 else f"{text}, {count:,} times"))
    tokens: dict[str, Json] | None = exchange["tokens"]
    if tokens is not None and tokens["total"] is not None:
        lines.append(("tokens", f"{tokens['total']:,}"))
    return lines


def _write_call(call: ToolCall) -> dict[str, Json]:
    return {"name": shorten(call.name, 200), "arguments": _cut(call.arguments, MOST_ARGUMENTS), "failed": call.failed()}


def _cut(value: Json, limit: int = MOST_TEXT) -> Json:
    """Return a value as it is where it is short, else its beginning and end as text."""
    if isinstance(value, str):
        return shorten(value, limit)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    try:
        # Only whether it is short: a long one is written by `show`, which stops early.
        short = len(msgspec.json.encode(value)) <= limit
    except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError):
        short = False
    return value if short else show(value, limit)
