"""Senseless numbers are refused by name at every entry point, before anything runs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import proctor as library
from proctor.errors import InputError
from proctor.formats.text.documents import MAX_JSON, MAX_YAML
from proctor.formats.text.located import MAX_VALUES
from tests.integration.running import proctor

ONE = {"id": "one", "input": "hi", "expect": [{"response_contains": "hi"}]}


@pytest.fixture(autouse=True)
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs.jsonl").write_text('{"case": "one", "text": "hi"}\n')
    recorded = {"targets": {"t": {"type": "recorded", "evidence": ["runs.jsonl"]}}}
    path = tmp_path / "suite.json"
    path.write_text(json.dumps({"proctor": 1, "cases": [ONE], **recorded}))
    return path


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        (("-j", "0"), "concurrency"),
        (("-j", "-3"), "concurrency"),
        (("-j", "100000"), "concurrency"),
        (("-n", "0"), "repeat"),
        (("-n", "-1"), "repeat"),
        (("-n", "1000000000"), "repeat"),
        (("--timeout", "0"), "timeout"),
        (("--timeout", "-1"), "timeout"),
        (("--timeout", "nan"), "timeout"),
        (("--timeout", "inf"), "timeout"),
        (("--timeout", "1e12"), "timeout"),
        (("--retries", "-1"), "retries"),
        (("--retries", "1000000"), "retries"),
        (("--max-tokens", "-5"), "max-tokens"),
        (("--max-tokens", "0"), "max-tokens"),
        (("--max-seconds", "-5"), "max-seconds"),
        (("--max-seconds", "nan"), "max-seconds"),
        (("--max-failures", "0"), "max-failures"),
        (("--min-pass-rate", "nan"), "min-pass-rate"),
        (("--judge-samples", "0"), "judge-samples"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_run_refuses_senseless_numbers_by_name(flags: tuple[str, ...], name: str) -> None:
    done = proctor("run", "suite.json", *flags)
    assert done.code == 4, done
    assert name in done.err
    assert not Path(".proctor").exists()


@pytest.mark.parametrize("alpha", ["0", "1", "-1", "nan", "2"])
def test_compare_refuses_senseless_numbers_by_name(alpha: str) -> None:
    done = proctor("compare", "a", "b", "--alpha", alpha)
    assert (done.code, "alpha" in done.err) == (4, True), done


@pytest.mark.parametrize(
    "options", [{"repeat": 0}, {"repeat": 10**9}, {"concurrency": 0}, {"timeout_s": math.nan}, {"timeout_s": -1.0}, {"repeat": True}]
)
def test_python_refuses_senseless_numbers_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options)).removesuffix("_s")):
        library.run("suite.json", **options)


@pytest.mark.parametrize("repeat", [0, -1, 10**9, 1.5, 1001])
def test_a_suite_with_a_senseless_repeat_is_refused_with_its_line(repeat: float) -> None:
    Path("much.json").write_text(json.dumps({"proctor": 1, "cases": [{**ONE, "repeat": repeat}]}))
    done = proctor("run", "much.json")
    assert done.code == 4
    assert "much.json:1:" in done.err
    assert "repeat: expected a whole number of at least 1 and at most 1,000" in done.err


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("big.yaml", "proctor: 1\ncases:\n" + f"  - {{id: x, input: {'a' * 900}}}\n" * (MAX_YAML // 900)),
        ("big.json", json.dumps({"proctor": 1, "cases": ["a" * 1000] * (MAX_JSON // 1000)})),
        ("many.json", "[" + "1," * MAX_VALUES + "1]"),
        ("many.yaml", "[" + "1," * MAX_VALUES + "1]"),
    ],
)
@pytest.mark.timeout(60)
def test_a_suite_too_large_to_parse_is_refused_with_the_limit(name: str, text: str) -> None:
    Path(name).write_text(text)
    done = proctor("validate", name)
    assert done.code in (1, 4)
    assert "limit" in done.err + done.out or f"{MAX_VALUES:,}" in done.err + done.out
    assert "several files" in done.err + done.out


def test_thousands_of_cases_take_linear_time() -> None:
    """Ten times the cases, about ten times the steps: counted, not timed."""
    import sys

    def steps(count: int) -> int:
        text = json.dumps({"proctor": 1, "cases": [{**ONE, "id": f"case-{number}"} for number in range(count)]})
        counted = 0

        def count_lines(frame: Any, event: str, arg: Any) -> Any:
            nonlocal counted
            counted += event == "line"
            return count_lines

        before = sys.gettrace()
        sys.settrace(count_lines)
        try:
            library.parse_suite(text)
        finally:
            sys.settrace(before)
        return counted

    assert steps(400) < 15 * steps(40)
