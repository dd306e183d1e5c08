"""Records of a user's own format, read by a mapping: the known parts, and why the rest is unknown."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.actions.checking.check import read_all_evidence
from proctor.errors import EvidenceError, InputError
from proctor.evidence.mapping.propose import propose_map, write_map
from proctor.evidence.mapping.read import compile_mapping
from proctor.evidence.reading import read_document
from proctor.evidence.unknowns.account import find_known
from proctor.formats.suites import read_suite
from proctor.model.evidence import Evidence
from proctor.model.mapping import EvidenceMap
from tests import tables

_OURS = ("tool_calls", "tool_arguments", "tool_results", "answer", "input", "turns", "usage")


@tables.rows("evidence/cases/mapping.yaml")
def test_a_record_is_read_by_its_mapping(row: dict[str, Any]) -> None:
    found = read_all_evidence(row["given"], mapping=row["map"], complete=row.get("complete", ()))
    assert len(found) == len(row["expect"])
    for evidence, expect in zip(found, row["expect"], strict=True):
        unknown = expect.pop("unknown", None)
        assert {key: describe(evidence, key) for key in expect} == expect
        if unknown is None:
            continue
        # A part that the mapping does not mention and the record does not have is not recorded: no reason of ours.
        reasons = {part: state.why or "" for part, state in find_known(evidence).parts.items() if state.is_unknown and part in _OURS}
        own = {part: why for part, why in reasons.items() if "not recorded in this" not in why and why != "no recorded call has them"}
        if "tool_calls" in unknown:
            own = {part: why for part, why in own.items() if part not in ("tool_arguments", "tool_results")}
        assert own.keys() == unknown.keys(), own
        for part, words in unknown.items():
            assert words in own[part]


def describe(evidence: Evidence, key: str) -> Any:
    """Return a field of evidence as the table writes it."""
    match key:
        case "calls":
            return None if evidence.tool_calls is None else [[c.name, c.arguments, c.result, c.error] for c in evidence.tool_calls]
        case "turns":
            return [[turn.input, turn.text] for turn in evidence.turns or ()]
        case "usage":
            return evidence.usage and [evidence.usage.input_tokens, evidence.usage.output_tokens]
        case _:
            return getattr(evidence, key)


def test_lines_without_the_id_of_a_run_are_named() -> None:
    with pytest.raises(EvidenceError, match=r"line 2 has no value of `group`: `\$.run` found nothing; line 2 has `rum`"):
        read_all_evidence([{"run": 1}, {"rum": 1}], mapping={"group": "$.run", "text": "$[*].text"})


def test_declarations_are_noted_with_their_place() -> None:
    (evidence,) = read_all_evidence([{"reply": "Hi"}], mapping={"text": "$.reply"}, complete=["tool_calls"])
    assert evidence.account is not None
    assert evidence.account.notes == ("tool calls complete: declared in the call of read_evidence",)


def test_ignored_fields_are_listed_and_stored() -> None:
    (evidence,) = read_all_evidence([{"reply": "Hi", "billing": {"plan": "pro"}, "id": 7}], mapping={"text": "$.reply"})
    assert evidence.account is not None
    assert evidence.account.ignored == ("billing",)
    assert evidence.metadata == {"billing": {"plan": "pro"}, "id": 7}


@pytest.mark.parametrize(
    "mapping", [{"txt": "$.a"}, {"text": "$.a["}, {"text": 3}, {"tool_calls": {"name": "$.a"}}, {"text": "a"}], ids=str
)
def test_a_mapping_that_cannot_be_used_is_an_input_error(mapping: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        read_all_evidence([{}], mapping=mapping)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(['{"a": [1]}', "[", "user", "bot"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcde"), inner, max_size=4),
    max_leaves=12,
)
_PATHS = st.sampled_from(["$", "$.a", "$.b.c", "$[*]", "$.a[*]", "$..a", "$.a[0].b", "$[?@.a == 'b']", "$.a[?@.b]", "$[-1].a"])
_CALLS = st.fixed_dictionaries(
    {"each": _PATHS}, optional={"name": _PATHS, "arguments": _PATHS, "result": _PATHS, "error": _PATHS, "id": _PATHS}
)
_TURNS = st.fixed_dictionaries({"each": _PATHS}, optional={"role": _PATHS, "input": _PATHS, "text": _PATHS, "tool_calls": _CALLS})
_SCALARS = ("input", "text", "body", "duration_ms", "http_status", "error", "case", "model", "context", "group")
_MAPS = st.fixed_dictionaries({}, optional={**dict.fromkeys(_SCALARS, _PATHS), "tool_calls": _CALLS | _PATHS, "turns": _TURNS})


@given(_VALUES, _MAPS)
def test_no_record_and_no_mapping_raise_anything_else(record: Any, mapping: dict[str, Any]) -> None:
    try:
        found = read_all_evidence([record], mapping=mapping)
    except (EvidenceError, InputError):
        return
    for evidence in found:
        find_known(evidence)
        msgspec.json.encode(evidence)


PROPOSED = tables.load("evidence/cases/proposals.yaml")


@pytest.mark.parametrize("row", PROPOSED, ids=lambda row: row["id"])
def test_a_mapping_is_proposed_that_reads_the_sample(row: dict[str, Any]) -> None:
    proposed = propose_map(row["given"], read_document)
    assert (None if proposed is None else msgspec.json.decode(msgspec.json.encode(proposed))) == row["map"]
    if proposed is None:
        return
    written = write_map(proposed, row["given"])
    assert [line.partition(": ")[2] for line in written.splitlines() if "# no tool_calls" in line] == ([row["why"]] if "why" in row else [])
    suite = read_suite(f"proctor: 1\n{written}cases: []\n")
    assert suite.evidence is not None
    assert suite.evidence.map == proposed
    assert [evidence.text for evidence in read_document(row["given"], mapping=proposed)] == row["texts"]


def test_a_proposal_shows_a_sample_of_each_path() -> None:
    records = [{"question": "Hi there", "reply": "Hello", "actions": [{"tool": "a", "params": {"x": 1}}]}]
    proposed = propose_map(records)
    assert proposed is not None
    assert write_map(proposed, records).splitlines() == [
        "evidence:",
        "  map:",
        '    input: $.question  # "Hi there"',
        '    text: $.reply  # "Hello"',
        "    tool_calls:",
        '      each: "$.actions[*]"',
        '      name: $.tool  # "a"',
        '      arguments: $.params  # {"x":1}',
    ]


@given(st.lists(_VALUES, max_size=5))
def test_a_proposal_is_always_valid(records: list[Any]) -> None:
    proposed = propose_map(records)
    if proposed is not None:
        assert read_suite(f"proctor: 1\n{write_map(proposed, records)}cases: []\n").evidence is not None
        compile_mapping(msgspec.convert(json.loads(msgspec.json.encode(proposed)), EvidenceMap))
