"""Metrics through the commands, with a judge on loopback: figures, limits of requests, and a judge without eyes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.judge_server import Judge, data_of, judge_server, prompt_of
from tests.integration.running import proctor

ANSWER = "It is in Linz. It arrives on Friday."
METRICS: list[dict[str, Any]] = [
    {"faithfulness": {"context": ["RX-91 is in Linz."], "threshold": 0.5}},
    {"answer_relevancy": {"threshold": 0.5}},
    {"context_precision": {"context": ["RX-91 is in Linz.", "Cats purr."], "reference": "In Linz."}},
    {"context_recall": {"context": ["RX-91 is in Linz."], "reference": "In Linz. Since May.", "threshold": 0.5}},
    {"toxicity": 0.5},
    {"bias": {"threshold": 0.5}},
    {"category": {"criteria": "kind", "categories": {"solved": "it helps", "refused": "it declines"}, "accept": ["solved"]}},
    {"rating": {"criteria": "use", "anchors": {5: "all", 1: "none"}, "at_least": 5}},
    {"pairwise": "Somewhere."},
    {"task_completion": {}},
    {"g_eval": {"criteria": "It is clear.", "steps": ["Read it."], "threshold": 0.5}},
]


def choose(body: dict[str, Any]) -> str:
    """The first choice for the first part and the second one for the others; the highest number, and the answer with a city."""
    first, *others = json.loads(prompt_of(body).split("\n")[1])
    results: list[dict[str, Any]] = []
    for check in [{**first["every_check"], **one} for one in others] if others else [first]:
        quotes = ["RX-91 is in Linz"] if "retrieved" in data_of(body).get("context", {}) else []
        entry: dict[str, Any] = {"id": check["id"], "quotes": quotes, "reason": "read it"}
        names = list(check.get("choices", {}))
        if "tie" in names:
            entry["choice"] = "first" if "Linz" in data_of(body)["answers"]["first"] else "second"
        elif names:
            entry["choice"] = names[-1] if "5" in names else names["1 of" not in check["criterion"] and len(others) > 0]
        elif "score" in json.dumps(body["response_format"]):
            entry["score"] = 0.75
        else:
            entry["pass"] = True
        results.append(entry)
    return json.dumps({"results": results})


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.json").write_text(json.dumps({"input": "Where is RX-91?", "text": ANSWER}))
    return tmp_path


def write_suite(files: Path, judge: Judge, expect: list[dict[str, Any]]) -> None:
    document = {
        "proctor": 1,
        "models": {
            "judge": {
                "provider": "openai",
                "model": "stub",
                "base_url": judge.url,
                "api_key": "x",
                "input_price": 1,
                "output_price": 1,
            }
        },
        "judge": {"model": "judge", "retries": 0},
        "cases": [{"id": "parcel", "expect": expect}],
    }
    (files / "suite.json").write_text(json.dumps(document))


def check(*flags: str) -> tuple[int, list[dict[str, Any]]]:
    done = proctor("check", "suite.json", "trace.json", "--format", "json", "--trust", *flags)
    (case,) = json.loads(done.out)["cases"]
    return done.code, case["assertions"]


def test_every_metric_through_check(files: Path) -> None:
    with judge_server(choose) as judge:
        write_suite(files, judge, METRICS)
        code, verdicts = check()
        requests = len(judge.requests)
    found = {next(iter(claim)): (verdict["outcome"], verdict["score"]) for claim, verdict in zip(METRICS, verdicts, strict=True)}
    half = ("pass", 0.5)
    assert found == {
        "faithfulness": half,
        "answer_relevancy": ("pass", 1.0),
        "context_precision": ("pass", 1.0),
        "context_recall": half,
        "toxicity": half,
        "bias": half,
        "category": ("pass", 1.0),
        "rating": ("pass", 1.0),
        "pairwise": ("pass", 1.0),
        "task_completion": ("pass", 1.0),
        "g_eval": ("pass", 0.75),
    }
    assert code == 0
    assert requests == len({request["id"] for verdict in verdicts for request in verdict["details"]["judge_requests"]}) == 12
    for verdict in verdicts:
        details = verdict["details"]
        assert details["cost"] == pytest.approx(sum(request["cost"] for request in details["judge_requests"])) and details["cost"] > 0
        assert len(details["replies"]) == len(details["judge_requests"]) and details["usage"]["total_tokens"] > 0


@pytest.mark.parametrize("claim", METRICS, ids=lambda claim: next(iter(claim)))
def test_no_metric_passes_above_the_request_limit(files: Path, claim: dict[str, Any]) -> None:
    with judge_server(choose) as judge:
        write_suite(files, judge, [claim])
        code, (verdict,) = check("--max-judge-calls", "1" if "pairwise" in claim else "0")
    assert (verdict["outcome"], verdict["code"]) == ("error", "judge_budget")
    assert code != 0


def test_every_metric_is_described() -> None:
    listed = proctor("describe", "checks").out
    for claim in METRICS:
        name = next(iter(claim))
        assert name in listed
        assert proctor("describe", "check", name).code == 0
    assert "* no_claim: " in proctor("describe", "judge", "faithfulness").out
