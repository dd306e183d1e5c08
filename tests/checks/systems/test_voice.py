"""`voice_said` from a table."""

from __future__ import annotations

import json

import pytest

import proctor
from proctor.checks.registry import default_registry
from proctor.checks.systems.voice import VoiceSaid
from proctor.formats.suites import read_suite
from proctor.model.account import Account
from proctor.model.evidence import Evidence, State, VoiceState, VoiceTurn
from tests.checks.state_tables import verify
from tests.tables import rows

ASSERTIONS = {
    "said": {"assert": "voice-transcript", "contains": ["hello"], "match": "normalized"},
    "portal": {"assert": "portal-state-match", "correlate_by": {"resource": "r", "key": "id", "value": 1}},
}
STATE = {"voice": [{"speaker": "agent", "text": "hello"}], "portal": {"r": [{"id": 1}, {"id": 1}]}}


@rows("checks/cases/voice.yaml")
def test_voice_transcript_decides(row):
    verify("voice_said", row)


@pytest.mark.parametrize(
    ("spec", "outcome"),
    [
        (VoiceSaid(contains=("hello",)), "fail"),
        (VoiceSaid(contains=("hello",), not_contains=("bye",)), "fail"),
        (VoiceSaid(not_contains=("bye",)), "error"),
    ],
)
@pytest.mark.parametrize(
    "evidence", [Evidence(), Evidence(state=State()), Evidence(state=State(voice=VoiceState(turns=(VoiceTurn(text="x"),))))]
)
def test_a_required_phrase_fails_if_the_transcript_is_unknown(spec, outcome, evidence):
    if evidence.state is not None and evidence.state.voice is not None:
        evidence = Evidence(state=evidence.state, account=Account("plain", unknown={"state": "a call was cut"}))
    verdict = default_registry().prepare("voice_said", spec)(evidence)
    assert (verdict.outcome, verdict.code) == (outcome, "missing_evidence")


def test_a_heard_phrase_passes_even_if_more_is_missing():
    state = State(voice=VoiceState(turns=(VoiceTurn(text="hello"),)))
    evidence = Evidence(state=state, account=Account("plain", unknown={"state": "a call was cut"}))
    assert default_registry().prepare("voice_said", VoiceSaid(contains=("hello",)))(evidence).outcome == "pass"


@pytest.mark.parametrize("name", ["from", "sender"])
@pytest.mark.parametrize("check", ["voice_said", "message_sent", "fax_document"])
def test_both_names_of_the_sender_are_read(check, name):
    suite = read_suite(f"cases: [{{id: a, input: x, expect: [{{{check}: {{{name}: '+1', contains: [hi]}}}}]}}]", dialect="native")
    assert suite.cases[0].assertions[0].spec.sender == "+1"


def test_an_undecided_criterion_does_not_raise_the_score():
    task = {"name": "t", "criteria": [{"label": one, "assertion": assertion} for one, assertion in ASSERTIONS.items()]}
    case = proctor.check(read_suite(json.dumps(task), dialect="verial"), [{"text": "", "state": STATE}]).cases[0]
    assert (case.outcome, case.score, case.verdict) == ("error", 0.5, None)
    assert case.reason == "1 of 2 assertions could not be decided and count 0"
