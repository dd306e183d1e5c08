"""Runs one iteration of an eval: the test function under a time limit, then everything else that decides.

* The test function gets a fresh agent. One that is not asynchronous runs in a thread of its own, so that it may block.
* At the deadline its prompts end by themselves and give back what was observed; a moment later the function is cancelled, and one that
  ignores that is left behind. An iteration that ran out of time fails, whatever its function says afterwards.
* A function that raised or ran out of time is tried again, and so is one that did not pass after a prompt with an error (a provider that
  was overloaded). A plain "no" is final. What an earlier attempt did is dropped.
* The verdict: the function's answer is true, the calls of all prompts fit the expected ones, every predicate holds, and so does every
  gating scorer. The calls of an attempt that raised are compared too: they say what was missing.
* Scorers grade the last attempt only, after its time limit: they cost, and have limits of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from inspect import isasyncgen, isgenerator
from typing import Any, Final

import msgspec

from proctor.evals.agents.calling import call_function, copy_context, describe_exception, end_task
from proctor.evals.agents.deadline import DEADLINE, Deadline
from proctor.evals.agents.latency import LatencyBreakdown
from proctor.evals.agents.prompt_result import PromptResult
from proctor.evals.agents.test_agent import EvalAgent
from proctor.evals.grading.grade import Grading
from proctor.evals.grading.results import IterationResult, Tokens
from proctor.evals.grading.scorers import DEFAULT_LIMITS, ScorerLimits
from proctor.model.evidence import ToolCall

TestFunction = Callable[[Any], object | Awaitable[object]]
_GRACE_S: Final = 1.0
_FIRST_WAIT_S: Final = 0.1


class _Attempt(msgspec.Struct, frozen=True):
    """What the test function said."""

    answer: bool
    error: str | None
    again: bool
    """Whether trying again may help."""
    prompts: Sequence[PromptResult]


async def run_iteration(
    test: TestFunction,
    agent: EvalAgent,
    grading: Grading,
    *,
    timeout_ms: float,
    retries: int,
    limits: ScorerLimits = DEFAULT_LIMITS,
    number: int = 1,
) -> IterationResult:
    """Run the test function until it gives an answer or may not be tried again, and decide."""
    tried = 0
    while True:
        attempt = await _run_attempt(test, agent, timeout_ms)
        result = _decide_attempt(attempt, grading, tried)
        again = attempt.again or (not result.passed and any(prompt.has_error() for prompt in attempt.prompts))
        if not again or tried >= retries:
            break
        # Longer each time: a provider that is overloaded is not helped by being asked again at once.
        await asyncio.sleep(_FIRST_WAIT_S * 2**tried)
        tried += 1
    rows = (*result.scores, *await grading.make_scorer_rows(result.prompts, limits, iteration=number, failed=attempt.again))
    return msgspec.structs.replace(result, scores=rows, passed=grading.decide(rows).passed)


def _decide_attempt(attempt: _Attempt, grading: Grading, tried: int) -> IterationResult:
    """Return what is known without the scorers."""
    prompts = tuple(attempt.prompts)
    calls: list[ToolCall] = [call for prompt in prompts for call in prompt.get_tool_calls()]
    match = grading.expectations.match_calls(calls)
    predicates = grading.expectations.decide_predicates(prompts)
    return IterationResult(
        passed=attempt.answer and (match is None or match.passed) and all(each.passed for each in predicates),
        latencies=tuple(prompt.get_latency() for prompt in prompts) or (LatencyBreakdown(),),
        tokens=sum(
            (Tokens(total=each.total_tokens(), input=each.input_tokens(), output=each.output_tokens()) for each in prompts), Tokens()
        ),
        error=attempt.error,
        retry_count=tried,
        prompts=prompts,
        tool_match=match,
        predicate_results=predicates,
        scores=grading.make_built_in_rows(attempt.answer, attempt.error, match, predicates),
    )


async def _run_attempt(test: TestFunction, agent: EvalAgent, timeout_ms: float) -> _Attempt:
    own = agent.with_options()
    limit_s = timeout_ms / 1000
    context = copy_context()
    deadline = Deadline(limit_s)
    context.run(DEADLINE.set, deadline)
    task = asyncio.create_task(call_function(test, own, context), context=context)
    try:
        await asyncio.wait({task}, timeout=limit_s)
        timed_out = not task.done()
        if timed_out:
            # Its prompts have just ended: the function may want to look at them.
            await asyncio.wait({task}, timeout=min(_GRACE_S, limit_s))
    finally:
        # Also where this iteration is cancelled: `wait` leaves the task running then, and nobody else knows it.
        await end_task(task)
    # Asked before the answer: a function may still say yes in its grace, or over a prompt that was cut short.
    if timed_out or deadline.missed:
        return _Attempt(False, f"Operation timed out after {timeout_ms:g}ms", True, own.get_prompt_history())
    if task.cancelled():
        return _Attempt(False, "the test was cancelled", True, own.get_prompt_history())
    raised = task.exception()
    if raised is not None:
        return _Attempt(False, describe_exception(raised), True, own.get_prompt_history())
    answer = task.result()
    error = _explain_bad_answer(answer)
    return _Attempt(error is None and bool(answer), error, False, own.get_prompt_history())


def _explain_bad_answer(answer: object) -> str | None:
    """Return why what a test function returned is no answer, although it is true."""
    if answer is None:
        return "the test function returned None: it must return true or false"
    if isgenerator(answer) or isasyncgen(answer):
        return "the test function is a generator, of which nothing was run: it must return true or false and not yield"
    return None
