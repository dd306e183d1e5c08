"""Datasets of pydantic-evals (`Dataset.to_file`, YAML or JSON) as suites.

A dataset has cases with `inputs`, `expected_output` and `evaluators`, and evaluators for all cases. An evaluator is a name, `{name:
first_argument}` or `{name: {argument: value}}`. Evaluators with a boolean result decide; those with only a score are advisory, because
pydantic-evals has no threshold for them. Custom evaluators are Python code; their assertions fail as `unsupported_assertion`.

Differences: calls that failed count (pydantic-evals leaves them out by default). `EqualsExpected` without an expected output makes no
claim, as there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from proctor.formats.native.drafting import Claim, build_assertion, build_unsupported, make_slug, make_unique
from proctor.formats.text.located import Located, Reading
from proctor.model.case import Assertion, Case, Suite
from proctor.model.evidence import Json

Arguments = Mapping[str, Json]

_PARAMETERS: dict[str, tuple[str, ...]] = {
    "Equals": ("value",),
    "EqualsExpected": (),
    "Contains": ("value", "case_sensitive", "as_strings"),
    "IsInstance": ("type_name",),
    "MaxDuration": ("seconds",),
    "LLMJudge": ("rubric", "model", "include_input", "include_expected_output", "model_settings", "score", "assertion"),
    "GEval": ("criteria", "evaluation_steps", "score_range", "include_input", "model", "model_settings"),
    "HasMatchingSpan": ("query",),
    "ToolCorrectness": ("expected_tools", "allow_extra", "include_failed"),
    "TrajectoryMatch": ("expected_trajectory", "order", "include_failed"),
    "ArgumentCorrectness": ("tool_name", "expected_arguments", "match_mode", "occurrence", "include_failed"),
    "MaxToolCalls": ("max_calls", "include_failed"),
    "MaxModelRequests": ("max_requests",),
}
"""The parameters of each evaluator, in order."""
_JSON_TYPES = {"dict": "object", "list": "array", "int": "integer", "float": "number", "bool": "boolean", "NoneType": "null"}


def sniff(document: Located) -> bool:
    """Return whether this is a dataset: a list of cases with `inputs`."""
    cases = document.get("cases")
    return cases is not None and cases.is_list and any(case.get("inputs") is not None for case in cases.items())


def read(document: Located, reading: Reading, *, name: str) -> Suite:
    """Return the dataset as a suite; problems go to the reading."""
    reading.check_keys(document, ("$schema", "name", "cases", "evaluators", "report_evaluators"), "a dataset of pydantic-evals")
    title = document.get("name")
    shared = reading.list_items(document.get("evaluators"), "'evaluators'")
    for evaluator in reading.list_items(document.get("report_evaluators"), "'report_evaluators'"):
        reading.warn(evaluator, "evaluators of whole reports are not decided here; see `proctor compare` and gates", code="not_written")
    used: set[str] = set()
    cases = [
        _read_case(reading, node, number, used, shared)
        for number, node in enumerate(reading.list_items(document.get("cases"), "'cases'"), start=1)
        if reading.require_object(node, "a case") is not None
    ]
    suite_name = title.value if title is not None and isinstance(title.value, str) else name
    return Suite(name=suite_name, dialect="pydantic-evals", cases=tuple(cases))


def _read_case(reading: Reading, node: Located, number: int, used: set[str], shared: list[Located]) -> Case:
    reading.check_keys(node, ("name", "inputs", "metadata", "expected_output", "evaluators"), "a case of pydantic-evals")
    inputs = reading.require_member(node, "inputs", "a case")
    name_node, expected, metadata = node.get("name"), node.get("expected_output"), node.get("metadata")
    title = name_node.value if name_node is not None and isinstance(name_node.value, str) else ""
    assertions: list[Assertion] = []
    for evaluator in (*reading.list_items(node.get("evaluators"), "'evaluators'"), *shared):
        assertions += _read_evaluator(reading, evaluator, expected)
    tags: Json = metadata.plain() if metadata is not None else None
    return Case(
        id=make_unique(make_slug(title) if title else f"case-{number}", used),
        name=title,
        input=_write_text(inputs.plain()) if inputs is not None else None,
        tags=tags if isinstance(tags, dict) else {},
        assertions=tuple(assertions),
        origin=reading.origin(node),
    )


def _read_evaluator(reading: Reading, node: Located, expected: Located | None) -> list[Assertion]:
    """Return the assertions of one evaluator: several if `Contains` names several keys."""
    value: Json = node.plain()
    if isinstance(value, str):
        name, argument = value, dict[str, Json]()
    elif isinstance(value, dict) and len(value) == 1:
        name, argument = next(iter(value.items()))
    else:
        reading.error(node, f"an evaluator: expected a name or an object with one key, found {node.kind}", code="wrong_type")
        return []
    label = name if isinstance(value, str) else f"{name} · {_write_text(argument)}"[:200]
    parameters = _PARAMETERS.get(name)
    if parameters is None:
        built = build_unsupported(reading, node, label, f"{name!r} is an evaluator in Python code")
        return [built] if built is not None else []
    # An object has keywords; anything else is the first argument.
    arguments: Arguments = argument if isinstance(argument, dict) else {parameters[0] if parameters else "": argument}
    if not set(arguments) <= {*parameters, "evaluation_name"}:
        reading.error(node, f"{name}: expected the arguments {', '.join(parameters)}", code="wrong_value")
        return []
    if name == "EqualsExpected":
        if expected is None or expected.value is None:
            return []
        arguments = {"value": expected.plain()}
    reference = _write_text(expected.plain()) if arguments.get("include_expected_output") and expected is not None else None
    claims = _make_claims(name, arguments, reference)
    if isinstance(claims, str):
        built = [build_unsupported(reading, node, label, claims)]
    else:
        built = [build_assertion(reading, node, claim, label) for claim in claims]
    return [assertion for assertion in built if assertion is not None]


def _make_claims(name: str, arguments: Arguments, reference: str | None) -> list[Claim] | str:
    """Return the claims of an evaluator, or why it cannot be claimed."""
    value = arguments.get("value")
    match name:
        case "Equals" | "EqualsExpected" if isinstance(value, str):
            return [Claim("response_equals", {"text": value, "ignore_case": False})]
        case "Equals" | "EqualsExpected":
            return [Claim("json_path", {"path": "$", "equals": value})]
        case "Contains" if isinstance(value, str) or arguments.get("as_strings"):
            return [Claim("response_contains", {"text": _write_text(value), "ignore_case": arguments.get("case_sensitive") is False})]
        case "Contains" if isinstance(value, dict):
            return [Claim("json_path", {"path": f"$[{json.dumps(key)}]", "equals": expected}) for key, expected in value.items()]
        case "Contains":
            if isinstance(value, list):
                return "a list inside a list is not compared; use json_path"
            return [Claim("json_path", {"path": f"$[?@ == {json.dumps(value)}]"})]
        case "IsInstance":
            type_name = str(arguments.get("type_name"))
            if type_name != "str" and type_name not in _JSON_TYPES:
                return f"{type_name!r} is a class in Python code; use json_schema"
            # A recorded answer is text.
            return [] if type_name == "str" else [Claim("json_schema", {"schema": {"type": _JSON_TYPES[type_name]}})]
        case "MaxDuration":
            seconds = arguments.get("seconds")
            is_number = isinstance(seconds, int | float)
            return [Claim("responded_within", {"ms": seconds * 1000})] if is_number else "the duration is not in seconds"
        case "LLMJudge" | "GEval":
            steps = arguments.get("evaluation_steps")
            optional = {"show_prompt": bool(arguments.get("include_input")), "reference": reference, "steps": steps}
            fields = {
                "criteria": arguments.get("rubric") or arguments.get("criteria"),
                **{key: each for key, each in optional.items() if each},
            }
            # A score alone decides nothing in pydantic-evals.
            return [Claim("judged", fields, advisory=arguments.get("assertion") is False or "evaluation_steps" in arguments)]
        case "HasMatchingSpan":
            query = arguments.get("query")
            if isinstance(query, dict) and set(query) == {"name_equals"}:
                return [Claim("node_called", {"name": query["name_equals"]})]
            return "only spans with an exact name (`name_equals`) can be claimed; write it as `node_called` or `that`"
        case "ToolCorrectness":
            calls: Json = [{"name": tool} for tool in arguments.get("expected_tools") or ()]
            more: dict[str, Json] = {} if arguments.get("allow_extra") else {"max_extra": 0}
            return [Claim("tool_calls_match", {"calls": calls, "arguments": "ignore", **more})]
        case "TrajectoryMatch":
            names = arguments.get("expected_trajectory") or []
            order = arguments.get("order", "in_order")
            if order == "any_order":
                return [Claim("tool_calls_match", {"calls": [{"name": tool} for tool in names], "arguments": "ignore"}, advisory=True)]
            return [Claim("tools_exactly" if order == "exact" else "tools_in_order", {"names": names}, advisory=True)]
        case "ArgumentCorrectness":
            if arguments.get("occurrence", "first") != "first":
                return "only the first call or any call can be claimed; write it as `that`"
            match = "exact" if arguments.get("match_mode") == "exact" else "partial"
            fields = {"name": arguments.get("tool_name"), "arguments": arguments.get("expected_arguments"), "match": match}
            return [Claim("tool_called", {**fields, "values": "literal"})]
        case "MaxToolCalls":
            return [Claim("that", {"expression": f"len(tool_calls) <= {arguments.get('max_calls')}"})]
        case _:
            return "requests to the model are not counted in evidence; limit tokens or calls instead"


def _write_text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
