"""One unrecognised kind of block that may act makes the calls unknown, one that speaks the answer.

The counterpart of the harmless fields: over every recorded message list and trace whose calls are known, insert one item of a kind that no
reader lists, or one field with the shape of calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest

from proctor.errors import EvidenceError
from proctor.evidence.reading import read_document
from proctor.evidence.unknowns.unrecognised import list_calls, name_call
from proctor.model.evidence import Evidence
from tests.evidence.harmless import Document, any_value, documents
from tests.evidence.message_samples import NAMES
from tests.evidence.message_samples import documents as scenarios
from tests.evidence.mutants import Place, apply

KIND_KEYS = ("part_kind", "block_type", "content_type", "$type", "type")
LISTS = ("content", "parts", "contents", "blocks", "items")
ACTING: tuple[tuple[str, dict[str, Any]], ...] = (
    ("computer_use_v3", {"name": "click", "input": {"x": 1}}),
    ("gadget", {"name": "click", "parameters": {"x": 1}}),
    *((kind, {"id": "z1"}) for kind in ("remote_tool_v9", "function_stream", "call_stream_v2", "action_log", "command_exec", "code_cell")),
)
"""Kinds with a name and arguments, and kinds whose name alone shows that they may act."""
UNREAD_OUTER_MESSAGES = ("mastra-bridge",)
"""Their outer model span repeats the messages of the steps below it, which are read instead (design/debts.md)."""
SPOKEN = "By the way, I have also closed your account."
CALLS = [{"name": "x", "args": {}}]
ITEM_TYPES = frozenset(("function_call", "mcp_call", "message", "TextMessage", "AssistantMessage"))


class Blocks(NamedTuple):
    """One list of blocks."""

    place: Place
    kind_key: str | None
    """The key of a block's kind; None if a block is an object with one key, which is its kind."""
    is_text: bool = False
    """Whether the message has a text where its format also allows a list of blocks."""
    first: int = 0
    """Where the agent's own entries begin; the first item is the user's."""


def find_blocks(value: Any, place: Place = ()) -> Iterator[Blocks]:
    """Every list of blocks in a message of the agent, in the order of the document."""
    if isinstance(value, list):
        for index, member in enumerate(value):
            yield from find_blocks(member, (*place, index))
    if not isinstance(value, dict):
        return
    if value.get("from_history"):
        return
    if is_of_agent(value):
        for key in LISTS:
            listed = value.get(key)
            if key == "content" and isinstance(listed, dict) and isinstance(listed.get("parts"), list):
                yield Blocks((*place, key, "parts"), kind_key_of(listed["parts"]))
            elif isinstance(listed, list) and listed and all(isinstance(entry, dict) for entry in listed) and not has_calls_only(listed):
                yield Blocks((*place, key), kind_key_of(listed))
            elif key == "content" and isinstance(listed, str) and listed and not any(isinstance(value.get(other), list) for other in LISTS):
                yield Blocks((*place, key), "type", is_text=True)
        return
    for key, member in value.items():
        if key not in ("model_input_messages", "raw", "lc_kwargs"):
            yield from find_blocks(member, (*place, key))


def is_of_agent(value: dict[str, Any]) -> bool:
    return (
        value.get("role") in ("assistant", "model")
        or value.get("kind") == "response"
        or ("content" in value and value.get("type") in ("ai", "AIMessage"))
    )


def kind_key_of(listed: list[Any]) -> str | None:
    return next((key for entry in listed for key in KIND_KEYS if key in entry), None)


def has_calls_only(listed: list[Any]) -> bool:
    return all("arguments" in entry and kind_key_of([entry]) is None for entry in listed)


def find_items(value: Any, place: Place = ()) -> Iterator[Blocks]:
    """Every list of items or events, which have kinds themselves."""
    if isinstance(value, list) and any(
        isinstance(entry, dict) and entry.get("type") in ITEM_TYPES and "contents" not in entry for entry in value
    ):
        yield Blocks(place, "type", first=1)
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, member in members:
        if step not in ("content", "contents"):
            yield from find_items(member, (*place, step))


def block(blocks: Blocks, kind: str, members: dict[str, Any]) -> dict[str, Any]:
    return {kind: members} if blocks.kind_key is None else {blocks.kind_key: kind, **members}


def with_block(document: Any, blocks: Blocks, made: dict[str, Any], at: int) -> Any:
    def insert(value: Any) -> list[Any]:
        listed = [{"type": "text", "text": value}] if isinstance(value, str) else value
        index = len(listed) if at == -1 else at
        return [*listed[:index], made, *listed[index:]]

    return apply(document, ("insert", blocks.place, insert))


def one(document: Any) -> Evidence | str:
    """The evidence of a document of one run, or why there is none."""
    try:
        found = read_document(document)
    except EvidenceError as error:
        return f"rejected: {error.message.splitlines()[0]}"
    return found[0] if len(found) == 1 else f"{len(found)} runs"


def is_known(evidence: Evidence | str, part: str = "tool_calls") -> bool:
    return (
        isinstance(evidence, Evidence)
        and evidence.account is not None
        and part not in evidence.account.unknown
        and (evidence.tool_calls if part == "tool_calls" else evidence.text) is not None
    )


def miss(document: Any, part: str, label: str) -> Iterator[str]:
    """Return the error if a part of a changed document is known."""
    evidence = one(document)
    if isinstance(evidence, str):
        yield f"{label}: {evidence}"
    elif evidence.account is None or part not in evidence.account.unknown:
        yield f"{label}: {part} are known"


def known_scenarios(name: str, part: str = "tool_calls") -> Iterator[tuple[str, Any]]:
    for scenario in ("sequential", "plain", "multi"):
        document = scenarios(name).get(scenario)
        if document is not None and is_known(one(document), part):
            yield f"{name} {scenario}", document


each_sample = pytest.mark.parametrize("name", NAMES)


@pytest.mark.in_turn
@each_sample
def test_an_unrecognised_kind_that_may_act_makes_the_calls_unknown(name: str) -> None:
    wrong: list[str] = []
    for label, document in known_scenarios(name):
        for blocks in (*find_blocks(document), *find_items(document)):
            if blocks.is_text and not is_known(one(with_block(document, blocks, {"type": "text", "text": "!"}, 0))):
                continue  # a format whose messages have no lists
            for kind, members in ACTING:
                made = block(blocks, kind, members)
                changed = with_block(document, blocks, made, at=blocks.first)
                wrong += miss(changed, "tool_calls", f"{label}: {json.dumps(made)} at {blocks.place}")
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:10])


@each_sample
def test_an_unrecognised_block_that_speaks_makes_the_answer_unknown(name: str) -> None:
    if name == "ag2-history":
        return  # its messages of the role `assistant` are the customer's
    wrong: list[str] = []
    for label, document in known_scenarios(name, "answer"):
        for blocks in list(find_blocks(document))[-1:]:
            if blocks.is_text and not is_known(one(with_block(document, blocks, {"type": "text", "text": "!"}, 0)), "answer"):
                continue
            made = block(blocks, "narration", {"text": SPOKEN})
            wrong += miss(with_block(document, blocks, made, -1), "answer", f"{label}: {json.dumps(made)} at {blocks.place}")
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:10])


@pytest.mark.in_turn
@each_sample
@pytest.mark.parametrize("field", ["extra_calls", "tool_callz"])
def test_an_unrecognised_field_with_calls_makes_the_calls_unknown(name: str, field: str) -> None:
    wrong: list[str] = []
    for label, document in known_scenarios(name):
        for place in {blocks.place[: last_index(blocks.place) + 1] for blocks in find_blocks(document)}:
            changed = apply(document, ("insert", place, lambda message: {**message, field: CALLS}))
            wrong += miss(changed, "tool_calls", f"{label}: {field} at {place}")
        around = document if isinstance(document, dict) else {"messages": document}
        if is_known(one(around)):
            wrong += miss({**around, field: CALLS}, "tool_calls", f"{label}: {field} next to the messages")
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:10])


def last_index(place: Place) -> int:
    """Return the position of the message in the path to its blocks."""
    return max(index for index, step in enumerate(place) if isinstance(step, int))


TRACES = {format: group for format, group in documents().items() if format.startswith("traces of ")}
SPANS: dict[str, dict[str, Any]] = {
    "COMPUTER_ACTION": {"openinference.span.kind": "COMPUTER_ACTION", "input.value": '{"x": 1}', "input.mime_type": "application/json"},
    "invoke_command": {"gen_ai.operation.name": "invoke_command", "gen_ai.command.name": "click", "gen_ai.command.arguments": '{"x": 1}'},
}
"""Spans of kinds that no convention lists, with arguments."""


def spans_of(document: Any) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Every span with the list it is in."""
    for request in document:
        for resource in request.get("resourceSpans", ()):
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    yield scope["spans"], span


def find_known(document: Any) -> dict[str, bool]:
    """Whether the calls are known, by trace."""
    try:
        return {str(evidence.metadata.get("trace_id")): is_known(evidence) for evidence in read_document(document)}
    except EvidenceError:
        return {}


@cache
def known_before(sample: Document) -> dict[str, bool]:
    return find_known(sample.load())


def still_known(sample: Document, changed: Any, traces: set[str]) -> set[str]:
    """The traces whose calls are known before a change, and after it known or not read at all."""
    known = {trace for trace in traces if known_before(sample).get(trace)}
    after = find_known(changed) if known else {}
    return {trace for trace in known if after.get(trace, True)}


@pytest.mark.in_turn
@pytest.mark.parametrize("format", TRACES)
@pytest.mark.parametrize("kind", SPANS)
@pytest.mark.timeout(60)
def test_a_span_of_an_unrecognised_kind_that_may_act_makes_the_calls_unknown(format: str, kind: str) -> None:
    wrong = [f"{sample.name} {trace}" for sample in TRACES[format] for trace in sorted(with_acting_spans(sample, kind))]
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:10])


def with_acting_spans(sample: Document, kind: str) -> set[str]:
    """Add a span below the first span of every trace; return the traces whose calls are still known."""
    changed, traces = sample.load(), set[str]()
    for listed, span in list(spans_of(changed)):
        if not span.get("parentSpanId") and span["traceId"] not in traces:
            traces.add(span["traceId"])
            attributes = [{"key": key, "value": any_value(value)} for key, value in SPANS[kind].items()]
            listed.append(
                {key: span[key] for key in ("traceId", "kind", "startTimeUnixNano", "endTimeUnixNano", "flags") if key in span}
                | {"spanId": "ffffffffffffffff", "parentSpanId": span["spanId"], "name": "click", "status": {}, "attributes": attributes}
            )
    return still_known(sample, changed, traces)


@pytest.mark.parametrize("format", TRACES)
@pytest.mark.timeout(60)
def test_an_unrecognised_part_of_captured_messages_makes_the_calls_unknown(format: str) -> None:
    wrong = [
        f"{sample.name} {trace}"
        for sample in TRACES[format]
        if sample.name not in UNREAD_OUTER_MESSAGES
        for trace in sorted(with_acting_parts(sample))
    ]
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:10])


def with_acting_parts(sample: Document) -> set[str]:
    """Add a part to the last message of a model in every trace; return the traces whose calls are still known."""
    changed = sample.load()
    captured = {
        span["traceId"]: attribute["value"]
        for _, span in spans_of(changed)
        if is_of_model(span)
        for attribute in span.get("attributes", ())
        if attribute["key"] == "gen_ai.output.messages" and "parts" in attribute["value"].get("stringValue", "")
    }
    kind, members = ACTING[0]
    for value in captured.values():
        messages = json.loads(value["stringValue"])
        messages[-1]["parts"].append({"type": kind, **members})
        value["stringValue"] = json.dumps(messages)
    return still_known(sample, changed, set(captured))


def is_of_model(span: dict[str, Any]) -> bool:
    values = {attribute["key"]: attribute["value"].get("stringValue") for attribute in span.get("attributes", ())}
    return values.get("gen_ai.operation.name") in ("chat", "generate_content") or values.get("openinference.span.kind") == "LLM"


@pytest.mark.parametrize(
    ("entries", "names"),
    [
        ([{"name": "f"}, {"function": {"name": "g"}}], ["f", "g"]),
        ([{"name": "f", "arguments": {}}], ["f"]),
        ([{"id": "1"}, "f", None], []),
    ],
    ids=["without arguments", "once", "without names"],
)
def test_entries_of_a_list_of_calls_need_only_names(entries: list[Any], names: list[str]) -> None:
    assert [name_call(call) for call in list_calls({"tool_calls": entries})] == names
