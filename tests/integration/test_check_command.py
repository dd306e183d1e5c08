from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.integration.running import proctor

SUITE = """\
proctor: 1
name: Desk
cases:
  - id: refund
    name: Refund
    tags: [billing]
    expect:
      - tool_called: {name: refund, arguments: {order: 17}}
      - response_contains: refund processed
  - id: refuse
    expect:
      - no_tools_called
"""
GOOD = '{"case": "refund", "text": "Refund processed.", "tool_calls": [{"name": "refund", "arguments": {"order": 17}}]}'
BAD = '{"case": "refund", "text": "No.", "tool_calls": []}'
QUIET = '{"case": "refuse", "text": "No.", "tool_calls": []}'


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "suite.yaml"
    path.write_text(SUITE)
    return path


def evidence(tmp_path: Path, *lines: str, name: str = "runs.jsonl") -> Path:
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    return path


def test_all_passed_is_exit_0(suite: Path, tmp_path: Path) -> None:
    done = proctor("check", suite, evidence(tmp_path, GOOD, QUIET))
    assert done.code == 0, done
    assert "2 passed" in done.out


def test_something_failed_is_exit_1_and_names_file_and_line(suite: Path, tmp_path: Path) -> None:
    runs = evidence(tmp_path, GOOD, QUIET, BAD)
    done = proctor("check", suite, runs)
    assert done.code == 1
    assert f"{runs}:3" in done.out
    assert f"{suite}:8:9" in done.out, "the assertion's own place"


def test_a_broken_line_is_an_error_result_and_the_rest_is_checked(suite: Path, tmp_path: Path) -> None:
    runs = evidence(tmp_path, GOOD, '{"case": "refund", "text": ', QUIET)
    done = proctor("check", suite, runs, "--format", "jsonl")
    results = [json.loads(line) for line in done.out.splitlines()]
    assert [(r["id"], r["outcome"]) for r in results] == [("refund", "pass"), (None, "error"), ("refuse", "pass")]
    assert results[1]["evidence"]["line"] == 2
    assert f"{runs}:2" in results[1]["reason"]
    assert done.code == 1


def test_a_case_without_evidence_is_skipped_and_nothing_at_all_is_exit_5(suite: Path, tmp_path: Path) -> None:
    done = proctor("check", suite, evidence(tmp_path, GOOD), "--format", "json")
    document = json.loads(done.out)
    assert [(c["id"], c["outcome"], c["code"]) for c in document["cases"]] == [("refund", "pass", None), ("refuse", "skip", "no_evidence")]
    assert done.code == 0
    nothing = proctor("check", suite, evidence(tmp_path, '{"case": "other", "text": "x"}'))
    assert nothing.code == 5


def test_evidence_that_names_no_case_warns_and_is_exit_4_when_strict(suite: Path, tmp_path: Path) -> None:
    runs = evidence(tmp_path, GOOD, QUIET, '{"case": "refnd", "text": "x"}')
    done = proctor("check", suite, runs)
    assert done.code == 0
    assert "refnd" in done.out
    strict = proctor("check", suite, runs, "--strict", "--format", "json")
    assert strict.code == 4
    assert json.loads(strict.out)["unmatched_evidence"] == [{"case": "refnd", "file": str(runs), "line": 3, "nearest": ["refund"]}]


def test_evidence_without_a_case_is_checked_against_every_case(suite: Path, tmp_path: Path) -> None:
    done = proctor("check", suite, evidence(tmp_path, '{"text": "Refund processed.", "tool_calls": []}'), "--format", "jsonl")
    assert [json.loads(line)["id"] for line in done.out.splitlines()] == ["refund", "refuse"]


def test_a_case_may_be_named_by_its_name(suite: Path, tmp_path: Path) -> None:
    done = proctor("check", suite, evidence(tmp_path, GOOD.replace('"refund"', '"Refund"', 1)), "-k", "billing")
    assert done.code == 0, done


def test_selecting_nothing_is_exit_5(suite: Path, tmp_path: Path) -> None:
    done = proctor("check", suite, evidence(tmp_path, GOOD), "-k", "nonsense")
    assert (done.code, "nothing selected" in done.err) == (5, True)


def test_standard_input_is_read(suite: Path) -> None:
    assert proctor("check", suite, "-", stdin=f"{GOOD}\n{QUIET}\n".encode()).code == 0
    assert proctor("check", suite, "-", stdin=json.dumps(json.loads(GOOD), indent=2).encode()).code == 0


def test_the_json_result_has_stable_names(suite: Path, tmp_path: Path) -> None:
    runs = evidence(tmp_path, BAD, QUIET)
    document = json.loads(proctor("check", suite, runs, "--format", "json").out)
    assert document["schema"] == "proctor.result/1"
    assert document["suite"] == {"name": "Desk", "path": str(suite), "dialect": "native"}
    assert document["counts"] == {"pass": 1, "fail": 1, "error": 0, "skip": 0}
    case = document["cases"][0]
    assert {
        "id", "name", "attempt", "evidence", "tags", "extracted", "outcome", "score", "verdict", "axes", "assertions",
    } <= case.keys()  # fmt: skip
    account = case["evidence"].pop("account")
    assert account["reader"] == "plain" and account["parts"]["answer"] == {"status": "recorded"}
    assert case["evidence"] == {"file": str(runs), "line": 1, "id": None}
    assertion = case["assertions"][0]
    assert list(assertion) == [
        "id", "check", "label", "outcome", "score", "reason", "code", "weight", "axis", "turn", "details", "pointers", "origin",
    ]  # fmt: skip
    assert assertion["origin"] == {"file": str(suite), "line": 8, "column": 9, "path": "$.cases[0].expect[0]"}
    assert (case["verdict"], case["axes"]) == (None, None)


def test_several_attempts_of_a_case_are_summed_up(suite: Path, tmp_path: Path) -> None:
    document = json.loads(proctor("check", suite, evidence(tmp_path, GOOD, BAD, QUIET), "--format", "json").out)
    refund = document["summary"][0]
    assert (refund["id"], refund["outcome"]) == ("refund", "fail")
    assert refund["statistics"]["pass_rate"] == 0.5


def test_junit_and_markdown_are_written_to_a_file(suite: Path, tmp_path: Path) -> None:
    runs = evidence(tmp_path, BAD, QUIET)
    report = tmp_path / "report.xml"
    done = proctor("check", suite, runs, "--format", "junit", "--output", report)
    assert (done.code, done.out) == (1, "")
    root = ET.fromstring(report.read_text())
    assert len(root.findall(".//testcase")) == 2
    assert not list(tmp_path.glob(".*.part"))
    assert "refund" in proctor("check", suite, runs, "--format", "markdown").out


def test_a_folder_of_evidence_and_of_suites(suite: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "a.json").write_text(GOOD)
    (folder / "b.jsonl").write_text(QUIET)
    suites = tmp_path / "suites"
    suites.mkdir()
    suite.rename(suites / "suite.yaml")
    (suites / "more.yaml").write_text("{proctor: 1, cases: [{id: refund-words, expect: [response_contains: processed]}]}")
    (folder / "c.jsonl").write_text(GOOD.replace('"refund"', '"refund-words"', 1) + "\n")
    done = proctor("check", suites, folder, "--format", "jsonl")
    found = {case["id"]: case["outcome"] for case in map(json.loads, done.out.splitlines())}
    assert (done.code, found) == (0, {"refund": "pass", "refund-words": "pass", "refuse": "pass"})


def test_the_folder_form_of_state(tmp_path: Path) -> None:
    suite = tmp_path / "suite.yaml"
    suite.write_text(
        """
proctor: 1
cases:
  - id: c
    expect:
      - fhir_resource: {resource_type: Patient, fields: [{path: id, expected: p1}]}
      - hl7_message: {correlate_by: {message_type: ADT}, fields: [{path: PID.5.1, expected: Smith}]}
      - portal_record: {resource: requests, fields: [{path: status, expected: sent}]}
      - file_present: {path: 'out/*.json', fields: [{path: a, expected: 1}]}
      - voice_said: {speaker: agent, contains: [member id]}
      - x12_response: {transaction: '271', fields: [{path: EB.1, expected: '1'}]}
      - response_contains: done
"""
    )
    state = tmp_path / "state"
    for name in ("fhir", "hl7", "files/out", "voice", "x12"):
        (state / name).mkdir(parents=True)
    (state / "fhir" / "p.json").write_text('{"resourceType": "Patient", "id": "p1"}')
    (state / "hl7" / "1.hl7").write_text("MSH|^~\\&|A|B|C|D|20260101||ADT^A01|1|P|2.5\nPID|1||9||Smith^John\n")
    (state / "portal.json").write_text('{"requests": [{"status": "sent"}]}')
    (state / "files" / "out" / "x.json").write_text('{"a": 1}')
    (state / "voice" / "call.vtt").write_text("WEBVTT\n\n00:00.000 --> 00:02.000\n<v agent>Your member-ID please.\n")
    isa = "ISA*00*          *00*          *ZZ*SENDER         *ZZ*RECEIVER       *260101*1200*^*00501*000000001*0*P*:~"
    (state / "x12" / "1.edi").write_text(
        f"{isa}GS*HB*S*R*20260101*1200*1*X*005010X279A1~ST*271*0001~EB*1*IND~SE*3*0001~GE*1*1~IEA*1*000000001~"
    )
    (state / "evidence.json").write_text('{"text": "done"}')
    done = proctor("check", suite, state, "--format", "json")
    assert done.code == 0, done.out + done.err
