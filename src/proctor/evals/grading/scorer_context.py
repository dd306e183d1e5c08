"""What a scorer is shown of an iteration: the fields of MCPJam's scorer context, version 1, in Python spelling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from proctor.evals.agents.messages import Message
from proctor.evals.agents.prompt_result import PromptResult, join_evidence
from proctor.evidence.shared.usage import add_usage
from proctor.model.evidence import Evidence, Json, ToolCall, Usage
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
    """The text of the last answer; nothing where it has none, with no fallback to an earlier one."""
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
