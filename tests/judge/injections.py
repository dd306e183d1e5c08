"""The corpus of injection attempts, the places they are put, and the rules that a rendered request must keep."""

from __future__ import annotations

import base64
import codecs
import html
import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from proctor.judge.prompt import load_prompt
from proctor.judge.request import RenderedRequest, render_request
from proctor.model.judgement import Material, Question
from tests.judge.obedient_judge import TOKENS, ObedientJudge
from tests.tables import load

MAX_CHARS = 8_000
CRITERIA = ("The answer names the price.", "The answer greets the user.", "The answer invents an order number.")


def ask(material: Material, *, max_chars: int = MAX_CHARS, repair: str | None = None, **fields: Any) -> RenderedRequest:
    questions = [Question(criterion=criterion, material=material, **fields) for criterion in CRITERIA]
    return render_request(questions, prompt=load_prompt(), max_chars=max_chars, order_seed=7, repair=repair)


HARMLESS = Material(subject="The price is 40.")


def attempts() -> list[tuple[str, Any]]:
    """Every attempt with its id."""
    return [
        (row["id"], made(row["make"]) if "make" in row else row.get("text", row.get("json"))) for row in load("judge/cases/injections.yaml")
    ]


def made(how: dict[str, Any]) -> Any:
    """Build an attempt from its row."""
    before, after = how.get("before", ""), how.get("after", "")
    if "encode" in how:
        return before + _ENCODINGS[how["encode"]](how["of"]) + after
    if "escaped" in how:
        return json.loads('"' + how["escaped"].encode("ascii", "backslashreplace").decode().replace('"', '\\"') + '"')
    if "marker_of" in how:
        return before + ask(Material(subject=how["marker_of"])).marker + after
    if "deep" in how:
        value: Any = how["of"]
        for _ in range(how["levels"]):
            value = [value] if how["deep"] == "list" else {"a": value}
        return value
    if "wide" in how:
        return [how["of"]] * how["times"] if how["wide"] == "list" else {f"{how['of']} {n}": n for n in range(how["times"])}
    if "number" in how:
        return 10 ** how["number"]
    return before + how["repeat"] * how["times"] + after


_ENCODINGS: dict[str, Callable[[str], str]] = {
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "rot13": lambda text: codecs.encode(text, "rot13"),
    "hex": lambda text: text.encode().hex(),
    "url": lambda text: quote(text, safe=""),
    "html": html.escape,
    "tags": lambda text: "".join(chr(0xE0000 + ord(character)) for character in text),
    "selectors": lambda text: "".join(chr(0xE0100 + byte) for byte in text.encode()),
    "zero_width": lambda text: "".join("\u200b" if bit == "0" else "\u200c" for byte in text.encode() for bit in f"{byte:08b}"),
}


def placed(attempt: Any) -> Iterator[tuple[str, Material, str | None]]:
    """The attempt in every place that the agent, its tools or its users write: the place, the material, and the fault of a reply."""
    yield "subject", Material(subject=attempt), None
    yield "everywhere", Material(subject={"a": attempt}, context={"conversation": [attempt], "tool_results": attempt}), None
    if _is_huge(attempt):
        return
    yield "value", Material(subject={"answer": attempt, "more": [1, attempt]}, name="end_state"), None
    yield "scenario prompt", Material(subject="fine", context={"scenario_prompt": attempt}), None
    yield "tool results", Material(subject="fine", context={"tool_results": [{"tool": "look_up", "result": {"text": attempt}}]}), None
    yield "transcript", Material(subject=[{"role": "user", "content": attempt}], name="transcript"), None
    if isinstance(attempt, str):
        yield "key", Material(subject={attempt: {attempt: 1}}), None
        yield "name of a part of the context", Material(subject="fine", context={attempt: "x"}), None
        yield "tool name", Material(subject="fine", context={"tool_sequence": [attempt], "tool_inputs": [{"tool": attempt}]}), None
        yield "name", Material(subject="fine", name=attempt), None
        yield "fault of a reply", Material(subject="fine"), attempt


def violations(attempt: Any, *, max_chars: int = MAX_CHARS) -> list[str]:
    """Every rule that a request with the attempt breaks, in any place."""
    return [
        f"{place}: {broken}"
        for place, material, fault in placed(attempt)
        for broken in broken_rules(attempt, material, fault, max_chars=max_chars)
    ]


def broken_rules(attempt: Any, material: Material, fault: str | None = None, *, max_chars: int = MAX_CHARS) -> Iterator[str]:
    """The rules that the request for `material`, which contains the attempt, breaks."""
    rendered = ask(material, max_chars=max_chars, repair=fault)
    harmless = ask(HARMLESS, repair=None if fault is None else "nothing")
    if [message.role for message in rendered.messages] != ["system", "user"]:
        yield "there are other messages than two"
    system, user = (message.text for message in rendered.messages)
    opening, closing = f"<<<DATA {rendered.marker}>>>", f"<<<END OF DATA {rendered.marker}>>>"
    lines = user.split("\n")
    if user.count(rendered.marker) != 3 or lines.count(opening) != 1 or lines.count(closing) != 1:
        yield "the marker lines are not the only two"
        return
    if rendered.marker == harmless.marker:
        yield "the marker does not depend on the material"
    start, end = lines.index(opening), lines.index(closing)
    if end - start != 2:
        yield f"the data takes {end - start - 1} lines"
        return
    yield from _broken_in_data(lines[start + 1], attempt, material, rendered, max_chars, fault)
    if _outside(rendered) != _outside(harmless):
        yield "something outside of the data depends on it"
    seen = {unicodedata.category(character) for character in system + user if character != "\n"}
    if seen & {"Cc", "Cf", "Cs", "Zl", "Zp"} or re.search("[\ufe00-\ufe0f\U000e0000-\U000e0fff]", user):
        yield f"there are characters that cannot be seen: {sorted(seen)}"
    judge = ObedientJudge(texts_in(attempt), harmless.messages[0].text + harmless.messages[1].text)
    order = judge.order_in(rendered.messages)
    if order is not None:
        yield f"the obedient judge reads {order!r}"


def _broken_in_data(
    line: str, attempt: Any, material: Material, rendered: RenderedRequest, max_chars: int, fault: str | None
) -> Iterator[str]:
    try:
        data = json.loads(line)
    except ValueError as error:
        yield f"the data is no JSON: {error}"
        return
    expected = [*(["context"] if material.context else []), *(["fault_of_previous_reply"] if fault is not None else [])]
    if not isinstance(data, dict) or list(data)[1:] != expected:
        yield f"the data has other members than it should: {list(data)}"
    if len(line) > max_chars + (700 if fault is not None else 0):
        yield f"the data takes {len(line)} characters, more than {max_chars}"
    lowered = line.lower() + unicodedata.normalize("NFKC", line).lower()
    yield from (f"the data holds {token!r}" for token in TOKENS if token in lowered)
    if (
        isinstance(attempt, str)
        and not rendered.cuts
        and len(attempt) < 150
        and material.name != attempt
        and _letters(attempt) not in _letters(line)
    ):
        yield "the data is no longer legible"


def texts_in(attempt: Any) -> list[str]:
    """The texts and names in an attempt, down to a fixed depth."""
    found: list[str] = []
    waiting: list[Any] = [attempt]
    while waiting and len(found) < 50:
        value = waiting.pop()
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, list):
            waiting.extend(value[:20])
        elif isinstance(value, dict):
            waiting.extend([*list(value)[:20], *list(value.values())[:20]])
    return found


def _outside(rendered: RenderedRequest) -> str:
    """The request without its data; parts that may differ are masked."""
    text = "\0".join(message.text for message in rendered.messages)
    start, end = text.index("\n<<<DATA ", text.index("\0")), text.index("\n<<<END OF DATA ", text.index("\0"))
    text = text[:start] + text[end:]
    for identifier in rendered.ids:
        text = text.replace(identifier, identifier.rpartition("-")[0])
    return re.sub(r"cut for length: \d+\.", "", text.replace(rendered.marker, "MARKER"))


def _letters(text: str) -> str:
    """The letters and digits of a text, with JSON escapes removed."""
    return re.sub(r"[\W_]", "", re.sub(r"\\[nrt]", "", text))


def _is_huge(attempt: Any) -> bool:
    """Whether an attempt is too large to put in every place."""
    if isinstance(attempt, str):
        return len(attempt) > 20_000
    try:
        return isinstance(attempt, int) or len(json.dumps(attempt)) > 20_000
    except RecursionError:
        return True
