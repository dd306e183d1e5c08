"""One iteration of an eval: the test function under a time limit, then everything else that decides.

* The test function gets a fresh agent. One that is not asynchronous runs in a thread of its own, so that it may block.
* At the deadline its prompts end by themselves and give back what was observed; a moment later the function is cancelled, and one that
  ignores that is left behind. An iteration that ran out of time fails, whatever its function says afterwards.
* A function that raised or ran out of time is tried again, and so is one that did not pass after a prompt with an error (a provider that
  was overloaded). A plain "no" is final. What an earlier attempt did is dropped.
* The verdict: the function's answer is true, the calls of all prompts fit the expected ones, and every predicate holds. The calls of an
  attempt that raised are compared too: they say what was missing.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Final

import msgspec

from proctor.evals.blocking import HOME_LOOP
from proctor.evals.deadline import DEADLINE, Deadline
from proctor.evals.expectations import Expectations
from proctor.evals.prompt_result import PromptResult
from proctor.evals.results import IterationResult, LatencyBreakdown, Tokens
from proctor.evals.test_agent import EvalAgent
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
    test: TestFunction, agent: EvalAgent, expectations: Expectations, *, timeout_ms: float, retries: int
) -> IterationResult:
    """Run the test function until it gives an answer or may not be tried again, and decide."""
    tried = 0
    while True:
        attempt = await _attempt(test, agent, timeout_ms)
        result = _decided(attempt, expectations, tried)
        again = attempt.again or (not result.passed and any(prompt.has_error() for prompt in attempt.prompts))
        if not again or tried >= retries:
            return result
        await asyncio.sleep(_FIRST_WAIT_S * 2**tried)
        tried += 1


def _decided(attempt: _Attempt, expectations: Expectations, tried: int) -> IterationResult:
    prompts = tuple(attempt.prompts)
    calls: list[ToolCall] = [call for prompt in prompts for call in prompt.get_tool_calls()]
    match = expectations.match(calls)
    predicates = expectations.decide(prompts)
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
    )


async def _attempt(test: TestFunction, agent: EvalAgent, timeout_ms: float) -> _Attempt:
    own = agent.with_options()
    limit_s = timeout_ms / 1000
    context = contextvars.copy_context()
    deadline = Deadline(limit_s)
    context.run(DEADLINE.set, deadline)
    context.run(HOME_LOOP.set, asyncio.get_running_loop())
    task = asyncio.create_task(_call(test, own, context), context=context)
    try:
        await asyncio.wait({task}, timeout=limit_s)
        timed_out = not task.done()
        if timed_out:
            # Its prompts have just ended: the function may want to look at them.
            await asyncio.wait({task}, timeout=min(_GRACE_S, limit_s))
    finally:
        await _end(task)
    if timed_out or deadline.missed:
        return _Attempt(False, f"Operation timed out after {timeout_ms:g}ms", True, own.get_prompt_history())
    if task.cancelled():
        return _Attempt(False, "the test was cancelled", True, own.get_prompt_history())
    raised = task.exception()
    if raised is not None:
        return _Attempt(False, _told(raised), True, own.get_prompt_history())
    answer = task.result()
    error = "the test function returned None: it must return true or false" if answer is None else None
    return _Attempt(bool(answer), error, False, own.get_prompt_history())


async def _end(task: asyncio.Task[object]) -> None:
    """End the task, or leave it behind when it does not let itself be ended."""
    if task.done():
        return
    task.cancel()
    await asyncio.wait({task}, timeout=0.2)
    if not task.done():
        # Whatever becomes of it, nobody is interested any more.
        task.add_done_callback(lambda late: late.cancelled() or late.exception())


async def _call(test: TestFunction, agent: EvalAgent, context: contextvars.Context) -> object:
    if iscoroutinefunction(test) or iscoroutinefunction(getattr(test, "__call__", None)):  # noqa: B004 - asks what kind of call it is
        answer = test(agent)
    else:
        answer = await _in_thread(lambda: test(agent), context.copy())
    return await answer if isawaitable(answer) else answer


async def _in_thread(work: Callable[[], object], context: contextvars.Context) -> object:
    """Run blocking work in a thread that does not keep the process alive: a pool would wait for it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[object] = loop.create_future()

    def settle(answer: object, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(answer)

    def main() -> None:
        answer, error = None, None
        try:
            answer = context.run(work)
        except BaseException as raised:  # it is the caller's to see, whatever it is
            # A future cannot carry this one: it would end the loop that waits for it.
            error = RuntimeError("the test raised StopIteration") if isinstance(raised, StopIteration) else raised
        try:
            loop.call_soon_threadsafe(settle, answer, error)
        except RuntimeError:
            return  # the loop was closed meanwhile: nobody waits

    threading.Thread(target=main, name="proctor eval", daemon=True).start()
    return await done


def _told(error: BaseException) -> str:
    return str(error) or type(error).__name__
