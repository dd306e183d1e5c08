"""Cases and records that do not meet are counted, shown in every format, and never decided by luck."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

import proctor as library
from proctor.errors import InputError
from tests.integration.running import proctor

SUITE = """\
proctor: 1
name: Desk
cases:
  - {id: refund, input: refund me, expect: [response_contains: refund]}
  - {id: greet, input: hello, expect: [response_contains: hello]}
  - {id: later, input: later, skip: not today, expect: [response_contains: x]}
"""
REFUND = '{"case": "refund", "text": "the refund"}'
GREET = '{"input": "hello", "text": "hello"}'
OTHER = '{"case": "refund", "input": "I want my money back", "text": "the refund"}'
STRANGER = '{"case": "refnd", "text": "x"}'
UNCLEAR = '{"input": "good morning", "text": "refund hello"}'
NOTHING_MISSING = {"cases_without_evidence": 0, "records_without_case": 0, "records_not_selected": 0, "records_with_other_input": 0}


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "suite.yaml").write_text(SUITE)
    return tmp_path


def check(*lines: str, flags: tuple[str, ...] = (), code: int | None = None) -> Any:
    Path("runs.jsonl").write_text("".join(line + "\n" for line in lines))
    done = proctor("check", "suite.yaml", "runs.jsonl", *flags)
    assert code is None or done.code == code, (done.code, done.out, done.err)
    return json.loads(done.out) if "json" in flags else done


ROWS = [
    ((REFUND, GREET), {}, 0, 0),
    ((REFUND,), {"cases_without_evidence": 1}, 0, 4),
    ((REFUND, GREET, STRANGER), {"records_without_case": 1}, 0, 4),
    ((OTHER, OTHER, GREET), {"records_with_other_input": 2}, 0, 4),
    ((REFUND, GREET, UNCLEAR), {"records_without_case": 1}, 1, 4),
    ((UNCLEAR,), {"cases_without_evidence": 2, "records_without_case": 1}, 1, 4),
    ((STRANGER, STRANGER), {"cases_without_evidence": 2, "records_without_case": 2}, 5, 4),
    ((), {"cases_without_evidence": 2}, 5, 4),
]


@pytest.mark.parametrize(("lines", "unmet", "code", "strict"), ROWS)
def test_unmatched_cases_and_records_are_counted_and_fail_with_strict(
    lines: tuple[str, ...], unmet: dict[str, int], code: int, strict: int
) -> None:
    result = check(*lines, flags=("--format", "json"), code=code)
    assert result["unmet"] == {**NOTHING_MISSING, **unmet}
    assert len(result["unmatched_evidence"]) == lines.count(STRANGER)
    check(*lines, flags=("--strict",), code=strict)


def test_a_refused_record_is_an_error_that_lists_the_choice() -> None:
    result = check(REFUND, GREET, UNCLEAR, flags=("--format", "json"), code=1)
    assert result["outcome"] == "error" and result["counts"] == {"pass": 2, "fail": 0, "error": 1, "skip": 1}
    refused = next(case for case in result["cases"] if case["outcome"] == "error")
    assert (refused["id"], refused["code"], refused["evidence"]["line"]) == (None, "case_not_named", 3)
    assert "'refund' (input \"refund me\"), 'greet' (input \"hello\"), 'later' (input \"later\")" in refused["reason"]
    assert "write the id of one of them as `case`" in " ".join(check(UNCLEAR).out.split())


WARNING = (
    "suite.yaml:4:5: warning: 3 records were decided although their input differs from that of the case 'refund': "
    'the case has "refund me", the record has "I want my money back"'
)


def test_records_with_another_input_are_decided_with_one_warning_for_their_case() -> None:
    result = check(OTHER, OTHER, OTHER, GREET, flags=("--format", "json"), code=0)
    assert (result["outcome"], result["counts"]["pass"]) == ("pass", 4)
    (warning,) = result["warnings"]
    assert (warning["code"], warning["level"], warning["origin"]["line"]) == ("other_input", "warning", 4)
    assert WARNING.endswith(warning["message"])
    for format in ("jsonl", "junit", "markdown"):
        assert check(OTHER, OTHER, OTHER, GREET, flags=("--format", format), code=0).err.splitlines().count(WARNING) == 1
    assert check(OTHER, OTHER, OTHER, GREET, code=0).out.count("records were decided although") == 1


def test_strict_rejects_a_record_with_another_input() -> None:
    result = check(OTHER, GREET, flags=("--strict", "--format", "json"), code=4)
    rejected = next(case for case in result["cases"] if case["outcome"] == "error")
    assert (rejected["id"], rejected["code"], rejected["evidence"]["line"]) == (None, "other_input", 1)
    assert 'the case has "refund me", the record has "I want my money back"' in rejected["reason"]
    assert result["unmet"] == {**NOTHING_MISSING, "records_without_case": 1, "cases_without_evidence": 1} and not result["warnings"]


def test_a_selected_case_takes_a_record_that_fits_no_input_and_warns() -> None:
    result = check(UNCLEAR, flags=("-k", "refund", "--format", "json"), code=0)
    assert (result["counts"]["pass"], [warning["code"] for warning in result["warnings"]]) == (1, ["other_input"])


def test_every_format_counts_unmatched_cases_and_records() -> None:
    message = "1 case without evidence, 1 record without a case"
    assert message in check(REFUND, STRANGER).out.splitlines()[-1]
    assert f"**{message}**" in check(REFUND, STRANGER, flags=("--format", "markdown")).out
    assert message in check(REFUND, STRANGER, flags=("--format", "html")).out
    properties = ET.fromstring(check(REFUND, STRANGER, flags=("--format", "junit")).out).iter("property")
    found = {each.get("name"): each.get("value") for each in properties}
    assert (found["cases_without_evidence"], found["records_without_case"]) == ("1", "1")
    lines = check(REFUND, STRANGER, flags=("--format", "jsonl"))
    assert message in lines.err and message not in check(REFUND, STRANGER, flags=("--format", "jsonl", "--quiet")).err
    assert "without" not in check(REFUND, GREET).out


def test_a_selection_ignores_records_of_other_cases() -> None:
    result = check(REFUND, GREET, STRANGER, flags=("-k", "refund", "--format", "json"), code=0)
    assert [case["id"] for case in result["cases"]] == ["refund"]
    assert result["unmet"] == {**NOTHING_MISSING, "records_without_case": 1, "records_not_selected": 1}
    check(REFUND, GREET, flags=("-k", "refund", "--strict"), code=0)
    assert check(GREET, flags=("-k", "refund", "--format", "json"), code=5)["unmet"]["cases_without_evidence"] == 1


def test_python_returns_the_same_counts() -> None:
    suite = library.load_suite("suite.yaml")
    result = library.check(suite, [json.loads(REFUND), json.loads(STRANGER), json.loads(UNCLEAR)])
    assert (result.unmet.cases_without_evidence, result.unmet.records_without_case, result.outcome) == (1, 2, "error")


def test_in_python_records_with_another_input_are_decided_and_warned_about() -> None:
    for judge in (None, lambda question: True):
        result = library.check(library.load_suite("suite.yaml"), [json.loads(OTHER)] * 17 + [json.loads(GREET)], judge=judge)
        assert (result.outcome, result.unmet.records_with_other_input) == ("pass", 17)
        assert [(problem.code, problem.message.split(" were")[0]) for problem in result.warnings] == [("other_input", "17 records")]


def test_with_a_judge_records_are_assigned_alike() -> None:
    text = "proctor: 1\ncases:\n- {id: a, input: x, expect: [judged: good]}\n- {id: b, input: y, expect: [judged: good]}\n"
    suite = library.parse_suite(text)
    records = [{"input": "y", "text": "1"}, {"input": "z", "text": "2"}, {"case": "c", "text": "3"}]
    result = library.check(suite, records, judge=lambda question: True)
    assert [(case.id, case.outcome) for case in result.cases] == [("b", "pass"), ("", "error"), ("a", "skip")]
    assert (result.unmet.cases_without_evidence, result.unmet.records_without_case) == (1, 2)


@pytest.fixture
def agents(inside: Path) -> Path:
    (inside / "suite.yaml").write_text(
        SUITE.replace("  - {id: later, input: later, skip: not today, expect: [response_contains: x]}\n", "")
    )
    (inside / "agent_of_unmet.py").write_text("def answer(message):\n    return message if message == 'hello' else 1 / 0\n")
    (inside / "runs.jsonl").write_text(f"{REFUND}\n{GREET}\n{STRANGER}\n")
    targets = {
        "half": {"type": "callable", "function": "agent_of_unmet:answer"},
        "tape": {"type": "recorded", "evidence": "runs.jsonl"},
    }
    (inside / "proctor.yaml").write_text(json.dumps({"targets": targets}))
    return inside


def test_a_run_counts_cases_without_evidence(agents: Path) -> None:
    done = proctor("run", "suite.yaml", "--target", "half", "--format", "json")
    assert (done.code, json.loads(done.out)["unmet"]) == (1, {**NOTHING_MISSING, "cases_without_evidence": 1})
    assert "1 case without evidence" in done.err
    assert json.loads(proctor("show", "latest", "--format", "json").out)["unmet"]["cases_without_evidence"] == 1
    assert proctor("run", "suite.yaml", "--target", "half", "--strict").code == 4
    assert proctor("run", "suite.yaml", "--target", "half", "-k", "greet", "--strict").code == 0


def test_a_run_counts_recordings_without_a_case(agents: Path) -> None:
    done = proctor("run", "suite.yaml", "--target", "tape", "--format", "json")
    assert (done.code, json.loads(done.out)["unmet"]) == (0, {**NOTHING_MISSING, "records_without_case": 1})
    assert proctor("run", "suite.yaml", "--target", "tape", "--strict").code == 4


def test_recordings_with_another_input_are_used_in_a_run_and_checked_again_with_a_warning(agents: Path) -> None:
    (agents / "runs.jsonl").write_text(f"{OTHER}\n{GREET}\n")
    for command in (("run", "suite.yaml", "--target", "tape"), ("recheck", "latest")):
        done = proctor(*command, "--format", "json")
        result = json.loads(done.out)
        assert (done.code, result["unmet"]) == (0, {**NOTHING_MISSING, "records_with_other_input": 1})
        assert [warning["code"] for warning in result["warnings"]] == ["other_input"]
        assert proctor(*command, "--strict").code == 4


def test_a_run_checked_again_with_another_input_in_the_suite_warns(agents: Path) -> None:
    assert proctor("run", "suite.yaml", "--target", "half", "-k", "greet").code == 0
    assert json.loads(proctor("recheck", "latest", "--format", "json").out)["warnings"] == []
    (agents / "changed.yaml").write_text((agents / "suite.yaml").read_text().replace("input: hello", "input: good evening"))
    result = json.loads(proctor("recheck", "latest", "--suite", "changed.yaml", "-k", "greet", "--format", "json").out)
    assert (result["outcome"], [warning["code"] for warning in result["warnings"]]) == ("pass", ["other_input"])


def test_a_case_that_is_new_when_a_run_is_checked_again_is_skipped_and_counted(agents: Path) -> None:
    assert proctor("run", "suite.yaml", "--target", "tape").code == 0
    (agents / "more.yaml").write_text((agents / "suite.yaml").read_text() + "  - {id: new, input: q, expect: [response_contains: q]}\n")
    done = proctor("recheck", "latest", "--suite", "more.yaml", "--format", "json")
    result = json.loads(done.out)
    assert done.code == 0 and result["counts"]["skip"] == 1 and result["unmet"]["cases_without_evidence"] == 1
    assert proctor("recheck", "latest", "--suite", "more.yaml", "--strict").code == 4
    assert proctor("recheck", "latest", "--strict").code == 0


def two_suites(folder: Path) -> tuple[Path, Path]:
    (folder / "suites").mkdir()
    one, two = folder / "suites" / "one.yaml", folder / "suites" / "two.yaml"
    one.write_text("proctor: 1\ncases:\n- {id: a, expect: [no_tools_called]}\n- {id: b, expect: [no_tools_called]}\n")
    two.write_text("proctor: 1\ncases:\n- {id: c, expect: [no_tools_called]}\n- {id: a, expect: [tool_called: x]}\n")
    return one, two


def test_the_same_id_in_two_suites_is_an_error_that_names_both_places(inside: Path) -> None:
    one, two = two_suites(inside)
    message = f"{two}:4:3: the case id 'a' is also used at {one}:3:3"
    (inside / "runs.jsonl").write_text('{"case": "a", "text": "x", "tool_calls": []}\n')
    for command in (
        ("check", inside / "suites", "runs.jsonl"),
        ("run", inside / "suites"),
        ("run", one, two),
        ("validate", inside / "suites"),
        ("validate", one, two),
        ("convert", inside / "suites"),
    ):
        done = proctor(*command)
        assert done.code == 4 and message in done.out + done.err, (command, done)
    with pytest.raises(InputError) as caught:
        library.load_suite(inside / "suites")
    assert message in str(caught.value)


def test_the_same_suite_given_twice_is_an_error_too(inside: Path) -> None:
    one, _ = two_suites(inside)
    done = proctor("run", one, one)
    assert done.code == 4 and "the case id 'a' is also used at" in done.err


def test_configs_of_mcplab_may_use_an_id_twice_and_a_trace_that_names_it_is_refused(inside: Path) -> None:
    (inside / "mcplab" / "evals").mkdir(parents=True)
    (inside / "mcplab" / "agents.yaml").write_text("[]\n")
    (inside / "mcplab" / "servers.yaml").write_text("{}\n")
    for name in ("One", "Two"):
        scenario = f"{{id: look, prompt: {name}, eval: {{response_assertions: [{{type: contains, value: {name}}}]}}}}"
        (inside / "mcplab" / "evals" / f"{name}.yaml").write_text(f"name: {name}\nagents: []\nscenarios: [{scenario}]\n")
    (inside / "runs.jsonl").write_text('{"case": "look", "text": "One"}\n{"case": "Two/look", "text": "Two"}\n')
    done = proctor("check", "mcplab", "runs.jsonl", "--format", "json")
    result = json.loads(done.out)
    assert done.code == 1 and [(case["id"], case["outcome"], case["code"]) for case in result["cases"]] == [
        (None, "error", "case_not_named"),
        ("Two/look", "pass", None),
        ("look", "skip", "no_evidence"),
    ]
