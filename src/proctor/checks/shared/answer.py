"""The answer as JSON: the recorded body, or the text read by the rules of `JSON.parse`.

White space around the document is allowed; a byte order mark, `NaN`, comments, trailing commas and surrounding words are not. If a key is
repeated, the last one counts. If fences are allowed, one fenced code block around the whole answer is removed.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Final, Literal, NamedTuple, NoReturn

from proctor.checks.registry import Decide
from proctor.errors import CheckFault
from proctor.model.evidence import Evidence, Json
from proctor.model.show import show
from proctor.model.verdict import Verdict, failed, missing

NO_TEXT: Final = missing("response text")
POINTER: Final = ("$.text",)
AROUND: Final = 40
"""The number of characters shown on either side of a match."""


def over_text(decide: Callable[[str], Verdict]) -> Decide:
    """Return a decision on the text of the answer; without a text, the claim is undecided."""
    return lambda evidence: NO_TEXT if evidence.text is None else decide(evidence.text)


def decide_always(verdict: Verdict) -> Decide:
    """Return a decision that is the same for any evidence."""
    return lambda evidence: verdict


def fail_text_claim(claim: str, expected: str, text: str, hint: str | None) -> Verdict:
    """Return a failed claim about the answer: the expected text, the actual one, and a hint if there is one."""
    return _fail_with_hint(f"expected the answer to {claim}, found {show(text)}", hint, expected=show(expected))


def _fail_with_hint(reason: str, hint: str | None, *, code: str | None = None, **details: Json) -> Verdict:
    if hint is None:
        return failed(reason, code=code, details=details, pointers=POINTER)
    return failed(f"{reason}; {hint}", code=code, details={**details, "hint": hint}, pointers=POINTER)


def quote_around(text: str, start: int, end: int) -> str:
    """Return a match with a little of the text on both sides."""
    left, right = max(0, start - AROUND), min(len(text), end + AROUND)
    return show(f"{'…' if left else ''}{text[left:right]}{'…' if right < len(text) else ''}")


_FENCE: Final = "```"
CODE_BLOCK: Final = re.compile(r"^```[^\n]*\n.*?(?:^```|\Z)", re.MULTILINE | re.DOTALL)
"""A fenced block of code in a text."""
_NO_ANSWER: Final = missing("response body")


class Place(NamedTuple):
    """A value and its path in the evidence."""

    value: Json
    pointer: str


class _NotJson(Exception):
    """The text is not a JSON document."""


def answer_json(evidence: Evidence, *, source: Literal["body", "text"] = "body", unfence: bool = True) -> Place | Verdict:
    """Return the JSON document, or the verdict if there is none."""
    if source == "body" and evidence.body is not None:
        return Place(evidence.body, "$.body")
    text = evidence.text
    if text is None:
        return NO_TEXT if source == "text" else _NO_ANSWER
    span = find_fenced(text)
    inner = None if span is None else text[span[0] : span[1]]
    try:
        return Place(_parse(text if inner is None or not unfence else inner), "$.text")
    except _NotJson as error:
        hint = "the answer is one fenced code block; only its inside is JSON" if inner is not None and not unfence else None
        return _fail_with_hint(f"expected an answer in JSON, found {show(text)} ({error})", hint, code="not_json")


def find_fenced(text: str) -> tuple[int, int] | None:
    """Return the position of the content of a text that is one fenced code block, or None."""
    block = text.strip()
    if len(block) < 2 * len(_FENCE) or not block.startswith(_FENCE) or not block.endswith(_FENCE):
        return None
    label, line_break, inner = block[len(_FENCE) : -len(_FENCE)].partition("\n")
    if not line_break or _FENCE in inner or "`" in label:
        return None
    start = len(text) - len(text.lstrip()) + len(_FENCE) + len(label) + 1
    return start, start + len(inner)


# Consecutive claims about one answer share the parsed document, which is never modified.
@functools.lru_cache(maxsize=8)
def _parse(text: str) -> Json:
    import json  # only for claims about JSON

    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise _NotJson(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise CheckFault("json_limit", "the answer is nested too deeply to be read") from None
    # `JSONDecodeError` is handled above; this is Python's limit on the digits of a number.
    except ValueError:
        raise CheckFault("json_limit", "the answer holds a number with too many digits to be read") from None


def _refuse_constant(name: str) -> NoReturn:
    raise _NotJson(f"{name} is not JSON")
