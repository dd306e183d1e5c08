"""Runs with simulated systems: fresh for every attempt, and decided on the end state."""

from __future__ import annotations

import json
import re
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import proctor
from proctor.actions.checking.recheck import recheck
from proctor.actions.workspace.suites import load_suite
from proctor.errors import InputError
from proctor.model.result import CaseResult

CLINIC = """
proctor: 1
name: clinic
systems:
  clinic:
    kind: fhir
    seed:
      - {resourceType: Patient, id: ann, name: [{family: Smith}]}
      - {resourceType: Patient, id: bob, name: [{family: Jones}]}
  drop: {kind: files, scenario: [{drop_file_inbox: {path: referral.json, content: {patient: ann, day: '2026-11-20'}}}]}
cases:
  - id: book
    input: Book what the referral asks for.
    expect:
      - fhir_resource:
          resource_type: Appointment
          search: {patient.family: Smith, date: '2026-11-20'}
          match: exactly_one
      - file_present: outbox/done.json
"""


def call(context: dict[str, Any], system: str, method: str, path: str, body: Any = None) -> Any:
    """Ask a simulated system as any client would."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {context[system + '_token']}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(context[f"{system}_url"] + path, data, headers, method=method)) as answer:
        content = answer.read()
        return json.loads(content) if content else None


def make_appointment(patient: str, day: str) -> dict[str, Any]:
    actor = [{"actor": {"reference": f"Patient/{patient}"}, "status": "accepted"}]
    return {"resourceType": "Appointment", "status": "booked", "start": f"{day}T09:00:00Z", "participant": actor}


def book(message: str, context: dict[str, Any]) -> str:
    (arrived,) = call(context, "drop", "GET", "/inbox")["files"]
    referral = call(context, "drop", "GET", f"/{arrived['path']}")
    call(context, "clinic", "POST", "/Appointment", make_appointment(referral["patient"], referral["day"]))
    call(context, "drop", "PUT", "/outbox/done.json", referral)
    return "booked"


def list_failed(case: CaseResult) -> list[str | None]:
    """Return the labels of the failed claims."""
    return [assertion.label for assertion, verdict in zip(case.case.assertions, case.verdicts, strict=True) if not verdict.passed]


def write_suite(folder: Path, text: str = CLINIC) -> Path:
    path = folder / "clinic.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_an_agent_that_works_in_the_systems_passes(tmp_path: Path) -> None:
    result = proctor.run(write_suite(tmp_path), target=book, home=tmp_path)
    assert [case.outcome for case in result.cases] == ["pass"], [verdict.reason for case in result.cases for verdict in case.verdicts]


def test_wrong_state_fails_the_claim_about_it(tmp_path: Path) -> None:
    def book_wrong(message: str, context: dict[str, Any]) -> str:
        call(context, "clinic", "POST", "/Appointment", make_appointment("bob", "2026-11-20"))
        call(context, "drop", "PUT", "/outbox/done.json", {})
        return "booked"

    (case,) = proctor.run(write_suite(tmp_path), target=book_wrong, home=tmp_path).cases
    assert [verdict.passed for verdict in case.verdicts] == [False, True]


@pytest.mark.in_turn
@pytest.mark.timeout(60)
def test_200_attempts_at_20_at_once_never_see_each_other(tmp_path: Path) -> None:
    """Each finds only the seed of the suite, and books once; the claim counts exactly one."""
    seen: list[tuple[int, int, str]] = []
    guard = threading.Lock()

    def book_once(message: str, context: dict[str, Any]) -> str:
        appointments = call(context, "clinic", "GET", "/Appointment")["total"]
        files = len(call(context, "drop", "GET", "/")["files"])
        with guard:
            seen.append((appointments, files, context["clinic_token"]))
        return book(message, context)

    result = proctor.run(write_suite(tmp_path), target=book_once, home=tmp_path, repeat=200, concurrency=20)
    assert [case.outcome for case in result.cases] == ["pass"] * 200
    assert {(appointments, files) for appointments, files, _ in seen} == {(0, 1)}
    assert len({token for *_, token in seen}) == 200


def test_a_token_opens_its_own_sandbox_and_no_longer_than_the_attempt(tmp_path: Path) -> None:
    places: list[dict[str, Any]] = []
    statuses: list[int] = []

    def look_around(message: str, context: dict[str, Any]) -> str:
        for other in places:
            for crossed in (other, {**context, "clinic_url": other["clinic_url"]}, {**other, "clinic_url": context["clinic_url"]}):
                try:
                    call(crossed, "clinic", "GET", "/Patient")
                    statuses.append(200)
                except urllib.error.HTTPError as error:
                    statuses.append(error.code)
        places.append(context)
        return "looked"

    proctor.run(write_suite(tmp_path), target=look_around, home=tmp_path, repeat=2, concurrency=1)
    assert statuses == [404, 404, 401]


def test_variables_are_replaced_in_messages_and_templates(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, CLINIC.replace("Book what the referral asks for.", "'Work at {clinic_url} and {{keep}}.'"))
    messages: list[str] = []

    def listen(message: str) -> str:
        messages.append(message)
        return "ok"

    proctor.run(suite, target=listen, home=tmp_path)
    assert re.fullmatch(r"Work at http://127\.0\.0\.1:\d+/[0-9a-f]+/clinic and \{\{keep\}\}\.", messages[0])


def test_a_program_finds_its_systems_in_its_environment(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(
        "import os, urllib.request\n"
        "url, token = os.environ['CLINIC_URL'], os.environ['CLINIC_TOKEN']\n"
        "request = urllib.request.Request(url + '/Patient/bob', headers={'Authorization': 'Bearer ' + token}, method='DELETE')\n"
        "print(urllib.request.urlopen(request).status)\n",
        encoding="utf-8",
    )
    text = CLINIC.replace("      - file_present: outbox/done.json\n", "      - fhir_resource: {resource_type: Patient, count: 1}\n")
    target = {"type": "command", "command": ["python3", str(tmp_path / "agent.py")]}
    (case,) = proctor.run(write_suite(tmp_path, text), target=target, home=tmp_path).cases
    assert [verdict.passed for verdict in case.verdicts] == [False, True]


def test_a_failing_agent_leaves_no_sandbox_and_the_run_continues(tmp_path: Path) -> None:
    def fail(message: str) -> str:
        raise RuntimeError("no")

    result = proctor.run(write_suite(tmp_path), target=fail, home=tmp_path, repeat=2)
    assert [case.outcome for case in result.cases] == ["error", "error"]


def test_sftp_that_is_not_installed_is_an_error_that_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "proctor.sandboxes.sftp", None)
    text = CLINIC.replace("drop: {kind: files,", "drop: {kind: files, seed: {sftp: true},")
    (case,) = proctor.run(write_suite(tmp_path, text), target=book, home=tmp_path).cases
    assert (case.outcome, case.code) == ("error", "no_sandbox")
    assert case.reason is not None and "pip install 'proctor-evals[sftp]'" in case.reason


@pytest.mark.parametrize("option", ["record", "replay"])
def test_a_tape_is_refused(tmp_path: Path, option: str) -> None:
    with pytest.raises(InputError, match="cannot be recorded or replayed"):
        proctor.run(write_suite(tmp_path), target=book, home=tmp_path, **{option: str(tmp_path / "tape")})


def test_the_state_is_stored_with_the_run_and_decided_again(tmp_path: Path) -> None:
    result = proctor.run(write_suite(tmp_path), target=book, home=tmp_path)
    assert [case.outcome for case in recheck(tmp_path / ".proctor", result.run_id).cases] == ["pass"]


def test_a_case_adds_to_the_systems_of_its_suite(tmp_path: Path) -> None:
    text = CLINIC.replace(
        "    input: Book", "    systems: {drop: {kind: files}, shop: {kind: records, seed: {orders: []}}}\n    input: Book"
    )
    (case,) = load_suite(write_suite(tmp_path, text)).cases
    assert [(system.name, system.kind, len(system.scenario)) for system in case.systems] == [
        ("clinic", "fhir", 0),
        ("drop", "files", 0),
        ("shop", "records", 0),
    ]
