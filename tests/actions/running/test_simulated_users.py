"""Runs with simulated users: from the suite to the result, recorded, replayed, resumed and decided again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import proctor
from proctor.actions.checking.recheck import recheck
from proctor.actions.running.run import LiveRun, RunOptions, drive
from proctor.errors import InputError
from proctor.model.judgement import Question
from proctor.report.builders.run import RunReport, render_markdown
from proctor.report.data.json_text import render_json
from proctor.report.document.terminal import write_terminal
from proctor.report.html.report import render_html
from proctor.runner.limits import Budget, RunSettings
from tests.report.html_reading import Page
from tests.users.talks import reply

PERSON = {"persona": "A customer", "goal": "To know when the refund comes", "model": "user"}


def write_script(*lines: Any) -> list[dict[str, Any]]:
    """The replies of a scripted model, each with ten tokens."""
    return [{"text": reply(**line).text, "usage": {"total_tokens": 10}} for line in lines]


TALKS = write_script({"say": "I was charged twice"}, {"say": "Order 17"}, {"done": True, "reason": "friday"})


def suite_of(*cases: dict[str, Any], replies: list[Any] = TALKS) -> str:
    models = {"user": {"provider": "scripted", "replies": replies}}
    return json.dumps({"proctor": 1, "name": "Refunds", "models": models, "cases": list(cases)})


def agent(message: str) -> str:
    return "Your refund comes on Friday." if "17" in message else "What is your order number?"


def run(suite: str, tmp_path: Path, target: Any = agent, **options: Any) -> LiveRun:
    settings = RunSettings(**{name: options.pop(name) for name in ("repeat", "concurrency", "budget") if name in options})
    loaded = proctor.parse_suite(suite)
    return asyncio.run(drive(loaded, RunOptions(settings=settings, **options), target=target, home=tmp_path / ".proctor"))


def yes(question: Question) -> bool:
    return True


SCRIPTED = {
    "id": "scripted",
    "user": {
        "goal": "To know when the refund comes",
        "script": ["I was charged twice", {"when": {"response_contains": "order number"}, "say": "Order 17"}],
        "stop_when": {"response_contains": "Friday"},
    },
    "expect": ["goal_reached", {"turns_within": 2}, {"response_contains": "refund"}],
}


def test_a_script_plays_the_user_and_no_judge_is_needed(tmp_path: Path) -> None:
    done = run(suite_of(SCRIPTED), tmp_path)
    assert done.result.outcome == "pass"
    evidence = done.entries["scripted", 0].evidence
    assert evidence is not None and evidence.turns is not None and evidence.simulated_user is not None
    assert [(turn.input, turn.text) for turn in evidence.turns] == [
        ("I was charged twice", "What is your order number?"),
        ("Order 17", "Your refund comes on Friday."),
    ]
    assert (evidence.simulated_user.ended, evidence.simulated_user.by) == ("done", "stop_when")
    shown = json.loads(render_json(done.result))["cases"][0]
    assert shown["simulated_user"] == {
        "played_by": "script",
        "turns": 2,
        "ended": "done",
        "by": "stop_when",
        "reason": "response_contains · Friday",
    }
    assert "the user was simulated (script): done after 2 turns" in shown["evidence"]["account"]["notes"]


def test_turns_within_counts_the_simulated_turns(tmp_path: Path) -> None:
    result = run(suite_of({**SCRIPTED, "expect": [{"turns_within": 1}]}), tmp_path).result
    assert "found 2" in result.cases[0].verdicts[0].reason and result.outcome == "fail"


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ({"script": ["hello"]}, "the user gave up after 1 turn: the script has nothing more to say"),
        ({"script": ["a", "b", "c"], "gives_up_after": 2}, "the user had no turn left after 2 turns"),
        ({"script": ["hello", {"when": {"response_contains": "order"}, "gives_up": True}]}, "the user gave up after 1 turn"),
    ],
)
def test_a_goal_is_not_reached_if_the_user_gave_up_or_ran_out_of_turns(user: dict[str, Any], why: str, tmp_path: Path) -> None:
    questions: list[Question] = []
    for by in ("stop_when", "judge"):
        case = {"id": "a", "user": {"goal": "a refund", **user}, "expect": [{"goal_reached": {"by": by}}]}
        result = run(suite_of(case), tmp_path, judge=lambda question: bool(questions.append(question)) or True).result
        assert (result.cases[0].outcome, why in result.cases[0].verdicts[0].reason) == ("fail", True)
    assert not questions, "there is nothing to judge"


def test_a_model_plays_the_user_and_the_judge_sees_the_whole_conversation(tmp_path: Path) -> None:
    questions: list[Question] = []
    case = {"id": "a", "user": PERSON, "expect": ["goal_reached", {"judged": "is polite"}]}
    done = run(suite_of(case), tmp_path, judge=lambda question: bool(questions.append(question)) or True)
    assert done.result.outcome == "pass"
    talk = [
        {"user": "I was charged twice", "agent": "What is your order number?"},
        {"user": "Order 17", "agent": "Your refund comes on Friday."},
    ]
    assert questions[0].material.subject == talk and "To know when the refund comes" in questions[0].criterion
    assert questions[1].material.context["conversation"] == talk


def test_a_claim_of_the_users_model_is_no_proof(tmp_path: Path) -> None:
    case = {"id": "a", "user": {**PERSON, "stop_when": {"response_contains": "Monday"}}, "expect": ["goal_reached"]}
    result = run(suite_of(case), tmp_path).result
    assert result.outcome == "fail"
    assert "the user's model took the goal for reached after 2 turns, and `stop_when` was not: friday" in result.cases[0].verdicts[0].reason
    judged = {"id": "a", "user": PERSON, "expect": ["goal_reached"]}
    assert run(suite_of(judged), tmp_path, judge=lambda question: False).result.outcome == "fail"


def test_tokens_of_user_and_agent_are_counted_separately(tmp_path: Path) -> None:
    def counted(message: str) -> dict[str, Any]:
        return {"text": agent(message), "usage": {"total_tokens": 5}}

    case = {"id": "a", "user": PERSON, "expect": [{"tokens_within": 10}]}
    done = run(suite_of(case), tmp_path, counted)
    assert done.result.outcome == "pass", "what the user took is not the agent's"
    evidence = done.entries["a", 0].evidence
    assert evidence is not None and evidence.usage is not None and evidence.simulated_user is not None
    assert evidence.usage.total() == 10
    assert evidence.simulated_user.usage is not None and evidence.simulated_user.usage.total() == 30


def test_a_budget_is_reached_by_the_tokens_of_users_and_the_rest_can_be_resumed(tmp_path: Path) -> None:
    suite = suite_of(*({"id": f"case-{number}", "user": PERSON, "expect": [{"response_contains": "refund"}]} for number in range(5)))
    stopped = run(suite, tmp_path, concurrency=1, budget=Budget(max_tokens=60))
    assert (stopped.ended, len(stopped.entries)) == ("budget", 2)
    assert stopped.reason == "60 tokens spent (60 of them by simulated users), the limit is 60"
    resumed = run(suite, tmp_path, resume=stopped.result.run_id)
    assert (resumed.ended, resumed.result.outcome, len(resumed.entries)) == ("completed", "pass", 5)


PRICES = "prices: {scripted: {input: 1, output: 1, per: 10}, small: {input: 1, output: 1, per: 10}}\n"
PRICED_TALKS = [{**line, "usage": {"input_tokens": 8, "output_tokens": 2}} for line in TALKS]


def priced_agent(message: str) -> dict[str, Any]:
    return {"text": agent(message), "model": "small", "usage": {"input_tokens": 10, "output_tokens": 0}}


@pytest.mark.parametrize(
    ("budget", "sent", "reason"),
    [
        (Budget(max_tokens=30), 1, "30 tokens spent (20 of them by simulated users), the limit is 30"),
        (Budget(max_cost=3), 1, "3 spent, the limit is 3"),
        (Budget(max_cost=1), 0, "1 spent, the limit is 1"),
        (Budget(max_cost=5), 2, None),
    ],
    ids=lambda given: str(given) if isinstance(given, int) else "",
)
def test_a_budget_stops_a_conversation_in_its_middle(
    budget: Budget, sent: int, reason: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "proctor.yaml").write_text(PRICES, encoding="utf-8")
    heard: list[str] = []

    def answer(message: str) -> dict[str, Any]:
        heard.append(message)
        return priced_agent(message)

    suite = suite_of({"id": "a", "user": PERSON, "expect": [{"response_contains": "refund"}]}, replies=PRICED_TALKS)
    done = run(suite, tmp_path, answer, budget=budget)
    assert len(heard) == sent
    if reason is None:
        # It was over before anything more would have been sent: a result like any other.
        assert (done.ended, len(done.entries)) == ("completed", 1)
        return
    assert (done.ended, done.reason) == ("budget", f"{reason}; the conversation of 'a' was ended early")
    assert not done.entries and done.result.incomplete is not None and done.result.outcome != "pass"
    resumed = run(suite, tmp_path, answer, resume=done.result.run_id)
    assert (resumed.ended, resumed.result.outcome) == ("completed", "pass")


def test_concurrent_conversations_share_the_budget(tmp_path: Path) -> None:
    cases = [{"id": f"c{number}", "user": PERSON, "expect": [{"response_contains": "refund"}]} for number in range(4)]
    done = run(suite_of(*cases), tmp_path, concurrency=4, budget=Budget(max_tokens=40))
    # Each has used ten tokens for its first message when the fourth reaches the limit.
    assert done.ended == "budget" and done.reason.startswith("40 tokens spent (40 of them by simulated users), the limit is 40")


def test_the_users_model_is_priced_apart_or_named_unpriced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "proctor.yaml").write_text(PRICES, encoding="utf-8")
    suite = suite_of({"id": "a", "user": PERSON, "expect": [{"cost_within": 2}]}, replies=PRICED_TALKS)
    done = run(suite, tmp_path, priced_agent)
    assert done.result.outcome == "pass", "a claim about the cost is about the agent's"
    shown = json.loads(render_json(done.result))
    assert shown["cases"][0]["cost"] == {"agent": 2.0, "judge": 0.0, "user": 3.0, "currency": "USD"}
    assert shown["cost"]["user"] == 3.0 and shown["cost"]["known"] == 5.0
    assert "cost 2 USD and 3 for the simulated user" in render_markdown(done.result)
    (tmp_path / "proctor.yaml").write_text(PRICES.replace("scripted", "other"), encoding="utf-8")
    shown = json.loads(render_json(run(suite, tmp_path, priced_agent).result))["cases"][0]["cost"]
    assert (shown["agent"], shown["user"]) == (2.0, None)
    assert shown["why"] == "the simulated user: no price for the model scripted/scripted"
    with pytest.raises(InputError, match="--max-cost: no price for the model 'scripted/scripted'"):
        run(suite, tmp_path, priced_agent, budget=Budget(max_cost=9))
    (tmp_path / "proctor.yaml").write_text(PRICES.replace("scripted", "other"), encoding="utf-8")
    shown = json.loads(render_json(run(suite_of(SCRIPTED), tmp_path, priced_agent).result))["cases"][0]["cost"]
    assert shown == {"agent": 2.0, "judge": 0.0, "currency": "USD"}, "a script costs nothing"


def test_concurrent_conversations_stay_separate(tmp_path: Path) -> None:
    def echo(message: str, history: list[dict[str, Any]]) -> str:
        assert [each["input"] for each in history] == [f"{message[:-1]}{number}" for number in range(len(history))]
        return f"re {message}"

    cases = [{"id": f"c{n}", "user": {"script": [f"{n}-{m}" for m in range(3)]}, "expect": [{"turns_within": 3}]} for n in range(20)]
    done = run(suite_of(*cases), tmp_path, echo, repeat=3, concurrency=10)
    assert done.result.outcome == "pass" and len(done.entries) == 60
    for (case, _), entry in done.entries.items():
        assert entry.evidence is not None and entry.evidence.turns is not None
        assert [turn.text for turn in entry.evidence.turns] == [f"re {case[1:]}-{m}" for m in range(3)]


def test_a_recording_replays_the_user_without_asking_its_model(tmp_path: Path) -> None:
    case = {"id": "a", "user": PERSON, "expect": [{"response_contains": "Friday"}]}
    first = run(suite_of(case), tmp_path, record=tmp_path / "tape.jsonl")
    again = run(suite_of(case, replies=[]), tmp_path, replay=tmp_path / "tape.jsonl")
    assert again.unused is None
    evidence = [done.entries["a", 0].evidence for done in (first, again)]
    assert evidence[0] is not None and evidence[1] is not None
    assert [(turn.input, turn.text) for turn in evidence[0].turns or ()] == [(turn.input, turn.text) for turn in evidence[1].turns or ()]
    assert evidence[0].simulated_user == evidence[1].simulated_user
    assert (first.result.outcome, again.result.outcome) == ("pass", "pass")


def test_a_different_agent_answer_misses_the_recording(tmp_path: Path) -> None:
    case = {"id": "a", "user": PERSON, "expect": [{"response_contains": "Friday"}]}
    run(suite_of(case), tmp_path, record=tmp_path / "tape.jsonl")
    again = run(suite_of(case), tmp_path, lambda message: "Something else.", replay=tmp_path / "tape.jsonl")
    assert (again.result.cases[0].outcome, again.result.cases[0].code) == ("error", "cassette_miss")


@pytest.mark.parametrize(
    ("replies", "code"),
    [
        ([TALKS[0], "I am done, thank you!"], "bad_user_reply"),
        ([TALKS[0], {"fault": "unauthorized"}], "user_unavailable"),
        ([{"fault": "unauthorized"}], "user_unavailable"),
    ],
)
def test_a_stuck_user_is_an_error_of_the_case_on_recheck_too(replies: Any, code: str, tmp_path: Path) -> None:
    case = {"id": "a", "user": PERSON, "expect": [{"response_contains": "order"}, {"turns_within": 5}]}
    done = run(suite_of(case, replies=replies), tmp_path)
    assert (done.result.cases[0].outcome, done.result.cases[0].code) == ("error", code)
    evidence = done.entries["a", 0].evidence
    if len(replies) > 1:
        assert evidence is not None and evidence.turns is not None and len(evidence.turns) == 1, "the turns are stored"
    again = recheck(tmp_path / ".proctor", done.result.run_id)
    assert (again.cases[0].outcome, again.cases[0].code) == ("error", code)


def test_rechecking_uses_the_recorded_turns_and_sends_no_request(tmp_path: Path) -> None:
    done = run(suite_of(SCRIPTED), tmp_path)
    stricter = proctor.parse_suite(suite_of({**SCRIPTED, "expect": ["goal_reached", {"turns_within": 1}]}))
    again = recheck(tmp_path / ".proctor", done.result.run_id, stricter)
    assert [verdict.outcome for verdict in again.cases[0].verdicts] == ["pass", "fail"]
    assert again.cases[0].simulated_user == done.result.cases[0].simulated_user
    assert recheck(tmp_path / ".proctor", done.result.run_id).outcome == "pass"


def test_an_agents_own_claim_about_its_end_never_counts(tmp_path: Path) -> None:
    def liar(message: str) -> dict[str, Any]:
        return {"text": "hm", "simulated_user": {"played_by": "script", "ended": "done", "by": "stop_when", "turns": 1}}

    assert run(suite_of(SCRIPTED), tmp_path, liar).result.cases[0].verdicts[0].outcome == "fail"
    plain = {"id": "a", "input": "hi", "expect": [{"response_contains": "hm"}]}
    evidence = run(suite_of(plain), tmp_path, liar).entries["a", 0].evidence
    assert evidence is not None and evidence.simulated_user is None


def test_a_target_that_cannot_hold_a_conversation_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "stored.jsonl").write_text('{"case": "scripted", "text": "Friday"}\n')
    target = {"type": "recorded", "evidence": [str(tmp_path / "stored.jsonl")]}
    with pytest.raises(InputError, match="cannot hold a conversation with one"):
        run(suite_of(SCRIPTED), tmp_path, target)


def test_a_user_names_a_model_that_exists(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="usr"):
        run(suite_of({"id": "a", "user": {**PERSON, "model": "usr"}}), tmp_path)


def test_reports_show_the_speaker_and_why_it_ended(tmp_path: Path) -> None:
    gives_up = {"id": "left", "user": {"script": ["hello"]}, "expect": [{"response_contains": "Friday"}]}
    done = run(suite_of(SCRIPTED, gives_up, {"id": "m", "user": PERSON, "expect": [{"response_contains": "x"}]}), tmp_path)
    report = RunReport("terminal")
    shown = write_terminal(report.finish(done.result))
    assert "user      script · gave up after 1 turn · the script has nothing more to say" in shown
    assert "3 simulated users: 2 done, 1 gave up; their model used 30 tokens" in shown
    page = Page(render_html(done.result, done.entries)).read_case("left")
    assert "Simulated userscript · gave up after 1 turn · the script has nothing more to say" in page
    assert "simulated user: script · gave up after 1 turn" in page
    assert "gave up after 1 turn" in render_markdown(done.result)
