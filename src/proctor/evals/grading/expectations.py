"""Expectations of an eval besides its test function: tool calls, and predicates over the evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

import msgspec

from proctor.checks.registry import Decide, default_registry
from proctor.errors import CheckFault, InputError
from proctor.evals.agents.camel_case import to_camel
from proctor.evals.agents.prompt_result import PromptResult, join_evidence
from proctor.evals.grading.results import PredicateResult
from proctor.formats.mcpjam.predicates import PREDICATES, read_predicate
from proctor.formats.text.json_text import read_json
from proctor.formats.text.located import Reading
from proctor.matchers.calls import ToolCallMatch
from proctor.model.evidence import Json, ToolCall
from proctor.validators import CallLike, evaluate_tool_calls

_WIDGETS: Final = ("widgetRendered", "widgetRenderLatencyUnder", "widgetNoConsoleErrors")
Predicate = Mapping[str, Json]


class Expectations:
    """The expectations of an iteration. Raises `ValueError` or `TypeError` for invalid ones."""

    def __init__(
        self, calls: Iterable[CallLike | str], options: Mapping[str, object], predicates: Iterable[Predicate], *, negative: bool
    ) -> None:
        self.calls = tuple(calls)
        self.negative = negative
        self.options = {**options, "is_negative_test": True} if negative else dict(options)
        if negative and self.calls:
            raise ValueError("a negative test expects no tool call at all: give is_negative_test or expected_tool_calls, not both")
        # Options and predicates are tried once here, so that a mistake is reported when the test is created.
        evaluate_tool_calls(self.calls, (), self.options)
        self._predicates = tuple(_prepare_predicate(dict(predicate)) for predicate in predicates)

    @property
    def predicates(self) -> tuple[dict[str, Json], ...]:
        """The predicates in the original's spelling."""
        return tuple(predicate for predicate, _ in self._predicates)

    def match_calls(self, actual: Sequence[ToolCall]) -> ToolCallMatch | None:
        """Return how the calls match; None if none are expected or forbidden."""
        if not self.calls and not self.negative:
            return None
        return evaluate_tool_calls(self.calls, actual, self.options)

    def decide_predicates(self, prompts: Sequence[PromptResult]) -> tuple[PredicateResult, ...]:
        """Return the results of the predicates over all prompts together."""
        if not self._predicates:
            return ()
        evidence = join_evidence(prompts)
        results: list[PredicateResult] = []
        for predicate, decide in self._predicates:
            try:
                verdict = decide(evidence)
                results.append(PredicateResult(predicate=predicate, passed=verdict.passed, reason=verdict.reason))
            # An undecided predicate does not pass.
            except CheckFault as fault:
                results.append(PredicateResult(predicate=predicate, passed=False, reason=fault.message))
        return tuple(results)


def _prepare_predicate(predicate: dict[str, Json]) -> tuple[dict[str, Json], Decide]:
    """Return a predicate with its keys in camel case, as MCPJam spells them, and the function that decides it."""
    spelled = {to_camel(key): value for key, value in predicate.items()}
    if isinstance(spelled.get("type"), str) and spelled["type"] not in PREDICATES:
        spelled["type"] = to_camel(spelled["type"])
    wrapper = spelled.get("args")
    if isinstance(wrapper, Mapping) and "argument_matching" in wrapper:
        fields = cast("Mapping[str, Json]", wrapper)
        spelled["args"] = {to_camel(key) if key == "argument_matching" else key: value for key, value in fields.items()}
    if spelled.get("type") in _WIDGETS:
        raise ValueError(f"{spelled['type']}: an eval draws no widgets; use this predicate in a suite over recorded renders")
    try:
        text = msgspec.json.encode(spelled).decode()
        reading = Reading(file="predicate", text=text)
        node = read_json(text, reading)
        assertion = None if node is None else read_predicate(reading, node)
        reading.finish()
    except InputError as error:
        raise ValueError(str(error)) from None
    assert assertion is not None
    return spelled, default_registry().prepare(assertion.check, assertion.spec)
