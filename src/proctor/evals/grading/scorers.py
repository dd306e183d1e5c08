"""Scorers: functions that grade an iteration, in addition to its test function.

A scorer only reports a value; the threshold of its definition decides whether it passes. Scorers run concurrently after the
test function, each with a time limit, and rows keep the order of the scorers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from proctor.evals.agents.calling import call_function, copy_context, describe_exception, end_task
from proctor.evals.agents.messages import Message
from proctor.evals.agents.prompt_result import PromptResult, join_evidence
from proctor.evals.grading.expectations import Expectations, Predicate
from proctor.evals.grading.score_rows import (
    Policy,
    Role,
    ScoreDefinition,
    ScoreOutcome,
    ScoreResult,
    canonical_digest,
    make_error_outcome,
    make_row,
    read_outcome,
    scored,
    skipped,
)
from proctor.evidence.shared.usage import add_usage
from proctor.model.evidence import Evidence, Json, ToolCall, Usage
from proctor.model.json_values import is_finite, is_integer
from proctor.model.show import show

VERSION: Final = 1


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """The test that was run."""

    title: str
    key: str = ""
    """The id of the test."""
    is_negative_test: bool = False


class ToolError(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that failed."""

    tool_name: str
    kind: str | None = None
    """`content-error`: the tool reported it. `protocol-error`: the call itself failed."""
    message: str = ""


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent did, over all prompts."""

    tool_calls: tuple[ToolCall, ...] = ()
    tool_errors: tuple[ToolError, ...] = ()
    final_assistant_message: str | None = None
    """The text of the last answer, or None; there is no fallback to an earlier one."""
    usage: Usage | None = None
    turn_count: int = 0


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """All messages, and their durations."""

    messages: tuple[Message, ...] = ()
    spans: tuple[Message, ...] = ()


class ScorerContext(msgspec.Struct, frozen=True, kw_only=True):
    """One iteration, as a scorer sees it."""

    version: int = VERSION
    scenario: Scenario
    transcript: Transcript
    trace: Trace
    expected_output: str | None = None
    expected_tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    prompts: tuple[PromptResult, ...] = ()
    iteration: int = 1
    """Which repetition this is, from 1."""

    @property
    def evidence(self) -> Evidence:
        """The same as evidence, for checks and suites."""
        return join_evidence(self.prompts)


def make_context(
    prompts: Sequence[PromptResult],
    scenario: Scenario,
    *,
    expected_output: str | None = None,
    expected_tool_calls: Sequence[ToolCall] = (),
    iteration: int = 1,
) -> ScorerContext:
    """Return the context of an iteration with these prompts."""
    calls = tuple(call for prompt in prompts for call in prompt.get_tool_calls())
    usage = add_usage(prompt.evidence.usage for prompt in prompts)
    messages = tuple(message for prompt in prompts for message in prompt.get_messages())
    last = prompts[-1].text if prompts else ""
    return ScorerContext(
        scenario=scenario,
        transcript=Transcript(
            tool_calls=calls,
            tool_errors=tuple(
                ToolError(tool_name=call.name, kind=call.failure_kind(), message=_describe_failure(call.failure()))
                for call in calls
                if call.failed()
            ),
            final_assistant_message=last if last.strip() else None,
            usage=usage,
            turn_count=sum(message.get("role") == "user" for message in messages),
        ),
        trace=Trace(messages=messages, spans=tuple(span for prompt in prompts for span in prompt.get_spans())),
        expected_output=expected_output,
        expected_tool_calls=tuple(expected_tool_calls),
        usage=usage,
        prompts=tuple(prompts),
        iteration=iteration,
    )


def _describe_failure(failure: Json) -> str:
    return failure if isinstance(failure, str) else show(failure, 2000)


ScoreFunction = Callable[[ScorerContext], Any]
PREDICATES_VERSION: Final = "1"


class Scorer(msgspec.Struct, frozen=True, kw_only=True):
    """A definition and the function that grades by it."""

    definition: ScoreDefinition
    score: ScoreFunction
    timeout_ms: float | None = None
    """Its own limit; left out, that of the run."""


def scorer(
    id: str,
    function: ScoreFunction | None = None,
    *,
    threshold: float = 1.0,
    role: Role = "gating",
    deterministic: bool = True,
    config: Json = None,
    on_error: Policy | None = None,
    on_skipped: Policy | None = None,
    timeout_ms: float | None = None,
    label: str | None = None,
    model: str | None = None,
    scorer_version: str = "1",
) -> Any:
    """Return a scorer from a function of the context, asynchronous or not; without a function, a decorator.

    The function returns `scored(...)`, `skipped(...)`, `not_applicable(...)`, a number from 0 to 1, or a boolean. `config` and
    `scorer_version` distinguish its versions, because functions cannot be compared. Use `deterministic=False` for one that calls a model:
    it is not run if the test function raised. Without `timeout_ms` it has the limit of the run; without `on_error` and `on_skipped` an
    error of a gating scorer fails, and that of an advisory one is ignored.
    """
    definition = ScoreDefinition(
        scorer_id=id,
        scorer_version=scorer_version,
        implementation_hash=canonical_digest({"kind": "custom", **({} if config is None else {"config": config})}),
        label=label,
        deterministic=deterministic,
        pass_threshold=threshold,
        role=role,
        on_error=on_error,
        on_skipped=on_skipped,
        model=model,
    )
    check_limit(timeout_ms)

    def make(score: ScoreFunction) -> Scorer:
        if not callable(score):
            raise TypeError(f"a scorer is made of a function of the context, found {type(score).__name__}")
        return Scorer(definition=definition, score=score, timeout_ms=timeout_ms)

    return make if function is None else make(function)


def predicate_scorer(predicate: Predicate, *, id: str | None = None, ordinal: int | None = None, role: Role = "gating") -> Scorer:
    """Return a predicate as a scorer: 1 if it holds, else 0.

    Without an id it is called `predicate:<type>#<ordinal>`, without an ordinal `predicate:<type>#` and eight digits of its digest.
    """
    prepared = Expectations((), {}, (predicate,), negative=False)

    def score(context: ScorerContext) -> ScoreOutcome:
        (results,) = prepared.decide_predicates(context.prompts)
        return scored(1.0 if results.passed else 0.0, results.reason)

    return Scorer(definition=define_predicate(prepared.predicates[0], id=id, ordinal=ordinal, role=role), score=score)


def define_predicate(
    predicate: Mapping[str, Json], *, id: str | None = None, ordinal: int | None = None, role: Role = "gating"
) -> ScoreDefinition:
    """Return the definition of a predicate in the original's spelling."""
    digest = canonical_digest(predicate)
    kind = str(predicate["type"])
    chosen = (id or "").strip()
    return ScoreDefinition(
        scorer_id=chosen or f"predicate:{kind}#{digest[:8] if ordinal is None else ordinal}",
        id_source="explicit" if chosen else "generated",
        scorer_version=PREDICATES_VERSION,
        implementation_hash=digest,
        label=kind,
        role=role,
    )


class ScorerLimits(msgspec.Struct, frozen=True):
    """How the scorers of one iteration are run. Raises `ValueError` for invalid values."""

    concurrency: int = 4
    timeout_ms: float = 60_000

    def __post_init__(self) -> None:
        # The values come from callers, so their types are checked here.
        count: Any = self.concurrency
        if not is_integer(count) or count < 1:
            raise ValueError(f"scorer_concurrency: expected a whole number of at least 1, found {show(count)}")
        check_limit(self.timeout_ms, "scorer_timeout_ms")


def check_limit(timeout_ms: float | None, name: str = "timeout_ms") -> None:
    """Raise `ValueError` for an invalid limit."""
    if timeout_ms is not None and not (is_finite(timeout_ms) and timeout_ms > 0):
        raise ValueError(f"{name}: expected more than 0, found {show(timeout_ms)}")


DEFAULT_LIMITS: Final = ScorerLimits()


async def run_scorers(
    scorers: Sequence[Scorer], context: ScorerContext, limits: ScorerLimits = DEFAULT_LIMITS, *, only_deterministic: bool = False
) -> tuple[ScoreResult, ...]:
    """Return the rows of all scorers, in order. An error in one is its row."""
    gate = asyncio.Semaphore(limits.concurrency)

    async def one(each: Scorer) -> ScoreResult:
        if only_deterministic and not each.definition.deterministic:
            return make_row(each.definition, skipped("the test function gave no answer, so what it left was not judged"))
        async with gate:
            return make_row(each.definition, await _run_scorer(each, context, each.timeout_ms or limits.timeout_ms))

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(each)) for each in scorers]
    return tuple(task.result() for task in tasks)


async def _run_scorer(each: Scorer, context: ScorerContext, timeout_ms: float) -> ScoreOutcome:
    context_copy = copy_context()
    task = asyncio.create_task(call_function(each.score, context, context_copy), context=context_copy)
    try:
        await asyncio.wait({task}, timeout=timeout_ms / 1000)
        if not task.done():
            return make_error_outcome(f"Operation timed out after {timeout_ms:g}ms")
    finally:
        # Also if the run is cancelled: `wait` would leave the task running, and a scorer may cost money.
        await end_task(task)
    if task.cancelled():
        return make_error_outcome("the scorer was cancelled")
    raised = task.exception()
    if raised is not None:
        return make_error_outcome(describe_exception(raised))
    try:
        return read_outcome(task.result())
    except TypeError as error:
        return make_error_outcome(str(error))
