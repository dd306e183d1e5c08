"""Negative claims that all fail on an evidence: every negative check, in every spelling of suites."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from proctor.checks.registry import Decide, default_registry
from proctor.checks.shared.calls import list_recorded_calls
from proctor.errors import CheckFault
from proctor.formats.suites import read_suite
from proctor.model.evidence import Evidence, ToolCall

Claims = dict[str, Decide]
_MOST = 3


def claims_against(evidence: Evidence) -> Claims:
    """Prepared checks by their claim; each fails on this evidence or is undecidable."""
    registry = default_registry()
    found: Claims = {}
    for check, spec in _specs(evidence):
        entry = registry.get(check)
        found[f"{check} {json.dumps(spec)}"] = registry.prepare(check, msgspec.convert(spec, entry.spec))
    for dialect, text in _suites(evidence):
        suite = read_suite(text, file=f"suite.{'yaml' if dialect == 'mcplab' else 'json'}", dialect=dialect)
        for number, assertion in enumerate(entry for case in suite.cases for entry in case.assertions):
            found[f"{dialect} {number} {assertion.check}"] = registry.prepare(assertion.check, assertion.spec)
    return {name: decide for name, decide in found.items() if outcome_of(decide, evidence) in ("fail", "error")}


def outcome_of(decide: Decide, evidence: Evidence) -> str:
    """The outcome of a check; an undecidable one is an `error`, as in a run."""
    try:
        return decide(evidence).outcome
    except CheckFault:
        return "error"


def _specs(evidence: Evidence) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from _about_tools(evidence)
    yield from _about_nodes(evidence)
    yield from _about_the_answer(evidence)
    yield from _about_state(evidence)
    if evidence.turns:
        yield "turns_within", {"turns": len(evidence.turns) - 1}
    for render in evidence.renders or ():
        yield "widget_no_console_errors", {"tool": render.tool}
    usage = evidence.usage
    if usage is not None and usage.total():
        for kind, count in (("total", usage.total()), ("input", usage.input_tokens), ("output", usage.output_tokens)):
            if count:
                yield "tokens_within", {kind: count - 1}


def _about_tools(evidence: Evidence) -> Iterator[tuple[str, dict[str, Any]]]:
    calls = list_recorded_calls(evidence)
    yield "no_tools_called", {}
    yield "tool_calls_match", {"negative": True}
    yield "no_tool_errors", {}
    if not calls:
        yield "tool_not_called", {"name": "refund"}
        return
    yield "tools_exactly", {"names": [call.name for call in calls[1:]]}
    for name, arguments in _distinct(calls):
        yield "tool_not_called", {"name": name}
        yield "tool_call_count", {"name": name, "count": sum(call.goes_by(name) for call in calls) - 1}
        yield "node_called", {"name": name, "condition": "not_called"}
        if isinstance(arguments, dict) and arguments:
            yield "tool_not_called", {"name": name, "arguments": arguments, "values": "literal"}
            yield "tool_called", {"name": name, "at_least": 0, "forbidden_arguments": list(arguments)[:1]}


def _distinct(calls: tuple[ToolCall, ...]) -> list[tuple[str, Any]]:
    names = {name: call.arguments for call in calls for name in (call.name, *call.aliases)}
    return list(names.items())[:_MOST]


def _about_nodes(evidence: Evidence) -> Iterator[tuple[str, dict[str, Any]]]:
    for node in list({node.name: node for node in evidence.nodes or ()}.values())[:_MOST]:
        yield "node_called", {"name": node.name, "condition": "not_called"}
        if node.tool_calls:
            yield "node_called", {"name": node.name, "tool_calls": [{"name": node.tool_calls[0].name, "condition": "not_called"}]}
        if isinstance(node.output, dict) and node.output:
            yield "node_called", {"name": node.name, "forbidden_arguments": list(node.output)[:1]}


def _about_the_answer(evidence: Evidence) -> Iterator[tuple[str, dict[str, Any]]]:
    word = _longest_word(evidence)
    if word is not None:
        yield "response_not_contains", {"text": word}
        yield "response_matches", {"pattern": re.escape(word), "should_match": False}
    if isinstance(evidence.body, dict):
        for key, value in list(evidence.body.items())[:_MOST]:
            yield "json_path", {"path": f"$[{json.dumps(key)}]", "exists": False}
            if key.isidentifier():
                yield "json_field", {"field": key, "condition": "not_exists"}
                if isinstance(value, (str, int)):
                    yield "json_field", {"field": key, "condition": "not_equals", "value": value}


def _longest_word(evidence: Evidence) -> str | None:
    words = re.findall(r"[A-Za-z]{3,}", evidence.text or "")
    return max(words, key=len, default=None)


def _about_state(evidence: Evidence) -> Iterator[tuple[str, dict[str, Any]]]:
    state = evidence.state
    if state is None:
        return
    for resource in (state.fhir.resources if state.fhir is not None else ())[:_MOST]:
        yield "fhir_resource", {"resource_type": resource.get("resourceType", "Patient"), "absent": True}
    yield "hl7_message", {"absent": True}
    yield "x12_response", {"absent": True}
    for file in (state.files or ())[:_MOST]:
        yield "file_present", {"path": file.path, "absent": True}
    for table in list(state.portal or ())[:_MOST]:
        yield "portal_record", {"resource": table, "absent": True}
    yield "fax_document", {"direction": "any", "absent": True}
    yield "message_sent", {"direction": "any", "absent": True}
    yield "cds_card", {"absent": True}
    for table in list(state.records or ())[:_MOST]:
        yield "records_match", {"collection": table, "absent": True}
    for turn in (state.voice.turns if state.voice is not None else ())[:_MOST]:
        if turn.text.strip():
            yield "voice_said", {"not_contains": [turn.text], "match": "normalized"}
            yield "voice_said", {"not_contains": [turn.text], "match": "normalized", "speaker": turn.speaker}


def _suites(evidence: Evidence) -> Iterator[tuple[str, str]]:
    calls, word = list_recorded_calls(evidence) or (), _longest_word(evidence)
    tool = calls[0].name if calls else "refund"
    total = evidence.usage.total() if evidence.usage is not None else None
    rules: dict[str, Any] = {"tool_constraints": {"forbidden_tools": [tool]}}
    if word is not None:
        rules["response_assertions"] = [{"type": "not_contains", "value": word}]
    if isinstance(evidence.body, dict) and evidence.body:
        path = f"$[{json.dumps(next(iter(evidence.body)))}]"
        rules.setdefault("response_assertions", []).append({"type": "jsonpath_not_exists", "path": path})
    yield "mcplab", yaml.safe_dump({"id": "only", "prompt": "hi", "eval": rules})
    procedural: list[dict[str, Any]] = [{"target": "node_call", "condition": "MUST_NOT_CALL", "expected_name": tool}]
    procedural += [
        {"target": "node_call", "condition": "MUST_NOT_CALL", "expected_name": node.name} for node in (evidence.nodes or ())[:_MOST]
    ]
    if word is not None:
        procedural.append({"target": "response_regex", "pattern": word, "should_match": False})
    if total:
        procedural.append({"target": "token_limit", "max_total_tokens": total - 1})
    yield "mibo", json.dumps({"input_utterance": "hi", "assertions": {"procedural": procedural}})
    predicates: list[dict[str, Any]] = [{"type": "toolNeverCalled", "toolName": tool}, {"type": "noToolErrors"}]
    if total and total > 1:
        predicates.append({"type": "tokenBudgetUnder", "tokens": total})
    if evidence.turns:
        predicates.append({"type": "turnCountUnder", "turns": len(evidence.turns)})
    yield "mcpjam", json.dumps([{"id": "c", "prompt": "p", "isNegativeTest": True, "predicates": predicates}])
    if evidence.state is not None:
        yield "verial", json.dumps(list(_criteria(evidence)))


def _criteria(evidence: Evidence) -> Iterator[dict[str, Any]]:
    for check, spec in _about_state(evidence):
        kinds = {
            "fhir_resource": "fhir-resource-state",
            "hl7_message": "hl7-structural",
            "x12_response": "x12-response",
            "portal_record": "portal-state-match",
            "file_present": "sftp-file-present",
            "voice_said": "voice-transcript",
            "fax_document": "fax-document",
            "message_sent": "message-sent",
            "cds_card": "cds-card",
            "records_match": "records-match",
        }
        written = {key: value for key, value in spec.items() if key != "match"}
        if check == "portal_record":
            written["correlate_by"] = {"resource": written.pop("resource")}
        yield {"label": check, "assertion": {"assert": kinds[check], **written}}
