"""A real model judges end to end. It is far too small to be right: only the protocol is asserted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.running import proctor
from tests.live.small_model import small_model

pytestmark = [pytest.mark.live, pytest.mark.on_request, pytest.mark.timeout(420)]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with small_model() as url:
        yield url


def test_a_real_model_returns_the_required_reply_shape(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {"provider": "openai", "model": "smollm2", "base_url": address, "timeout_s": 300}
    cases = [{"id": "polite", "input": "Where is my order?", "expect": [{"judged": {"criteria": "The answer is polite."}}]}]
    suite = {
        "proctor": 1,
        "name": "real",
        "models": {"small": settings},
        # A short instruction: the model reads some thirty words a second on a busy machine.
        "judge": {"model": "small", "max_tokens": 300, "timeout_s": 300, "concurrency": 1, "prompt": "short.md"},
        "cases": cases,
    }
    Path("short.md").write_text("You judge answers. Decide for each check whether the material meets it.")
    Path("suite.json").write_text(json.dumps(suite))
    evidence = [{"case": case["id"], "text": "Thank you for asking. It arrives on Monday."} for case in cases]
    Path("evidence.jsonl").write_text("\n".join(json.dumps(each) for each in evidence))
    done = proctor("check", "suite.json", "evidence.jsonl", "--format", "json")
    assert done.out, done.err
    for case in json.loads(done.out)["cases"]:
        verdict = case["assertions"][0]
        # A small model invents quotes, which is detected; only the reply shape is required.
        assert verdict["outcome"] in ("pass", "fail") or verdict["code"] == "judge_unfounded", json.dumps(verdict)
        assert 0 <= verdict["score"] <= 1
        assert verdict["reason"]
        details = verdict["details"]
        assert details["usage"]["total_tokens"] > 0
        assert details["prompt_version"].startswith("custom-")
        for reply in details["replies"]:
            assert [list(entry) for entry in json.loads(reply)["results"]] == [["id", "quotes", "reason", "pass"]], reply
