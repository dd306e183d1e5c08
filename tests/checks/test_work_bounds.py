"""Checks whose cost is a product of two inputs: each gets more than it may compare, and reports it within two seconds of CPU."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import yaml

from proctor.checks.registry import default_registry
from proctor.decide.prepare import PreparedSuite, decide_guarded
from proctor.errors import CheckFault, SpecError
from proctor.evidence.reading import read_document
from proctor.formats.suites import read_suite
from proctor.model.evidence import Evidence
from proctor.model.verdict import Verdict
from proctor.work import MOST_STEPS, begin_counting, end_counting, spend

CPU_S = 12.0
"""CPU seconds; two on a quiet machine."""
SLOW = "^(a+)+(b|c)$"


def names(count: int, mark: str = "n") -> list[str]:
    return [f"{mark}{number}" for number in range(count)]


def calls(count: int, arguments: Any = None, name: str = "search") -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments if arguments is not None else {"q": number}} for number in range(count)]}


def fields(count: int, path: str = "a") -> list[dict[str, Any]]:
    return [{"path": path, "expected": number} for number in range(count)]


def voice(*texts: str) -> dict[str, Any]:
    return {"state": {"voice": {"turns": [{"speaker": "agent", "text": text} for text in texts]}}}


def files(count: int, path: str = "out/{}.json") -> dict[str, Any]:
    return {"state": {"files": [{"path": path.format(number), "content": "{}"} for number in range(count)]}}


def hl7(segments: int, count: int = 1) -> dict[str, Any]:
    message = "MSH|^~\\&|A|B|C|D|2026||ADT^A01|1|P|2.5\r" + "\r".join(f"OBX|{number}" for number in range(segments))
    return {"state": {"hl7": {"outbound": [message] * count}}}


def x12(segments: int) -> dict[str, Any]:
    isa = "ISA*00*          *00*          *ZZ*A              *ZZ*B              *260101*0000*^*00501*000000001*0*P*:~"
    body = "".join(f"EB*{number}~" for number in range(segments))
    return {"state": {"x12": {"responses": [f"{isa}GS*HB*A*B*20260101*0000*1*X*005010~ST*271*1~{body}SE*1*1~GE*1*1~IEA*1*1~"]}}}


def patients(count: int, **more: Any) -> dict[str, Any]:
    resources = [{"resourceType": "Patient", "id": f"p{number}", "gender": "male", **more} for number in range(count)]
    return {"state": {"fhir": {"resources": resources}}}


def requests(count: int, path: str) -> dict[str, Any]:
    return {"state": {"requests": [{"system": "s", "method": "GET", "path": path.format(n), "status": 200} for n in range(count)]}}


def changes(count: int, place: str) -> dict[str, Any]:
    return {"state": {"changes": [{"system": "s", "change": "added", "place": place.format(n)} for n in range(count)]}}


ATTACKS: dict[str, tuple[str, Callable[[], dict[str, Any]], Callable[[], dict[str, Any]]]] = {
    "arguments by values of a list": (
        "that",
        lambda: {"expression": "tool_calls[*].arguments.q not in context.rows"},
        lambda: {**calls(20_000), "context": {"rows": [[number] for number in range(20_000)]}},
    ),
    "phrases by turns": (
        "voice_said",
        lambda: {"contains": [f"never said {number}" for number in range(5_000)], "match": "normalized"},
        lambda: voice(*["some words of a turn"] * 20_000),
    ),
    "phrases by text": (
        "voice_said",
        lambda: {"contains": [f"never said {number}" for number in range(5_000)], "match": "exact"},
        lambda: voice("a word " * 200_000),
    ),
    "a phrase of digits in one long number": (
        "voice_said",
        lambda: {"contains": ["1 " * 900 + str(number) for number in range(50)] + ["11"], "match": "normalized"},
        lambda: voice("1" * 400_000),
    ),
    "many digits found inside a number": (
        "voice_said",
        lambda: {"contains": ["1" * 999 + "1" for _ in range(100)], "match": "normalized"},
        lambda: voice("x1" + "1" * 300_000),
    ),
    "a pattern of a path by files": (
        "file_present",
        lambda: {"path": "**/a*b*c*d*e*f*g*h*i*j*k*l*m*n*z"},
        lambda: files(20_000, "abcdefghijklmn/abcdefghijklmn/abcdefghijklmn{}/abcdefghijklmn"),
    ),
    "a pattern of a path by requests": (
        "request_made",
        lambda: {"path": "**/a*b*c*d*e*f*g*h*i*j*k*l*m*n*z"},
        lambda: requests(20_000, "abcdefghijklmn/abcdefghijklmn/abcdefghijklmn{}/abcdefghijklmn"),
    ),
    "patterns of places by changes": (
        "unchanged",
        lambda: {"besides": [f"**/a*b*c*d*e*f*g*h*{number}z" for number in range(100)]},
        lambda: changes(20_000, "abcdefghijklmn/abcdefghijklmn/abcdefghijklmn{}/abcdefghijklmn"),
    ),
    "fields by files": ("file_present", lambda: {"path": "out/*.json", "fields": fields(500)}, lambda: files(5_000)),
    "fields by segments of HL7": (
        "hl7_message",
        lambda: {"fields": [{"path": f"OBX[{number}].9", "expected": "x"} for number in range(9_000, 10_000)]},
        lambda: hl7(20_000),
    ),
    "correlations by messages of HL7": (
        "hl7_message",
        lambda: {"correlate_by": {**{f"ZZA[{number}].1": None for number in range(1, 2_000)}, "PID.9": "x"}},
        lambda: hl7(300, 500),
    ),
    "fields by one long field of HL7": (
        "hl7_message",
        lambda: {"fields": [{"path": f"PID.3[{number}]", "expected": "x"} for number in range(1, 2_000)]},
        lambda: {"state": {"hl7": {"outbound": ["MSH|^~\\&|A\rPID|1||" + "a~" * 500_000]}}},
    ),
    "fields by segments of X12": (
        "x12_response",
        lambda: {"fields": [{"path": f"EB[{number}].9", "expected": "x"} for number in range(9_000, 10_000)]},
        lambda: x12(20_000),
    ),
    "phrases by faxes": (
        "fax_document",
        lambda: {"contains": names(2_000)},
        lambda: {"state": {"fax": {"documents": [{"text": "some words " * 200}] * 2_000}}},
    ),
    "fields by messages": (
        "message_sent",
        lambda: {"fields": fields(2_000)},
        lambda: {"state": {"messages": {"messages": [{"text": "x"}] * 20_000}}},
    ),
    "fields by cards": (
        "cds_card",
        lambda: {"fields": fields(2_000)},
        lambda: {"state": {"cds": {"cards": [{"summary": "x"}] * 20_000}}},
    ),
    "columns by records": (
        "records_match",
        lambda: {"collection": "o", "where": {"a": {"$contains": "x"}, **dict.fromkeys(names(2_000), "x")}},
        lambda: {"state": {"records": {"o": [{**dict.fromkeys(names(50), "x"), "a": "x"}] * 20_000}}},
    ),
    "fields by FHIR resources": (
        "fhir_resource",
        lambda: {"resource_type": "Patient", "match": "all", "fields": fields(2_000, "gender")},
        lambda: patients(1_000),
    ),
    "FHIRPath by FHIR resources": (
        "fhir_resource",
        lambda: {"resource_type": "Patient", "match": "any", "fields": [{"fhirpath": "name.given.select($this + 'x').count() > 100000"}]},
        lambda: patients(1_000, name=[{"given": names(200)}]),
    ),
    "values of a FHIR search by codings": (
        "fhir_resource",
        lambda: {"resource_type": "Observation", "search": {"code": ",".join(names(5_000))}},
        lambda: {
            "state": {
                "fhir": {
                    "resources": [
                        {"resourceType": "Observation", "code": {"coding": [{"code": code} for code in names(5_000, "x")]}}
                        for _ in range(3)
                    ]
                }
            }
        },
    ),
    "expected by actual calls": (
        "tool_calls_match",
        lambda: {"calls": [{"name": "search", "arguments": {"q": -number}} for number in range(1, 3_000)]},
        lambda: calls(3_000),
    ),
    "expected by actual calls with large arguments": (
        "tool_calls_match",
        lambda: {"calls": [{"name": "search", "arguments": {"q": names(500), "x": number}} for number in range(300)]},
        lambda: calls(300, {"q": names(500), "x": -1}),
    ),
    "a path by calls": (
        "tool_input_path",
        lambda: {"tool": "search", "path": "$..*..*", "equals": "nowhere"},
        lambda: calls(1_000, {"a": [{"b": [1, 2, 3]} for _ in range(100)]}),
    ),
    "a slow pattern by calls": (
        "tool_input_matches",
        lambda: {"tool": "search", "pattern": SLOW},
        lambda: calls(10_000, "a" * 40),
    ),
    "a pattern that is given up by calls": (
        "tool_input_matches",
        lambda: {"tool": "search", "pattern": "(a+)+(b|c)"},
        lambda: calls(10_000, "a" * 40),
    ),
    "matchers of a list by calls": (
        "tool_called",
        lambda: {"name": "search", "arguments": {"q": [{"$contains": name} for name in names(100)]}},
        lambda: calls(1_000, {"q": names(100, "x")}),
    ),
    "variants by elements": (
        "json_field",
        lambda: {"field": "items", "value": {"$one_of": [[name] for name in names(10_000)]}},
        lambda: {"body": {"items": names(10_000, "x")}},
    ),
    "matchers by a long text": (
        "json_field",
        lambda: {"field": "text", "value": {"matcher": "not", "value": {"$one_of": [{"$contains": name} for name in names(5_000)]}}},
        lambda: {"body": {"text": "lorem " * 100_000}},
    ),
    "an enumeration by elements": (
        "json_field",
        lambda: {"field": "items", "value": {"$one_of": [{"enum": [[name] for name in names(10_000)]}]}},
        lambda: {"body": {"items": names(10_000, "x")}},
    ),
    "claims about tools by nodes": (
        "node_called",
        lambda: {"name": "agent", "tool_calls": [{"name": name, "condition": "not_called"} for name in names(2_000)]},
        lambda: {"nodes": [{"name": "agent", "tool_calls": [{"name": "t", "arguments": {}}] * 50} for _ in range(100)]},
    ),
    "a slow filter by elements": (
        "json_path",
        lambda: {"path": "$.items[?search(@, '(a|aa)+b')]", "equals": "nowhere"},
        lambda: {"body": {"items": ["a" * 12] * 20_000}},
    ),
    "characters by characters": (
        "similar_to",
        lambda: {"text": ["ab" * 25_000], "at_least": 0.5},
        lambda: {"text": "ba c" * 12_500},
    ),
    "words by words": (
        "similar_to",
        lambda: {"text": ["a b c " * 12_000], "at_least": 0.5, "measure": "rouge_l"},
        lambda: {"text": "c b a d " * 12_000},
    ),
    "texts by an answer": (
        "similar_to",
        lambda: {"text": names(5_000), "at_least": 1},
        lambda: {"text": "some answer " * 1_000},
    ),
}
"""Name, spec, evidence."""

QUICK: dict[str, tuple[str, Callable[[], dict[str, Any]], Callable[[], dict[str, Any]], str]] = {
    "tools that were never called": ("tools_called", lambda: {"names": names(50_000)}, lambda: calls(20_000), "fail"),
    "tools with the name of their server": (
        "tools_in_order",
        lambda: {"names": [f"s:{name}" for name in names(5_000)], "server_prefix": True},
        lambda: calls(20_000),
        "fail",
    ),
    "lists of tools with the name of their server": (
        "tools_exactly",
        lambda: {"any_of": [[f"s:{name}"] for name in names(20_000)], "server_prefix": True},
        lambda: calls(20_000),
        "fail",
    ),
    "forbidden arguments by calls": (
        "tool_called",
        lambda: {"name": "search", "forbidden_arguments": names(50_000)},
        lambda: calls(20_000),
        "pass",
    ),
    "forbidden arguments by nodes": (
        "node_called",
        lambda: {"name": "agent", "forbidden_arguments": names(50_000)},
        lambda: {"nodes": [{"name": "agent", "output": {"a": 1}}] * 5_000},
        "pass",
    ),
    "forbidden arguments by tools of nodes": (
        "node_called",
        lambda: {"name": "agent", "tool_calls": [{"name": "c", "forbidden_arguments": names(50_000)}]},
        lambda: {"nodes": [{"name": "agent", "tool_calls": [{"name": "c", "arguments": {"a": 1}}]}] * 5_000},
        "pass",
    ),
    "words by calls": (
        "tool_argument",
        lambda: {"tool": "search", "argument": "q", "value": {"$one_of": names(50_000)}},
        lambda: calls(5_000),
        "fail",
    ),
    "numbers that share a place in a table": (
        "json_field",
        lambda: {"field": "items", "value": [number * ((1 << 61) - 1) for number in range(20_000)]},
        lambda: {"body": {"items": [number * ((1 << 61) - 1) for number in range(19_999, -1, -1)]}},
        "pass",
    ),
    "a file that is nearly there": ("file_present", lambda: {"path": "out/nearly-there.json"}, lambda: files(50_000), "fail"),
    "an ordinary transcript": (
        "voice_said",
        lambda: {"contains": ["date of birth", "member id"], "not_contains": names(50)},
        lambda: voice(*["could I have your date of birth and your member ID"] * 1_000),
        "pass",
    ),
    "an ordinary folder": (
        "file_present",
        lambda: {"path": "out/**/*.json", "fields": fields(3)},
        lambda: files(2_000),
        "fail",
    ),
    "ordinary calls": (
        "tool_calls_match",
        lambda: {"calls": [{"name": "search", "arguments": {"q": number}} for number in range(300)]},
        lambda: calls(300),
        "pass",
    ),
    "two long texts": (
        "similar_to",
        lambda: {"text": ["abc " * 5_000], "at_least": 0.5},
        lambda: {"text": "abd " * 5_000},
        "pass",
    ),
    "a very long text that is equal": (
        "similar_to",
        lambda: {"text": ["abc " * 250_000], "at_least": 1},
        lambda: {"text": "abc " * 250_000},
        "pass",
    ),
    "a long answer full of what looks like accounts": ("no_pii", dict, lambda: {"text": "DE89 3704 " * 50_000}, "pass"),
}
"""What could be much work and is not, and how it ends."""


def decided(check: str, spec: dict[str, Any], evidence: Evidence) -> tuple[Verdict, float]:
    registry = default_registry()
    prepared = registry.prepare(check, msgspec.convert(spec, registry.get(check).spec))
    began = time.process_time()
    verdict = decide_guarded(prepared, evidence).with_words()
    return verdict, time.process_time() - began


@pytest.mark.in_turn
@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.timeout(60)
def test_a_product_of_two_inputs_is_bounded(name: str) -> None:
    check, spec, evidence = ATTACKS[name]
    verdict, took = decided(check, spec(), read_document(evidence(), format="plain")[0])
    assert (verdict.outcome, verdict.code) == ("error", "too_much_work"), verdict.reason
    assert re.search(r"\d{6,}", verdict.reason), "the reason has the figure"
    assert took < CPU_S


@pytest.mark.in_turn
@pytest.mark.parametrize("name", QUICK)
@pytest.mark.timeout(60)
def test_work_that_only_looks_large_is_decided(name: str) -> None:
    check, spec, evidence, outcome = QUICK[name]
    verdict, took = decided(check, spec(), read_document(evidence(), format="plain")[0])
    assert verdict.outcome == outcome, verdict.reason
    assert took < CPU_S


def list_fields() -> Iterator[tuple[str, str]]:
    """Yield every check with each field of its spec that takes any number of values."""
    for entry in default_registry():
        for field in msgspec.structs.fields(entry.spec):
            if re.match(r"(tuple|dict|list)\[", str(field.type).removeprefix("typing.")):
                yield entry.name, field.name


def fill_field(check: str, field: str) -> dict[str, Any]:
    """Return the check's own example with twenty thousand values in one of its fields."""
    entry = default_registry().get(check)
    written = yaml.safe_load(entry.example)[check]
    spec: dict[str, Any] = written if isinstance(written, dict) else {entry.shorthand: written}
    kind = str({one.name: one for one in msgspec.structs.fields(entry.spec)}[field].type)
    first = spec.get(field)
    if kind.startswith("dict"):
        spec[field] = dict.fromkeys(names(20_000), next(iter(first.values())) if isinstance(first, dict) and first else "x")
    else:
        spec[field] = [first[0]] * 20_000 if isinstance(first, list) and first and not isinstance(first[0], str) else names(20_000)
    return spec


@pytest.fixture(scope="module")
def much_evidence() -> Evidence:
    arguments = {"q": "shoes", "limit": 3, "order": "A17", "id": "A17"}
    tools = ("search", "refund", "lookup_order", "send_mail", "browse")
    run = [{"name": name, "arguments": arguments, "result": {"ok": True}} for name in tools] * 1_000
    document: dict[str, Any] = {
        "text": "The order has left the house. " * 2_000,
        "body": {"rows": [arguments] * 5_000},
        "tool_calls": run,
        "nodes": [{"name": name, "output": arguments, "tool_calls": run[:5]} for name in ("agent", "AI Agent", "search", "Search")] * 500,
        "state": {
            **voice(*["could I have your date of birth"] * 2_000)["state"],
            **files(2_000)["state"],
            **hl7(2_000)["state"],
            **x12(2_000)["state"],
            **patients(2_000)["state"],
        },
    }
    return read_document(document, format="plain")[0]


@pytest.mark.in_turn
@pytest.mark.parametrize(("check", "field"), list(list_fields()))
def test_a_long_list_in_any_field_of_any_check_is_bounded(check: str, field: str, much_evidence: Evidence) -> None:
    try:
        verdict, took = decided(check, fill_field(check, field), much_evidence)
    except (msgspec.ValidationError, SpecError):
        return  # a list of that length, or of such values, is refused when the suite is read
    assert took < CPU_S, f"{verdict.outcome} {verdict.code} after {took:.1f} s"


def test_every_check_that_multiplies_is_attacked() -> None:
    marked = {entry.name for entry in default_registry() if entry.product is not False}
    attacked = {check for check, _, _ in ATTACKS.values()}
    same_code = {
        "tool_not_called": "tool_called",
        "tool_argument": "tool_called",
        "portal_record": "json_field",
        "request_not_made": "request_made",
    }
    assert marked <= attacked | {name for name, twin in same_code.items() if twin in attacked}


def test_steps_are_counted_by_assertion_and_only_inside_of_one() -> None:
    spend(10 * MOST_STEPS)
    for _ in range(3):
        token = begin_counting()
        spend(MOST_STEPS)
        with pytest.raises(CheckFault, match=str(MOST_STEPS)):
            spend(1)
        end_counting(token)
    spend(10 * MOST_STEPS)


@pytest.mark.timeout(60)
def test_too_much_work_of_one_assertion_is_no_error_of_the_others() -> None:
    check, spec, evidence = ATTACKS["expected by actual calls"]
    text = msgspec.json.encode(
        {"proctor": 1, "cases": [{"id": "a", "expect": [{check: spec()}, {"tool_called": "search"}, {check: {"calls": []}}]}]}
    ).decode()
    suite = PreparedSuite(read_suite(text))
    result = suite.decides[0](read_document(evidence(), format="plain")[0], None, 0, None)
    assert [(verdict.outcome, verdict.code) for verdict in result.verdicts] == [("error", "too_much_work"), ("pass", None), ("pass", None)]
