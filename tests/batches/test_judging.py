"""Claims in plain language in a batch: a sample is judged, drawn from each outcome by itself, and figures say of how many."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import proctor
from proctor.batches.compare import compare_batches
from proctor.batches.judging import JudgeBounds, open_memory, read_bounds, share_out
from proctor.batches.output_store import LocalStore
from proctor.batches.run import BatchOptions, open_batch, run_batch
from proctor.errors import InputError
from proctor.judge.cached import FolderCache
from proctor.judge.scripted import ScriptedJudge
from proctor.llm.ports import ChatReply
from proctor.model.batch import BatchSummary
from proctor.model.judgement import Opinion, Question
from proctor.report.builders.batch import list_worst_cases
from proctor.scoring.intervals import Counts, Stratum, estimate_rate
from tests.batches.batch_world import (
    InlineExecutor,
    make_trace,
    read_results,
    render_batch,
    render_batch_html,
    render_batch_markdown,
    write_lines,
    write_parquet,
    write_suite,
)
from tests.integration.judge_server import judge_server
from tests.integration.running import proctor as run_proctor

pytestmark = pytest.mark.timeout(60)
SUITE = """\
proctor: 1
name: Judged
cases:
  - id: refund
    expect:
      - tool_called: {name: refund, arguments: {order: 17}}
      - judged: {criteria: is friendly}
  - id: tone
    expect: {judged: {criteria: is short}}
  - id: plain
    expect: {response_contains: run}
"""


def say(question: Question) -> Opinion:
    """Even numbers are friendly; everything is short."""
    friendly = int(str(question.material.subject).split()[-1]) % 2 == 0
    passed = friendly if question.criterion == "is friendly" else True
    usage = {"usage": {"total_tokens": 10}}
    return Opinion(outcome="pass" if passed else "fail", score=float(passed), reason=f"{question.criterion}: {passed}", details=usage)


def evaluate(
    folder: Path, bounds: JudgeBounds | None, judge: ScriptedJudge | None = None, decide: Callable[[Question], Any] = say, **options: Any
) -> BatchSummary:
    wanted = BatchOptions(places=(str(folder / "data"),), output=folder / "out", judging=bounds, partition_bytes=1500, **options)
    chosen = judge or ScriptedJudge(decide)
    suite = proctor.load_suite(write_suite(folder, text=SUITE))
    return run_batch(suite, wanted, InlineExecutor(), open_judge=lambda memory: chosen)


def write_traces(folder: Path, count: int = 100) -> None:
    """Of every five one fails the first check; half are Parquet and half are JSON lines."""
    write_parquet(folder / "data" / "a.parquet", [make_trace(number) for number in range(count // 2)])
    write_lines(folder / "data" / "b.jsonl", [make_trace(number) for number in range(count // 2, count)])


def test_judging_without_a_limit_is_refused(tmp_path: Path) -> None:
    write_traces(tmp_path)
    with pytest.raises(InputError, match=r"give it a limit: --judge-sample 2000, or --max-tokens 1000000"):
        evaluate(tmp_path, None)
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="judge_sample: expected at least 1"):
        read_bounds(0, None)


def test_a_suite_without_judge_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    write_traces(tmp_path)
    options = BatchOptions(places=(str(tmp_path / "data"),), output=tmp_path / "out", judging=JudgeBounds(sample=5))
    with pytest.raises(InputError, match="needs a judge, and none was given"):
        run_batch(proctor.load_suite(write_suite(tmp_path, text=SUITE)), options, InlineExecutor(), open_judge=lambda memory: None)


def test_judge_answers_are_packed_for_an_address_and_unpacked_on_resume(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with open_memory(store, "s3://bucket/out") as memory:
        cache = FolderCache(memory.path / "judge")
        for number in range(30):
            cache.put(f"{number:064x}", ChatReply(text=f"answer {number}"))
            cache.close()
            memory.keep()
        assert len(store.list("judge")) == 30
        (memory.path / "judge" / "ab.json").write_text("nothing of the judge")
        memory.finish()
        place = memory.path
    assert not place.exists()
    # Very many packs are made one.
    (pack,) = store.list("judge")
    (tmp_path / "judge" / "broken.pack").write_bytes(b"\xc1")
    evil = {"../../evil.json": b"x", "aa/../../evil.json": b"x", "00/" + "0" * 62 + ".json": b"{}"}
    (tmp_path / "judge" / "evil.pack").write_bytes(msgspec.msgpack.encode(evil))
    with open_memory(store, "s3://bucket/out") as memory:
        found = FolderCache(memory.path / "judge").get(f"{17:064x}")
        assert found is not None and found.text == "answer 17"
        assert len(list(memory.path.rglob("*"))) == 32 and not list(memory.path.parent.glob("evil*"))
        memory.finish()
    assert pack in store.list("judge")


def test_a_sample_is_drawn_from_each_outcome_and_figures_are_weighted(tmp_path: Path) -> None:
    write_traces(tmp_path)
    judge = ScriptedJudge(say)
    summary = evaluate(tmp_path, JudgeBounds(sample=60), judge)
    refund, tone, plain = summary.cases
    # Deterministic checks cover every trace: 20 of 100 fail.
    assert (refund.rate.passed, refund.rate.decided, refund.rate.counts) == (80, 100, {"fail": 20, "pass": 80})
    assert refund.judged is not None and tone.judged is not None and plain.judged is None
    assert (refund.judged.judged, refund.judged.of, tone.judged.judged) == (40, 100, 20) and len(judge.questions) == 60
    rows = pq.read_table(tmp_path / "out" / "judged").to_pylist()
    drawn = [row["verdicts"][0]["outcome"] for row in rows if row["case"] == "refund"]
    assert (drawn.count("pass"), drawn.count("fail")) == (20, 20)
    claim = next(iter(refund.judged.checks.values()))
    assert claim is not None and claim.low < 0.5 < claim.high and sum(claim.counts.values()) == 40
    # All of the case passes where the call is right and the answer is friendly: at most 80 of 100.
    assert refund.judged.rate is not None and refund.judged.rate.high <= 0.8
    assert tone.judged.rate is not None and (tone.judged.rate.rate, tone.judged.rate.high) == (1.0, 1.0)
    assert refund.judged.reasons[0].reason == "is friendly: False" and len(refund.judged.reasons[0].samples) == 3
    assert summary.judge_tokens == 600 and not summary.has_passed and open_batch(tmp_path / "out").cases == summary.cases


def test_judged_rows_are_those_of_their_traces(tmp_path: Path) -> None:
    write_traces(tmp_path)
    evaluate(tmp_path, JudgeBounds(sample=1000))
    rows = pq.read_table(tmp_path / "out" / "judged").to_pylist()
    assert len(rows) == 200
    for row in rows:
        number = int(row["trace"].removeprefix("t"))
        claim = row["verdicts"][-1]
        assert claim["outcome"] == ("pass" if number % 2 == 0 or row["case"] == "tone" else "fail"), row
    undecided = [row for row in read_results(tmp_path / "out") if row["case"] == "tone"]
    assert {row["outcome"] for row in undecided} == {"skip"} and undecided[0]["verdicts"][0]["code"] == "not_sampled"


def test_a_judge_sees_the_traces_of_every_kind_of_file(tmp_path: Path) -> None:
    traces = [{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": f"run {number}"}]} for number in range(40)]
    write_parquet(tmp_path / "data" / "a.parquet", traces[:15])
    write_lines(tmp_path / "data" / "b.jsonl", traces[15:30])
    (tmp_path / "data" / "c.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps(trace) + "\n" for trace in traces[30:]).encode()))
    judge = ScriptedJudge(say)
    evaluate(tmp_path, JudgeBounds(sample=1000), judge)
    answers = [str(question.material.subject) for question in judge.questions if question.criterion == "is short"]
    assert sorted(answers) == sorted(f"run {number}" for number in range(40))


def test_a_whole_sample_leaves_nothing_open(tmp_path: Path) -> None:
    write_traces(tmp_path)
    refund = evaluate(tmp_path, JudgeBounds(sample=1000)).cases[0].judged
    assert refund is not None and refund.rate is not None
    # 80 are right; of these, those that end in 2, 4, 6 and 8 are even.
    assert (refund.rate.rate, refund.rate.low, refund.rate.high) == pytest.approx((0.4, 0.4, 0.4))


def test_a_token_budget_ends_the_sample_and_is_reported(tmp_path: Path) -> None:
    write_traces(tmp_path, 400)
    summary = evaluate(tmp_path, JudgeBounds(max_tokens=1000))
    judged = sum(case.judged.judged for case in summary.cases if case.judged is not None)
    assert summary.judge_tokens == 10 * judged and 100 <= judged <= 100 + 64
    # The answers before the budget was spent cover every stratum.
    counts = summary.cases[0].judged
    assert counts is not None and 60 <= counts.judged <= 120
    for text in (render_batch(summary), render_batch_markdown(summary)):
        assert f"{counts.judged} of 400 judged (" in text and "estimated" in text and "all of it, with the judge" in text
    assert f"{counts.judged} of 400 judged" in render_batch_html(summary)


def test_the_same_batch_again_draws_the_same_sample(tmp_path: Path) -> None:
    write_traces(tmp_path)
    first, second = ScriptedJudge(say), ScriptedJudge(say)
    evaluate(tmp_path, JudgeBounds(sample=30), first)
    evaluate(tmp_path, JudgeBounds(sample=30), second)
    assert [question.material for question in first.questions] == [question.material for question in second.questions]


def test_an_undecided_judgement_is_no_pass(tmp_path: Path) -> None:
    write_traces(tmp_path, 20)
    broken = Opinion(outcome="error", code="judge_unreachable", reason="down")
    summary = evaluate(tmp_path, JudgeBounds(sample=10), decide=lambda question: broken)
    tone = summary.cases[1].judged
    assert tone is not None and tone.rate is not None and (tone.rate.rate, tone.rate.counts) == (0.0, {"error": 3})
    for text in (render_batch(summary), render_batch_markdown(summary), render_batch_html(summary)):
        assert "not decided; 3 of 20 judged (15.0 %), 3 with errors" in " ".join(text.split())


@pytest.mark.in_turn
@given(
    strata=st.dictionaries(st.tuples(st.text(max_size=1), st.sampled_from(["pass", "fail"])), st.integers(0, 500)), size=st.integers(0, 400)
)
def test_a_sample_is_spread_evenly_over_what_is_there(strata: dict[tuple[str, str], int], size: int) -> None:
    shared = share_out(strata, size)
    assert sum(shared.values()) == min(size, sum(strata.values()))
    assert all(shared[stratum] <= number for stratum, number in strata.items())
    full = [number for stratum, number in shared.items() if number < strata[stratum]]
    assert not full or max(full) - min(full) <= 1


def test_estimates_are_weighted_by_stratum_size() -> None:
    found = estimate_rate([Stratum(990, 10, Counts(10, 10)), Stratum(10, 10, Counts(10, 0))])
    assert (
        found is not None and found.rate == pytest.approx(0.99) and found.interval.low < 0.75 and found.interval.high == pytest.approx(0.99)
    )
    unseen = estimate_rate([Stratum(50, 10, Counts(10, 10)), Stratum(50, 0, Counts(0, 0))])
    assert unseen is not None and unseen.interval.low <= 0.5 and unseen.interval.high == 1.0
    assert estimate_rate([Stratum(50, 10, Counts(0, 0))]) is None and estimate_rate([]) is None


def test_judge_answers_are_cached_in_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_traces(tmp_path, 20)
    with judge_server() as server:
        model = {"provider": "openai", "model": "stub-1", "base_url": server.url, "api_key": "sk-judge-secret"}
        (tmp_path / "proctor.yaml").write_text(json.dumps({"models": {"judge": model}, "judge": {"model": "judge"}}))
        write_suite(tmp_path, text=SUITE)
        command = ["batch", "suite.yaml", "data", "--output", "out", "-j", "1", "--quiet", "--report", "report.txt"]
        assert run_proctor(*command, "--judge-sample", "8").code == 1
        assert len(server.requests) == 8 and " of 20 judged (" in (tmp_path / "report.txt").read_text()
        assert list((tmp_path / "out" / "judge").rglob("*")) and not (tmp_path / ".proctor" / "judge").exists()
        assert run_proctor(*command, "--judge-sample", "8").code == 1
        assert len(server.requests) == 8
    for file in (tmp_path / "out").rglob("*"):
        assert file.is_dir() or b"sk-judge-secret" not in file.read_bytes()


def test_an_unjudged_case_has_not_passed(tmp_path: Path) -> None:
    write_lines(tmp_path / "data" / "a.jsonl", [make_trace(1), make_trace(2)])
    cases = "".join(f"  - id: c{number}\n    expect: {{judged: {{criteria: is short {number}}}}}\n" for number in range(5))
    options = BatchOptions(places=(str(tmp_path / "data"),), output=tmp_path / "out", judging=JudgeBounds(sample=2))
    suite = proctor.load_suite(write_suite(tmp_path, text=f"proctor: 1\nname: Judged\ncases:\n{cases}"))
    judge = ScriptedJudge(lambda question: Opinion(outcome="pass", score=1.0))
    summary = run_batch(suite, options, InlineExecutor(), open_judge=lambda memory: judge)
    assert len(judge.questions) == 2 and summary.is_complete and not summary.has_passed
    assert any("no result of 3 cases (c2, c3, c4) was judged, so they did not pass" in warning for warning in summary.warnings)
    whole = msgspec.structs.replace(options, judging=JudgeBounds(sample=10))
    assert run_batch(suite, whole, InlineExecutor(), open_judge=lambda memory: judge).has_passed


def test_a_batch_that_ended_before_judging_is_incomplete(tmp_path: Path) -> None:
    write_traces(tmp_path, 20)

    def end(question: Question) -> Opinion:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(tmp_path, JudgeBounds(sample=10), decide=end)
    summary = open_batch(tmp_path / "out")
    assert summary.not_judged and not summary.is_complete and summary.committed == summary.partitions
    for text in (render_batch(summary), render_batch_markdown(summary)):
        assert "INCOMPLETE: judged checks are pending" in text
    assert "judged checks are pending" in render_batch_html(summary)
    with pytest.raises(InputError, match="is not finished: 2 of 2 partitions have a result, and the judge has not decided yet"):
        compare_batches(str(tmp_path / "out"), str(tmp_path / "out"))
    assert evaluate(tmp_path, JudgeBounds(sample=10), resume=True).is_complete
    # Judgements are gone: the rest must not count as all of them.
    (tmp_path / "out" / "judged.json").unlink()
    assert open_batch(tmp_path / "out").not_judged
    assert evaluate(tmp_path, JudgeBounds(sample=10)).is_complete


def test_a_comparison_reports_judged_rates_without_comparing_them(tmp_path: Path) -> None:
    for name, passed in (("one", True), ("two", False)):
        write_traces(tmp_path / name, 20)
        opinion = Opinion(outcome="pass" if passed else "fail", score=float(passed))
        evaluate(tmp_path / name, JudgeBounds(sample=100), decide=lambda question, opinion=opinion: opinion)
    found = compare_batches(str(tmp_path / "one" / "out"), str(tmp_path / "two" / "out"))
    (note,) = [warning for warning in found.warnings if warning.startswith("tone: ")]
    assert "100.0 % estimated" in note and ", then 0.0 % estimated" in note and note.count("20 of 20 judged") == 2


def test_a_judge_that_reports_no_tokens_stops_at_the_budget(tmp_path: Path) -> None:
    write_traces(tmp_path, 200)
    judge = ScriptedJudge(lambda question: Opinion(outcome="pass", score=1.0))
    summary = evaluate(tmp_path, JudgeBounds(max_tokens=1000), judge)
    assert len(judge.questions) <= 16 and any("reports no tokens" in warning for warning in summary.warnings)


def test_a_budget_of_tokens_is_exceeded_by_little(tmp_path: Path) -> None:
    write_traces(tmp_path, 200)
    costly = Opinion(outcome="pass", score=1.0, details={"usage": {"total_tokens": 100}})
    summary = evaluate(tmp_path, JudgeBounds(max_tokens=2000), decide=lambda question: costly)
    assert 2000 <= summary.judge_tokens <= 2200 and not summary.warnings


def test_a_judge_is_closed_even_if_it_cannot_continue(tmp_path: Path) -> None:
    def refuse(question: Question) -> Opinion:
        raise InputError("the recording is unusable")

    write_traces(tmp_path, 20)
    broken, working = ScriptedJudge(refuse), ScriptedJudge(say)
    with pytest.raises(InputError, match="the recording is unusable"):
        evaluate(tmp_path, JudgeBounds(sample=5), broken)
    evaluate(tmp_path, JudgeBounds(sample=5), working, resume=True)
    assert broken.closed and working.closed


def test_a_judge_works_inside_a_running_loop_as_in_notebooks(tmp_path: Path) -> None:
    write_traces(tmp_path, 20)

    async def work() -> BatchSummary:
        return evaluate(tmp_path, JudgeBounds(sample=10))

    assert asyncio.run(work()).is_complete


def test_cases_that_only_a_judge_fails_are_among_the_worst(tmp_path: Path) -> None:
    write_traces(tmp_path, 20)
    summary = evaluate(tmp_path, JudgeBounds(sample=100), decide=lambda question: Opinion(outcome="fail"))
    assert [case.id for case in list_worst_cases(summary, 2)] == ["refund", "tone"]


def test_equal_claims_have_separate_figures(tmp_path: Path) -> None:
    write_lines(tmp_path / "data" / "a.jsonl", [make_trace(1), make_trace(2)])
    claims = "[{judged: {criteria: is short, reference: much}}, {judged: {criteria: is short, reference: little}}]"
    suite = proctor.load_suite(write_suite(tmp_path, text=f"proctor: 1\nname: Judged\ncases:\n  - id: a\n    expect: {claims}\n"))
    options = BatchOptions(places=(str(tmp_path / "data"),), output=tmp_path / "out", judging=JudgeBounds(sample=2))
    judge = ScriptedJudge(lambda question: Opinion(outcome="pass" if question.reference == "little" else "fail"))
    (case,) = run_batch(suite, options, InlineExecutor(), open_judge=lambda memory: judge).cases
    assert case.judged is not None
    rates = {name: rate.rate for name, rate in case.judged.checks.items() if rate is not None}
    assert rates == {"judged · is short": 0.0, "judged · is short (2)": 1.0} and [check.check for check in case.checks] == list(rates)
