"""Proposes claims that would detect a fault, the most general first. The caller decides each of them before it is shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from proctor.checks.run.limits import list_usages
from proctor.checks.tools.data_flow import list_leaves, list_written, read_result
from proctor.model.evidence import Evidence, Json, ToolCall
from proctor.model.json_values import is_number
from proctor.mutation.call_edits import list_calls
from proctor.mutation.faults import CANARY, EXTRA_ARGUMENT, OTHER_ANSWER, UNKNOWN_TOOL, Fault
from proctor.mutation.state_edits import write_path

_WORD = re.compile(r"[^\W_][\w'-]{5,}")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_LONGEST_VALUE = 300
"""Characters of a value that a claim of one line repeats."""
LEAST_LIMIT = 1_000
"""Milliseconds, and tokens, that vary by chance."""
_SHOWN_ENDS = 80
"""Characters at the beginning and at the end of a longer text that a claim repeats."""


def propose_claims(fault: Fault, evidence: Evidence) -> Iterator[Json]:
    """Yield claims about the original evidence that may detect this fault."""
    propose = _PROPOSE.get(fault.kind)
    if propose is not None:
        yield from propose(fault, evidence)


def _propose_for_calls(fault: Fault, evidence: Evidence) -> Iterator[Json]:
    calls = list_calls(evidence)
    call = calls[fault.call]
    names = [other.name for other in calls]
    count = names.count(call.name)
    if count == 1 and fault.kind != "call_repeated":
        yield {"tool_called": call.name}
    yield {"tool_call_count": {"name": call.name, "count": count}}
    yield {"tools_exactly": names}
    yield _claim_call(call, calls)


def _propose_order(fault: Fault, evidence: Evidence) -> Iterator[Json]:
    calls = list_calls(evidence)
    pair = calls[fault.call : fault.call + 2]
    yield {"tools_in_order": [call.name for call in pair]}
    yield {"tools_in_order": [call.name for call in calls]}
    yield {"tool_called": {"name": pair[0].name, "arguments": pair[0].arguments, "values": "literal", "index": fault.call}}


def _propose_for_argument(fault: Fault, evidence: Evidence) -> Iterator[Json]:
    calls = list_calls(evidence)
    call = calls[fault.call]
    same = [other for other in calls if other.name == call.name]
    if fault.kind == "argument_extra":
        yield _claim_call(call, calls)
        yield _claim_types(call)
        yield {"tool_called": {"name": call.name, "forbidden_arguments": [fault.argument]}}
        return
    if fault.kind == "argument_missing" and len(same) == 1:
        yield {"tool_argument": {"tool": call.name, "argument": fault.argument}}
    place: dict[str, Json] = {"tool": call.name, "argument": fault.argument}
    if len(same) == 1 and not isinstance(fault.before, (dict, list)):
        yield {"tool_argument": {**place, "value": cut_value(fault.before)}}
    fitting = sum(1 for other in same if isinstance(other.arguments, dict) and other.arguments.get(fault.argument) == fault.before)
    claim: dict[str, Json] = {"name": call.name, "arguments": {fault.argument: fault.before}, "values": "literal"}
    yield {"tool_called": {**claim, "at_least": fitting} if fitting > 1 else claim}
    yield _claim_call(call, calls)
    # What holds of runs with other values.
    yield {"argument_copied": place}
    written = list_written(fault.before)
    for earlier in calls[: fault.call]:
        paths = (path for path, leaf in list_leaves(read_result(earlier.result)) if path and leaf in written)
        for path in dict.fromkeys(paths):
            yield {"argument_copied": {**place, "result_of": earlier.name, "path": path}}
    yield _claim_types(call)


def _claim_types(call: ToolCall) -> Json:
    """Return the claim that every call of a tool has these arguments, of these types, and no other."""
    kinds = {bool: "boolean", int: "number", float: "number", str: "text", list: "list", dict: "object"}
    arguments = call.arguments if isinstance(call.arguments, dict) else {}
    types = {name: {"$type": kinds[type(value)]} if type(value) in kinds else "*" for name, value in arguments.items()}
    return {"tool_called": {"name": call.name, "arguments": types, "strict": True, "every": True}}


def cut_value(value: Json) -> Json:
    """Return a value; a matcher on its beginning and end if it is a long text."""
    if not isinstance(value, str) or len(value) <= _LONGEST_VALUE:
        return value
    return {"$starts_with": value[:_SHOWN_ENDS], "$ends_with": value[-_SHOWN_ENDS:]}


def _claim_call(call: ToolCall, calls: Sequence[ToolCall]) -> Json:
    """Return the claim that there are as many calls with exactly these arguments as there were."""
    fitting = sum(1 for other in calls if (other.name, other.arguments) == (call.name, call.arguments))
    claim: dict[str, Json] = {"name": call.name, "arguments": call.arguments, "match": "exact", "values": "literal"}
    return {"tool_called": {**claim, "at_least": fitting} if fitting > 1 else claim}


def _propose_against_effect(fault: Fault, evidence: Evidence) -> Iterator[Json]:
    names = [call.name for call in list_calls(evidence)]
    if not names:
        yield "no_tools_called"
    elif fault.tool in names:
        yield {"tool_call_count": {"name": fault.tool, "count": names.count(fault.tool)}}
    elif fault.tool != UNKNOWN_TOOL:
        yield {"tool_not_called": fault.tool}
    yield {"that": f"all(tool_calls[*].name in [{', '.join(map(quote, sorted(set(names))))}])"}
    yield {"tools_exactly": names}


def _propose_no_errors(fault: Fault, evidence: Evidence) -> Iterator[Json]:
    yield "no_tool_errors"
    yield {"no_tool_errors": {"silent_calls": "succeeded"}}
    # Where other calls of the run fail, this tool must not.
    yield {"that": f"all(tool_calls[*].name != {quote(fault.tool)} or tool_calls[*].error == null)"}
    count = sum(call.failed() for call in list_calls(evidence))
    yield {"that": f"len(tool_calls[*].error) <= {count}"}


def _propose_answer(fault: Fault, evidence: Evidence) -> Iterator[Json]:
    """Propose that the answer is not empty, leaks nothing, or contains a part of the original: values, numbers, its end, long words."""
    if fault.path.startswith("$"):
        yield {"json_path": {"path": fault.path, "equals": fault.before}}
        return
    if fault.path == "body" and not isinstance(fault.before, str):
        yield from _propose_body(fault)
        return
    whole = fault.path == "text"
    text = str(fault.before)
    if fault.kind == "answer_empty":
        yield "response_not_empty" if whole else {"that": f"len({fault.path}) > 0"}
    if fault.kind == "answer_leaks":
        if whole:
            yield "no_pii"
        forbidden = CANARY.partition("@")[0]
        yield {"response_not_contains": forbidden} if whole else {"that": f"{quote(forbidden)} not in {fault.path}"}
        return
    given = [
        (call, key, value) for call in list_calls(evidence) if isinstance(call.arguments, dict) for key, value in call.arguments.items()
    ]
    words = [str(value) for _, _, value in given if isinstance(value, str) or is_number(value)]
    # One digit is in many answers.
    repeated = [word for word in words if len(word) > 1 and word in text][:3]
    parts = list(dict.fromkeys([*repeated, *(each for each in _NUMBER.findall(text) if len(each) > 1)]))
    if fault.kind == "answer_truncated":
        parts.append(" ".join(text.split()[-4:]))
    parts += sorted(dict.fromkeys(_WORD.findall(text)), key=lambda word: (-len(word), word))[:3]
    for part in (*parts, text[-40:], text[:_LONGEST_VALUE]):
        yield {"response_contains": part} if whole else {"that": f"{quote(part)} in {fault.path}"}
    for call, key, _ in given if whole else ():
        yield {"answer_repeats": {"tool": call.name, "argument": key}}


def _propose_body(fault: Fault) -> Iterator[Json]:
    body = fault.before
    if fault.kind == "answer_leaks":
        yield "no_pii"
        yield {"that": f"len(body) == {len(body)}"}
        return
    # The last member is the first that a truncated answer lacks.
    keys = reversed(list(body)) if isinstance(body, dict) else reversed(range(len(body)))
    for key in keys:
        path, value = write_path((key,), "$"), body[key]
        if isinstance(value, (str, bool)) or is_number(value):
            yield {"json_path": {"path": path, "equals": value}}
        yield {"json_path": path}
    if fault.kind == "answer_different":
        yield {"response_not_contains": OTHER_ANSWER[-20:]}


def _propose_step(fault: Fault, evidence: Evidence) -> Iterator[Json]:
    yield {"node_called": fault.before}


def _propose_row(fault: Fault, evidence: Evidence) -> Iterator[Json]:
    yield {"that": f"{fault.path} == {quote(fault.before)}"}


def _propose_no_change(fault: Fault, evidence: Evidence) -> Iterator[Json]:
    changes = evidence.state.changes if evidence.state is not None and evidence.state.changes is not None else ()
    allowed: dict[tuple[str, str], int] = {}
    for change in changes:
        folder = change.place.rpartition("/")[0]
        key = (f"{change.system}/{folder}/*" if folder else f"{change.system}/{change.place}", change.change)
        allowed[key] = allowed.get(key, 0) + 1
    rows = [{"place": place, "change": change, "at_most": count} for (place, change), count in allowed.items()]
    yield {"unchanged": {"allowed": rows}} if rows else "unchanged"


def _propose_time(fault: Fault, evidence: Evidence) -> Iterator[Json]:
    slowest = max([evidence.duration_ms or 0, *(turn.duration_ms or 0 for turn in evidence.turns or ())])
    yield {"responded_within": max(LEAST_LIMIT, round_up(slowest * 2 + 1))}


def _propose_tokens(fault: Fault, evidence: Evidence) -> Iterator[Json]:
    usages = [usage for usage in list_usages(evidence) if usage is not None]
    yield {"tokens_within": max(LEAST_LIMIT, round_up(2 * sum(usage.total() or 0 for usage in usages) + 1))}


def round_up(value: float) -> int:
    """Return the next number with two digits that are not zero."""
    step = 10 ** max(0, len(str(int(value))) - 2)
    return int(-(-value // step) * step)


def is_tailored(line: str) -> bool:
    """Return whether a claim is about the planted value itself, and would miss the same fault with another value."""
    return EXTRA_ARGUMENT in line or CANARY.partition("@")[0] in line or OTHER_ANSWER[-20:] in line


def quote(value: Json) -> str:
    """Return a value as conditions write it."""
    if not isinstance(value, str):
        return str(value).lower() if isinstance(value, bool) else str(value)
    escaped = (
        value[:_LONGEST_VALUE].replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    )
    return f"'{escaped}'"


_PROPOSE: dict[str, Callable[[Fault, Evidence], Iterator[Json]]] = {
    **dict.fromkeys(("call_dropped", "call_repeated", "call_replaced"), _propose_for_calls),
    "calls_swapped": _propose_order,
    **dict.fromkeys(("argument_wrong", "argument_missing", "argument_extra", "argument_mistyped"), _propose_for_argument),
    "extra_effect": _propose_against_effect,
    "error_swallowed": _propose_no_errors,
    **dict.fromkeys(("answer_empty", "answer_different", "answer_truncated", "answer_leaks"), _propose_answer),
    "step_dropped": _propose_step,
    "state_wrong": _propose_row,
    "state_extra": _propose_no_change,
    "slow": _propose_time,
    "costly": _propose_tokens,
}
