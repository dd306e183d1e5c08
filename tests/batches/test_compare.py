"""Two batches compared: the statistics of `compare`, from sketches alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proctor.actions.history.compare_several import describe_incomplete
from proctor.batches.compare import compare_batches
from proctor.errors import InputError
from proctor.scoring.amounts import compare_sketches
from proctor.scoring.intervals import Counts
from proctor.scoring.paired import compare_runs
from tests.batches.batch_world import evaluate, make_trace, write_lines, write_suite
from tests.integration.running import proctor
from tests.scoring.references import count_amounts

pytestmark = pytest.mark.timeout(60)


def write_batch(folder: Path, name: str, numbers: list[int], slower: int = 0) -> str:
    records = [make_trace(number, duration_ms=100 + slower + number % 7) for number in numbers]
    write_lines(folder / f"{name}.jsonl", records)
    evaluate(write_suite(folder), [folder / f"{name}.jsonl"], folder / name)
    return str(folder / name)


def test_the_verdict_is_that_of_two_runs_with_the_same_counts(tmp_path: Path) -> None:
    base = write_batch(tmp_path, "base", [1] * 300)
    candidate = write_batch(tmp_path, "candidate", [1] * 250 + [5] * 50, slower=100)
    found = compare_batches(base, candidate)
    expected = compare_runs(
        {"refund": Counts(300, 300), "short": Counts(300, 300)}, {"refund": Counts(300, 250), "short": Counts(300, 300)}
    )
    assert found.comparison.verdict == expected.verdict == "regressed"
    assert (found.comparison.changes, found.comparison.p_value) == (expected.changes, expected.p_value)
    assert found.comparison.newly_failing == ("refund",) and "expected a call of" in found.reasons["refund"]
    assert found.comparison.candidate.flaky == () and found.failing == ("refund",)
    assert found.latency.verdict == "higher" and found.latency.ratio == pytest.approx(2, rel=0.05)
    assert found.tokens.base_median is None and found.cost is None


def test_two_batches_of_one_data_set_are_unchanged_in_every_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("base", "candidate"):
        write_batch(tmp_path, name, list(range(500)))
    monkeypatch.chdir(tmp_path)
    for format in ("terminal", "json", "markdown", "html"):
        done = proctor("compare", "base", "candidate", "--format", format, "--fail-on", "regression")
        assert done.code == 0, done.err
        output = done.out
        assert "case by case" not in output
        assert "unchanged" in output.lower() and "repeats" not in output.replace("repeats_needed", "")
        if format == "json":
            assert json.loads(output)["latency"]["verdict"] == "unchanged"


@pytest.mark.parametrize(("currency", "ratio"), [("EUR", 2), ("USD", None)])
def test_costs_are_compared_in_one_currency(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, currency: str, ratio: float | None) -> None:
    monkeypatch.chdir(tmp_path)
    for name, tokens, priced in (("base", 1_000_000, "EUR"), ("candidate", 2_000_000, currency)):
        (tmp_path / "proctor.yaml").write_text(f"prices: {{small: {{input: 1, output: 2, currency: {priced}}}}}\n")
        usage = {"input_tokens": tokens, "output_tokens": 0}
        write_lines(tmp_path / f"{name}.jsonl", [make_trace(1, model="small", usage=usage)] * 40)
        evaluate(write_suite(tmp_path), [tmp_path / f"{name}.jsonl"], tmp_path / name)
    cost = compare_batches("base", "candidate").cost
    assert (cost and cost.ratio) == (ratio and pytest.approx(ratio, rel=0.05))


def test_a_regression_is_a_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_batch(tmp_path, "base", [1] * 100)
    write_batch(tmp_path, "candidate", [5] * 100)
    monkeypatch.chdir(tmp_path)
    done = proctor("compare", "base", "candidate", "--fail-on", "regression,new-failure", "--quiet")
    assert done.code == 1 and "refund" in done.err


def test_unreadable_records_are_reported_next_to_the_figures(tmp_path: Path) -> None:
    base = write_batch(tmp_path, "base", [1] * 30)
    write_lines(tmp_path / "candidate.jsonl", [make_trace(1), *["{"] * 29])
    evaluate(write_suite(tmp_path), [tmp_path / "candidate.jsonl"], tmp_path / "candidate")
    found = compare_batches(base, str(tmp_path / "candidate"))
    warning = f"{tmp_path / 'candidate'}: 29 records could not be read or decided, and count for nothing here"
    assert found.warnings == (warning,) and warning in describe_incomplete(found)


def test_a_missing_second_batch_is_reported(tmp_path: Path) -> None:
    base = write_batch(tmp_path, "base", [1])
    with pytest.raises(InputError, match="no batch at"):
        compare_batches(base, str(tmp_path / "nowhere"))
    next((tmp_path / "base" / "results").glob("*.parquet")).unlink()
    with pytest.raises(InputError, match="not finished: 0 of 1 partitions"):
        compare_batches(base, base)
    assert "name the folders of two" in proctor("compare", base).err


def test_batches_are_compared_by_their_addresses(tmp_path: Path) -> None:
    base, candidate = write_batch(tmp_path, "base", [1] * 20), write_batch(tmp_path, "candidate", [1] * 20)
    found = compare_batches(Path(base).as_uri(), Path(candidate).as_uri())
    assert found.base.run_id == Path(base).as_uri() and found.comparison == compare_batches(base, candidate).comparison
    with pytest.raises(InputError, match="no batch at"):
        compare_batches(base, (tmp_path / "nowhere").as_uri())


def test_a_million_traces_are_compared_at_once() -> None:
    """Nothing in a comparison may grow with the traces: this took a minute when pass@k was computed for every k there is."""
    found = compare_runs(
        {"a": Counts(1_000_000, 990_000), "b": Counts(700_000, 699_999)}, {"a": Counts(900_000, 880_000), "b": Counts(500_000, 500_000)}
    )
    assert found.verdict == "regressed" and not found.exact


def test_medians_of_sketches_are_compared_within_their_intervals() -> None:
    def count(amounts: list[float]) -> dict[int, int]:
        buckets: dict[int, int] = {}
        count_amounts(amounts, buckets)
        return buckets

    base = count([100.0 + number for number in range(1000)])
    same = compare_sketches(base, count([101.0 + number for number in range(1000)]))
    assert same.verdict == "unchanged" and same.interval is not None and 1.0 in same.interval
    lower = compare_sketches(base, count([50.0 + number / 2 for number in range(1000)]))
    assert lower.verdict == "lower" and lower.ratio == pytest.approx(0.5, rel=0.03)
    assert compare_sketches(base, count([1.0])).verdict == "too_little_data" and compare_sketches(base, {}).cases == 0
    assert compare_sketches(base, count([0.0] * 20)).ratio is None
