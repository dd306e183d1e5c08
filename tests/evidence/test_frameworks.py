"""Traces of real agent frameworks, compared with what happened in them.

The one forbidden result is a denied tool: `no_tools_called` passes on a run that called some. Every other fact that is read
differently is listed in `frameworks/differences.yaml` with its reason. An unlisted difference fails, and so does a listed one that is
read correctly.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import yaml

from proctor.checks.registry import default_registry
from proctor.errors import EvidenceError
from proctor.evidence.traces.read_otlp import read
from proctor.model.evidence import Evidence
from tests.evidence.framework_facts import FOLDER, differing, evidence_of, runs_of, truths

TRUTHS = truths()
DIFFERENCES: dict[str, dict[str, str]] = yaml.load((FOLDER / "differences.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
NOTHING = default_registry().prepare("no_tools_called", default_registry().get("no_tools_called").spec())


@pytest.mark.parametrize("name", sorted(TRUTHS))
def test_a_recording_of_a_framework_is_read_as_it_happened(name: str) -> None:
    found = evidence_of(name)
    wrong: dict[str, str] = {}
    for trace, truth in runs_of(TRUTHS[name]):
        evidence = found[trace]
        if truth.get("calls") or (truth.get("hidden") and truth["scenario"] != "plain"):
            assert evidence.no_run is not None or NOTHING(evidence).outcome != "pass", f"{truth['scenario']}: a tool is denied"
        for other in truth["others"]:
            assert found[other].no_run is not None, f"{other} is no run of an agent"
        for kind, wanted, read_as in differing(truth, evidence):
            wrong.setdefault(kind, f"{truth['scenario']}: expected {wanted!r}, found {read_as!r}"[:300])
    listed = DIFFERENCES.get(name, {})
    assert not {kind: label for kind, label in wrong.items() if kind not in listed}
    assert not [kind for kind in listed if kind not in wrong], "listed as different, and read right"


def test_every_listed_difference_is_of_a_recording_and_has_a_reason() -> None:
    assert set(DIFFERENCES) <= set(TRUTHS)
    assert all(reason for kinds in DIFFERENCES.values() for reason in kinds.values())


# --- unrecognised values ---------------------------------------------------------------------------------------------------------------

PAYLOADS = ("arguments", "args", "tool_kwargs", "response", "result", "raw_output", "kwargs", "input", "output")
"""Names of tool data: a change inside them makes another call, not an unrecognised one."""
IDENTITIES = ("traceId", "spanId", "parentSpanId")
WORDS = ("type", "role", "kind", "status", "key", "eventName", "finish_reason")
PER_RECORDING = 12


@pytest.mark.in_turn
@pytest.mark.parametrize("name", sorted(TRUTHS))
def test_nothing_that_is_not_understood_turns_a_failing_check_green(name: str) -> None:
    chance = random.Random(name)  # the same changes at every run
    trace = chance.choice([trace for trace, truth in TRUTHS[name]["traces"].items() if truth["scenario"] in ("error", "sequential")])
    document = _only(json.loads((FOLDER / f"{name}.json").read_bytes()), trace)
    original = read(document)[0]
    checks = {label: check for label, check in _checks(original).items() if check(original).outcome != "pass"}
    places = [place for place in _places(document, ()) if not _is_payload(document, place)]
    for place in chance.sample(places, min(PER_RECORDING, len(places))):
        changed = json.loads(json.dumps(document))
        how = _change(changed, place, chance)
        try:
            evidences = [evidence for evidence in read(changed) if evidence.metadata.get("trace_id") == trace]
        except EvidenceError:
            continue
        for evidence in evidences:
            green = [label for label, check in checks.items() if evidence.no_run is None and check(evidence).outcome == "pass"]
            assert not green, f"{how} at {place}: {green} passed"


def _only(requests: list[dict[str, Any]], trace: str) -> dict[str, Any]:
    """One trace out of a recording, as one request."""
    document: dict[str, Any] = {"resourceSpans": []}
    for key, scopes, records in (("resourceSpans", "scopeSpans", "spans"), ("resourceLogs", "scopeLogs", "logRecords")):
        for group in (group for request in requests for group in request.get(key, [])):
            selected = [{**scope, records: [r for r in scope[records] if r.get("traceId") == trace]} for scope in group[scopes]]
            selected = [scope for scope in selected if scope[records]]
            if selected:
                document.setdefault(key, []).append({"resource": {}, scopes: selected})
    return document


def _checks(evidence: Evidence) -> dict[str, Any]:
    specs: dict[str, tuple[str, dict[str, Any]]] = {
        "no tools": ("no_tools_called", {}),
        "exactly none": ("tools_exactly", {}),
        "no errors": ("no_tool_errors", {}),
    }
    for call in evidence.tool_calls or ():
        specs[f"no {call.name}"] = ("tool_not_called", {"name": call.name})
        specs[f"{call.name} 0 times"] = ("tool_call_count", {"name": call.name, "count": 0})
    if evidence.text:
        specs["not the answer"] = ("response_not_contains", {"text": evidence.text[:20]})
    registry = default_registry()
    return {label: registry.prepare(name, registry.get(name).spec(**fields)) for label, (name, fields) in specs.items()}


def _places(value: Any, at: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Every place of a document, also inside JSON that is written as text (`...`)."""
    members: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        members = list(value.items())
    elif isinstance(value, list):
        members = list(enumerate(value))
    elif isinstance(value, str) and value[:1] in ("{", "["):
        try:
            inner = json.loads(value)
        except ValueError:
            return []
        return _places(inner, (*at, ...)) if isinstance(inner, (dict, list)) else []
    return [found for key, member in members for found in ((*at, key), *_places(member, (*at, key)))]


def _get(value: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        value = json.loads(value) if key is ... else value[key]
    return value


def _is_payload(document: Any, place: tuple[Any, ...]) -> bool:
    if place[-1] in IDENTITIES:
        return True
    if "kvlistValue" in place:
        return True  # Structured values: data and structure cannot be distinguished from outside.
    if ... not in place:
        return False
    start = place.index(...)
    inner = [key for key in place[start + 1 : -1] if isinstance(key, str)]
    attribute = _get(document, place[: start - 2]) if start > 2 else {}
    named = str(attribute.get("key", "")) if isinstance(attribute, dict) else ""
    whole = not any(word in named for word in ("messages", "events", "toolCalls", "tool_calls", "all_messages"))
    return whole or place[-1] in PAYLOADS or any(key in PAYLOADS or key == "content" for key in inner)


def _change(document: Any, place: tuple[Any, ...], chance: random.Random) -> str:
    how = chance.choice(("rename", "wrap", "list", "retype", "word"))
    if how == "word" and place[-1] not in WORDS:
        how = "wrap"
    if ... in place:
        start = place.index(...)
        inner = json.loads(_get(document, place[:start]))
        _apply(inner, place[start + 1 :], how)
        _get(document, place[: start - 1])[place[start - 1]] = json.dumps(inner)
    else:
        _apply(document, place, how)
    return how


def _apply(document: Any, place: tuple[Any, ...], how: str) -> None:
    if ... in place:
        _change_inside = place.index(...)
        inner = json.loads(_get(document, place[:_change_inside]))
        _apply(inner, place[_change_inside + 1 :], how)
        _get(document, place[: _change_inside - 1])[place[_change_inside - 1]] = json.dumps(inner)
        return
    holder, key = _get(document, place[:-1]), place[-1]
    value = holder[key]
    if how == "rename" and isinstance(holder, dict):
        holder[f"zz_{key}"] = holder.pop(key)
    elif how == "list":
        holder[key] = [value]
    elif how == "retype":
        holder[key] = 7 if isinstance(value, str) else "zz" if isinstance(value, (dict, list)) else [str(value)]
    elif how == "word" and isinstance(value, str):
        holder[key] = f"zz_{value}"
    else:
        holder[key] = {"zz_unknown": value}
