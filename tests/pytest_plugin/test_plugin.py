"""The plugin as its users meet it: real pytest sessions in a folder of their own."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest
import yaml  # noqa: F401 - see below

# A session in this process forgets the modules it loaded; the compiled half of PyYAML does not survive being loaded twice.
import proctor.pytest_plugin.items
import proctor.pytest_plugin.reporting  # noqa: F401 - see above
from proctor.actions.running.run import LiveRun
from proctor.model.result import RunResult

pytest_plugins = ["pytester"]

SUITE = """\
proctor: 1
name: Desk
cases:
  - id: refund-1
    name: Charged twice
    input: I was charged twice
    tags: [billing, skip]
    expect:
      - tool_called: {name: lookup_order, arguments: {id: 17}}
  - id: greeting
    input: Hello
    tags: {area: small talk}
    expect:
      - response_contains: hello
"""
GOOD = {"case": "refund-1", "text": "Done", "tool_calls": [{"name": "lookup_order", "arguments": {"id": 17}}]}
BAD = {"case": "refund-1", "text": "Done", "tool_calls": [{"name": "lookup_order", "arguments": {"id": 71}}]}
HELLO = {"case": "greeting", "text": "hello there"}

Session = Callable[..., pytest.RunResult]


def lines(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Session:
    # Installed plugins stay out, and so does the entry point of this one: it is named here.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run(*arguments: str) -> pytest.RunResult:
        return pytester.runpytest_inprocess("-p", "proctor.pytest_plugin.plugin", "--strict-markers", *arguments)

    return run


@pytest.fixture
def desk(pytester: pytest.Pytester) -> pytest.Pytester:
    (pytester.path / "desk.proctor.yaml").write_text(SUITE, encoding="utf-8")
    return pytester


def record(desk: pytest.Pytester, *records: object, name: str = "desk.evidence.jsonl") -> None:
    (desk.path / name).write_text(lines(*records), encoding="utf-8")


# --- collection -----------------------------------------------------------------------------------------------------------


def test_lazily_generated_cases_find_their_records(pytester: pytest.Pytester, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.formats.native.rows.HELD", 1)
    files = {
        "desk.proctor.yaml": "proctor: 1\ncases: {from: rows.csv, as: {input: 'Order {n}', expect: [response_contains: 'order {n}']}}\n",
        "rows.csv": "n\n1\n2\n3\n",
        "desk.evidence.jsonl": lines({"case": "rows-1", "text": "order 1"}, {"input": "Order 2", "text": "no idea"}),
    }
    for name, text in files.items():
        (pytester.path / name).write_text(text, encoding="utf-8")
    session("-q").assert_outcomes(passed=1, failed=1, skipped=1)


def test_evidence_is_read_by_the_mapping_of_the_suite_and_complete_by_the_ini_file(pytester: pytest.Pytester, session: Session) -> None:
    suite = "proctor: 1\nevidence: {map: {text: $.reply}}\ncases: [{id: a, expect: [response_contains: hello, no_tools_called]}]\n"
    pytester.path.joinpath("own.proctor.yaml").write_text(suite, encoding="utf-8")
    pytester.path.joinpath("own.evidence.jsonl").write_text(lines({"reply": "hello there"}), encoding="utf-8")
    session().assert_outcomes(failed=1)
    pytester.makeini("[pytest]\nproctor_complete = tool_calls\n")
    session().assert_outcomes(passed=1)


def test_every_case_is_one_item(desk: pytest.Pytester, session: Session) -> None:
    session("--collect-only", "-q").stdout.fnmatch_lines(["desk.proctor.yaml::refund-1", "desk.proctor.yaml::greeting"])


@pytest.mark.parametrize("name", ["a.proctor.yml", "a.proctor.json"])
def test_the_other_endings_are_collected_too(pytester: pytest.Pytester, session: Session, name: str) -> None:
    (pytester.path / name).write_text(json.dumps({"proctor": 1, "cases": [{"id": "x", "expect": ["no_tools_called"]}]}), encoding="utf-8")
    session("--collect-only", "-q").stdout.fnmatch_lines([f"{name}::x"])


def test_other_yaml_files_are_ignored(pytester: pytest.Pytester, session: Session) -> None:
    (pytester.path / "desk.yaml").write_text(SUITE, encoding="utf-8")
    assert session("-q").ret == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.parametrize("entry", ["suites/desk.yaml", "./suites/desk.yaml", "suites/*.yaml", "**/*.yaml"])
def test_listed_suites_are_collected(pytester: pytest.Pytester, session: Session, entry: str) -> None:
    (pytester.mkdir("suites") / "desk.yaml").write_text(SUITE, encoding="utf-8")
    (pytester.path / "proctor.yaml").write_text("targets: {}\n", encoding="utf-8")
    pytester.makeini(f"[pytest]\nproctor_suites = {entry}\n")
    (pytester.path / "suites" / "desk.evidence.jsonl").write_text(lines(GOOD, HELLO), encoding="utf-8")
    session().assert_outcomes(passed=2)


def test_a_project_folder_that_looks_like_a_pattern_is_a_folder(
    pytester: pytest.Pytester, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pytester.mkdir("odd*x")
    (folder / "pytest.ini").write_text("[pytest]\nproctor_suites = desk.yaml\n", encoding="utf-8")
    monkeypatch.chdir(folder)
    assert session().ret == pytest.ExitCode.USAGE_ERROR


def test_a_missing_listed_suite_is_a_usage_error(pytester: pytest.Pytester, session: Session) -> None:
    pytester.makeini("[pytest]\nproctor_suites = suites/desk.yaml\n")
    result = session()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*proctor_suites: no suite file at '*suites/desk.yaml'"])


def test_an_unreadable_suite_is_reported_at_its_place_without_a_traceback(pytester: pytest.Pytester, session: Session) -> None:
    (pytester.path / "desk.proctor.yaml").write_text(SUITE.replace("tool_called:", "tool_caled:"), encoding="utf-8")
    result = session()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["desk.proctor.yaml:9:9: *tool_caled*", "*nearest: 'tool_called'*"])
    result.stdout.no_fnmatch_line("*items.py*")


def test_warnings_of_a_suite_are_warnings_of_the_session(pytester: pytest.Pytester, session: Session) -> None:
    text = (
        'scenarios:\n  - id: x\n    prompt: hi\n    eval:\n      response_assertions:\n        - type: regex\n          pattern: "a\\s+b"\n'
    )
    (pytester.path / "lab.proctor.yaml").write_text(text, encoding="utf-8")
    session().stdout.fnmatch_lines(["*SuiteWarning: lab.proctor.yaml:7:*warning:*"])


def test_a_record_with_another_input_than_its_case_is_decided_with_a_warning(desk: pytest.Pytester, session: Session) -> None:
    record(desk, GOOD, {**HELLO, "input": "Good morning"})
    warning = (
        "*SuiteWarning: desk.proctor.yaml:*: warning: 1 record was decided although its input differs from that of the case 'greeting': *"
    )
    result = session("-W", "default")
    result.assert_outcomes(passed=2, warnings=1)
    result.stdout.fnmatch_lines([warning])
    session("-W", "error::proctor.pytest_plugin.reporting.SuiteWarning").assert_outcomes(passed=1, failed=1)
    desk.makepyfile("""
        def test_greeting(proctor_check):
            proctor_check("desk.proctor.yaml", {"case": "greeting", "input": "Good morning", "text": "hello"}, case="greeting")
    """)
    session("-W", "default", "-k", "test_greeting").assert_outcomes(passed=1, warnings=1, deselected=2)


def test_ids_that_break_pytest_or_terminals_are_escaped(pytester: pytest.Pytester, session: Session) -> None:
    cases = [{"id": case_id, "expect": ["no_tools_called"]} for case_id in ("a::b", "a:b", "red \x1b[31m")]
    (pytester.path / "odd.proctor.json").write_text(json.dumps({"proctor": 1, "cases": cases}), encoding="utf-8")
    found = session("--collect-only", "-q").stdout
    found.fnmatch_lines(["odd.proctor.json::a:b", "odd.proctor.json::a:b-2", r"odd.proctor.json::red \x1b[[]31m"])


# --- evidence -------------------------------------------------------------------------------------------------------------


def test_evidence_next_to_the_suite_is_found(desk: pytest.Pytester, session: Session) -> None:
    record(desk, GOOD, HELLO)
    session().assert_outcomes(passed=2)


def test_command_line_evidence_wins_over_the_folder_and_that_over_the_ini_file(desk: pytest.Pytester, session: Session) -> None:
    record(desk, BAD, HELLO, name="old.jsonl")
    desk.makeini("[pytest]\nproctor_evidence = old.jsonl\n")
    session().assert_outcomes(passed=1, failed=1)
    record(desk, GOOD, HELLO)
    session().assert_outcomes(passed=2)
    record(desk, BAD, {**HELLO, "text": "?"}, name="new.jsonl")
    session("--proctor-evidence", "new.jsonl").assert_outcomes(failed=2)


def test_missing_evidence_is_a_usage_error(desk: pytest.Pytester, session: Session) -> None:
    result = session("--proctor-evidence", "nowhere.jsonl")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no evidence at '*nowhere.jsonl': no such file or folder"])


def test_a_suite_without_any_evidence_is_an_error_with_the_next_step(desk: pytest.Pytester, session: Session) -> None:
    result = session()
    result.assert_outcomes(failed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["error: no evidence for this suite: put it into desk.evidence.jsonl, *--proctor-live*"])
    record(desk, {**HELLO, "case": "other"})
    session().assert_outcomes(failed=2)


def test_a_suite_without_any_evidence_is_skipped_if_the_ini_file_allows_it(desk: pytest.Pytester, session: Session) -> None:
    result = session("-rs", "-o", "proctor_without_evidence=skip")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(
        ["SKIPPED * desk.proctor.yaml:4: no evidence for this suite: put it into desk.evidence.jsonl, *--proctor-live*"]
    )
    assert session("-o", "proctor_without_evidence=pass").ret == pytest.ExitCode.USAGE_ERROR


def test_a_case_without_recordings_is_skipped_among_others(desk: pytest.Pytester, session: Session) -> None:
    record(desk, HELLO)
    result = session("-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED * desk.proctor.yaml:4: no evidence answers this case; drive the agent with --proctor-live"])


def test_a_skipped_case_names_evidence_that_is_probably_its_own(desk: pytest.Pytester, session: Session) -> None:
    record(desk, {**GOOD, "case": "refund-l"}, HELLO)
    result = session("-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED *no evidence answers this case; evidence that fits no case names 'refund-l'*"])


def test_evidence_that_names_no_case_answers_that_with_its_input_and_a_name_is_as_good_as_an_id(
    desk: pytest.Pytester, session: Session
) -> None:
    by_input = {"input": "I was charged twice", "text": "hello", "tool_calls": []}
    record(desk, {**GOOD, "case": "Charged twice"}, by_input, {"input": "Hello", "text": "hello"})
    result = session()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["1 of 2 results did not pass"])


def test_evidence_that_could_answer_several_cases_is_never_passed_over(desk: pytest.Pytester, session: Session) -> None:
    record(desk, GOOD, HELLO, {"input": "Good morning", "text": "hello"})
    result = session()
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*desk.evidence.jsonl:3: names no case, and its input \"Good morning\" is that of no case*'refund-1'*"])


def test_suites_that_share_evidence_need_ids_of_their_own(desk: pytest.Pytester, session: Session) -> None:
    record(desk, GOOD, HELLO, name="runs.jsonl")
    (desk.path / "other.proctor.yaml").write_text(SUITE, encoding="utf-8")
    result = session("--proctor-evidence", "runs.jsonl")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*other.proctor.yaml:4:*: the case id 'refund-1' is also used at desk.proctor.yaml:4:*"])
    # Evidence of its own is no luck.
    for name in ("desk", "other"):
        record(desk, GOOD, HELLO, name=f"{name}.evidence.jsonl")
    session().assert_outcomes(passed=4)


def test_a_record_finds_its_case_among_all_suites_that_share_the_evidence(desk: pytest.Pytester, session: Session) -> None:
    other = "proctor: 1\ncases: [{id: bye, input: Goodbye, expect: [response_contains: bye]}]\n"
    (desk.path / "other.proctor.yaml").write_text(other, encoding="utf-8")
    record(desk, GOOD, {"input": "Goodbye", "text": "bye"}, {"input": "Hello", "text": "hello"}, name="runs.jsonl")
    session("--proctor-evidence", "runs.jsonl").assert_outcomes(passed=3)


def test_a_record_that_cannot_be_read_is_never_passed_over(desk: pytest.Pytester, session: Session) -> None:
    (desk.path / "desk.evidence.jsonl").write_text(lines(GOOD, HELLO) + "{broken\n", encoding="utf-8")
    result = session()
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["error: evidence that cannot be used*", "*desk.evidence.jsonl:3: *"])


# --- selection ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (("-m", "billing"), ["refund-1"]),
        (("-m", "not billing"), ["greeting"]),
        (("-m", "proctor"), ["refund-1", "greeting"]),
        (("-m", "small-talk"), ["greeting"]),
        (("-m", "area(value='small talk')"), ["greeting"]),
        (("-k", "refund"), ["refund-1"]),
        (("-k", "Charged"), ["refund-1"]),
        (("-k", "not refund"), ["greeting"]),
        (("desk.proctor.yaml::greeting",), ["greeting"]),
    ],
)
def test_cases_are_selected_by_tag_name_and_id(desk: pytest.Pytester, session: Session, flags: tuple[str, ...], names: list[str]) -> None:
    found = [line for line in session("--collect-only", "-q", *flags).outlines if "::" in line]
    assert found == [f"desk.proctor.yaml::{name}" for name in names]


def test_a_tag_named_like_a_marker_that_acts_does_not_act(desk: pytest.Pytester, session: Session) -> None:
    record(desk, GOOD, HELLO)
    session("-m", "tag_skip").assert_outcomes(passed=1, deselected=1)


def test_tags_are_listed_as_markers_once_they_are_known(desk: pytest.Pytester, session: Session) -> None:
    session("--markers").stdout.fnmatch_lines(["@pytest.mark.proctor: a case of a proctor suite"])


# --- the report -----------------------------------------------------------------------------------------------------------


def test_the_failure_report_is_ours_and_no_traceback(desk: pytest.Pytester, session: Session) -> None:
    record(desk, BAD, HELLO)
    result = session()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*refund-1*",
            "✗ FAIL  refund-1 · Charged twice",
            "  evidence  desk.evidence.jsonl:1",
            "*17*",
            "*71*",
            "      written   desk.proctor.yaml:9:9",
            "FAILED desk.proctor.yaml::refund-1 - tool_called*",
        ]
    )
    for trace in ("*Traceback*", "*items.py*", "*CheckFailed*"):
        result.stdout.no_fnmatch_line(trace)


def test_a_case_that_cannot_be_decided_fails_as_an_error(desk: pytest.Pytester, session: Session) -> None:
    (desk.path / "desk.proctor.yaml").write_text(
        "proctor: 1\ncases:\n  - id: x\n    expect:\n      - response_contains: a\n        when_missing: error\n", encoding="utf-8"
    )
    record(desk, {"case": "x", "tool_calls": []})
    result = session()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["! ERROR x", "FAILED desk.proctor.yaml::x - error: *"])


def test_a_case_that_its_author_skips_is_skipped_at_its_place(desk: pytest.Pytester, session: Session) -> None:
    (desk.path / "desk.proctor.yaml").write_text(
        "proctor: 1\ncases:\n  - id: x\n    expect:\n      - response_contains: a\n        when_missing: skip\n", encoding="utf-8"
    )
    record(desk, {"case": "x", "tool_calls": []})
    result = session("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED * desk.proctor.yaml:3: *"])


def test_the_junit_file_has_the_reason_and_the_report(desk: pytest.Pytester, session: Session) -> None:
    record(desk, BAD, HELLO)
    session("--junit-xml", "out.xml")
    failure = ElementTree.parse(desk.path / "out.xml").find(".//failure")
    assert failure is not None and failure.get("message", "").startswith("tool_called")
    assert "desk.proctor.yaml:9:9" in (failure.text or "")


def test_a_bug_keeps_its_traceback(desk: pytest.Pytester, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    record(desk, GOOD, HELLO)
    monkeypatch.setattr("proctor.pytest_plugin.items.CheckStream", lambda suite: 1 / 0)
    session().stdout.fnmatch_lines(["*items.py*", "*ZeroDivisionError*"])


@pytest.mark.timeout(60)
def test_cases_are_spread_over_processes(desk: pytest.Pytester, session: Session) -> None:
    record(desk, BAD, HELLO)
    result = session("-p", "xdist", "-n", "2", "--proctor-evidence", "desk.evidence.jsonl")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["✗ FAIL  refund-1 · Charged twice", "FAILED desk.proctor.yaml::refund-1 - tool_called*"])


# --- live -----------------------------------------------------------------------------------------------------------------

WORKSPACE = """\
targets:
  good: {type: recorded, evidence: [good.jsonl]}
  bad: {type: recorded, evidence: [bad.jsonl]}
default_target: good
"""


@pytest.fixture
def live_desk(desk: pytest.Pytester) -> pytest.Pytester:
    (desk.path / "proctor.yaml").write_text(WORKSPACE, encoding="utf-8")
    record(desk, GOOD, HELLO, name="good.jsonl")
    record(desk, BAD, name="bad.jsonl")
    return desk


def test_no_target_runs_unless_requested(live_desk: pytest.Pytester, session: Session) -> None:
    session().assert_outcomes(failed=2)
    assert not (live_desk.path / ".proctor").exists()


def test_the_default_target_runs_on_request_and_the_run_is_stored(live_desk: pytest.Pytester, session: Session) -> None:
    session("--proctor-live").assert_outcomes(passed=2)
    assert (live_desk.path / ".proctor").is_dir()


def test_another_target_can_be_named_and_a_fault_of_it_is_that_cases_error(live_desk: pytest.Pytester, session: Session) -> None:
    result = session("--proctor-live", "--proctor-target", "bad")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["✗ FAIL  refund-1 · Charged twice", "! ERROR greeting", "FAILED *::refund-1 - tool_called*", "FAILED *::greeting - error: *"]
    )


def test_recorded_evidence_is_preferred_and_only_the_rest_is_driven(live_desk: pytest.Pytester, session: Session) -> None:
    record(live_desk, BAD)
    session("--proctor-live").assert_outcomes(passed=1, failed=1)


def test_an_undescribed_target_is_reported_without_a_traceback(live_desk: pytest.Pytester, session: Session) -> None:
    result = session("--proctor-live", "--proctor-target", "god")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["error: *god*"])
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.timeout(30)
def test_an_interrupted_run_interrupts_the_session(live_desk: pytest.Pytester, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted(suite: object, options: object, **place: object) -> LiveRun:
        return LiveRun(result=RunResult(suite_name=""), ended="interrupted", folder=live_desk.path, entries={})

    monkeypatch.setattr("proctor.pytest_plugin.reporting.drive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session("--proctor-live")


# --- weight ---------------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(60)
def test_a_session_without_suites_loads_nothing_of_the_engine(pytester: pytest.Pytester, session: Session) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_light():
            ours = {name for name in sys.modules if name.startswith("proctor.")}
            assert ours == {"proctor.pytest_plugin", *(f"proctor.pytest_plugin.{name}" for name in ("plugin", "fixtures", "failures"))}
            assert not {"msgspec", "yaml", "quickjs", "asyncio", "mcp", "httpx2"} & set(sys.modules)
        """
    )
    result = pytester.runpytest_subprocess("-p", "proctor.pytest_plugin.plugin")
    result.assert_outcomes(passed=1)


def test_checks_of_the_file_that_the_workspace_names_are_known(pytester: pytest.Pytester, session: Session) -> None:
    checks = "import proctor\n\n@proctor.check\ndef short(evidence, *, most: int):\n    return len(evidence.text) <= most\n"
    suite = "proctor: 1\ncases:\n  - {id: a, expect: [{short: 3}]}\n  - {id: b, expect: [{short: 3}]}\n"
    for name, text in (("proctor.yaml", "checks: checks.py\n"), ("checks.py", checks), ("own.proctor.yaml", suite)):
        pytester.path.joinpath(name).write_text(text, encoding="utf-8")
    evidence = lines({"case": "a", "text": "hi"}, {"case": "b", "text": "hello"})
    pytester.path.joinpath("own.evidence.jsonl").write_text(evidence, encoding="utf-8")
    session().assert_outcomes(passed=1, failed=1)


@pytest.fixture
def mutating(session: Session, pytester: pytest.Pytester) -> Session:
    # Proposed claims load further checks, which a session in this process would forget.
    del session
    return lambda *arguments: pytester.runpytest_subprocess("-p", "proctor.pytest_plugin.plugin", *arguments)


@pytest.mark.timeout(60)
def test_planted_faults_are_an_item_that_fails_below_the_share(mutating: Session, pytester: pytest.Pytester) -> None:
    pytester.makefile(".proctor.yaml", desk=SUITE)
    pytester.makefile(".evidence.jsonl", desk=lines(GOOD, HELLO))
    result = mutating("--proctor-mutate", "99", "-rA", "desk.proctor.yaml")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["*Claims to add*", "*- tools_exactly*", "FAILED *planted faults - * of the planted faults detected, at least 99.0 %*"]
    )
    result = mutating("--proctor-mutate", "10%", "-rA", "desk.proctor.yaml")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*faults detected in 2 records of 2 cases"])
    assert mutating("--proctor-mutate", "101", "desk.proctor.yaml").ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.timeout(60)
def test_faults_are_not_planted_into_failing_or_missing_evidence(mutating: Session, pytester: pytest.Pytester) -> None:
    pytester.makefile(".proctor.yaml", desk=SUITE)
    mutating("--proctor-mutate", "10", "-k", "planted", "desk.proctor.yaml").assert_outcomes(skipped=1, deselected=2)
    pytester.makefile(".evidence.jsonl", desk=lines(BAD))
    result = mutating("--proctor-mutate", "10", "-k", "planted", "desk.proctor.yaml")
    result.assert_outcomes(failed=1, deselected=2)
    result.stdout.fnmatch_lines(["FAILED *no fault was planted*"])
