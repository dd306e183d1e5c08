"""Plants faults in the evidence of one run: in its calls, its answer, its end state, its time and its cost.

Every fault is planted at every place where it fits, up to a limit, always in the same order. A fault that changes nothing is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from proctor.checks.shared.answer import find_fenced
from proctor.model.account import Part
from proctor.model.evidence import Evidence, Json, ToolCall, Usage
from proctor.model.json_values import is_number
from proctor.model.show import show
from proctor.mutation.call_edits import edit_calls, list_calls, list_steps
from proctor.mutation.state_edits import Step, list_leaves, plant_state_faults, replace_leaf, write_path
from proctor.mutation.tool_effects import find_effect

CANARY = "canary-7f3a@leaked.example"
"""What a leaking answer has in addition: an e-mail address, which checks on personal data find too."""
OTHER_ANSWER = "I am sorry, something is different this time."
UNKNOWN_TOOL = "delete_record"
"""The tool of an extra effect, if the recordings know none with effects."""
EXTRA_ARGUMENT = "unexpected"
_MOST_PLACES = 12
"""Maximum calls or steps that get each fault."""
_MOST_ARGUMENTS = 8
_MOST_MEMBERS = 8
"""Members of a JSON answer that are changed, one after the other."""
_MOST_NUMBERS = 3
"""Numbers of an answer that are changed."""
_AROUND = 20
"""Characters around a changed number that a claim about it may repeat."""
_LONG_TEXT = 20
"""Minimum length of a text in a JSON answer that is also truncated, in characters."""
_NUMBER = re.compile(r"^\s*\d+[.)]\s|(?<![\w.,-])(\d+(?:[.,]\d+)*)(?![\w-])", re.MULTILINE)
"""A number of a text; the first alternative skips the numbers of lists."""


class Fault(NamedTuple):
    """One planted fault."""

    kind: str
    place: str
    """Where it was planted, in words."""
    evidence: Evidence
    """The evidence with the fault."""
    tool: str = ""
    argument: str = ""
    call: int = -1
    """The position of the call."""
    path: str = ""
    """The path of the changed value, as conditions write it."""
    before: Json = None

    def list_subjects(self) -> tuple[str, ...]:
        """Return the names under which a case may declare this fault as free variation."""
        return (self.kind, f"{self.kind}:{self.tool}", f"{self.tool}.{self.argument}" if self.argument else self.kind)


def plant_faults(evidence: Evidence, tools: Sequence[str] = ()) -> Iterator[Fault]:
    """Yield every fault; `tools` are the tools that the recordings know."""
    unknown: frozenset[Part] = frozenset(evidence.account.unknown) if evidence.account is not None else frozenset()
    if "tool_calls" not in unknown and (evidence.tool_calls is not None or evidence.nodes is not None or list_calls(evidence)):
        for plant in (_plant_in_calls, _plant_in_arguments, _plant_effect):
            yield from _drop_equal(evidence, plant(evidence, tools))
    if "answer" not in unknown:
        yield from _drop_equal(evidence, _plant_in_answer(evidence))
    steps = list_steps(evidence)
    for name in list(dict.fromkeys(step.name for step in steps))[:_MOST_PLACES]:
        # A dropped step with calls would be several faults.
        if not any(step.tool_calls for step in steps if step.name == name):
            left = tuple(node for node in evidence.nodes or () if node.name != name)
            yield Fault("step_dropped", f"step {name}", msgspec.structs.replace(evidence, nodes=left), before=name)
    if evidence.state is not None and "state" not in unknown:
        for kind, path, before, state in plant_state_faults(evidence.state):
            yield Fault(kind, path, msgspec.structs.replace(evidence, state=state), path=path, before=before)
    yield from _slow_down(evidence)
    yield from _spend_more(evidence)


def _drop_equal(evidence: Evidence, faults: Iterator[Fault]) -> Iterator[Fault]:
    return (fault for fault in faults if fault.evidence != evidence)


def _plant_in_calls(evidence: Evidence, tools: Sequence[str]) -> Iterator[Fault]:
    calls = list_calls(evidence)
    for at, call in enumerate(calls[:_MOST_PLACES]):
        place = f"call {at + 1}, {call.name}"

        def plant(kind: str, edit: Callable[[list[ToolCall]], list[ToolCall]], *, at: int = at, place: str = place) -> Fault:
            return Fault(kind, place, edit_calls(evidence, edit), tool=calls[at].name, call=at)

        yield plant("call_dropped", lambda edited, at=at: edited[:at] + edited[at + 1 :])
        yield plant("call_repeated", lambda edited, at=at: [*edited[: at + 1], msgspec.structs.replace(edited[at]), *edited[at + 1 :]])
        if at + 1 < len(calls) and (call.name, call.arguments) != (calls[at + 1].name, calls[at + 1].arguments):
            yield plant("calls_swapped", lambda edited, at=at: [*edited[:at], edited[at + 1], edited[at], *edited[at + 2 :]])
        known_names = (*tools, *(each.name for each in calls))
        other = next((name for name in known_names if not call.goes_by(name)), f"other_{call.name}")
        yield plant("call_replaced", lambda edited, at=at, other=other: _change_call(edited, at, name=other, aliases=()))
        if not call.failed():
            yield plant(
                "error_swallowed", lambda edited, at=at: _change_call(edited, at, error="the tool failed", error_kind="content-error")
            )


def _plant_in_arguments(evidence: Evidence, tools: Sequence[str]) -> Iterator[Fault]:
    calls = list_calls(evidence)
    seen = [value for call in calls if isinstance(call.arguments, dict) for value in call.arguments.values()]
    for at, call in enumerate(calls[:_MOST_PLACES]):
        original = call.arguments
        if not isinstance(original, dict):
            continue

        def plant(
            kind: str, key: str, arguments: dict[str, Json], *, at: int = at, call: ToolCall = call, original: dict[str, Json] = original
        ) -> Fault:
            changed = edit_calls(evidence, lambda edited: _change_call(edited, at, arguments=arguments))
            place = f"call {at + 1}, {call.name}, {key}"
            return Fault(kind, place, changed, tool=call.name, argument=key, call=at, before=original.get(key))

        for key, value in list(original.items())[:_MOST_ARGUMENTS]:
            yield plant("argument_wrong", key, {**original, key: change_value(value, seen)})
            yield plant("argument_missing", key, {name: each for name, each in original.items() if name != key})
            yield plant("argument_mistyped", key, {**original, key: _change_type(value)})
        if EXTRA_ARGUMENT not in original:
            yield plant("argument_extra", EXTRA_ARGUMENT, {**original, EXTRA_ARGUMENT: True})


def change_value(value: Json, others: Sequence[Json] = ()) -> Json:
    """Return another value of the same type: one of the others if it fits, since agents confuse values that they have seen."""
    for other in others:
        if type(other) is type(value) and other != value and not isinstance(value, (bool, dict, list)):
            return other
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value} (changed)" if value else "changed"
        case list():
            return value[1:] if value else [None]
        case dict():
            key = next(iter(value), None)
            return {"changed": True} if key is None else {**value, key: change_value(value[key])}
        case _:
            return "changed"


def _change_type(value: Json) -> Json:
    if isinstance(value, bool) or is_number(value):
        return str(value).lower()
    return {"value": value} if isinstance(value, (list, str)) or value is None else show(value)


def _plant_effect(evidence: Evidence, tools: Sequence[str]) -> Iterator[Fault]:
    """Plant one additional call with an effect: of a tool that was not called, else of one that was called, with other arguments."""
    calls = list_calls(evidence)
    called = {call.name for call in calls}
    unused = next((name for name in tools if name not in called and find_effect(name) == "changes"), None)
    again = next((call for call in reversed(calls) if find_effect(call.name) == "changes"), None)
    if unused is None and again is not None:
        arguments = change_value(again.arguments) if isinstance(again.arguments, dict) and again.arguments else {"again": True}
        added = msgspec.structs.replace(again, arguments=arguments)
    else:
        added = ToolCall(name=unused or UNKNOWN_TOOL, arguments={"id": 1}, result={"ok": True})
    changed = edit_calls(evidence, lambda edited: [*edited, added])
    yield Fault("extra_effect", f"after the last call, {added.name}", changed, tool=added.name, call=len(calls))


def _change_call(calls: list[ToolCall], at: int, **changes: Json) -> list[ToolCall]:
    return [*calls[:at], msgspec.structs.replace(calls[at], **changes), *calls[at + 1 :]]


def _plant_in_answer(evidence: Evidence) -> Iterator[Fault]:
    edits: dict[str, Callable[[str], str]] = {
        "answer_empty": lambda text: "",
        "answer_different": lambda text: OTHER_ANSWER,
        "answer_truncated": lambda text: text[: len(text) // 2].rstrip(),
        "answer_leaks": lambda text: f"{text} {CANARY}",
    }
    turns = evidence.turns or ()
    if len(turns) > 1:
        for at, turn in list(enumerate(turns))[:_MOST_PLACES]:
            if turn.text:
                place, path = f"turn {at + 1}", f"turns[{at}].text"
                yield from _plant_in_text(turn.text, edits, place, path, lambda new, at=at: _edit_turn(evidence, at, new))
    elif evidence.text:
        text = evidence.text

        def write(new: str) -> Evidence:
            changed = tuple(_replace_text(turn, text, new) for turn in turns)
            whole = _replace_text(evidence, text, new)
            return msgspec.structs.replace(whole, turns=changed) if turns else whole

        yield from _plant_in_text(text, edits, "the answer", "text", write)
    elif evidence.text is None and evidence.body is not None:
        for kind, place, path, before, body in _change_body(evidence.body, edits):
            yield Fault(kind, place, msgspec.structs.replace(evidence, body=body), path=path, before=before)


def _plant_in_text(
    text: str, edits: dict[str, Callable[[str], str]], place: str, path: str, write: Callable[[str], Evidence]
) -> Iterator[Fault]:
    """Plant faults in the answer as a text, then in its members if it is JSON, else in its numbers."""
    for kind, edit in edits.items():
        yield Fault(kind, place, write(edit(text)), path=path, before=text)
    start, end = find_fenced(text) or (0, len(text))
    inner = text[start:end].strip()
    document = _read_json(inner)
    if document is not None:
        start = text.index(inner, start)
        end = start + len(inner)
        # As the answer is written: on several lines, on one line, or without blanks.
        indent = 2 if "\n" in inner else None
        separators = None if indent or '": ' in inner else (",", ":")
        for kind, member, steps, before, changed in _change_members(document, edits):
            written = json.dumps(changed, indent=indent, separators=separators, ensure_ascii=False)
            where = write_path(steps, "$") if path == "text" else path
            yield Fault(kind, f"{place}, {member}", write(text[:start] + written + text[end:]), path=where, before=before)
        return
    for number in [match for match in _NUMBER.finditer(text) if match[1]][:_MOST_NUMBERS]:
        changed = text[: number.end() - 1] + str((int(number[1][-1]) + 1) % 10) + text[number.end() :]
        # The number with the text around it, extended to whole words.
        begin = text.rfind(" ", 0, max(0, number.start() - _AROUND) + 1) + 1
        end = text.find(" ", number.end() + _AROUND)
        part = text[begin : end if end >= 0 else len(text)]
        yield Fault("answer_different", f"{place}, {number[1]}", write(changed), path=path, before=part)


def _edit_turn(evidence: Evidence, at: int, text: str) -> Evidence:
    assert evidence.turns is not None
    before = evidence.turns[at].text or ""
    turns = (*evidence.turns[:at], _replace_text(evidence.turns[at], before, text), *evidence.turns[at + 1 :])
    changed = msgspec.structs.replace(evidence, turns=turns)
    return _replace_text(changed, before, text) if at == len(turns) - 1 and evidence.text == before else changed


def _replace_text(record: Json, before: str, after: str) -> Json:
    """Return a run or a turn with another answer, also where its body repeats the answer, or is the answer read as JSON."""
    text = after if record.text == before else record.text
    is_answer = record.body is not None and record.body == _read_json(before)
    body = _read_json(after) if is_answer else _replace_leaves(record.body, before, after)
    return msgspec.structs.replace(record, text=text, body=body)


def _read_json(text: str) -> Json:
    """Return the object or list that a text is as JSON; None for any other text."""
    try:
        document = json.loads(text) if text.lstrip()[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        return None
    return document or None


def _replace_leaves(value: Json, before: str, after: str) -> Json:
    if isinstance(value, str):
        return after if value == before else value
    if isinstance(value, dict):
        return {key: _replace_leaves(item, before, after) for key, item in value.items()}
    if isinstance(value, list):
        return [_replace_leaves(item, before, after) for item in value]
    return value


def _change_body(body: Json, edits: dict[str, Callable[[str], str]]) -> Iterator[tuple[str, str, str, Json, Json]]:
    """Yield kind, place, path, previous value and changed body."""
    if isinstance(body, str):
        yield from ((kind, "the answer", "body", body, edit(body)) for kind, edit in edits.items() if body)
    elif isinstance(body, (dict, list)) and body:
        half: Json = dict(list(body.items())[: len(body) // 2]) if isinstance(body, dict) else body[: len(body) // 2]
        yield "answer_empty", "the answer", "body", body, type(body)()
        yield "answer_different", "the answer", "body", body, {"answer": OTHER_ANSWER}
        yield "answer_truncated", "the answer", "body", body, half
        if isinstance(body, dict):
            yield "answer_leaks", "the answer", "body", body, {**body, "note": CANARY}
        for kind, member, steps, before, changed in _change_members(body, edits):
            yield kind, f"the answer, {member}", write_path(steps, "$"), before, changed


def _change_members(document: Json, edits: dict[str, Callable[[str], str]]) -> Iterator[tuple[str, str, tuple[Step, ...], Json, Json]]:
    """Yield kind, place, steps, previous value and changed document for the texts and numbers of a JSON answer."""
    leaves = list(list_leaves(document))
    values = [value for _, value in leaves]
    for steps, value in leaves[:_MOST_MEMBERS]:
        place = write_path(steps, "$").removeprefix("$.")
        changes: dict[str, Json] = {"answer_different": change_value(value, values)}
        if isinstance(value, str):
            changes |= {"answer_empty": "", "answer_leaks": edits["answer_leaks"](value)}
            if len(value) >= _LONG_TEXT:
                changes["answer_truncated"] = edits["answer_truncated"](value)
        for kind, new in changes.items():
            yield kind, place, steps, value, replace_leaf(document, steps, new)


def _slow_down(evidence: Evidence) -> Iterator[Fault]:
    """Plant ten times the duration, and at least a minute more."""
    if evidence.duration_ms is None and not any(turn.duration_ms is not None for turn in evidence.turns or ()):
        return

    def slow(ms: float | None) -> float | None:
        return None if ms is None else max(ms * 10, ms + 60_000)

    changed = msgspec.structs.replace(evidence, duration_ms=slow(evidence.duration_ms))
    if evidence.turns is not None:
        turns = tuple(msgspec.structs.replace(turn, duration_ms=slow(turn.duration_ms)) for turn in evidence.turns)
        changed = msgspec.structs.replace(changed, turns=turns)
    yield Fault("slow", "the duration", changed, before=evidence.duration_ms)


def _spend_more(evidence: Evidence) -> Iterator[Fault]:
    """Plant ten times the tokens, and at least 100,000 more."""

    def spend(usage: Usage | None) -> Usage | None:
        if usage is None:
            return None
        figures = {name: getattr(usage, name) for name in ("input_tokens", "output_tokens", "total_tokens")}
        more = {name: max(value * 10, value + 100_000) for name, value in figures.items() if value is not None}
        return msgspec.structs.replace(usage, **more)

    changed = msgspec.structs.replace(evidence, usage=spend(evidence.usage))
    if evidence.turns is not None:
        turns = tuple(msgspec.structs.replace(turn, usage=spend(turn.usage)) for turn in evidence.turns)
        changed = msgspec.structs.replace(changed, turns=turns)
    if evidence.nodes is not None:
        nodes = tuple(msgspec.structs.replace(node, usage=spend(node.usage)) for node in evidence.nodes)
        changed = msgspec.structs.replace(changed, nodes=nodes)
    if changed != evidence:
        yield Fault("costly", "the tokens", changed)
