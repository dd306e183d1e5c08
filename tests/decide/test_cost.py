"""The cost of a case: from the prices of the workspace, separate for agent and judge, and never 0 if unknown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import proctor
from proctor.actions.history.compare import compare
from proctor.actions.running.run import RunOptions, drive
from proctor.decide.cost import find_agent_cost, with_cost
from proctor.errors import InputError
from proctor.evidence.reading import read_document
from proctor.formats.workspace_file import read_price_file, read_workspace
from proctor.model.account import Account
from proctor.model.case import Case
from proctor.model.cost import Price, PriceList
from proctor.model.evidence import Cost, Evidence, Usage
from proctor.model.result import CaseResult
from proctor.model.verdict import Verdict
from proctor.report.builders.run import render_markdown
from proctor.report.data.json_text import render_json
from proctor.report.data.junit import render_junit
from proctor.report.html.report import render_html
from proctor.runner.limits import Budget, BudgetMeter, RunSettings
from tests.integration.running import proctor as command
from tests.tables import rows

PRICES = PriceList(
    {
        "gpt-4o*": Price(input=2.5, output=10, cached_input=1.25),
        "claude-*": Price(input=3, output=15, cached_input=0.3, cache_write=3.75),
        "small": Price(input=1, output=2, per=1000),
    }
)
WORKSPACE = "prices:\n  small: {input: 1, output: 2, per: 1000, as_of: 2026-11-01}\n"
SUITE = "proctor: 1\nname: Costs\ncases:\n  - id: a\n    input: hi\n    expect: [{cost_within: 2.5}]\n"


@rows("decide/cases/costs.yaml")
def test_the_agent_costs_what_its_tokens_cost(row: dict[str, Any]) -> None:
    (evidence,) = read_document(row["evidence"])
    if "models" in row:
        assert evidence.usage is not None
        evidence = msgspec.structs.replace(evidence, usage=msgspec.structs.replace(evidence.usage, models=tuple(row["models"])))
    if "unknown" in row:
        evidence = msgspec.structs.replace(evidence, account=Account(unknown=row["unknown"]))
    cost = find_agent_cost(evidence, PRICES)
    if isinstance(row["expect"], str):
        assert (cost.agent, cost.why) == (None, row["expect"])
    else:
        assert cost.agent == pytest.approx(row["expect"], abs=1e-12)
    if "note" in row:
        assert cost.note == row["note"]


def judged(*opinions: dict[str, Any]) -> CaseResult:
    return CaseResult(Case(id="a"), "pass", 1.0, tuple(Verdict("pass", 1.0, "", None, opinion) for opinion in opinions))


def opinion(model: str, *ids: str, tokens: int | None = 1000, **more: Any) -> dict[str, Any]:
    usage = {} if tokens is None else {"usage": {"input_tokens": tokens, "output_tokens": 0}}
    return {"judge_requests": [{"id": identifier, "model": model, **usage, **more} for identifier in ids]}


JUDGES: dict[str, tuple[tuple[dict[str, Any], ...], float | None]] = {
    "no judge": ((), 0.0),
    "one claim": ((opinion("small", "1"),), 1.0),
    "two claims of one request": ((opinion("small", "1"), opinion("small", "1")), 1.0),
    "two requests": ((opinion("small", "1"), opinion("small", "2")), 2.0),
    "a claim of two requests": ((opinion("small", "1", "2"), opinion("small", "2")), 2.0),
    "remembered": ((opinion("small"),), 0.0),
    "details of another kind under a near name": (({"requests": 3},), 0.0),
    "no price": ((opinion("other", "1"),), None),
    "a price in the settings of the model": ((opinion("other", "1", cost=0.5),), 0.5),
    "no tokens reported": ((opinion("small", "1", tokens=None),), None),
}


@pytest.mark.parametrize("name", JUDGES)
def test_the_judge_costs_what_its_requests_cost(name: str) -> None:
    opinions, wanted = JUDGES[name]
    priced = Evidence(model="small", usage=Usage(input_tokens=1000, output_tokens=0))
    cost = with_cost(judged(*opinions), priced, PRICES).cost
    assert cost is not None and (cost.agent, cost.judge) == (1.0, wanted)
    assert bool(cost.why) == (wanted is None)


@pytest.mark.parametrize(
    ("evidence", "outcome", "code", "reason"),
    [
        ({"model": "small", "usage": {"input_tokens": 2500, "output_tokens": 0}}, "pass", None, ""),
        ({"model": "small", "usage": {"input_tokens": 2501, "output_tokens": 0}}, "fail", None, "at most 2.5 USD, found 2.501 USD"),
        ({"model": "other", "usage": {"input_tokens": 1, "output_tokens": 0}}, "fail", "missing_evidence", "no price for the model other"),
        ({"text": "hi"}, "fail", "missing_evidence", "token usage is not recorded"),
    ],
)
def test_a_claim_about_the_cost_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evidence: dict[str, Any], outcome: str, code: str | None, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "proctor.yaml").write_text(WORKSPACE, encoding="utf-8")
    (verdict,) = proctor.check(proctor.parse_suite(SUITE), evidence).cases[0].verdicts
    assert (verdict.outcome, verdict.code) == (outcome, code)
    assert reason in verdict.reason


def test_without_prices_a_claim_about_the_cost_is_missing_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # The cost claimed by a recording is not used.
    result = proctor.check(
        proctor.parse_suite(SUITE), {"text": "a", "cost": {"agent": 0.1}, "usage": {"input_tokens": 1, "output_tokens": 1}}
    )
    assert result.cases[0].verdicts[0].code == "missing_evidence"
    assert result.cost is None and result.cases[0].cost is None


def test_every_report_shows_the_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "proctor.yaml").write_text(WORKSPACE, encoding="utf-8")
    suite = proctor.parse_suite(SUITE)
    priced = {"case": "a", "model": "small", "usage": {"input_tokens": 1000, "output_tokens": 100}}
    whole = proctor.check(suite, [priced, priced])
    part = proctor.check(suite, [priced, {**priced, "model": "other"}])
    document = json.loads(render_json(whole))
    assert document["cost"] == {"agent": 2.4, "judge": 0.0, "currency": "USD", "known": 2.4, "cases_not_known": 0}
    assert document["cases"][0]["cost"] == {"agent": 1.2, "judge": 0.0, "currency": "USD"}
    unsure = json.loads(render_json(part))
    assert unsure["cost"]["agent"] is None and unsure["cost"]["known"] == 1.2
    assert unsure["cases"][1]["cost"]["why"] == "no price for the model other"
    assert "cost 2.4 USD" in render_markdown(whole)
    assert "cost unknown (no price for the model other), at least 1.2 USD" in render_markdown(part)
    assert "cost:agent: 1.2" in render_junit(whole)
    assert "cost:agent: unknown: no price for the model other" in render_junit(part)
    assert render_html(whole)
    (tmp_path / "suite.yaml").write_text(SUITE, encoding="utf-8")
    (tmp_path / "evidence.jsonl").write_text(json.dumps(priced) + "\n", encoding="utf-8")
    assert "cost 1.2 USD" in command("check", "suite.yaml", "evidence.jsonl").out
    (tmp_path / "cheap.yaml").write_text("small: {input: 0.5, output: 0, per: 1000, currency: EUR}\n", encoding="utf-8")
    assert "cost 0.5 EUR" in command("check", "suite.yaml", "evidence.jsonl", "--prices", "cheap.yaml").out
    assert "no such file" in command("check", "suite.yaml", "evidence.jsonl", "--prices", "none.yaml").err


def answer(tokens: int) -> Any:
    return lambda message: {"text": "hi", "model": "small", "usage": {"input_tokens": tokens, "output_tokens": 0}}


async def test_a_run_keeps_its_cost_stops_at_the_limit_and_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "proctor.yaml").write_text(WORKSPACE, encoding="utf-8")
    cases = "".join(f"  - {{id: c{number}, input: hi, expect: [{{cost_within: 9}}]}}\n" for number in range(8))
    suite = proctor.parse_suite("proctor: 1\nname: Costs\ncases:\n" + cases)
    home = tmp_path / ".proctor"
    whole = await drive(suite, target=answer(1000), home=home)
    assert whole.result.cost is not None and whole.result.cost.agent == 8.0
    bounded = RunOptions(settings=RunSettings(concurrency=1, budget=Budget(max_cost=3)))
    stopped = await drive(suite, bounded, target=answer(1000), home=home)
    assert (stopped.ended, len(stopped.entries)) == ("budget", 3)
    assert stopped.reason == "3 spent, the limit is 3"
    dearer = await drive(suite, target=answer(2000), home=home)
    found = compare(home, whole.result.run_id, dearer.result.run_id)
    assert found.cost is not None and (found.cost.verdict, found.cost.ratio) == ("higher", 2.0)
    assert re.search(" cost +1 +2 ", command("compare", whole.result.run_id, dearer.result.run_id).out)


async def test_an_unenforceable_cost_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bounded = RunOptions(settings=RunSettings(budget=Budget(max_cost=3)))
    with pytest.raises(InputError, match="--max-cost needs prices"):
        await drive(proctor.parse_suite(SUITE), bounded, target=answer(1), home=tmp_path / ".proctor")
    models = "models: {main: {provider: openai, model: gpt-9, api_key: none}}\njudge: {model: main}\n"
    (tmp_path / "proctor.yaml").write_text(WORKSPACE + models, encoding="utf-8")
    suite = proctor.parse_suite("proctor: 1\ncases:\n  - {id: a, input: hi, expect: [{judged: polite}]}\n")
    with pytest.raises(InputError, match=r"no price for the model 'openai/gpt-9'.*prices are known for small"):
        await drive(suite, bounded, target=answer(1), home=tmp_path / ".proctor")


def test_a_cost_that_is_not_known_ends_a_run_with_a_limit() -> None:
    meter = BudgetMeter(Budget(max_cost=3), lambda: 0.0)
    meter.add_cost(Cost(agent=1.0, judge=0.0))
    assert meter.explain_exhausted() is None
    meter.add_cost(Cost(agent=None, judge=0.0, why="no price for the model other"))
    explanation = meter.explain_exhausted()
    assert explanation is not None and "no price for the model other" in explanation


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prices: 3", "prices"),
        ("prices: {a: {input: 1}}", "needs 'output'"),
        ("prices: {a: {input: -1, output: 1}}", "must be a number of at least 0"),
        ("prices: {a: {input: 1, output: 1, per: 0}}", "at least 1"),
        ("prices: {a: {input: 1, output: 1, as_of: soon}}", "must be a day such as"),
        ("prices: {a: {input: 1, output: 1, currency: EUR}, b: {input: 1, output: 1}}", "all prices are in one currency"),
        ("prices: {a: {inputs: 1, output: 1}}", "unknown key 'inputs'"),
    ],
)
def test_prices_that_make_no_sense_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_workspace(text, file="proctor.yaml")
    assert message in str(caught.value)


def test_a_suite_cannot_bring_prices_of_its_own() -> None:
    with pytest.raises(InputError, match="unknown key 'prices' in a suite"):
        proctor.parse_suite(SUITE + "prices: {small: {input: 0, output: 0}}\n")


def test_prices_stand_in_a_file_of_their_own_with_or_without_their_key() -> None:
    for text in ("a: {input: 1, output: 2}", "prices: {a: {input: 1, output: 2}}"):
        assert read_price_file(text, file="prices.yaml").prices["a"] == Price(input=1, output=2)
    with pytest.raises(InputError, match="no prices in this file"):
        read_price_file("{}", file="prices.yaml")
