"""The judge cost that a run reports equals what the stub server counted, in every dialect and for every way to call it."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from proctor.evals.agents.test_agent import EvalAgent
from proctor.evals.eval_test import EvalTest
from proctor.evals.grading.judge_scorer import judge_scorer
from proctor.evals.grading.results import EvalRunResult
from proctor.judge.llm_judge import LlmJudge
from proctor.judge.settings import JudgeSettings
from proctor.llm.build import build_model
from proctor.llm.settings import ModelSettings
from tests.evals.agents import result, saying
from tests.integration.judge_server import agreeable, prompt_of
from tests.integration.running import proctor
from tests.targets.mcp_twins import run as run_async

INPUT_PRICE, OUTPUT_PRICE = 400.0, 1600.0
"""Of a million tokens."""
CASES = 8


class Stub:
    """A provider that bills every answer, each with other tokens."""

    def __init__(self) -> None:
        self.url = ""
        self.cost = 0.0
        self.requests = 0
        self.flaw: Callable[[int, dict[str, Any]], int | str | None] = lambda number, body: None
        """A status, or a text instead of the judgement."""
        self.lock = threading.Lock()


@pytest.fixture
def stub() -> Iterator[Stub]:
    with serve_stub() as running:
        yield running


@contextmanager
def serve_stub() -> Iterator[Stub]:
    stub = Stub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with stub.lock:
                stub.requests += 1
                number = stub.requests
            flaw = stub.flaw(number, body)
            status, answer = 200, {}
            if isinstance(flaw, int):
                status = flaw
            else:
                tokens = (100 + 7 * number, 10 + number)
                with stub.lock:
                    stub.cost += (tokens[0] * INPUT_PRICE + tokens[1] * OUTPUT_PRICE) / 1e6
                answer = {
                    "model": "stub-1",
                    "choices": [{"message": {"content": agreeable(body) if flaw is None else flaw}, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)},
                }
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    stub.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def write_native() -> str:
    claims = [
        {"judged": "is good"},
        {"judged": {"criteria": "is kind", "threshold": 0.5, "negative_constraints": ["promises a refund", "blames the customer"]}},
        {"judged": {"criteria": "is borne out", "kind": "hallucination"}},
    ]
    return json.dumps({"proctor": 1, "cases": [{"id": f"c{number}", "input": f"hi {number}", "expect": claims} for number in range(CASES)]})


def write_mcplab() -> str:
    claims = [{"label": "good", "prompt": "is good"}, {"label": "kind", "prompt": "is kind"}]
    scenarios = [{"id": f"c{number}", "prompt": f"hi {number}", "eval": {"agent_assertions": claims}} for number in range(CASES)]
    return json.dumps({"servers": {}, "agents": {}, "scenarios": scenarios})


def write_mibo() -> str:
    claims = {"semantic": [{"criteria": "Kind", "threshold": 0.5, "negative_constraints": ["promises a refund"]}, {"criteria": "Good"}]}
    return json.dumps([{"id": f"c{number}", "input_utterance": f"hi {number}", "assertions": claims} for number in range(CASES)])


def write_verial() -> str:
    return json.dumps([{"task_id": f"c{number}", "label": "x", "assert": f"The agent was kind, {number}."} for number in range(CASES)])


SUITES = {"native": write_native, "mcplab": write_mcplab, "mibo": write_mibo, "verial": write_verial}
FLAWS: dict[str, Callable[[int, dict[str, Any]], int | str | None]] = {
    "well": lambda number, body: None,
    "retried": lambda number, body: 500 if number % 3 == 0 else None,
    "repaired": lambda number, body: None if "fault_of_previous_reply" in json.dumps(body) else "no JSON" if number % 2 else None,
    "useless": lambda number, body: "no JSON" if number % 3 else None,
}


def prepare(folder: Path, stub: Stub, dialect: str, *, own_prices: bool = False, **judge: Any) -> None:
    model: dict[str, Any] = {"provider": "openai", "base_url": stub.url, "api_key": "sk-1"}
    if own_prices:
        model |= {"input_price": INPUT_PRICE, "output_price": OUTPUT_PRICE}
    document = {
        "models": {"one": {**model, "model": "stub-1"}, "two": {**model, "model": "stub-2"}},
        "judge": {"model": "one", "backoff_s": 0.01, **judge},
        "prices": {"stub-*": {"input": INPUT_PRICE, "output": OUTPUT_PRICE}},
        "targets": {"agent": {"type": "callable", "function": "agent:answer"}},
    }
    if own_prices:
        del document["prices"]
    (folder / "proctor.yaml").write_text(json.dumps(document), encoding="utf-8")
    (folder / "agent.py").write_text(
        "def answer(message: str) -> dict:\n"
        "    usage = {'input_tokens': 0, 'output_tokens': 0}\n"
        "    return {'text': f'a good answer to {message}, score 0.9', 'usage': usage, 'model': 'stub-1'}\n",
        encoding="utf-8",
    )
    (folder / "suite.json").write_text(SUITES[dialect](), encoding="utf-8")
    records = [
        {
            "case": f"c{number}",
            "input": f"hi {number}",
            "text": f"good {number}, score 0.9",
            "state": {"records": {"notes": [{"text": f"good {number}"}]}},
        }
        for number in range(CASES)
    ]
    (folder / "evidence.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def check() -> float:
    done = proctor("check", "suite.json", "evidence.jsonl", "--format", "json")
    assert done.out, done.err
    return json.loads(done.out)["cost"]["judge"]


@pytest.mark.in_turn
@pytest.mark.parametrize("votes", [{}, {"samples": 3}, {"model": ["one", "two"], "samples": 2}], ids=["one", "samples", "jury"])
@pytest.mark.parametrize("flaw", FLAWS)
@pytest.mark.parametrize("dialect", SUITES)
def test_the_cost_is_that_of_the_requests(
    dialect: str, flaw: str, votes: dict[str, Any], stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "CASES", 3)  # a bound of the cost needs more of them, the sum does not
    prepare(tmp_path, stub, dialect, **votes)
    stub.flaw = FLAWS[flaw]
    assert check() == pytest.approx(stub.cost, abs=1e-9)
    before, requests = stub.cost, stub.requests
    assert before > 0 and requests >= CASES
    # Cached answers cost nothing; unusable ones are requested again.
    assert check() == pytest.approx(stub.cost - before, abs=1e-9)
    if flaw == "well":
        assert stub.requests == requests


@pytest.mark.parametrize("flaw", FLAWS)
def test_an_mcpjam_scorer_reports_the_cost_of_its_requests(flaw: str, stub: Stub) -> None:
    settings = ModelSettings(provider="openai", model="stub-1", base_url=stub.url, api_key="sk-1")
    judge = LlmJudge([build_model(settings)], JudgeSettings(), costs={"stub-1": (INPUT_PRICE, OUTPUT_PRICE)})
    stub.flaw = FLAWS[flaw]

    async def ask(agent: EvalAgent) -> bool:
        return not (await agent.prompt("Where is my order?")).has_error()

    scorers = [judge_scorer(id=f"tone {number}", judge=judge, rubric=[f"is polite {number}"]) for number in range(2)]
    test = EvalTest("Says where", ask, id="where", scorers=scorers)
    agent = saying(result("lookup", text="good, score 0.9"))

    async def work() -> EvalRunResult:
        try:
            return await test.run(agent, iterations=2)
        finally:
            await judge.close()

    found = run_async(work()).iteration_details
    rows = [row for each in found for row in each.scores if (row.details or {}).get("judge_requests")]
    costs = [request["cost"] for row in rows for request in (row.details or {})["judge_requests"]]
    assert sum(costs) == pytest.approx(stub.cost, abs=1e-9) and stub.cost > 0


def run_suite(*arguments: str) -> dict[str, Any]:
    done = proctor("run", "suite.json", "--format", "json", "-j", "2", *arguments)
    assert done.out, done.err
    return json.loads(done.out)


@pytest.mark.parametrize(("flaw", "own_prices"), [*((flaw, False) for flaw in FLAWS), ("well", True)])
def test_a_budget_is_exceeded_only_by_requests_in_flight_and_resuming_keeps_counting(
    flaw: str, own_prices: bool, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path, stub, "native", own_prices=own_prices, samples=2)
    stub.flaw = FLAWS[flaw]
    bound = 0.6
    first = run_suite("--max-cost", str(bound))
    assert first["cost"]["judge"] == pytest.approx(stub.cost, abs=1e-9)
    # Two attempts are driven and two are judged, each with three requests sent twice, and once more where a reply is of no use.
    dearest = ((100 + 7 * stub.requests) * INPUT_PRICE + (10 + stub.requests) * OUTPUT_PRICE) / 1e6
    assert bound <= stub.cost <= bound + 4 * 3 * 2 * (1 if flaw in ("well", "retried") else 2) * dearest
    assert len(first["cases"]) < CASES
    second = run_suite("--resume", "latest")
    assert len(second["cases"]) == CASES
    assert second["cost"]["judge"] == pytest.approx(stub.cost, abs=1e-9)


@pytest.mark.in_turn
@pytest.mark.parametrize("flaw", FLAWS)
@pytest.mark.parametrize("dialect", ["mcplab", "mibo"])
def test_a_stopped_and_resumed_run_of_any_dialect_costs_what_its_requests_cost(
    dialect: str, flaw: str, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path, stub, dialect, samples=2)
    stub.flaw = FLAWS[flaw]
    first = run_suite("--max-cost", "0.4")
    assert first["cost"]["judge"] == pytest.approx(stub.cost, abs=1e-9)
    assert len(first["cases"]) < CASES
    second = run_suite("--resume", "latest")
    assert len(second["cases"]) == CASES
    assert second["cost"]["judge"] == pytest.approx(stub.cost, abs=1e-9)


def test_a_judge_of_the_suite_with_prices_of_its_own_needs_none_in_the_workspace(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path, stub, "native")
    mine = {"provider": "openai", "model": "mine", "base_url": stub.url, "api_key": "sk-1"}
    suite = json.loads((tmp_path / "suite.json").read_text())
    suite |= {"models": {"own": {**mine, "input_price": INPUT_PRICE, "output_price": OUTPUT_PRICE}}, "judge": {"model": "own"}}
    (tmp_path / "suite.json").write_text(json.dumps(suite), encoding="utf-8")
    stopped = run_suite("--max-cost", "0.3", "--trust")
    assert stopped["cost"]["judge"] == pytest.approx(stub.cost, abs=1e-9) and stub.cost >= 0.3
    assert len(stopped["cases"]) < CASES


def choose_first(number: int, body: dict[str, Any]) -> str:
    """Choose the first answer for every statement."""
    listed = json.loads(prompt_of(body).split("\n")[1])
    names = list(listed[0].get("every_check", listed[0])["choices"])
    return json.dumps({"results": [{"id": one["id"], "quotes": [], "reason": "read", "choice": names[0]} for one in listed if "id" in one]})


@pytest.mark.parametrize("own_prices", [False, True])
def test_a_budget_holds_within_one_claim_and_a_resumed_run_judges_it_again(
    own_prices: bool, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path, stub, "native", own_prices=own_prices, concurrency=2)
    answer = " ".join(f"Fact number {number} is here." for number in range(390))
    agent = (tmp_path / "agent.py").read_text().replace("f'a good answer to {message}, score 0.9'", repr(answer))
    (tmp_path / "agent.py").write_text(agent)
    (tmp_path / "suite.json").write_text(json.dumps({"proctor": 1, "cases": [{"id": "a", "input": "hi", "expect": [{"toxicity": {}}]}]}))
    stub.flaw = choose_first
    bound = 0.3
    stopped = proctor("run", "suite.json", "--format", "json", "--max-cost", str(bound))
    first = json.loads(stopped.out)
    (claim,) = first["cases"][0]["assertions"]
    assert (stopped.code, claim["outcome"], claim["code"]) == (2, "error", "judge_budget"), stopped.err
    assert "go on with --resume" in stopped.err
    assert stub.requests < 8 and bound <= stub.cost <= bound + 2 * 0.2
    assert first["cost"]["judge"] == pytest.approx(stub.cost, abs=1e-9)
    second = run_suite("--resume", "latest")
    assert [one["outcome"] for one in second["cases"]] == ["pass"]
    # Both tries were paid for; replies that are remembered are not paid for again.
    assert second["cost"]["judge"] == pytest.approx(stub.cost, abs=1e-9) and stub.requests == 20


@pytest.mark.parametrize(("flaw", "own_prices"), [("well", False), ("repaired", True), ("retried", False)])
def test_a_calibration_costs_what_its_requests_cost(
    flaw: str, own_prices: bool, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path, stub, "native", own_prices=own_prices, samples=2)
    stub.flaw = FLAWS[flaw]
    lines: list[dict[str, Any]] = []
    for case in range(4):
        answer = f"a {'good' if case % 2 else 'bad'} answer {case}, score 0.{case}"
        claims = [{"criterion": "Kind"}, {"criterion": "Short", "negative_constraints": ["swears"]}, {"criterion": "Apt", "threshold": 0.2}]
        lines += [{**claim, "answer": answer, "label": bool(case % 2), "batch": f"case {case}"} for claim in claims]
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    before = 0.0
    for more in ((), (), ("--threshold", "0.5")):
        done = proctor("judge", "calibrate", "labels.jsonl", "--min-decided", "0", "--format", "json", *more)
        usage = json.loads(done.out)["usage"]
        assert usage["cost"] == pytest.approx(stub.cost - before or None, abs=1e-9), (more, usage)
        before = stub.cost
