"""Our validators and pairing against the observed results of @mcpjam/sdk 6.4.0, row by row."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from proctor import validators
from proctor.errors import InputError
from proctor.model.evidence import ToolCall
from proctor.validators import (
    evaluate_tool_calls,
    match_tool_argument,
    match_tool_argument_with,
    match_tool_argument_with_async,
    match_tool_call_with_args,
    match_tool_call_with_partial_args,
)
from tests.formats.mcpjam_documents import decide, read_document
from tests.tables import load, rows


class Boom(Exception):
    """Raised by a predicate."""


def _raise(value: Any) -> bool:
    raise Boom


async def _async_false(value: Any) -> bool:
    return False


PREDICATES: dict[str, Any] = {
    "always": lambda value: True,
    "gives-text": lambda value: "x",
    "gives-empty-text": lambda value: "",
    "raises": _raise,
    "async-false": _async_false,
    "is-text": lambda value: isinstance(value, str),
    "includes-hello": lambda value: "hello" in str(value),
    "below-hundred": lambda value: isinstance(value, int) and 0 < value < 100,
    "is-email": lambda value: re.search(r"^[^\s@]+@[^\s@]+\.[^\s@]+$", str(value)),
}


def answer(function: Any, *arguments: Any, **options: Any) -> Any:
    """The result of a validator, or the name of the error it raises."""
    try:
        return function(*arguments, **options)
    except (TypeError, ValueError) as error:
        return type(error).__name__
    except Boom:
        return "raises"


def twin(name: str) -> Any:
    return getattr(validators, name.replace("match_", "explain_", 1))


@rows("conformance/mcpjam/names.yaml")
def test_name_validators_agree_with_the_original(row: dict[str, Any]) -> None:
    name = row["given"]["validator"]
    assert answer(getattr(validators, name), *row["given"]["with"]) == row["expect"]
    if isinstance(row["expect"], bool):
        verdict = twin(name)(*row["given"]["with"])
        assert verdict.passed is row["expect"] and verdict.reason


@rows("conformance/mcpjam/arguments.yaml")
def test_argument_validators_agree_with_the_original(row: dict[str, Any]) -> None:
    given = row["given"]
    calls = given.get("calls", [{"toolName": "t", "arguments": given.get("actual")}])
    found = {
        "exact": answer(match_tool_call_with_args, "t", given["expected"], calls),
        "partial": answer(match_tool_call_with_partial_args, "t", given["expected"], calls),
    }
    assert found == row["expect"]


@rows("conformance/mcpjam/single_arguments.yaml")
def test_single_argument_validators_agree_with_the_original(row: dict[str, Any]) -> None:
    given = row["given"]
    if "predicate" not in given:
        found = answer(match_tool_argument, "t", given["argument"], given["value"], given["calls"])
    elif given.get("awaited"):
        found = asyncio.run(match_tool_argument_with_async("t", given["argument"], PREDICATES[given["predicate"]], given["calls"]))
    else:
        found = answer(match_tool_argument_with, "t", given["argument"], PREDICATES[given["predicate"]], given["calls"])
    assert found == row["expect"]


@rows("conformance/mcpjam/page.yaml")
def test_examples_of_the_published_page(row: dict[str, Any]) -> None:
    given = row["given"]
    arguments = list(given["with"])
    if "predicate" in given:
        arguments.insert(2, PREDICATES[given["predicate"]])
    assert getattr(validators, given["validator"])(*arguments) is row["expect"]
    assert twin(given["validator"])(*arguments).passed is row["expect"]


def a_call(written: Any) -> ToolCall:
    if isinstance(written, str):
        return ToolCall(name=written)
    [(name, arguments)] = written.items()
    return ToolCall(name=name, arguments=arguments)


def calls(written: Any) -> Any:
    return [a_call(entry) for entry in written] if isinstance(written, list) else written


@rows("conformance/mcpjam/pairing.yaml")
def test_evaluate_tool_calls_gives_the_expected_result(row: dict[str, Any]) -> None:
    given = row["given"]
    found = answer(evaluate_tool_calls, calls(given["expected"]), calls(given["actual"]), **given.get("options", {}))
    if isinstance(found, str):
        assert found == row["expect"]
        return
    expected = {"missing": [], "extra": [], "mismatches": 0, "out_of_order": [], **row["expect"]}
    assert {
        "passed": found.passed,
        "missing": [call.name for call in found.missing],
        "extra": [call.name for call in found.extra],
        "mismatches": len(found.argument_mismatches),
        "out_of_order": [[entry.tool_name, entry.expected_index, entry.actual_index] for entry in found.out_of_order],
    } == expected


TABLES = ("names", "arguments", "single_arguments", "page", "pairing")


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=f"{name}-{row['id']}") for name in TABLES for row in load(f"conformance/mcpjam/{name}.yaml")]
)
def test_every_difference_from_the_original_has_a_reason(row: dict[str, Any]) -> None:
    differs = row["original"] != row["expect"] and row["original"] != "raises"
    assert differs is bool(row.get("why"))


OPTIONS = {
    "tool_call_order": "toolCallOrder",
    "argument_matching": "argumentMatching",
    "max_extra_tool_calls": "maxExtraToolCalls",
    "allow_extra_tool_calls": "allowExtraToolCalls",
}


def as_case(given: dict[str, Any]) -> dict[str, Any]:
    """The row as a case of a document, which marks a case as positive with `isNegativeTest: false`."""
    options = given.get("options", {})
    case: dict[str, Any] = {
        "id": "c",
        "prompt": "p",
        "expectedToolCalls": [{"toolName": call.name, "arguments": call.arguments} for call in calls(given["expected"])],
        "matchOptions": {OPTIONS[key]: value for key, value in options.items() if key in OPTIONS},
    }
    if options.get("is_negative_test") or options.get("positive_only"):
        case["isNegativeTest"] = bool(options.get("is_negative_test"))
    return case


# NaN and infinity cannot be written in JSON; the reader refuses null or text in place of a list.
WRITABLE = [
    row
    for row in load("conformance/mcpjam/pairing.yaml")
    if row["expect"] != "TypeError" and not any(word in str(row["given"]) for word in ("nan", "inf"))
]


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in WRITABLE])
def test_a_case_with_expected_calls_gets_the_same_verdict(row: dict[str, Any]) -> None:
    given = row["given"]
    try:
        [case] = read_document([as_case(given)]).cases
    except InputError:
        assert row["expect"] == "ValueError"
        return
    evidence = {"tool_calls": [{"name": call.name, "arguments": call.arguments} for call in calls(given["actual"])]}
    verdicts = decide(case, evidence)
    # A case without expectations, limits or declarations has no assertion and cannot fail.
    assert all(verdict.passed for verdict in verdicts) is row["expect"]["passed"]
    assert verdicts or not given["expected"]
