"""When a simulated user speaks and why it stops, played by a script or a model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proctor.errors import TargetError
from proctor.llm.ports import ModelFault
from proctor.model.evidence import Evidence
from tests.builders import call
from tests.users.talks import case_with, model_of, reply, speaker_of, talk

REFUND = {"response_contains": "refund"}


def ending_of(user: dict[str, Any], agent: Any, **more: Any) -> tuple[list[str], tuple[Any, ...]]:
    speaker = speaker_of(case_with(user, **more))
    messages = asyncio.run(talk(speaker, agent))
    ending = speaker.describe_ending()
    return messages, (ending.ended, ending.by, ending.turns)


def test_script_lines_are_sent_in_order_and_then_the_script_gives_up() -> None:
    messages, ending = ending_of({"script": ["one", "two"]}, lambda text: "hm")
    assert messages == ["one", "two"]
    assert ending == ("gave_up", "script", 2)


def test_stop_when_ends_the_conversation_before_the_next_line() -> None:
    messages, ending = ending_of(
        {"script": ["one", "two", "three"], "stop_when": REFUND}, lambda text: "a refund" if text == "two" else "hm"
    )
    assert messages == ["one", "two"]
    assert ending == ("done", "stop_when", 2)


def test_a_rule_answers_every_time_it_matches_up_to_the_turn_limit() -> None:
    user = {"script": ["hello", {"when": {"response_contains": "number"}, "say": "17"}], "gives_up_after": 5}
    messages, ending = ending_of(user, lambda text: "Which number?")
    assert messages == ["hello", "17", "17", "17", "17"]
    assert ending == ("turn_limit", "limit", 5)


@pytest.mark.parametrize(("ends", "ended"), [("done", "done"), ("gives_up", "gave_up")])
def test_a_rule_of_the_script_ends_the_conversation(ends: str, ended: str) -> None:
    messages, ending = ending_of({"script": ["hello", {"when": REFUND, ends: True}]}, lambda text: "your refund")
    assert messages == ["hello"]
    assert ending == (ended, "script", 1)


def test_evidence_of_the_last_turn_counts() -> None:
    user = {"script": ["a", "b", {"when": REFUND, "done": True}], "gives_up_after": 2}
    assert ending_of(user, lambda text: "refund" if text == "b" else "hm")[1] == ("done", "script", 2)


def test_the_input_of_the_case_is_sent_first() -> None:
    assert ending_of({"script": ["then this"]}, lambda text: "hm", input="first this")[0] == ["first this", "then this"]
    assert ending_of({"script": ["then this"], "opening": "first this"}, lambda text: "hm")[0] == ["first this", "then this"]


def test_a_claim_about_tools_can_end_the_conversation_silently() -> None:
    user = {"script": ["a", "b"], "stop_when": {"tool_called": "pay_back"}}
    acted = Evidence(text="hm", tool_calls=(call("pay_back"),))
    assert ending_of(user, lambda text: acted)[1] == ("done", "stop_when", 1)
    # A request that was not recorded did not happen.
    assert ending_of(user, lambda text: "I have called pay_back.")[1] == ("gave_up", "script", 2)


def test_a_claim_can_use_the_variables_of_the_case() -> None:
    user = {"script": ["a", "b"], "stop_when": {"json_field": {"field": "id", "value": {"$expr": "ORDER"}}}}
    ended = ending_of(user, lambda text: Evidence(text="x", body={"id": 17}), context={"ORDER": 17})
    assert ended[1] == ("done", "stop_when", 1)


def test_an_undecidable_claim_is_an_error_not_an_ending() -> None:
    speaker = speaker_of(case_with({"script": ["a", "b"], "stop_when": {"response_matches": {"pattern": "^(a+)+$"}}}))
    with pytest.raises(TargetError) as caught:
        asyncio.run(talk(speaker, lambda text: "a" * 5_000 + "!"))
    assert caught.value.code in ("regex_timeout", "regex_limit")
    assert speaker.describe_ending().ended is None


def test_an_empty_script_is_an_error() -> None:
    with pytest.raises(TargetError) as caught:
        asyncio.run(talk(speaker_of(case_with({"script": [{"done": True}]})), lambda text: "hm"))
    assert caught.value.code == "bad_user_reply"


MODEL = {"persona": "A customer", "goal": "To get a refund", "model": "main"}


def test_a_model_plays_the_user_until_it_is_done_and_its_tokens_are_counted() -> None:
    model = model_of([reply("I want a refund", tokens=10), reply("17", tokens=20), reply(done=True, reason="it is on its way", tokens=30)])
    speaker = speaker_of(case_with(MODEL), model)
    assert asyncio.run(talk(speaker, lambda text: "hm")) == ["I want a refund", "17"]
    ending = speaker.describe_ending()
    assert (ending.ended, ending.by, ending.turns, ending.model_calls) == ("done", "model", 2, 3)
    assert (ending.played_by, ending.reason) == ("scripted/scripted", "it is on its way")
    assert ending.usage is not None and ending.usage.total() == 60


def test_a_model_may_give_up() -> None:
    speaker = speaker_of(case_with(MODEL), model_of([reply("hello"), reply(gives_up=True, reason="no use")]))
    asyncio.run(talk(speaker, lambda text: "hm"))
    assert (speaker.describe_ending().ended, speaker.describe_ending().reason) == ("gave_up", "no use")


def test_a_model_that_never_ends_reaches_the_limit() -> None:
    speaker = speaker_of(case_with({**MODEL, "gives_up_after": 3}), model_of([reply(f"more {number}") for number in range(4)]))
    assert asyncio.run(talk(speaker, lambda text: "hm")) == ["more 0", "more 1", "more 2"]
    assert speaker.describe_ending().ended == "turn_limit"


def test_a_check_decides_before_the_model_is_called() -> None:
    model = model_of([reply("hello")])
    speaker = speaker_of(case_with({**MODEL, "stop_when": REFUND}), model)
    asyncio.run(talk(speaker, lambda text: "refund"))
    assert (speaker.describe_ending().by, len(model.requests)) == ("stop_when", 1)


def test_a_broken_reply_is_requested_once_more() -> None:
    model = model_of([reply("hello"), "done!", reply("again")])
    speaker = speaker_of(case_with({**MODEL, "gives_up_after": 2}), model)
    with pytest.raises(TargetError) as caught:
        asyncio.run(talk(speaker, lambda text: "hm"))
    assert caught.value.code == "user_unavailable"
    assert "could not be used" in model.requests[2].messages[-1].text
    assert "could not be used" not in model.requests[1].messages[-1].text


@pytest.mark.parametrize("broken", ["done!", "", '{"say": "x"}', '{"say": "", "done": "true"}'])
def test_a_reply_that_stays_broken_is_an_error_with_its_code(broken: str) -> None:
    speaker = speaker_of(case_with(MODEL), model_of([reply("hello"), broken, broken]))
    with pytest.raises(TargetError) as caught:
        asyncio.run(talk(speaker, lambda text: "hm"))
    assert (caught.value.code, caught.value.safe) == ("bad_user_reply", False)
    assert speaker.describe_ending().ended is None


def test_a_user_done_before_the_first_message_is_an_error() -> None:
    speaker = speaker_of(case_with(MODEL), model_of([reply(done=True), reply(done=True)]))
    with pytest.raises(TargetError) as caught:
        asyncio.run(talk(speaker, lambda text: "hm"))
    assert caught.value.code == "bad_user_reply"


def test_an_unreachable_model_is_retried_and_then_an_error() -> None:
    gone = ModelFault("overloaded", "busy")
    speaker = speaker_of(case_with(MODEL), model_of([reply("hello"), gone, gone, reply(done=True)]))
    assert asyncio.run(talk(speaker, lambda text: "hm")) == ["hello"]
    speaker = speaker_of(case_with(MODEL), model_of([gone, gone, gone]))
    with pytest.raises(TargetError) as caught:
        asyncio.run(talk(speaker, lambda text: "hm"))
    # The retries are used up, so the attempt is not repeated.
    assert (caught.value.code, caught.value.safe) == ("user_unavailable", False)
    speaker = speaker_of(case_with(MODEL), model_of([reply("hello"), ModelFault("unauthorized", "no key")]))
    with pytest.raises(TargetError) as caught:
        asyncio.run(talk(speaker, lambda text: "hm"))
    assert (caught.value.code, caught.value.safe) == ("user_unavailable", False)
