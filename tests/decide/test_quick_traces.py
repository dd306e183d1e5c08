"""The quick and the careful way decide every recorded trace alike, with all parts built and with the parts that the checks read."""

from __future__ import annotations

import msgspec
import pytest

import proctor
from proctor.decide.prepare import PreparedSuite
from proctor.evidence.otlp.spans import merge_spans
from proctor.evidence.traces.build import build_evidence
from proctor.evidence.traces.read_otlp import read_request
from proctor.model.evidence import Evidence
from tests.evidence.framework_facts import FOLDER, truths

SUITE = """\
proctor: 1
cases:
  - {id: called, expect: [{tool_called: lookup_order}, {no_tool_errors: {}}, {responded_within: 60000}]}
  - {id: none, expect: [{no_tools_called: {}}]}
  - {id: answer, expect: [{response_contains: order}, {tokens_within: 100000}]}
"""


@pytest.mark.in_turn
@pytest.mark.parametrize("name", sorted(truths())[::4])
def test_traces_are_decided_alike(name: str) -> None:
    prepared = PreparedSuite(proctor.parse_suite(SUITE))
    assert prepared.parts is not None and "nodes" not in prepared.parts
    requests = msgspec.json.decode((FOLDER / f"{name}.json").read_bytes())
    for spans in merge_spans(read_request(request) for request in requests).values():
        whole = build_evidence(spans)
        for evidence in (whole, build_evidence(spans, parts=prepared.parts)):
            for decide, case in prepared.cases_for_trace(None):
                assert decide(evidence) == case.decide(whole), case.case.id
        assert _without_nodes(build_evidence(spans, parts=prepared.parts)) == _without_nodes(whole)


def _without_nodes(evidence: Evidence) -> Evidence:
    assert evidence.account is not None
    return msgspec.structs.replace(evidence, nodes=None, account=msgspec.structs.replace(evidence.account, unbuilt=()))
