"""Metrics: the same figures as the reference formulas on labelled data, and no pass from a judge that does not decide every part."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.cassettes.ports import LIVE
from proctor.checks.judged.metrics import MOST_STATEMENTS, PARTS_PER_REQUEST, split_statements
from proctor.checks.registry import default_registry
from proctor.checks.shared.rubric import METRICS, load_rubric
from proctor.decide.prepare import decide_guarded
from proctor.errors import CheckFault, SpecError
from proctor.evidence.reading import read_document
from proctor.judge.llm_judge import LlmJudge
from proctor.judge.prompt import load_prompt
from proctor.judge.request import render_request
from proctor.judge.scripted import ScriptedJudge, list_ids
from proctor.judge.settings import JudgeSettings
from proctor.llm.ports import ChatReply, ChatRequest, ModelFault
from proctor.llm.scripted import ScriptedModel
from proctor.model.evidence import Usage
from proctor.model.judgement import NO_JUDGE_CODE, Opinion, PendingVerdict, Question
from proctor.model.verdict import Verdict
from tests.judge.injections import attempts, texts_in
from tests.judge.obedient_judge import ObedientJudge
from tests.tables import load, rows

LABELLED = load("checks/cases/metrics.yaml")
COUNTED = sorted({row["check"] for row in LABELLED})
FIELDS: dict[str, dict[str, Any]] = {
    "context_recall": {"reference": "It is in Linz. It arrives on Friday."},
    "pairwise": {"against": "Somewhere."},
}
EVIDENCE = {
    "input": "Where is it?",
    "text": "It is in Linz. It arrives on Friday.",
    "tool_calls": [{"name": "track", "result": ["It is in Linz.", "It arrives on Friday."]}],
}
USAGE = Usage(input_tokens=100, output_tokens=10)
_NUMBER = re.compile(r"(?:Statement|Passage) (\d+) of")


def decide(name: str, fields: dict[str, Any], evidence: dict[str, Any]) -> Verdict:
    spec = msgspec.convert(fields, default_registry().get(name).spec)
    return decide_guarded(default_registry().prepare(name, spec), read_document(evidence, format="plain")[0])


def pose(name: str, evidence: dict[str, Any] = EVIDENCE, **fields: Any) -> PendingVerdict:
    verdict = decide(name, {**FIELDS.get(name, {}), **fields}, evidence)
    assert isinstance(verdict, PendingVerdict), verdict.reason
    assert verdict.code == NO_JUDGE_CODE
    return verdict


def settle(pending: PendingVerdict, *models: ScriptedModel, **settings: Any) -> Verdict:
    judge = LlmJudge(models, JudgeSettings(name="grader", backoff_s=0.0, retries=0, **settings), costs={"scripted": (1.0, 2.0)})
    return pending.settle_with(asyncio.run(judge.judge(pending.questions, case="c", attempt=0, tape=LIVE)))


def read_checks(request: ChatRequest) -> list[dict[str, Any]]:
    """The checks of a request, with the shared parts in each."""
    line = request.messages[-1].text.split("\n")[1]
    first, *others = json.loads(line)
    return [{**first["every_check"], **check} for check in others] if others else [first]


def quote_source(request: ChatRequest) -> list[str]:
    """A passage of the retrieved context, if there is any."""
    data = next((json.loads(line) for line in request.messages[-1].text.split("\n") if line.startswith("{")), {})
    waiting: list[Any] = [data.get("context", {}).get("retrieved")]
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, str) and len(value) > 3:
            return [value]
        members = [member for key, member in value.items() if key != "tool"] if isinstance(value, dict) else value
        waiting += members if isinstance(members, list) else ()
    return []


def choose(choices: Sequence[Any], quote: str = "") -> Callable[[ChatRequest], ChatReply]:
    """A model that answers part n with the n-th choice."""

    def reply(request: ChatRequest) -> ChatReply:
        results = [
            {
                "id": check["id"],
                "quotes": [quote] if quote else quote_source(request),
                "reason": "so",
                "choice": choices[_read_number(check) - 1],
            }
            for check in read_checks(request)
        ]
        return ChatReply(text=json.dumps({"results": results}), usage=USAGE)

    return reply


def _read_number(check: dict[str, Any]) -> int:
    found = _NUMBER.search(check["criterion"])
    assert found is not None
    return int(found[1])


# The formulas of the originals, written down here on their own.


def ragas_faithfulness(verdicts: Sequence[int]) -> float:
    return sum(verdicts) / len(verdicts)


def ragas_context_precision(verdicts: Sequence[int]) -> float:
    denominator = sum(verdicts) + 1e-10
    return sum((sum(verdicts[: i + 1]) / (i + 1)) * verdicts[i] for i in range(len(verdicts))) / denominator


def ragas_context_recall(attributed: Sequence[int]) -> float:
    return sum(attributed) / len(attributed)


def deepeval_answer_relevancy(verdicts: Sequence[str]) -> float:
    return sum(1 for verdict in verdicts if verdict.strip().lower() != "no") / len(verdicts)


def deepeval_share_of_bad(verdicts: Sequence[str]) -> float:
    return sum(1 for verdict in verdicts if verdict.strip().lower() == "yes") / len(verdicts)


def compute_reference(check: str, choices: Sequence[str]) -> float | None:
    match check:
        case "faithfulness":
            claims = [int(choice == "supported") for choice in choices if choice != "no_claim"]
            return ragas_faithfulness(claims) if claims else None
        case "context_precision":
            return ragas_context_precision([int(choice == "useful") for choice in choices])
        case "context_recall":
            return ragas_context_recall([int(choice == "attributed") for choice in choices])
        case "answer_relevancy":
            return deepeval_answer_relevancy([{"relevant": "yes", "neutral": "idk", "irrelevant": "no"}[choice] for choice in choices])
        case _:
            return 1 - deepeval_share_of_bad(["yes" if choice in ("toxic", "biased") else "no" for choice in choices])


@rows("checks/cases/statements.yaml")
def test_the_statements_of_a_text(row: dict[str, Any]) -> None:
    assert split_statements(row["given"]) == row["expect"]


@given(st.text("aB1. !?。\n-|\"'", max_size=60))
def test_statements_are_pieces_of_the_text_in_order_and_no_letter_is_left_out(text: str) -> None:
    rest = text
    for statement in split_statements(text):
        before, found, rest = rest.partition(statement)
        # A number of a list is no statement.
        assert found and not re.search("[a-zA-Z]", before)
    assert not re.search("[a-zA-Z]", rest)


def test_more_statements_than_can_be_judged_are_an_error() -> None:
    with pytest.raises(CheckFault) as caught:
        split_statements("So. " * (MOST_STATEMENTS + 1))
    assert caught.value.code == "too_many_statements"
    assert decide("toxicity", {}, {"text": "So it is. " * (MOST_STATEMENTS + 1)}).code == "too_many_statements"


@rows("checks/cases/metrics.yaml")
def test_a_metric_on_labelled_data(row: dict[str, Any]) -> None:
    pending = pose(row["check"], row["evidence"], **row["given"])
    parts = list(pending.questions[0].material.subject.values())
    assert len(pending.questions) == len(parts) == len(row["choices"])
    assert parts == row.get("parts", parts)
    model = ScriptedModel(choose(row["choices"]))
    verdict = settle(pending, model)
    assert (verdict.outcome, verdict.code) == (row["expect"], row.get("code"))
    assert verdict.score == pytest.approx(row["score"], abs=1e-9)
    reference = compute_reference(row["check"], row["choices"])
    assert reference is None or verdict.score == pytest.approx(reference, abs=1e-9)
    assert row.get("reason", "") in verdict.reason
    assert [(point["point"], point["choice"]) for point in verdict.details["points"]] == list(zip(parts, row["choices"], strict=True))
    assert verdict.details["rubric"] == {"name": row["check"], "version": METRICS[row["check"]]}
    assert len(verdict.details["judge_requests"]) == len(model.requests) == 1


@pytest.mark.parametrize("check", COUNTED)
@given(data=st.data())
def test_the_score_is_that_of_the_reference_formula(check: str, data: Any) -> None:
    names = list(load_rubric(check).choices)
    choices = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=12))
    verdict = ask_parts(check, choices)
    reference = compute_reference(check, choices)
    # Where Ragas has no score there is nothing to decide.
    assert verdict.score == pytest.approx(0.0 if reference is None else reference, abs=1e-9)
    assert verdict.passed == (reference is not None and verdict.score >= 1 - 1e-12)
    assert verdict.code == ("missing_evidence" if reference is None else None)


@rows("checks/cases/metric_references.yaml")
def test_the_score_is_that_of_ragas_and_deepeval(row: dict[str, Any]) -> None:
    verdict = ask_parts(row["check"], row["choices"])
    assert verdict.score == pytest.approx(row["score"], abs=1e-9)


def ask_parts(check: str, choices: Sequence[str]) -> Verdict:
    """The verdict on as many parts as there are choices, from a judge that makes these."""
    texts = [f"Part {number}." for number in range(len(choices))]
    fields: dict[str, Any] = {"context_recall": {"reference": texts, "context": ["x"]}, "context_precision": {"context": texts}}.get(
        check, {"context": ["x"]} if check == "faithfulness" else {}
    )
    pending = pose(check, {"input": "x", "text": " ".join(texts)}, **fields)
    judge = ScriptedJudge(lambda question: choices[int(_NUMBER.search(question.criterion)[1]) - 1])  # type: ignore[index]  # each has a number
    return pending.settle_with(asyncio.run(judge.judge(pending.questions, case="c", attempt=0, tape=LIVE)))


def misbehave(kind: str, request: ChatRequest) -> str | ModelFault:
    """The reply of a judge that passes every part, with one fault."""
    checks = read_checks(request)
    good = next(iter(checks[0]["choices"]))
    entries: list[dict[str, Any]] = [
        {"id": check["id"], "quotes": quote_source(request), "reason": "fine", "choice": good} for check in checks
    ]
    match kind:
        case "missing":
            # The last one is omitted, also from the second request, which is for it alone.
            entries.pop()
        case "extra":
            entries.append({**entries[0], "id": "check-99-" + "0" * 12})
        case "repeated":
            entries.append(dict(entries[0]))
        case "swapped":
            entries = [{**entry, "id": entries[0]["id"]} for entry in (*entries, entries[0])]
        case "invented_quote":
            entries[0]["quotes"] = ["This passage is nowhere."]
        case "own_choice":
            entries[0]["choice"] = "mostly fine"
        case "passes" | "scores":
            entries = [
                {"id": entry["id"], "quotes": [], "reason": "fine", **({"pass": True} if kind == "passes" else {"score": 1})}
                for entry in entries
            ]
        case "guessed_ids":
            entries = [{**entry, "id": f"check-{number}"} for number, entry in enumerate(entries, 1)]
        case "empty":
            entries = []
        case "no_list":
            return json.dumps({"results": {entry["id"]: entry for entry in entries}})
        case "prose":
            return f"All parts are {good}."
        case "repeated_key":
            return json.dumps({"results": entries}).replace('"choice"', '"choice": "x", "choice"', 1)
        case "down":
            return ModelFault("overloaded", "too much")
        case _:
            raise AssertionError(kind)
    return json.dumps({"results": entries})


@pytest.mark.parametrize("threshold", [1.0, 0.4])
@pytest.mark.parametrize("check", COUNTED)
@rows("checks/cases/metric_misbehaviours.yaml")
def test_a_judge_that_does_not_decide_every_part_gives_no_pass(row: dict[str, Any], check: str, threshold: float) -> None:
    model = ScriptedModel(lambda request: misbehave(row["does"], request))
    verdict = settle(pose(check, threshold=threshold), model)
    assert (verdict.outcome, verdict.code) == ("error", row["code"])
    if row["does"] == "down":
        # In the words of every other check, so that a report shows a judge that is away once.
        assert verdict.reason.endswith("is overloaded or failed: too much") and "statements" not in verdict.reason
    assert len(model.requests) == (1 if row["does"] == "down" else 2), "one repeated request, and only one"


@pytest.mark.parametrize("more", [{"label": "unsupported"}, {"verdict": "Unsupported."}, {"pass": False}, {"is_supported": False}], ids=str)
def test_a_part_that_is_decided_twice_is_not_decided(more: dict[str, Any]) -> None:
    def reply(request: ChatRequest) -> str:
        document = json.loads(choose(["supported"] * 2)(request).text)
        return json.dumps({"results": [{**entry, **more} for entry in document["results"]]})

    assert settle(pose("faithfulness"), ScriptedModel(reply)).code == "judge_contradiction"
    agreeing = {"label": "supported", "verdict": "yes", "is_supported": True}
    assert settle(
        pose("faithfulness"), ScriptedModel(lambda request: reply(request).replace(json.dumps(more)[1:-1], json.dumps(agreeing)[1:-1]))
    ).passed


def test_a_judge_reads_which_choice_it_made_and_which_there_are() -> None:
    model = ScriptedModel(choose(["Mostly <|im_end|> fine", "supported"]))
    assert settle(pose("faithfulness"), model).code == "judge_bad_choice"
    data = json.loads(_find_data(model.requests[1]))
    assert data["fault_of_previous_reply"] == (
        'The choice "Mostly ‹¦im_end¦› fine" is not one of the names under `choices`: supported, unsupported, no_claim.'
    )


@pytest.mark.parametrize("name", [*COUNTED, "pairwise", "judged"])
def test_a_verdict_over_several_requests_has_the_cost_tokens_and_replies_of_all(name: str) -> None:
    count = PARTS_PER_REQUEST + 5
    text = " ".join(f"Fact {number}." for number in range(1, count + 1))
    fields: dict[str, Any] = {"context_recall": {"reference": text}, "context_precision": {"context": text.split(". ")}}.get(name, {})
    if name == "judged":
        fields = {"criteria": "It is so.", "threshold": 0.5, "negative_constraints": ["lies", "insults"]}
    pending = pose(name, {**EVIDENCE, "text": text}, **fields)
    flaw = iter([True])
    model = ScriptedModel(lambda request: ChatReply(text="no JSON" if next(flaw, False) else agree(request), usage=USAGE))
    details = settle(pending, model).details
    assert len(model.requests) == len(details["replies"]) == len(details["judge_requests"]) == 3
    assert details["cost"] == pytest.approx(sum(request["cost"] for request in details["judge_requests"])) == pytest.approx(3 * 120e-6)
    assert details["usage"] == {"input_tokens": 300, "output_tokens": 30, "total_tokens": 330}
    assert details["repaired"] is True and "cached" not in details


def agree(request: ChatRequest) -> str:
    schema: Any = request.answer_schema
    members = schema["properties"]["results"]["items"]["properties"]
    decision = {"choice": members["choice"]["enum"][0]} if "choice" in members else {"score": 1} if "score" in members else {"pass": True}
    entries = [{"id": id_, "quotes": quote_source(request), "reason": "so", **decision} for id_ in list_ids(request)]
    return json.dumps({"results": entries})


def test_one_request_for_two_equal_questions_counts_once() -> None:
    same = pose("pairwise", against=EVIDENCE["text"])
    details = settle(same, ScriptedModel(lambda request: ChatReply(text=write_choice("tie")(request), usage=USAGE))).details
    assert (len(details["judge_requests"]), details["cost"]) == (1, pytest.approx(120e-6))


@pytest.mark.parametrize("check", COUNTED)
def test_repaired_replies_count(check: str) -> None:
    first = iter([True])
    good = next(iter(load_rubric(check).choices))
    model = ScriptedModel(
        lambda request: misbehave("missing", request) if next(first, False) else choose([good] * 2)(request),
    )
    verdict = settle(pose(check), model)
    assert (verdict.outcome, verdict.score, len(model.requests)) == ("pass", 1.0, 2)
    assert len(verdict.details["judge_requests"]) == 2


def test_a_missed_threshold_is_a_fail_whatever_the_undecided_parts_are() -> None:
    pending = pose("faithfulness", threshold=0.9)
    bad, down = Opinion(outcome="fail", reason="no", details={"choice": "unsupported"}), Opinion(outcome="error", code="judge_timeout")
    assert pending.settle_with([bad, down]).outcome == "fail"
    verdict = pose("faithfulness", threshold=0.5).settle_with([bad, down])
    assert (verdict.outcome, verdict.code) == ("error", "judge_timeout")
    uncertain = Opinion(outcome="fail", code="judge_uncertain", reason="split")
    good = Opinion(outcome="pass", score=1, details={"choice": "supported"})
    assert pending.settle_with([good, uncertain]).code == "judge_uncertain"
    # Another useful passage can lower a mean of precisions, so nothing is certain there.
    assert pose("context_precision").settle_with([bad, down]).outcome == "error"


@pytest.mark.parametrize(
    ("votes", "outcome", "code"),
    [
        (["supported", "supported", "unsupported"], "pass", None),
        (["supported", "unsupported", "unsupported"], "fail", None),
        (["supported", "no_claim", "unsupported"], "error", "judge_uncertain"),
        (["supported", "no_claim", "no_claim"], "error", "missing_evidence"),
        (["supported", None, "supported"], "pass", None),
        (["supported", None, None], "error", "judge_overloaded"),
        (["supported", "unsupported", None], "error", "judge_uncertain"),
    ],
)
def test_a_jury_decides_every_part_by_the_requested_ballots(votes: list[str | None], outcome: str, code: str | None) -> None:
    def vote(choice: str | None) -> ScriptedModel:
        return ScriptedModel(choose([choice]) if choice else lambda request: ModelFault("overloaded", "down"), name=f"{choice}")

    verdict = settle(pose("faithfulness", {**EVIDENCE, "text": "In Linz."}), *map(vote, votes))
    assert (verdict.outcome, verdict.code) == (outcome, code)
    assert len(verdict.details["points"][0]["samples"]) == 3


def test_a_rating_of_a_jury_is_its_median() -> None:
    def rate(*numbers: str) -> Verdict:
        pending = pose("rating", criteria="use", anchors={"1": "none", "5": "all"}, at_least=4)
        return settle(pending, *(ScriptedModel(write_choice(number), name=number) for number in numbers))

    assert (rate("5", "4", "1").outcome, rate("5", "4", "1").details["choice"]) == ("pass", "4")
    assert (rate("3", "3", "5").outcome, rate("3", "3", "5").score) == ("fail", 0.5)
    assert rate("3", "5").code == "judge_uncertain"


def write_choice(*decisions: Any) -> Callable[[ChatRequest], str]:
    remaining = iter(decisions)

    def reply(request: ChatRequest) -> str:
        decision = next(remaining, decisions[-1])
        member = "choice" if isinstance(decision, str) else "pass" if isinstance(decision, bool) else "score"
        return json.dumps(
            {"results": [{"id": id_, "quotes": quote_source(request), "reason": "so", member: decision} for id_ in list_ids(request)]}
        )

    return reply


@rows("checks/cases/choices.yaml")
def test_a_choice_makes_the_verdict(row: dict[str, Any]) -> None:
    pending = pose(row["check"], row["evidence"], **row["given"])
    verdict = settle(pending, ScriptedModel(write_choice(*row["replies"])), concurrency=1)
    assert (verdict.outcome, verdict.code) == (row["expect"], row.get("code"))
    assert verdict.score == pytest.approx(row["score"], abs=1e-9)
    for key in ("preference", "choice"):
        assert verdict.details.get(key) == row.get(key)


def test_both_orders_are_requests_of_their_own_that_show_each_answer_once_in_each_place() -> None:
    pending = pose("pairwise")
    subjects = [question.material.subject for question in pending.questions]
    assert subjects == [{"first": EVIDENCE["text"], "second": "Somewhere."}, {"first": "Somewhere.", "second": EVIDENCE["text"]}]
    model = ScriptedModel(write_choice("tie"))
    assert settle(pending, model).details["preference"] == "tie"
    assert len(model.requests) == 2
    assert settle(pending, ScriptedModel(write_choice("first")), max_calls=1).code == "judge_budget"


def test_many_statements_take_several_requests_and_a_budget_stops_a_pass() -> None:
    count = 2 * PARTS_PER_REQUEST + 5
    evidence = {**EVIDENCE, "text": " ".join(f"Fact {number}." for number in range(1, count + 1))}
    model = ScriptedModel(choose(["supported"] * count))
    verdict = settle(pose("faithfulness", evidence), model)
    assert (verdict.outcome, len(model.requests), len(verdict.details["judge_requests"])) == ("pass", 3, 3)
    assert sum(request["cost"] for request in verdict.details["judge_requests"]) == pytest.approx(3 * 120e-6)
    assert [json.loads(_find_data(request))["context"]["whole"] for request in model.requests] == [evidence["text"]] * 3
    for limit in (0, 1, 2):
        stopped = settle(pose("faithfulness", evidence, threshold=0.4), ScriptedModel(choose(["supported"] * count)), max_calls=limit)
        assert (stopped.outcome, stopped.code) == ("error", "judge_budget")


def test_long_passages_take_requests_of_their_own() -> None:
    passages = ["x" * 15_000, "y" * 15_000, "z"]
    model = ScriptedModel(choose(["useful", "useful", "useless"]))
    assert settle(pose("context_precision", context=passages), model).passed
    assert len(model.requests) == 2


@pytest.mark.parametrize("choice", ["supported", "unsupported"])
def test_material_that_was_cut_decides_nothing(choice: str) -> None:
    verdict = settle(pose("faithfulness", context=["x" * 5_000]), ScriptedModel(choose([choice] * 2)), max_chars=1_000)
    assert (verdict.outcome, verdict.code) == ("error", "judge_cut_material")


def _find_data(request: ChatRequest) -> str:
    lines = request.messages[-1].text.split("\n")
    return lines[next(number for number, line in enumerate(lines) if line.startswith("<<<DATA ")) + 1]


def test_shared_parts_are_written_once() -> None:
    pending = pose("faithfulness")
    model = ScriptedModel(choose(["supported"] * 2))
    settle(pending, model)
    shared, *checks = json.loads(model.requests[0].messages[-1].text.split("\n")[1])
    assert set(shared["every_check"]) == {"rule", "label", "rubric", "choices"}
    assert [set(check) for check in checks] == [{"id", "criterion"}] * 2
    schema: Any = model.requests[0].answer_schema
    assert schema["properties"]["results"]["items"]["properties"]["choice"]["enum"] == ["supported", "unsupported", "no_claim"]
    assert list(schema["properties"]["results"]["items"]["properties"]) == ["id", "quotes", "reason", "choice"]


def render(questions: Sequence[Question]) -> Any:
    return render_request(questions, prompt=load_prompt(), max_chars=20_000, order_seed=0)


@pytest.mark.parametrize("name", sorted(METRICS))
def test_a_text_of_a_metric_names_only_material_that_it_shows(name: str) -> None:
    entry, rubric = default_registry().get(name), load_rubric(name)
    assert entry.judged and entry.example.startswith(f"{name}: ")
    many = " ".join(["It is so."] * (PARTS_PER_REQUEST + 1))
    turns = [{"input": "hi", "text": "hello"}, {"input": "Where?", "text": many}]
    fields = {"reference": many} if name == "context_recall" else {}
    question = pose(name, {**EVIDENCE, "text": many, "turns": turns}, **fields).questions[0]
    text = question.criterion + "".join(question.rubric) + "".join(question.choices.values())
    assert set(re.findall(r"`context\.(\w+)`", text)) <= set(question.material.context)
    assert "{{" not in text and rubric.criterion
    assert question.label == f"{name}, rubric version {METRICS[name]}"


@pytest.mark.parametrize("name", sorted(METRICS))
def test_nothing_that_an_agent_its_tools_or_its_users_wrote_is_outside_of_the_data(name: str) -> None:
    broken: list[str] = []
    for id_, attempt in attempts():
        if not isinstance(attempt, str) or not attempt.strip() or len(attempt) > 5_000:
            continue
        evidence = {"input": attempt, "text": attempt, "tool_calls": [{"name": "track", "result": [attempt]}]}
        verdict = decide(name, {**FIELDS.get(name, {})}, evidence)
        if not isinstance(verdict, PendingVerdict):
            continue
        for question in verdict.questions[:1]:
            harmless = msgspec.structs.replace(question, material=msgspec.structs.replace(question.material, subject="x", context={}))
            trusted = "".join(message.text for message in render([harmless]).messages)
            if ObedientJudge(texts_in(attempt), trusted).order_in(render([question]).messages) is not None:
                broken.append(id_)
    assert not broken


@pytest.mark.parametrize(
    ("name", "fields", "field"),
    [
        ("faithfulness", {"context": ["a"], "context_from": "body"}, "context_from"),
        ("faithfulness", {"threshold": 0}, "threshold"),
        ("answer_relevancy", {"question": " "}, "question"),
        ("toxicity", {"threshold": 1.5}, "threshold"),
        ("bias", {"threshold": 0}, "threshold"),
        ("context_precision", {"reference": ""}, "reference"),
        ("context_recall", {"reference": ["a", " "]}, "reference.1"),
        ("context_recall", {"reference": "..."}, "reference"),
        ("context_recall", {"reference": []}, "reference"),
        ("context_recall", {"reference": ["a"], "context_path": "x"}, "context_path"),
        ("task_completion", {"task": ""}, "task"),
        ("task_completion", {"threshold": 2}, "threshold"),
        ("pairwise", {"against": ""}, "against"),
        ("pairwise", {"against": "a", "criteria": " "}, "criteria"),
        ("category", {"criteria": "a", "categories": {"a": "b"}, "accept": ["a"]}, "categories"),
        ("category", {"criteria": "a", "categories": {"a": "b", "c": ""}, "accept": ["a"]}, "categories.c"),
        ("category", {"criteria": "a", "categories": {"a": "b", "c": "d"}, "accept": ["e"]}, "accept.0"),
        ("category", {"criteria": "a", "categories": {"a": "b", "c": "d"}, "accept": ["a", "c"]}, "accept"),
        ("rating", {"criteria": "a", "anchors": {"1": "b", "x": "c"}, "at_least": 1}, "anchors.x"),
        ("rating", {"criteria": "a", "anchors": {"1": "b", "5": "c"}, "at_least": 1}, "at_least"),
        ("rating", {"criteria": "a", "anchors": {"1": "b", "5": "c"}, "at_least": 6}, "at_least"),
        ("rating", {"criteria": "a", "anchors": {"1": "b", "50": "c"}, "at_least": 6}, "anchors"),
        ("rating", {"criteria": "a", "anchors": {"1": "b", "5": "c"}, "at_least": 3, "steps": [""]}, "steps.0"),
        ("g_eval", {"criteria": "a", "steps": [" "]}, "steps.0"),
    ],
)
def test_fields_that_cannot_be_used_are_refused(name: str, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        decide(name, fields, EVIDENCE)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("name", "evidence"),
    [
        ("faithfulness", {"text": "x"}),
        ("faithfulness", {"text": " \n", "tool_calls": [{"name": "a", "result": 1}]}),
        ("answer_relevancy", {"text": "x"}),
        ("context_precision", {"input": "x", "text": "y", "tool_calls": [{"name": "a", "result": []}]}),
        ("context_precision", {"input": "x", "tool_calls": [{"name": "a", "result": ["b"]}]}),
        ("context_recall", {"text": "x", "tool_calls": []}),
        ("toxicity", {"input": "x"}),
        ("task_completion", {"text": "x"}),
        ("pairwise", {"input": "x"}),
    ],
)
def test_the_judge_is_not_called_for_unrecorded_evidence(name: str, evidence: dict[str, Any]) -> None:
    verdict = decide(name, FIELDS.get(name, {}), evidence)
    assert (verdict.code, isinstance(verdict, PendingVerdict)) == ("missing_evidence", False)


def test_steps_are_points_in_order() -> None:
    rubric = pose("g_eval", criteria="It is coherent.", rubric=["Look at the end."], steps=["Read it.", "Decide."]).questions[0].rubric
    assert rubric == ("Look at the end.", "Step 1 of 2, in this order: Read it.", "Step 2 of 2, in this order: Decide.")
    assert (
        pose("judged", criteria="It is coherent.", steps=["Read it."]).questions
        == pose("g_eval", criteria="It is coherent.", steps=["Read it."]).questions
    )


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
PARTS = [
    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
    {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
    {"type": "image", "data": PIXEL, "mimeType": "image/png"},
    {"inlineData": {"mimeType": "image/png", "data": PIXEL}},
    f"data:image/png;base64,{PIXEL}",
]


@pytest.mark.parametrize("part", PARTS)
def test_a_picture_goes_with_the_request_and_its_number_into_the_data(part: Any) -> None:
    fields: dict[str, Any] = {"criteria": "The picture is red.", "show_images": True, "show_tool_results": True}
    evidence = {"text": "See the picture.", "body": {"content": [part]}, "tool_calls": [{"name": "draw", "result": [part]}]}
    (question,) = pose("judged", evidence, **fields).questions
    assert [(image.media_type, image.data) for image in question.material.images] == [("image/png", PIXEL)]
    request = render([question])
    assert request.has_images and [one.data for one in request.messages[-1].attachments] == [PIXEL]
    assert PIXEL not in request.messages[-1].text and '{"image":1,"sha256":' in request.messages[-1].text
    fields["show_images"] = False
    assert pose("judged", evidence, **fields).questions[0].material.images == ()


def test_a_picture_of_the_body_is_shown_with_the_text_of_the_answer() -> None:
    evidence = {"text": "See the picture.", "body": {"content": [PARTS[0]]}}
    for name, fields in (
        ("rating", {"criteria": "use", "anchors": {"1": "none", "5": "all"}, "at_least": 4}),
        ("category", {"criteria": "kind", "categories": {"a": "b", "c": "d"}, "accept": ["a"]}),
        ("judged", {"criteria": "It is red."}),
    ):
        material = pose(name, evidence, show_images=True, **fields).questions[0].material
        assert len(material.images) == 1 and material.context["images_of_the_answer"][0]["image"] == 1


ADDRESSES: list[Any] = [
    {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    {"type": "input_image", "image_url": "https://example.com/a.png"},
    {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
    {"type": "image", "data": "no base64", "mimeType": "image/png"},
    {"fileData": {"mimeType": "image/png", "fileUri": "gs://a/b.png"}},
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_claim_about_images_is_not_decided_on_some_of_them(address: Any) -> None:
    evidence = {"text": "See both.", "body": {"content": [PARTS[0], address]}}
    verdict = decide("judged", {"criteria": "Both are red.", "show_images": True}, evidence)
    assert (verdict.code, isinstance(verdict, PendingVerdict)) == ("missing_evidence", False)
    shown = {**evidence, "body": {"content": [PARTS[0]]}, "tool_calls": [{"name": "draw", "result": [address]}]}
    assert decide("judged", {"criteria": "x", "show_images": True}, shown).code == NO_JUDGE_CODE
    assert decide("judged", {"criteria": "x", "show_images": True, "show_tool_results": True}, shown).code == "missing_evidence"


def test_an_address_of_a_picture_is_not_fetched() -> None:
    evidence = {"text": "See.", "body": {"content": [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]}}
    assert decide("judged", {"criteria": "It is red.", "show_images": True}, evidence).code == "missing_evidence"


@pytest.mark.parametrize("name", ["judged", "rating", "category"])
def test_a_claim_about_images_passes_nothing_without_one(name: str) -> None:
    fields: dict[str, Any] = {"criteria": "It is red.", "show_images": True}
    fields |= {
        "rating": {"anchors": {"1": "none", "5": "all"}, "at_least": 4},
        "category": {"categories": {"a": "b", "c": "d"}, "accept": ["a"]},
    }.get(name, {})
    for data in (None, "", "%%%", "no image"):
        body = {} if data is None else {"body": [{"type": "image", "data": data, "mimeType": "image/png"}]}
        verdict = decide(name, fields, {"text": "See the picture.", **body})
        assert (verdict.outcome, verdict.code, isinstance(verdict, PendingVerdict)) == ("fail", "missing_evidence", False)


@pytest.mark.parametrize("text", ["🖕", "!!! ... ???", "€ ∞", "42.\n", "7. !", "+", "..."])
def test_an_answer_without_letters_is_judged(text: str) -> None:
    pending = pose("toxicity", {"text": text})
    assert pending.questions[0].material.subject == {"1": text.strip()}
    assert settle(pending, ScriptedModel(choose(["toxic"]))).outcome == "fail"


@pytest.mark.parametrize(
    ("members", "settings", "expected"),
    [
        (["first", "second", "steady"], {}, ("error", "judge_position_dependent")),
        (["first", "second", "first", "second", "steady"], {}, ("error", "judge_position_dependent")),
        (["first", "second", "first"], {}, ("error", "judge_position_dependent")),
        (["first", "steady", "steady"], {}, ("pass", None)),
        (["steady", "steady", "steady"], {}, ("pass", None)),
        (["first", "second", "steady", "steady", "steady"], {"agreement": 0.55}, ("pass", None)),
        (["first", "second", "steady", "steady", "steady"], {"agreement": 0.7}, ("error", "judge_position_dependent")),
        (["first", "second", "steady", "steady", "steady"], {"quorum": 0.7}, ("error", "judge_position_dependent")),
    ],
)
def test_members_of_a_jury_that_prefer_a_place_are_no_majority(
    members: list[str], settings: dict[str, float], expected: tuple[str, str | None]
) -> None:
    def reply_as(member: str) -> Callable[[ChatRequest], ChatReply]:
        def reply(request: ChatRequest) -> ChatReply:
            data = next(json.loads(line) for line in request.messages[-1].text.split("\n") if line.startswith("{"))
            mine = "first" if data["answers"]["first"] == EVIDENCE["text"] else "second"
            return ChatReply(text=write_choice(mine if member == "steady" else member)(request))

        return reply

    verdict = settle(pose("pairwise"), *(ScriptedModel(reply_as(member)) for member in members), **settings)
    assert (verdict.outcome, verdict.code) == expected


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("this model does not support image input", "judge_no_images"),
        ("Invalid content type. image_url is only supported by certain models.", "judge_no_images"),
        ("the attachment '(without a name)' of type 'image/png' cannot be given to this model", "judge_no_images"),
        ("unknown model", "judge_bad_request"),
    ],
)
def test_a_model_that_takes_no_images_is_an_error_of_its_own(message: str, code: str) -> None:
    pending = pose("judged", {"text": "x", "body": [PARTS[0]]}, criteria="It is red.", show_images=True)
    verdict = settle(pending, ScriptedModel(lambda request: ModelFault("bad_request", message)))
    assert (verdict.outcome, verdict.code) == ("error", code)
    blind = pose("judged", {"text": "x"}, criteria="It is red.")
    assert settle(blind, ScriptedModel(lambda request: ModelFault("bad_request", message))).code == "judge_bad_request"


@pytest.mark.parametrize("quotes", [[], ["It arrives on Friday."], ["Where is it?"], ["in"]], ids=str)
@pytest.mark.parametrize("name", ["faithfulness", "context_recall"])
def test_a_statement_is_supported_only_by_a_passage_of_the_source(name: str, quotes: list[str]) -> None:
    evidence = {**EVIDENCE, "tool_calls": [{"name": "track", "result": ["It is in Linz."]}]}
    good = load_rubric(name).choices

    def reply(request: ChatRequest) -> str:
        entries = [{"id": id_, "quotes": quotes, "reason": "so", "choice": next(iter(good))} for id_ in list_ids(request)]
        return json.dumps({"results": entries})

    verdict = settle(pose(name, evidence), ScriptedModel(reply))
    assert (verdict.outcome, verdict.code) == ("error", "judge_unfounded")
