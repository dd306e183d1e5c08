"""Any returned or raised value affects only its own case: the run continues, is stored, and can be resumed."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import decimal
import enum
import json
import uuid
from collections import OrderedDict, UserDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import proctor
from proctor.actions.checking.recheck import recheck
from proctor.actions.running.run import LiveRun, RunOptions, drive
from proctor.cassettes.ports import LIVE
from proctor.model.evidence import Evidence, EvidenceTurn, ToolCall, Usage
from proctor.model.json_values import MAX_DEPTH
from proctor.targets.answers.plain_values import Unreadable, plain_value
from proctor.targets.local.callable import CallableTarget
from proctor.targets.shared.faults import TargetFault
from tests.targets.loopback import attempt


class State:
    """An object of a framework."""


@dataclasses.dataclass
class Odd:
    inner: object = dataclasses.field(default_factory=State)


class Color(enum.StrEnum):
    RED = "red"


class Mute(Exception):
    """An exception whose text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Hostile(Mapping[str, Any]):
    """A mapping that raises on any access."""

    def __getitem__(self, key: str) -> Any:
        raise Mute

    def __iter__(self) -> Iterator[str]:
        raise Mute

    def __len__(self) -> int:
        raise Mute


class Trap:
    """An object that raises on any access."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return Trap
        raise Mute


def circle() -> list[Any]:
    inside: list[Any] = []
    inside.append({"again": inside})
    return inside


def pieces() -> Iterator[object]:
    yield State()


def deep(levels: int) -> Any:
    value: Any = "end"
    for _ in range(levels):
        value = [value]
    return value


PARTS: list[tuple[str, Callable[[], Any], str]] = [
    ("an object", State, "State"),
    ("half a surrogate pair", lambda: "a\ud800b", "lone surrogate (\\ud800)"),
    ("half a pair in a key", lambda: {"k\udfff": 1}, "lone surrogate (\\udfff)"),
    ("not a number", lambda: float("nan"), "nan, which is not a JSON number"),
    ("infinity", lambda: float("-inf"), "-inf, which is not a JSON number"),
    ("a list that contains itself", circle, "does it contain itself?"),
    ("too deep", lambda: deep(MAX_DEPTH + 5), "does it contain itself?"),
    ("bytes", lambda: b"text", "bytes"),
    ("a bytearray", lambda: bytearray(b"text"), "bytearray"),
    ("a set", lambda: {"a"}, "set"),
    ("a dataclass with odd members", Odd, "Odd"),
    ("a class", lambda: State, "type"),
    ("a generator", pieces, "generator"),
    ("a date", lambda: datetime.date(2026, 11, 15), "datetime.date"),
    ("a decimal", lambda: decimal.Decimal("1.0"), "decimal.Decimal"),
    ("an id", lambda: uuid.UUID(int=0), "uuid.UUID"),
    ("a complex number", lambda: 1j, "complex"),
    ("a key that is no text", lambda: {1: 2}, "a key of the type int"),
    ("an object that raises", Trap, "Trap"),
    ("a function", lambda: deep, "function"),
    ("an exception", Mute, "Mute"),
    ("raw bytes of a struct", lambda: msgspec.Raw(b"{}"), "Raw"),
]
PLACES: dict[str, Callable[[Any], Any]] = {
    "alone": lambda part: part,
    "in the body": lambda part: {"text": "hello", "body": {"a": [part]}},
    "among the arguments": lambda part: {"text": "hello", "tool_calls": [{"name": "t", "arguments": {"x": part}}]},
    "with text": lambda part: {"text": "hello", "messages": [part]},
    "in an Evidence": lambda part: Evidence(text="hello", metadata={"x": part}),
    "in a tool call of an Evidence": lambda part: Evidence(text="hello", tool_calls=(ToolCall(name="t", result=part),)),
    "as the text of an Evidence": lambda part: Evidence(text=part, tool_calls=()),
    "as the name of a tool": lambda part: Evidence(text="hello", tool_calls=(ToolCall(name=part),)),
    "as tokens": lambda part: Evidence(text="hello", usage=Usage(total_tokens=part)),
    "in a turn": lambda part: Evidence(turns=(EvidenceTurn(text="hello", body=part),)),
}


def fault_of(function: Callable[..., Any]) -> TargetFault:
    with pytest.raises(TargetFault) as caught:
        asyncio.run(CallableTarget("agent", function).run(attempt("hi"), LIVE))
    return caught.value


def test_a_mapping_that_raises_is_a_fault_of_the_function() -> None:
    fault = fault_of(lambda message: Hostile())
    assert fault.code == "bad_answer" and "reading it raised Mute" in fault.message


@pytest.mark.parametrize("place", list(PLACES))
@pytest.mark.parametrize(("made", "named"), [part[1:] for part in PARTS], ids=[part[0] for part in PARTS])
def test_an_unreadable_value_is_refused_with_its_path_and_type(made: Callable[[], Any], named: str, place: str) -> None:
    fault = fault_of(lambda message: PLACES[place](made()))
    assert fault.code == "bad_answer"
    if place in ("in the body", "in an Evidence"):
        assert named in fault.message and "$." in fault.message


def test_the_path_of_an_unreadable_value_is_reported() -> None:
    fault = fault_of(lambda message: {"text": "x", "messages": [{"content": State()}]})
    assert fault.message.endswith(
        "returned (object) is not evidence: $.messages[0].content is of the type tests.targets.answers.test_returned.State"
        "; see docs/how-to/test-a-python-function.md"
    )


@pytest.mark.parametrize("error", [Mute(), GeneratorExit(), ValueError("a\ud800"), BaseException("base"), RecursionError("deep")])
@pytest.mark.parametrize("later", [False, True])
def test_every_exception_is_reported(error: BaseException, later: bool) -> None:
    def agent(message: str) -> str:
        raise error

    async def slow(message: str) -> str:
        raise error

    fault = fault_of(slow if later else agent)
    assert fault.code == "agent_failed" and type(error).__name__ in fault.message
    fault.message.encode()


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (OrderedDict(text="hello"), "hello"),
        (UserDict({"text": "hello"}), "hello"),
        ({"text": Color.RED}, "red"),
        (Color.RED, "red"),
        ({"text": "hello", "tool_calls": ({"name": "t", "arguments": {"n": 2**70}},)}, "hello"),
    ],
)
def test_plain_values_of_other_types_are_accepted(returned: Any, text: str) -> None:
    evidence = asyncio.run(CallableTarget("agent", lambda message: returned).run(attempt("hi"), LIVE))
    assert evidence.text == text
    assert msgspec.json.decode(msgspec.json.encode(evidence), type=Evidence) == evidence


odd = st.sampled_from([part[1] for part in PARTS]).map(lambda made: made())
leaves = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.text(st.characters(categories=["Cs", "L"])) | st.binary() | odd
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.sampled_from([*Evidence.__struct_fields__, "name", "arguments"]) | st.integers(), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(values)
def test_any_value_becomes_storable_evidence_or_a_fault(value: Any) -> None:
    target = CallableTarget("agent", lambda message: value)
    try:
        evidence = target._read_evidence(value)
    except TargetFault as fault:
        fault.message.encode()
    else:
        assert msgspec.json.decode(msgspec.json.encode(evidence), type=Evidence) == evidence


@settings(max_examples=300, deadline=None)
@given(values)
@pytest.mark.timeout(60)
def test_a_plain_value_survives_a_json_round_trip(value: Any) -> None:
    try:
        plain = plain_value(value)
    except (Unreadable, Mute, RuntimeError):
        return
    assert json.loads(json.dumps(plain)) == plain


# --- the run continues, is stored and resumed ---------------------------------------------------------------------------

SUITE = proctor.parse_suite(
    json.dumps(
        {
            "proctor": 1,
            "cases": [
                {"id": f"case-{number}", "input": str(number), "expect": [{"response_not_contains": "refund"}, {"no_tools_called": {}}]}
                for number in range(len(PARTS) + 3)
            ],
        }
    ),
    dialect="native",
)


def odd_agent(message: str) -> Any:
    number = int(message)
    if number < len(PARTS):
        return {"text": "hello", "tool_calls": [], "odd": PARTS[number][1]()}
    if number == len(PARTS):
        raise Mute
    return {"text": "hello", "tool_calls": []}


class OddTarget:
    """A custom target that returns arbitrary values."""

    name = "odd"

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def run(self, go: Any, tape: Any) -> Any:
        number = int(go.case.input)
        if number < len(PARTS):
            return [Evidence(text="hello", tool_calls=(ToolCall(name=5),)), PARTS[number][1](), Evidence(text="a\udc00")][number % 3]  # type: ignore[arg-type]
        if number == len(PARTS):
            raise Mute
        return Evidence(text="hello", tool_calls=())


@pytest.mark.parametrize("target", [odd_agent, OddTarget()], ids=["a function", "a target of one's own"])
def test_a_run_with_unusual_answers_is_stored_shown_and_resumed(target: Any, tmp_path: Path) -> None:
    def go_on(resume: str | None) -> LiveRun:
        return asyncio.run(drive(SUITE, RunOptions(resume=resume), target=target, home=tmp_path))

    live = go_on(None)
    outcomes = {case.id: case.outcome for case in live.result.cases}
    good = {f"case-{len(PARTS) + more}" for more in (1, 2)}
    assert {id for id, outcome in outcomes.items() if outcome == "pass"} == good
    assert {outcomes[id] for id in outcomes if id not in good} == {"error"}
    assert live.ended == "completed"
    run_id = live.result.run_id
    assert {case.id: case.outcome for case in recheck(tmp_path / ".proctor", run_id).cases} == outcomes
    # Lines missing from the file are driven again, the others are read.
    results_file = tmp_path / ".proctor" / "runs" / run_id / "results.jsonl"
    results_file.write_bytes(b"".join(results_file.read_bytes().splitlines(keepends=True)[::2]))
    again = go_on(run_id)
    assert {case.id: case.outcome for case in again.result.cases} == outcomes
