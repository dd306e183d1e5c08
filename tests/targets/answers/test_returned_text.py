"""A text returned together with the messages of its run: the answer is the text, and the messages show the calls."""

from __future__ import annotations

from typing import Any

import pytest

import proctor
from proctor.errors import TargetError
from proctor.model.evidence import Evidence
from proctor.model.result import CaseResult
from proctor.targets.answers.http_answers import evidence_of
from proctor.targets.shared.wire import HttpAnswer
from tests.targets.local.test_callable import drive
from tests.targets.loopback import attempt as attempt_of

ANSWER = "Order 17 is on its way."
QUESTION = {"role": "user", "content": "hi"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "lookup", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "on its way"}
MESSAGES = [QUESTION, CALL, RESULT, {"role": "assistant", "content": ANSWER}]
DIFFERS = "differ"


def answered(value: object) -> Evidence:
    return drive(lambda message: value, attempt_of("hi"))


@pytest.mark.parametrize(
    "value",
    [
        {"text": ANSWER, "messages": MESSAGES},
        {"text": ANSWER, "messages": MESSAGES[:-1]},
        {"text": f"  {ANSWER}\n", "messages": MESSAGES},
    ],
    ids=["all messages", "messages without the answer", "white space"],
)
def test_a_text_with_messages_is_the_answer_and_the_messages_show_the_calls(value: object) -> None:
    evidence = answered(value)
    assert (evidence.text or "").strip() == ANSWER
    assert [call.name for call in evidence.tool_calls or ()] == ["lookup"]
    assert evidence.account is not None and not {"answer", "tool_calls"} & set(evidence.account.unknown)


def test_a_text_that_differs_from_the_messages_is_unknown() -> None:
    evidence = answered({"text": "thread-17", "messages": MESSAGES})
    assert evidence.account is not None and DIFFERS in evidence.account.unknown["answer"]


def test_a_text_adds_no_calls_to_incomplete_messages() -> None:
    evidence = answered({"text": ANSWER, "messages": MESSAGES[-1:]})
    assert evidence.text == ANSWER
    assert evidence.account is not None and "tool_calls" in evidence.account.unknown


@pytest.mark.parametrize(
    ("value", "description"),
    [
        ((ANSWER, MESSAGES), "returned tuple"),
        (["hi", {"type": "image_url", "image_url": {}}], "a list of 2 (text, object)"),
    ],
)
def test_a_text_next_to_something_else_is_refused(value: object, description: str) -> None:
    with pytest.raises(TargetError) as refused:
        answered(value)
    assert refused.value.code == "bad_answer" and description in refused.value.message and "--evidence-format" not in refused.value.message


def test_unreadable_evidence_names_no_command_line_option() -> None:
    with pytest.raises(TargetError) as refused:
        answered(["a", "b"])
    assert (
        refused.value.code == "bad_answer"
        and "a list of 2 (text)" in refused.value.message
        and "--evidence-format" not in refused.value.message
    )


def test_a_returned_conversation_yields_the_text_of_this_turn() -> None:
    messages: list[dict[str, Any]] = []

    def answer(message: str, history: Any) -> object:
        messages.append({"role": "user", "content": message})
        if message == "first":
            messages.extend([CALL, RESULT])
        messages.append({"role": "assistant", "content": f"Answer to {message}"})
        return {"text": f"Answer to {message}", "messages": list(messages)}

    suite = proctor.parse_suite(
        "proctor: 1\ncases: [{id: a, turns: [first, {input: second, expect: [no_tools_called, {response_equals: Answer to second}]}]}]"
    )
    (result,) = run_cases(suite, answer)
    assert [(verdict.outcome, verdict.reason) for verdict in result.verdicts if verdict.outcome != "pass"] == []


def run_cases(suite: Any, function: Any) -> tuple[CaseResult, ...]:
    return tuple(proctor.run(suite, target=function).cases)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_streamed_text_becomes_the_text_of_an_answer_without_one() -> None:
    def pieces(message: str) -> Any:
        yield "Order 17 is "
        yield "on its way."
        yield {"tool_calls": []}

    def with_messages(message: str) -> Any:
        yield ANSWER
        yield MESSAGES

    assert drive(pieces, attempt_of("hi")).text == ANSWER
    evidence = drive(with_messages, attempt_of("hi"))
    assert evidence.text == ANSWER and [call.name for call in evidence.tool_calls or ()] == ["lookup"]


def test_an_answer_under_a_common_key_is_read_like_that_of_an_http_agent() -> None:
    for key in ("answer", "response", "output", "content", "message", "reply", "result"):
        evidence = answered({key: ANSWER, "sources": [{"title": "Orders"}], "model": "small"})
        assert (evidence.text, evidence.tool_calls, evidence.model) == (ANSWER, None, "small")
    evidence = answered({"answer": ANSWER, "tool_calls": [{"name": "lookup", "result": 1}], "usage": {"input_tokens": 3}})
    assert evidence.text == ANSWER and evidence.usage is not None and evidence.usage.input_tokens == 3
    assert [call.name for call in evidence.tool_calls or ()] == ["lookup"]
    assert answered({"message": "ok", "answer": ANSWER}).text == ANSWER
    evidence = answered({"reply": "ok", "answer": ANSWER})
    assert evidence.account is not None and "answer" in evidence.account.unknown


def test_an_http_agent_may_return_text_and_messages() -> None:
    evidence = evidence_of(HttpAnswer(status=200, body={"text": ANSWER, "messages": MESSAGES}, text="", duration_ms=1.0))
    assert evidence.text == ANSWER and [call.name for call in evidence.tool_calls or ()] == ["lookup"]
    evidence = evidence_of(HttpAnswer(status=200, body={"text": "ok", "messages": MESSAGES}, text="", duration_ms=1.0))
    assert evidence.account is not None and DIFFERS in evidence.account.unknown["answer"]


def test_a_mapping_may_hold_text_and_framework_messages() -> None:
    pydantic_ai, models = pytest.importorskip("pydantic_ai"), pytest.importorskip("pydantic_ai.models.test")
    agent = pydantic_ai.Agent(models.TestModel(custom_output_text=ANSWER))

    @agent.tool_plain
    def lookup() -> str:
        return "on its way"

    async def answer(message: str) -> object:
        result = await agent.run(message)
        return {"text": result.output, "messages": result.all_messages()}

    evidence = drive(answer, attempt_of("hi"))
    assert evidence.text == ANSWER and [call.name for call in evidence.tool_calls or ()] == ["lookup"]
