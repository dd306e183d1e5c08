"""Message lists written by real packages: every fact in them is read, and nothing present is marked unknown."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.errors import EvidenceError
from proctor.evidence.reading import read_document
from proctor.model.evidence import Evidence
from tests.evidence.message_samples import NAMES, TRUTHS, documents

REFUSED = {
    ("autogen-results", "multi"): "several results of AutoGen in one list",
}
"""What is refused on purpose, and the words that say why."""

ONLY_THE_LAST_TURN = {("llamaindex", "multi")}
"""Recordings that contain less than happened: the agent started each turn with an empty memory."""


@pytest.mark.parametrize("name", NAMES)
def test_the_facts_of_a_recorded_message_list_are_read(name: str) -> None:
    for scenario, document in documents(name).items():
        truth = TRUTHS[name]["scenarios"].get(scenario)
        if truth is None or (name, scenario) in ONLY_THE_LAST_TURN:
            continue
        if (name, scenario) in REFUSED:
            with pytest.raises(EvidenceError, match=REFUSED[name, scenario]):
                read_document(document)
            continue
        (evidence,) = read_document(document)
        assert facts_of(evidence, truth) == expected(truth), scenario
        assert evidence.account is not None and evidence.account.reader
        unknown = set(evidence.account.unknown) - {"usage"}
        assert not unknown, (scenario, evidence.account.unknown)


def facts_of(evidence: Evidence, truth: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "calls": [{"name": call.name, "arguments": call.arguments} for call in evidence.tool_calls or ()],
        "text": evidence.text,
    }
    if "usage" in truth:
        found["usage"] = evidence.usage and [evidence.usage.input_tokens, evidence.usage.output_tokens]
    if "failed" in truth:
        found["failed"] = any(call.failed() for call in evidence.tool_calls or ())
    if "turns" in truth:
        found["turns"] = [{"text": turn.text, "calls": [call.name for call in turn.tool_calls or ()]} for turn in evidence.turns or ()]
    return found


def expected(truth: dict[str, Any]) -> dict[str, Any]:
    wanted = {key: truth[key] for key in ("text", "usage", "failed") if key in truth}
    wanted["calls"] = [{"name": call["name"], "arguments": call["arguments"]} for call in truth["calls"]]
    if "turns" in truth:
        wanted["turns"] = [{"text": turn["text"], "calls": turn["calls"]} for turn in truth["turns"]]
    return wanted
