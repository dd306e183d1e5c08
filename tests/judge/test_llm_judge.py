"""A judge made of models: its requests, how it reads replies, and what happens without one."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from proctor.cassettes.cassette import Player, Recorder
from proctor.cassettes.ports import LIVE
from proctor.errors import SpecError, StoreError
from proctor.judge.cached import FolderCache
from proctor.judge.llm_judge import LlmJudge
from proctor.judge.settings import JudgeSettings
from proctor.llm.build import build_model
from proctor.llm.client import HttpModel
from proctor.llm.ports import ChatReply, ChatRequest, ModelCall, ModelFault
from proctor.llm.providers import ProviderModel
from proctor.llm.scripted import ScriptedModel
from proctor.llm.settings import ModelSettings
from proctor.model.evidence import Usage
from proctor.model.judgement import Material, Opinion, Question
from proctor.runner.ports import Judge
from tests.judge.twins import MemoryCache, ReplySequence, ask, deciding, entry, fill_ids, ids_in, results


def model_of(*lines: Any, name: str = "m") -> ScriptedModel:
    return ScriptedModel(ReplySequence(lines) if len(lines) != 1 or not callable(lines[0]) else lines[0], name=name)


def judged(judge: Judge, questions: Sequence[Question], *, attempt: int = 0, tape: Any = LIVE) -> list[Opinion]:
    return list(asyncio.run(judge.judge(questions, case="c", attempt=attempt, tape=tape)))


def quick(**more: Any) -> JudgeSettings:
    return JudgeSettings(**{"backoff_s": 0.0, "name": "grader", **more})


# --- requests ---


def test_questions_of_one_material_share_one_request_and_its_details() -> None:
    model = model_of(deciding(True, "as it should be", model="m-2026"))
    opinions = judged(LlmJudge([model], quick(seed=7, max_tokens=99)), ask("greets", "thanks", "names the order"))
    assert [opinion.outcome for opinion in opinions] == ["pass"] * 3
    (request,) = model.requests
    assert len(ids_in(request)) == 3
    assert (request.temperature, request.max_tokens, request.seed, request.answer_name) == (0.0, 99, 7, "judge_batch_result")
    assert request.answer_schema is not None and request.tools == ()
    reply = fill_ids(results(*(entry(f"agent-check-{number}", True, "as it should be") for number in (1, 2, 3))), request)
    usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
    assert opinions[1] == Opinion(
        outcome="pass",
        score=1.0,
        reason="as it should be",
        details={
            "judge": "grader",
            "models": ["m"],
            "provider": "scripted",
            "prompt_version": "2",
            "check_id": "agent-check-2",
            "samples": [{"model": "m", "passed": True, "reason": "as it should be", "usage": usage}],
            "replies": [reply],
            "usage": usage,
            "judge_requests": [{"id": "grader#1", "model": "m", "usage": usage}],
            "agreement": 1.0,
            "shared_by": 3,
        },
    )


def test_other_materials_and_scores_have_their_own_requests_in_order() -> None:
    def reply(request: ChatRequest) -> str:
        scored = '"score"' in json.dumps(request.answer_schema)
        reason = "other" if "another answer" in request.messages[-1].text else "first"
        numbered = enumerate(ids_in(request), 1)
        return results(*(entry(identifier, 0.9 if scored else True, f"{reason} {number}") for number, identifier in numbered))

    other = Material(subject="another answer")
    questions = [
        *ask("a"),
        *ask("b", threshold=0.5),
        *ask("c", material=other),
        # Equal to the first, but a different object.
        *ask("d", material=Material(subject=ask("x")[0].material.subject)),
        *ask("e", threshold=0.95),
    ]
    model = model_of(reply)
    opinions = judged(LlmJudge([model], quick()), questions)
    assert [opinion.reason for opinion in opinions] == [
        "first 1",
        "first 1",
        "other 1",
        "first 2",
        "first 2",
    ]
    assert [(opinion.outcome, opinion.score) for opinion in opinions] == [
        ("pass", 1),
        ("pass", 0.9),
        ("pass", 1),
        ("pass", 1),
        ("fail", 0.9),
    ]
    assert len(model.requests) == 3


@pytest.mark.parametrize(("one", "other"), [({"n": 1}, {"n": True}), ({"n": 1}, {"n": 1.0})])
def test_materials_equal_only_in_python_are_different(one: Any, other: Any) -> None:
    model = model_of(deciding(True))
    judged(LlmJudge([model], quick()), [*ask("a", material=Material(subject=one)), *ask("b", material=Material(subject=other))])
    assert len(model.requests) == 2


@pytest.mark.parametrize("subject", [float("nan"), 10**40, "half \ud83d", {"k": [float("inf")]}])
def test_materials_outside_json_are_judged(subject: Any) -> None:
    model = model_of(deciding(True))
    questions = [*ask("a", material=Material(subject=subject)), *ask("b", material=Material(subject=subject))]
    assert [opinion.outcome for opinion in judged(LlmJudge([model], quick(), cache=MemoryCache()), questions)] == ["pass", "pass"]


def test_no_questions_send_no_request() -> None:
    model = model_of(deciding(True))
    assert judged(LlmJudge([model], quick()), []) == []
    assert model.requests == []


def test_a_judge_without_a_model_is_refused() -> None:
    with pytest.raises(SpecError, match="needs a model"):
        LlmJudge([], quick())


def test_cuts_are_reported() -> None:
    model = model_of(deciding(True))
    (opinion,) = judged(LlmJudge([model], quick(max_chars=300)), ask("a", material=Material(subject="x" * 1000)))
    assert "1,000" in opinion.details["cuts"][0]


def test_closing_closes_every_model_even_if_one_fails() -> None:
    class Broken(ScriptedModel):
        async def close(self) -> None:
            raise RuntimeError("stuck")

    model = model_of(deciding(True))
    with pytest.raises(RuntimeError, match="stuck"):
        asyncio.run(LlmJudge([Broken([]), model], quick()).close())
    assert model.closed


# --- structured output ---


@pytest.mark.parametrize(("structured", "held"), [("auto", True), ("schema", True), ("text", False)])
def test_the_schema_is_sent_as_the_settings_say(structured: Any, held: bool) -> None:
    model = model_of(deciding(True))
    judged(LlmJudge([model], quick(structured=structured)), ask("a"))
    assert (model.requests[0].answer_schema is not None) == held


def test_a_model_that_refuses_the_schema_is_called_without_it_from_then_on() -> None:
    def reply(request: ChatRequest) -> Any:
        return ModelFault("bad_request", "what is this?", status=400) if request.answer_schema else deciding(True)(request)

    model = model_of(reply)
    judge = LlmJudge([model], quick())
    for _ in range(2):
        assert judged(judge, ask("a"))[0].outcome == "pass"
    assert [request.answer_schema is None for request in model.requests] == [False, False, True, True]


def test_a_request_refused_in_any_form_proves_nothing_about_the_schema() -> None:
    model = model_of(*[ModelFault("bad_request", "no such model")] * 3, deciding(True))
    judge = LlmJudge([model], quick())
    (opinion,) = judged(judge, ask("a"))
    assert (opinion.outcome, opinion.code) == ("error", "judge_bad_request")
    assert "no such model" in opinion.reason
    assert judged(judge, ask("a"))[0].outcome == "pass"
    assert model.requests[3].answer_schema is not None


def test_a_required_schema_is_never_left_out() -> None:
    model = model_of(ModelFault("bad_request", "no schema"))
    (opinion,) = judged(LlmJudge([model], quick(structured="schema")), ask("a"))
    assert opinion.code == "judge_bad_request"
    assert len(model.requests) == 1


# --- transport faults ---

FAULTS = [
    ("rate_limited", "judge_rate_limited", 3),
    ("overloaded", "judge_overloaded", 3),
    ("timeout", "judge_timeout", 3),
    ("transport", "judge_unreachable", 3),
    ("unauthorized", "judge_unauthorized", 1),
    ("bad_answer", "judge_unreachable", 1),
]


@pytest.mark.parametrize(("fault", "code", "tries"), FAULTS)
def test_transport_faults_are_retried_if_useful_and_then_reported(fault: Any, code: str, tries: int) -> None:
    model = ScriptedModel(lambda _: ModelFault(fault, "the provider's words"), name="m")
    opinions = judged(LlmJudge([model], quick()), ask("a", "b"))
    assert len(model.requests) == tries
    for opinion in opinions:
        assert (opinion.outcome, opinion.code, opinion.score) == ("error", code, 0.0)
        assert opinion.reason.startswith('Agent check failed: judge "grader" (model m) ')
        assert "the provider's words" in opinion.reason
        assert ("(3 tries)" in opinion.reason) == (tries == 3)


def test_a_temporary_fault_is_not_reported() -> None:
    model = model_of(ModelFault("overloaded", "full"), ModelFault("rate_limited", "slow down", retry_after_s=0.001), deciding(True))
    assert judged(LlmJudge([model], quick()), ask("a"))[0].outcome == "pass"


def test_a_retry_delay_beyond_the_limit_is_not_awaited() -> None:
    model = ScriptedModel(lambda _: ModelFault("rate_limited", "come back tomorrow", retry_after_s=86_400), name="m")
    (opinion,) = judged(LlmJudge([model], quick()), ask("a"))
    assert opinion.code == "judge_rate_limited"
    assert len(model.requests) == 1


def test_a_model_that_never_answers_times_out() -> None:
    async def silence(_: ChatRequest) -> str:
        await asyncio.Event().wait()
        return ""

    (opinion,) = judged(LlmJudge([ScriptedModel(silence)], quick(timeout_s=0.01, retries=1)), ask("a"))
    assert opinion.code == "judge_timeout"
    assert "(2 tries)" in opinion.reason


def test_requests_beyond_the_limit_are_not_sent() -> None:
    model = model_of(deciding(True))
    judge = LlmJudge([model], quick(max_calls=1), cache=MemoryCache())
    assert judged(judge, ask("a"))[0].outcome == "pass"
    (opinion,) = judged(judge, ask("b"))
    assert (opinion.outcome, opinion.code) == ("error", "judge_budget")
    # Cached replies are free.
    assert judged(judge, ask("a"))[0].outcome == "pass"
    assert judge.spent.calls == len(model.requests) == 1


def test_a_limit_of_zero_requests_still_reads_the_cache() -> None:
    cache = MemoryCache()
    judged(LlmJudge([model_of(deciding(True))], quick(), cache=cache), ask("a"))
    (opinion,) = judged(LlmJudge([ScriptedModel([], name="m")], quick(max_calls=0), cache=cache), ask("a"))
    assert opinion.outcome == "pass"


async def test_cancelling_ends_open_requests_and_releases_their_slots() -> None:
    before = asyncio.all_tasks()
    started = asyncio.Event()
    ended: list[str] = []

    async def reply(_: ChatRequest) -> str:
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            ended.append("ended")
        return ""

    judge = LlmJudge([ScriptedModel(reply)], quick(samples=3, concurrency=2))
    work = asyncio.ensure_future(judge.judge(ask("a"), case="c", attempt=0, tape=LIVE))
    await started.wait()
    await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert ended == ["ended", "ended"]
    assert asyncio.all_tasks() == before
    judge_again = LlmJudge([model_of(deciding(True))], quick())
    assert (await judge_again.judge(ask("a"), case="c", attempt=0, tape=LIVE))[0].outcome == "pass"


# --- unusable replies and their repair ---

GOOD = deciding(True)


@pytest.mark.parametrize(
    ("bad", "code", "words"),
    [
        ("prose", "judge_not_json", "not one single JSON object"),
        ("{}", "judge_bad_results", "no list under the key"),
        ('{"results": [1]}', "judge_bad_item", "did not have the demanded fields"),
        ('{"results": []}', "judge_missing_result", "no entry for these ids"),
        (ChatReply(text=results(entry("agent-check-1", True)), finish="length"), "judge_cut_off", "cut off"),
        (ChatReply(tool_calls=(ModelCall(id="1", name="pass_all"),)), "judge_tool_call", "There are no tools"),
    ],
)
def test_an_unusable_reply_is_repaired_once_and_then_reported(bad: Any, code: str, words: str) -> None:
    repaired = model_of(bad, GOOD)
    (opinion,) = judged(LlmJudge([repaired], quick()), ask("a"))
    assert (opinion.outcome, opinion.details["repaired"]) == ("pass", True)
    assert words in "".join(message.text for message in repaired.requests[1].messages)
    assert len(opinion.details["replies"]) == 2
    hopeless = model_of(bad, bad, GOOD)
    (opinion,) = judged(LlmJudge([hopeless], quick()), ask("a"))
    assert (opinion.outcome, opinion.code, opinion.score) == ("error", code, 0.0)
    assert len(hopeless.requests) == 2
    text = bad if isinstance(bad, str) else bad.text
    assert opinion.details["replies"] == [fill_ids(text, request) for request in hopeless.requests]


def test_the_repair_never_quotes_the_judges_reply() -> None:
    model = model_of("the agent made me say XYZZY", GOOD)
    judged(LlmJudge([model], quick()), ask("a"))
    assert "XYZZY" not in "".join(message.text for message in model.requests[1].messages)


def test_a_repair_requests_only_missing_results() -> None:
    model = model_of(
        results(entry("agent-check-1", True, "first"), entry("agent-check-3", False, "third")),
        results(entry("agent-check-1", False, "second")),
    )
    opinions = judged(LlmJudge([model], quick()), ask("a", "b", "c"))
    assert [(opinion.outcome, opinion.reason) for opinion in opinions] == [("pass", "first"), ("fail", "second"), ("fail", "third")]
    assert len(ids_in(model.requests[1])) == 1
    assert "it b" in model.requests[1].messages[-1].text and '"it a"' not in model.requests[1].messages[-1].text
    assert [opinion.details.get("repaired", False) for opinion in opinions] == [False, True, False]
    assert [opinion.details["check_id"] for opinion in opinions] == ["agent-check-1", "agent-check-2", "agent-check-3"]


def test_a_bad_score_is_repaired_alone_and_affects_no_other() -> None:
    one_bad = results(entry("agent-check-1", 7), entry("agent-check-2", 0.9))
    model = model_of(one_bad, results(entry("agent-check-1", -1)))
    opinions = judged(LlmJudge([model], quick()), ask("a", "b", threshold=0.8))
    assert [(opinion.outcome, opinion.code) for opinion in opinions] == [("error", "judge_bad_score"), ("pass", None)]


def test_a_failed_repair_leaves_the_first_fault() -> None:
    model = model_of("prose", ModelFault("unauthorized", "key expired"))
    (opinion,) = judged(LlmJudge([model], quick()), ask("a"))
    assert opinion.code == "judge_not_json"


def test_a_filtered_reply_is_not_requested_again() -> None:
    model = model_of(ChatReply(finish="content_filter"))
    (opinion,) = judged(LlmJudge([model], quick()), ask("a"))
    assert (opinion.outcome, opinion.code) == ("error", "judge_refused")


def test_the_raw_reply_is_shortened_and_serialisable() -> None:
    (opinion,) = judged(LlmJudge([model_of("\ud83d" * 5000, "\ud83d")], quick()), ask("a"))
    long, short = opinion.details["replies"]
    assert len(long) < 4_100 and short == "\ufffd"
    long.encode()


# --- samples and juries ---


def test_samples_of_a_jury_are_counted_and_all_reported() -> None:
    jury = [model_of(ReplySequence([deciding(True, "a1"), deciding(False, "a2")]), name="a"), model_of(deciding(True, "b"), name="b")]
    settings = JudgeSettings(samples=2, seed=5)
    judge = LlmJudge(jury, settings, costs={"a": (10.0, 100.0)})
    (opinion,) = judged(judge, ask("x"))
    assert (opinion.outcome, opinion.score, opinion.reason) == ("pass", 0.75, "3 of 4: a1")
    details = opinion.details
    assert (details["judge"], details["models"], details["agreement"]) == ("a, b", ["a", "b"], 0.75)
    assert [(sample["model"], sample["passed"], sample["reason"]) for sample in details["samples"]] == [
        ("a", True, "a1"),
        ("a", False, "a2"),
        ("b", True, "b"),
        ("b", True, "b"),
    ]
    assert details["spread"] == {"range": 1.0, "stdev": 0.5}
    assert details["usage"] == {"input_tokens": 400, "output_tokens": 40, "total_tokens": 440}
    assert details["cost"] == pytest.approx(2 * (100 * 10 + 10 * 100) / 1e6)
    assert [request.seed for request in jury[1].requests] == [5, 6]
    assert (judge.spent.calls, judge.spent.input_tokens) == (4, 400)
    assert judge.spent.cost == pytest.approx(details["cost"])


def test_a_juror_that_fails_has_no_vote() -> None:
    down = model_of(ModelFault("unauthorized", "no"), name="a")
    jury = [down, *(model_of(deciding(False, "clear"), name=name) for name in "bc")]
    (opinion,) = judged(LlmJudge(jury, quick()), ask("x"))
    assert (opinion.outcome, opinion.reason) == ("fail", "2 of 3: clear")
    assert opinion.details["samples"][0]["code"] == "judge_unauthorized"


@pytest.mark.parametrize(("uncertain", "outcome"), [("error", "error"), ("fail", "fail")])
def test_a_jury_without_agreement_is_uncertain(uncertain: Any, outcome: str) -> None:
    jury = [model_of(deciding(True), name="a"), model_of(deciding(False), name="b")]
    (opinion,) = judged(LlmJudge(jury, quick(uncertain=uncertain)), ask("x"))
    assert (opinion.outcome, opinion.code) == (outcome, "judge_uncertain")


# --- concurrency ---


def test_concurrent_requests_stay_within_the_settings() -> None:
    async def scenario() -> int:
        under_way = most = 0

        async def reply(request: ChatRequest) -> ChatReply:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.001)
            under_way -= 1
            return deciding(True)(request)

        judge = LlmJudge([ScriptedModel(reply)], quick(concurrency=3))
        await asyncio.gather(*(judge.judge(ask(f"q{number}"), case="c", attempt=0, tape=LIVE) for number in range(20)))
        return most

    assert asyncio.run(scenario()) == 3


# --- caching ---


def test_cached_questions_send_no_request_and_changed_ones_do(tmp_path: Path) -> None:
    first, second, third = (model_of(deciding(True)) for _ in range(3))
    questions = [*ask("a"), *ask("b", material=Material(subject="another"))]
    filled = FolderCache(tmp_path)
    before = judged(LlmJudge([first], quick(), cache=filled), questions)
    filled.close()
    judge = LlmJudge([second], quick(), cache=FolderCache(tmp_path))
    after = judged(judge, questions)
    assert (len(first.requests), len(second.requests)) == (2, 0)
    assert (judge.spent.calls, judge.spent.cached) == (0, 2)
    assert [opinion.details.get("cached") for opinion in before + after] == [None, None, True, True]
    for one, other in zip(before, after, strict=True):
        assert {**other.details, "judge_requests": one.details["judge_requests"]} == {**one.details, "cached": True}
        assert (one.outcome, one.reason) == (other.outcome, other.reason)
    judged(LlmJudge([third], quick(), cache=FolderCache(tmp_path)), [*ask("a"), *ask("changed", material=questions[1].material)])
    assert len(third.requests) == 1


@pytest.mark.parametrize(("share", "requests"), [(False, 2), (True, 1)])
def test_repeats_share_cached_replies_only_if_configured(share: bool, requests: int) -> None:
    model = model_of(deciding(True))
    judge = LlmJudge([model], quick(share_over_repeats=share), cache=MemoryCache())
    for attempt in (0, 1):
        judged(judge, ask("a"), attempt=attempt)
    assert len(model.requests) == requests


def test_every_sample_is_cached_separately() -> None:
    cache = MemoryCache()
    lines = [deciding(True), deciding(False), deciding(True)]
    judged(LlmJudge([model_of(ReplySequence(lines))], quick(samples=3), cache=cache), ask("a"))
    assert len(cache.replies) == 3
    (opinion,) = judged(LlmJudge([ScriptedModel([], name="m")], quick(samples=3), cache=cache), ask("a"))
    assert [sample["passed"] for sample in opinion.details["samples"]] == [True, False, True]


@pytest.mark.parametrize(
    "changed",
    [{"temperature": 0.5}, {"max_tokens": 5}, {"seed": 1}, {"structured": "schema"}, {"prompt": "Judge kindly."}, {"max_chars": 201}],
)
def test_changed_settings_miss_the_cache(changed: dict[str, Any]) -> None:
    cache = MemoryCache()
    material = Material(subject="x" * 300)
    judged(LlmJudge([model_of(deciding(True))], quick(), cache=cache), ask("a", material=material))
    model = model_of(deciding(True))
    judged(LlmJudge([model], quick(**changed), cache=cache), ask("a", material=material))
    assert len(model.requests) == 1


def test_the_same_name_at_another_address_is_another_model() -> None:
    class Addressed(ScriptedModel):
        address = "http://a/v1"

    cache = MemoryCache()
    for address, requests in (("http://a/v1", 1), ("http://b/v1", 1), ("http://a/v1", 0)):
        model = Addressed(deciding(True), name="m")
        model.address = address
        judged(LlmJudge([model], quick(), cache=cache), ask("a"))
        assert len(model.requests) == requests


def test_defaults_of_the_model_are_part_of_the_cache_key() -> None:
    class Filling(ScriptedModel):
        def __init__(self, tokens: int) -> None:
            super().__init__(deciding(True), name="m")
            self._tokens = tokens

        def fill_defaults(self, request: ChatRequest) -> ChatRequest:
            return ChatRequest(messages=request.messages, max_tokens=self._tokens)

    cache = MemoryCache()
    for tokens in (5, 6, 5):
        judged(LlmJudge([Filling(tokens)], quick(), cache=cache), ask("a"))
    assert len(cache.replies) == 2
    # The judge looks these up by name, so every model class must have the method and an address.
    for kind in (HttpModel, ProviderModel):
        assert callable(kind.fill_defaults) and "self.address = " in inspect.getsource(kind.__init__)


@pytest.mark.parametrize(
    "replies", [("prose", "prose"), ("prose", ModelFault("unauthorized", "no")), (ChatReply(finish="content_filter"),)]
)
def test_an_unusable_reply_is_not_cached(replies: tuple[Any, ...]) -> None:
    cache = MemoryCache()
    judged(LlmJudge([model_of(*replies)], quick(), cache=cache), ask("a"))
    assert cache.replies == {}


def test_after_a_repair_only_usable_results_are_cached() -> None:
    whole, partly = MemoryCache(), MemoryCache()
    judged(LlmJudge([model_of("prose", GOOD)], quick(), cache=whole), ask("a"))
    assert len(whole.replies) == 1
    lines = (results(entry("agent-check-1", True)), results(entry("agent-check-1", False)))
    before = judged(LlmJudge([model_of(*lines)], quick(), cache=partly), ask("a", "b"))
    assert len(partly.replies) == 2
    after = judged(LlmJudge([ScriptedModel([], name="m")], quick(), cache=partly), ask("a", "b"))
    assert [opinion.outcome for opinion in after] == [opinion.outcome for opinion in before] == ["pass", "fail"]


# --- tapes ---


def test_a_recording_includes_cached_replies_and_replays_alone(tmp_path: Path) -> None:
    cache = MemoryCache()
    model = model_of(deciding(True, "kept"))
    settings = quick(samples=2)
    judged(LlmJudge([model], settings, cache=cache), ask("a"))
    path = tmp_path / "c.jsonl"
    with Recorder(path) as recorder:
        judged(LlmJudge([ScriptedModel([], name="m")], settings, cache=cache), ask("a"), tape=recorder.scope("c"))
    judge = LlmJudge([ScriptedModel([], name="m")], settings, cache=MemoryCache())
    with Player(path) as player:
        (opinion,) = judged(judge, ask("a"), tape=player.scope("c"))
        assert player.list_unused() == ()
    assert (opinion.outcome, opinion.reason) == ("pass", "2 of 2: kept")
    assert judge.spent.calls == 0 and not judge._cache.replies  # type: ignore[union-attr]


def test_a_fault_is_recorded_after_the_last_retry_and_replayed_at_once(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    faulty = ScriptedModel(lambda _: ModelFault("overloaded", "full"), name="m")
    with Recorder(path) as recorder:
        recorded = judged(LlmJudge([faulty], quick()), ask("a"), tape=recorder.scope("c"))
    with Player(path) as player:
        replayed = judged(LlmJudge([ScriptedModel([], name="m")], quick(backoff_s=60)), ask("a"), tape=player.scope("c"))
    assert recorded == replayed
    assert recorded[0].code == "judge_overloaded"


def test_a_spent_budget_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with Recorder(path) as recorder:
        recorded = judged(LlmJudge([ScriptedModel([], name="m")], quick(max_calls=0)), ask("a"), tape=recorder.scope("c"))
    with Player(path) as player:
        replayed = judged(LlmJudge([ScriptedModel([], name="m")], quick()), ask("a"), tape=player.scope("c"))
    assert recorded == replayed and recorded[0].code == "judge_budget"


def test_a_missing_recording_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with Recorder(path) as recorder:
        judged(LlmJudge([model_of(deciding(True))], quick()), ask("a"), tape=recorder.scope("c"))
    with Player(path) as player:
        (opinion,) = judged(LlmJudge([ScriptedModel([], name="m")], quick()), ask("b"), tape=player.scope("c"))
    assert (opinion.outcome, opinion.code) == ("error", "cassette_miss")


async def test_an_unwritable_tape_ends_judging_and_open_requests() -> None:
    before = asyncio.all_tasks()

    class Full:
        async def exchange(self, kind: str, request: Any, send: Any) -> Any:
            raise StoreError("the disk is full")

    judge = LlmJudge([model_of(deciding(True))], quick(samples=2))
    with pytest.raises(StoreError, match="full"):
        await judge.judge(ask("a"), case="c", attempt=0, tape=Full())
    assert asyncio.all_tasks() == before


def test_a_reply_without_usage_has_no_cost() -> None:
    model = model_of(lambda request: ChatReply(text=deciding(True)(request).text))
    (opinion,) = judged(LlmJudge([model], quick(), costs={"m": (1.0, 1.0)}), ask("a"))
    assert "usage" not in opinion.details and "cost" not in opinion.details


def test_tokens_of_both_replies_are_counted() -> None:
    first = ChatReply(text="prose", usage=Usage(input_tokens=50, output_tokens=1), notes=("seed was left out",))
    (opinion,) = judged(LlmJudge([model_of(first, GOOD)], quick()), ask("a"))
    assert opinion.details["usage"] == {"input_tokens": 150, "output_tokens": 11, "total_tokens": 161}
    assert opinion.details["notes"] == ["seed was left out"]


def test_the_address_of_a_model_hides_its_secrets() -> None:
    settings = ModelSettings(provider="openai", model="m", base_url="http://127.0.0.1:1/v1?key=hush", api_key="hush")
    assert getattr(build_model(settings), "address", None) == "http://127.0.0.1:1/v1/chat/completions"
