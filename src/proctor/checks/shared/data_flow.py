"""Finds where a value came from: the input, or the result of an earlier call.

A number in the data equals the same number as text, and letter case does not count. A result may be JSON text, or text in the blocks of
MCP; other text contains a value if it is not part of a longer word or number. A list or an object is copied if each
of its values is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from proctor.model.evidence import Evidence, Json, ToolCall
from proctor.model.json_values import is_number

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
    return [written for _, (_, written) in zip(range(_MOST_LEAVES), list_leaves(value), strict=False)]


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
    leaves = [written for _, (_, written) in zip(range(_MOST_LEAVES), list_leaves(result), strict=False)]
    return leaves, [result.lower()[:_MOST_CHARACTERS]] if isinstance(result, str) else []
