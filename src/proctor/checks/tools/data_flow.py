"""Claims about where values come from: an argument from the input or an earlier result, a value of the answer from a call.

A number in the data equals the same number as text, and letter case does not count. A result may be JSON text, or text in the blocks of
MCP; other text contains a value if it is not part of a longer word or number. A list or an object is copied if each
of its values is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.calls import (
    call_path,
    fail_never_called,
    find_indexes_of,
    over_calls,
    over_calls_of,
    require_name,
)
from proctor.errors import SpecError
from proctor.model.evidence import Evidence, Json, ToolCall
from proctor.model.json_values import is_number
from proctor.model.show import show
from proctor.model.verdict import Verdict, failed, missing, passed

_BEFORE, _AFTER = re.compile(r"\d[.,]$"), re.compile(r"[.,]?\d+")
_ONLY_ZEROS, _MORE_ZEROS = re.compile(r"\.0{1,2}"), re.compile(r"0{1,2}")
_MOST_LEAVES = 500
_MOST_CHARACTERS = 200_000


def write_value(value: Json) -> str | None:
    """Return a text or a number in the form in which values are compared; None for anything else."""
    if isinstance(value, str):
        return value.strip().lower() or None
    if is_number(value):
        return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    return None


def is_in_text(written: str, text: str) -> bool:
    """Return whether a written value is in a lower-case text, not as a part of a longer word or number."""
    at = text.find(written)
    while at >= 0:
        end = at + len(written)
        inside_word = (text[at - 1 : at].isalnum() and written[0].isalnum()) or (text[end : end + 1].isalnum() and written[-1].isalnum())
        inside_number = written[0].isdigit() and _BEFORE.search(text[max(0, at - 2) : at]) is not None
        if written[-1].isdigit() and (rest := _AFTER.match(text, end)):
            # `42` is not in `42.5`; it is in `42.00`, and `42.5` is in `42.50`.
            zeros = _MORE_ZEROS if "." in written else _ONLY_ZEROS
            inside_number = inside_number or zeros.fullmatch(rest[0]) is None
            inside_word = text[at - 1 : at].isalnum()
        if not inside_word and not inside_number:
            return True
        at = text.find(written, at + 1)
    return False


def read_result(result: Json) -> Json:
    """Return the result of a call as data: JSON text is decoded, and a single text block of MCP is unwrapped."""
    for _ in range(3):
        if isinstance(result, dict) and isinstance(result.get("content"), list):
            result = result["structuredContent"] if isinstance(result.get("structuredContent"), dict) else result["content"]
        if isinstance(result, list) and len(result) == 1 and isinstance(result[0], dict) and set(result[0]) >= {"type", "text"}:
            result = result[0]["text"]
        if not isinstance(result, str) or result[:1] not in ("{", "["):
            break
        try:
            result = msgspec.json.decode(result)
        except (msgspec.MsgspecError, RecursionError):
            break
    return result


def list_leaves(value: Json, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts and numbers of a value with their paths; `*` is any item of a list."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from list_leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from list_leaves(item, f"{path}.*" if path else "*")
    elif (written := write_value(value)) is not None:
        yield path, written


def find_leaves(value: Json, path: str) -> Iterator[str]:
    """Yield the written values at a path of `list_leaves`; an empty path is the value itself."""
    items: list[Json] = [value]
    for step in path.split(".") if path else ():
        if step == "*":
            items = [each for item in items if isinstance(item, (list, tuple)) for each in item]
        else:
            items = [item[step] for item in items if isinstance(item, dict) and step in item]
    for item in items[:_MOST_LEAVES]:
        if (written := write_value(item)) is not None:
            yield written


def list_written(value: Json) -> list[str]:
    """Return the texts and numbers of an argument."""
    return [written for _, written in islice(list_leaves(value), _MOST_LEAVES)]


def read_input_text(evidence: Evidence) -> str:
    """Return all messages of the user in lower case."""
    given: list[Json] = [evidence.input, *(turn.input for turn in evidence.turns or ())]
    return "\n".join(part for each in given for _, part in list_leaves(each))[:_MOST_CHARACTERS]


def read_answer_text(evidence: Evidence) -> str:
    """Return the answer in lower case: its text, else the values of its body."""
    answer = evidence.text if evidence.text is not None else evidence.body
    return "\n".join(written for _, written in list_leaves(answer))[:_MOST_CHARACTERS]


def is_copied(value: Json, sources: Iterable[str], texts: Iterable[str]) -> bool:
    """Return whether every text and number of an argument equals one of the sources, or is in one of the texts."""
    wanted, known, found = list_written(value), set(sources), list(texts)
    return bool(wanted) and all(each in known or any(is_in_text(each, text) for text in found) for each in wanted)


def list_sources(call: ToolCall, path: str) -> tuple[list[str], list[str]]:
    """Return the values at a path of a result; an empty path takes all values and the text of a result that is no data."""
    result = read_result(call.result)
    if path:
        return list(find_leaves(result, path)), []
    return list_written(result), [result.lower()[:_MOST_CHARACTERS]] if isinstance(result, str) else []


class ArgumentCopied(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Every call of the tool has the argument, with a value from the input or from an earlier result."""

    tool: str
    """The tool's name."""
    argument: str
    """The argument's name, top level."""
    result_of: str | None = None
    """The earlier tool whose result has the value; left out: the value is in the input."""
    path: str = ""
    """Where in that result: a dot path, `*` for any item of a list; left out: anywhere."""


class AnswerRepeats(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer contains a value of every call of the tool."""

    tool: str
    """The tool's name."""
    argument: str | None = None
    """The argument with the value, top level."""
    path: str | None = None
    """Or where in the result the value is: a dot path."""


@check(
    "argument_copied",
    example="argument_copied: {tool: refund, argument: amount, result_of: lookup_order, path: total}",
    reads=lambda spec: Reads(("tool_calls", "tool_arguments", "input" if spec.result_of is None else "tool_results"), "exact"),
)
def argument_copied(spec: ArgumentCopied) -> Decide:
    """Every call of a tool has an argument whose value is in the input, or in the result of an earlier call."""
    require_name(spec.tool, "tool")
    if spec.path and spec.result_of is None:
        raise SpecError("path is about the result of a tool: give result_of too", field="path")
    source = "the input" if spec.result_of is None else f"an earlier result of {show(spec.result_of)}"
    if spec.path:
        source += f" at {spec.path}"
    ok = passed(f"{spec.argument} of {show(spec.tool)} is from {source}")

    def decide(evidence: Evidence, calls: Sequence[ToolCall], named: list[int]) -> Verdict:
        if spec.result_of is None and evidence.input is None and not evidence.turns:
            return missing("the input")
        texts = [read_input_text(evidence)] if spec.result_of is None else []
        for index in named:
            place = f"{call_path(evidence, index)}.arguments"
            given = calls[index].arguments
            if not isinstance(given, dict) or spec.argument not in given:
                return failed(f"expected {spec.argument} from {source}; {place} has no {show(spec.argument)}", pointers=(place,))
            values: list[str] = []
            for earlier in calls[:index] if spec.result_of is not None else ():
                if earlier.goes_by(spec.result_of or ""):
                    leaves, found = list_sources(earlier, spec.path)
                    values += leaves
                    texts += found
            if not is_copied(given[spec.argument], values, texts):
                reason = f"expected {spec.argument} of {show(spec.tool)} from {source}; {show(given[spec.argument])} is not there"
                return failed(reason, details={"found": given[spec.argument]}, pointers=(f"{place}.{spec.argument}",))
        return ok

    return over_calls_of(spec.tool, f"a call of {show(spec.tool)} with {spec.argument} from {source}", decide)


@check(
    "answer_repeats",
    example="answer_repeats: {tool: refund, argument: amount}",
    reads=Reads(("tool_calls", "tool_arguments", "tool_results", "answer"), "exact"),
)
def answer_repeats(spec: AnswerRepeats) -> Decide:
    """The answer contains the value of an argument, or of a member of the result, of every call of a tool that succeeded."""
    require_name(spec.tool, "tool")
    if (spec.argument is None) == (spec.path is None):
        raise SpecError("give argument or path", field="argument")
    what = f"{spec.argument if spec.argument is not None else f'{spec.path} of the result'} of {show(spec.tool)}"
    ok = passed(f"the answer repeats {what}")

    def decide(evidence: Evidence, calls: Sequence[ToolCall]) -> Verdict:
        named = [index for index in find_indexes_of(calls, spec.tool) if not calls[index].failed()]
        if not named:
            return fail_never_called(spec.tool, f"an answer that repeats {what}", calls)
        if evidence.text is None and evidence.body is None:
            return missing("the answer")
        answer, pointer = read_answer_text(evidence), "$.body" if evidence.text is None else "$.text"
        for index in named:
            values = _list_values(spec, calls[index].arguments, calls[index].result)
            absent = next((value for value in values if not is_in_text(value, answer)), None)
            if absent is not None or not values:
                found = f"{show(absent)} is not in it" if values else f"{call_path(evidence, index)} has no such value"
                return failed(f"expected the answer to repeat {what}; {found}", pointers=(pointer,))
        return ok

    return over_calls(decide)


def _list_values(spec: AnswerRepeats, arguments: Json, result: Json) -> list[str]:
    if spec.argument is None:
        return list(find_leaves(read_result(result), spec.path or ""))
    return list_written(arguments[spec.argument]) if isinstance(arguments, dict) and spec.argument in arguments else []
