"""The fast paths of the span reader agree with the general ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.evidence.otlp.spans import Span
from proctor.evidence.shared import spoken_calls
from proctor.evidence.traces import message_reader
from proctor.evidence.traces.message_reader import MessageCache, ParsedMessages
from proctor.evidence.traces.step import Step
from proctor.evidence.traces.tool_span import read_tool_call
from proctor.evidence.traces.tree import SpanTree

TEXTS = st.sampled_from(
    ["", "hello", "[REDACTED]", '[{"role": "user", "content": "hi"}]', '{"role": "user"}', "ToolUseBlock(id='1')", "ResponseOutputMessage("]
)
PARTS = st.one_of(
    st.fixed_dictionaries({"type": st.sampled_from(["text", "Text", "output_text", "tool_call", "reasoning"]), "content": TEXTS}),
    st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}),
    st.fixed_dictionaries({"type": st.just("text"), "content": TEXTS, "annotations": st.just([{"a": 1}])}),
    st.just({"type": "tool_call", "id": "1", "name": "refund", "arguments": {"order": 17}}),
    st.just({"type": "tool_call_response", "id": "1", "response": "done"}),
    TEXTS,
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "tool", "User", "MessageRole.USER", "stranger", None, {"value": "user"}])},
    optional={
        "parts": st.one_of(st.lists(PARTS, max_size=3), TEXTS, st.none()),
        "content": TEXTS,
        "finish_reason": st.sampled_from(["stop", "", None, "Length"]),
        "name": st.just("x"),
    },
)


@pytest.mark.skipif(not str(message_reader.__file__).endswith(".py"), reason="a compiled class has no subclass in Python")
@given(st.lists(MESSAGES, max_size=4), st.sampled_from(["user", "assistant"]))
def test_a_plain_message_is_read_as_any_other(messages: list[dict[str, Any]], role: Any) -> None:
    class Long(ParsedMessages):
        def _read_plain_message(self, value: dict[str, Any]) -> bool:
            return False

    short, long = ParsedMessages(), Long()
    short.read(messages, role)
    long.read(messages, role)
    assert short.messages == long.messages and short.unrecognised == long.unrecognised
    assert (short.ends, short.has_bare_text) == (long.ends, long.has_bare_text)


FRAGMENTS = st.sampled_from(
    [
        *(
            "<tool_call>",
            "<",
            ">>>run\n{",
            "[TOOL_CALLS]",
            "to=functions.x",
            "\u273fFUNCTION\u273f",
            "```tool_code",
            "[[ ## tool_calls ## ]]",
        ),
        *("Calling tools:", "Action: look\nAction Input: x", "Action: look[17]", '"tool_call"', '"action": "x", "action_input":'),
        *("'command': {'name':", "ACT\u0130ON: look[17]", "act\u0131on: look[17]", "TO=FUNCT\u0130ONS.x"),
        *("hello ", "\n", "it's ", "\u00e9t\u00e9 "),
    ]
)


@given(st.lists(FRAGMENTS, max_size=4).map("".join))
def test_no_call_in_words_is_passed_over(text: str) -> None:
    if spoken_calls._SPOKEN.search(text) is not None:  # pyright: ignore[reportPrivateUsage]
        assert spoken_calls._may_hold_call(text)  # pyright: ignore[reportPrivateUsage]


def test_a_message_is_found_whose_name_is_escaped() -> None:
    written = '{"kwargs": {"tool\\u005fcall_id": "c1", "name": "refund", "content": "ok"}}'
    span = Span(id="1", name="tool", attributes={"output.value": written, "tool.name": "x"})
    call = read_tool_call(Step(span, MessageCache()))
    assert (call.name, call.id) == ("refund", "c1")


def test_distant_ancestors_are_found() -> None:
    kinds = {0: "AGENT", **dict.fromkeys(range(1, 20), "CHAIN")}
    spans = [
        Span(id=str(n), parent_id=str(n - 1) if n else None, name=str(n), attributes={"openinference.span.kind": kind})
        for n, kind in kinds.items()
    ]
    tree = SpanTree(spans)
    for step in tree.steps[1:]:
        assert step.find_above("agent", "tool") is tree.root and step.find_above("tool") is None


def test_the_first_of_parents_in_a_circle_is_the_root() -> None:
    spans = [Span(id=str(n), parent_id=str((n + 1) % 3), name=str(n), attributes={"openinference.span.kind": "CHAIN"}) for n in range(3)]
    tree = SpanTree(spans)
    assert [step.span.id for step in tree.roots] == ["0"]
    assert [(step.depth, step.find_above("agent")) for step in tree.steps] == [(0, None), (2, None), (1, None)]
