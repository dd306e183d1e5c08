"""The result of one prompt: answer, tool calls, time, tokens and error.

Messages are those of this prompt only, without its context. `evidence` is the same in the form that all checks read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from proctor.errors import EvidenceError
from proctor.evals.agents.messages import Message, compose_messages, write_indented
from proctor.evidence.shared.calls import read_call
from proctor.evidence.shared.usage import add_usage, read_usage
from proctor.evidence.values.text import parse_json
from proctor.model.evidence import Evidence, EvidenceTurn, Json, ToolCall, Usage
from proctor.model.show import kind_of


class LatencyBreakdown(msgspec.Struct, frozen=True, kw_only=True):
    """The latency of one prompt and its parts, in milliseconds."""

    e2e_ms: float = 0.0
    """From the prompt to its result."""
    llm_ms: float = 0.0
    """Waiting for the model."""
    mcp_ms: float = 0.0
    """Waiting for tools."""


class LatencyStats(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of some durations; all zeros without any."""

    min: float = 0.0
    max: float = 0.0
    mean: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    count: int = 0


class LatencySummary(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of the latency and its parts."""

    e2e: LatencyStats = LatencyStats()
    llm: LatencyStats = LatencyStats()
    mcp: LatencyStats = LatencyStats()
    per_iteration: tuple[LatencyBreakdown, ...] = ()
    """One entry per prompt, in order."""


_ALIASES: Final = {"toolCalls": "tool_calls", "widgetSnapshots": "widget_snapshots"}
_LATENCY_KEYS: Final = {"e2eMs": "e2e_ms", "llmMs": "llm_ms", "mcpMs": "mcp_ms"}
CallLike = ToolCall | Mapping[str, Json]


class PromptResult:
    """The result of one prompt.

    Without `messages` these are built from prompt, calls and text. `latency` is in milliseconds; a number is the time of the whole prompt.
    """

    def __init__(
        self,
        *,
        prompt: str = "",
        text: str = "",
        messages: Sequence[Message] | None = None,
        tool_calls: Iterable[CallLike] = (),
        usage: Usage | Mapping[str, Json] | None = None,
        latency: LatencyBreakdown | Mapping[str, float] | float | None = None,
        error: str | None = None,
        error_code: str | None = None,
        provider: str | None = None,
        model: str | None = None,
        spans: Sequence[Message] = (),
        widget_snapshots: Sequence[Message] = (),
        stop_reason: str | None = None,
        available_tools: tuple[str, ...] | None = None,
        servers: Sequence[Message] = (),
    ) -> None:
        self.prompt: Final = prompt
        self.text: Final = text
        self._calls = tuple(_read_call(call) for call in tool_calls)
        self._messages = compose_messages(prompt, text, self._calls) if messages is None else list(messages)
        self._usage = usage if usage is None or isinstance(usage, Usage) else read_usage(dict(usage))
        self._latency = _read_latency(latency)
        self._error, self._error_code = error, error_code
        self._provider, self._model = provider, model
        self._spans, self._widgets = list(spans), list(widget_snapshots)
        self._stop_reason = stop_reason
        self._available_tools = available_tools
        self._servers = list(servers)

    @classmethod
    def from_(cls, data: Mapping[str, Any] | None = None, /, **more: Any) -> PromptResult:
        """Return a result from a mapping or keywords: `prompt`, `text`, `tool_calls`, `messages`, `usage`, `latency`, `error`, ..."""
        return cls(**{_ALIASES.get(key, key): value for key, value in {**(data or {}), **more}.items()})

    @classmethod
    def error(
        cls,
        message: str,
        latency: LatencyBreakdown | Mapping[str, float] | float = 0,
        prompt: str = "",
        *,
        provider: str | None = None,
        model: str | None = None,
        spans: Sequence[Message] = (),
    ) -> PromptResult:
        """Return the result of a prompt that failed."""
        return cls(prompt=prompt, messages=(), latency=latency, error=message, provider=provider, model=model, spans=spans)

    def __repr__(self) -> str:
        failed = f", error={self._error!r}" if self._error is not None else ""
        return f"PromptResult(prompt={self.prompt!r}, text={self.text!r}, tools_called={self.tools_called()!r}{failed})"

    def get_prompt(self) -> str:
        """Return the prompt."""
        return self.prompt

    def get_text(self) -> str:
        """Return the answer."""
        return self.text

    def get_messages(self) -> list[Message]:
        """Return all messages of this prompt."""
        return list(self._messages)

    def _list_messages_of(self, role: str) -> list[Message]:
        return [message for message in self._messages if message.get("role") == role]

    def get_user_messages(self) -> list[Message]:
        """Return the messages of the user."""
        return self._list_messages_of("user")

    def get_assistant_messages(self) -> list[Message]:
        """Return the messages of the model."""
        return self._list_messages_of("assistant")

    def get_tool_messages(self) -> list[Message]:
        """Return the messages of the tools."""
        return self._list_messages_of("tool")

    def format_trace(self) -> str:
        """Return all messages as indented JSON."""
        return write_indented(self._messages)

    def tools_called(self) -> list[str]:
        """Return the names of the tools called, in order, with repetitions."""
        return [call.name for call in self._calls]

    def has_tool_call(self, name: str) -> bool:
        """Return whether the tool of exactly this name was called."""
        return any(call.name == name for call in self._calls)

    def get_tool_calls(self) -> list[ToolCall]:
        """Return the calls, in order."""
        return list(self._calls)

    def get_tool_arguments(self, name: str) -> Json:
        """Return the arguments of the first call of a tool, or None if it was not called."""
        return next((call.arguments for call in self._calls if call.name == name), None)

    def e2e_latency_ms(self) -> float:
        """Return the time from the prompt to the result."""
        return self._latency.e2e_ms

    def llm_latency_ms(self) -> float:
        """Return the time spent waiting for the model."""
        return self._latency.llm_ms

    def mcp_latency_ms(self) -> float:
        """Return the time spent waiting for tools."""
        return self._latency.mcp_ms

    def get_latency(self) -> LatencyBreakdown:
        """Return the time of the whole prompt, of the model and of the tools."""
        return self._latency

    def input_tokens(self) -> int:
        """Return the input tokens; 0 if unknown."""
        return (self._usage.input_tokens if self._usage else None) or 0

    def output_tokens(self) -> int:
        """Return the output tokens; 0 if unknown."""
        return (self._usage.output_tokens if self._usage else None) or 0

    def total_tokens(self) -> int:
        """Return the sum of input and output tokens, as the original does; the reported total if one of them is unknown."""
        usage = self._usage or Usage()
        is_known = usage.input_tokens is not None and usage.output_tokens is not None
        return self.input_tokens() + self.output_tokens() if is_known else usage.total() or 0

    def get_usage(self) -> Usage:
        """Return the input, output and total tokens."""
        return Usage(input_tokens=self.input_tokens(), output_tokens=self.output_tokens(), total_tokens=self.total_tokens())

    def has_error(self) -> bool:
        """Return whether the prompt failed; an empty error message counts."""
        return self._error is not None

    def get_error(self) -> str | None:
        """Return the error message."""
        return self._error

    def get_error_code(self) -> str | None:
        """Return the error code: `rate_limited`, `timeout`, `server_gone`, ..."""
        return self._error_code

    def get_stop_reason(self) -> str | None:
        """Return why the agent stopped: `answered`, `max_steps`, `stop_after_tool_call`, `stop_when` or `error`."""
        return self._stop_reason or ("error" if self._error is not None else None)

    def get_provider(self) -> str | None:
        """Return the provider of the model."""
        return self._provider

    def get_model(self) -> str | None:
        """Return the model's name, without its provider."""
        return self._model

    def get_spans(self) -> list[Message]:
        """Return the spans, in milliseconds from the start of the prompt."""
        return list(self._spans)

    def get_widget_snapshots(self) -> list[Message]:
        """Return the widget snapshots given with the result; none are drawn here."""
        return list(self._widgets)

    def to_eval_result(self, **overrides: Json) -> dict[str, Json]:
        """Return a row in the format of the MCPJam service. By default it passed if neither the prompt nor a tool had an error."""
        failed = self.has_error() or any(call.failed() for call in self._calls)
        row: dict[str, Json] = {
            "caseTitle": self.prompt if self.prompt.strip() else "PromptResult",
            "query": self.prompt,
            "passed": not failed,
            "durationMs": self._latency.e2e_ms,
            "provider": self._provider,
            "model": self._model,
            "actualToolCalls": [{"toolName": call.name, "arguments": call.arguments} for call in self._calls],
            "tokens": {"input": self.input_tokens(), "output": self.output_tokens(), "total": self.total_tokens()},
            "error": self._error,
            "trace": {"messages": self.get_messages(), "spans": self.get_spans()},
        }
        return {**{key: value for key, value in row.items() if value is not None}, **overrides}

    @property
    def evidence(self) -> Evidence:
        """This prompt as evidence, for checks and suites."""
        return join_evidence((self,))

    def _make_turn(self) -> EvidenceTurn:
        return EvidenceTurn(
            input=self.prompt,
            text=self.text,
            body=parse_json(self.text),
            tool_calls=self._calls,
            duration_ms=self._latency.e2e_ms,
            usage=None if self._usage is None else self.get_usage(),
        )


def join_evidence(prompts: Sequence[PromptResult]) -> Evidence:
    """Return several prompts as one conversation."""
    turns = tuple(prompt._make_turn() for prompt in prompts)  # pyright: ignore[reportPrivateUsage]  # the other half of one class
    last = prompts[-1] if prompts else None
    parts = [(prompt._available_tools or (), prompt._servers) for prompt in prompts]  # pyright: ignore[reportPrivateUsage]  # the other half of one class
    metadata: dict[str, Json] = {} if last is None else {"provider": last.get_provider(), "model": last.get_model()}
    codes = [code for prompt in prompts if (code := prompt.get_error_code()) is not None]
    return Evidence(
        input=turns[0].input if len(turns) == 1 else [turn.input for turn in turns],
        text=turns[-1].text if turns else None,
        body=turns[-1].body if turns else None,
        tool_calls=tuple(call for turn in turns for call in turn.tool_calls or ()),
        duration_ms=sum(turn.duration_ms or 0 for turn in turns),
        usage=add_usage(turn.usage for turn in turns),
        turns=turns,
        available_tools=tuple(dict.fromkeys(name for names, _ in parts for name in names)) or None,
        error=next((prompt.get_error() for prompt in prompts if prompt.has_error()), None),
        metadata={
            **{key: value for key, value in metadata.items() if value},
            **({"servers": parts[-1][1]} if parts and parts[-1][1] else {}),
            **({"code": codes[0]} if codes else {}),
            "messages": [message for prompt in prompts for message in prompt.get_messages()],
        },
    )


def _read_call(value: object) -> ToolCall:
    if isinstance(value, ToolCall):
        return value
    if not isinstance(value, Mapping):
        raise TypeError(f"tool_calls: expected calls, found {kind_of(value)}")
    try:
        return read_call(dict(cast("Mapping[str, Json]", value)), "tool_calls")
    except EvidenceError as error:
        raise TypeError(error.message) from None


def _read_latency(value: LatencyBreakdown | Mapping[str, float] | float | None) -> LatencyBreakdown:
    if isinstance(value, LatencyBreakdown):
        return value
    if isinstance(value, Mapping):
        return LatencyBreakdown(**{_LATENCY_KEYS.get(key, key): number for key, number in value.items()})
    return LatencyBreakdown(e2e_ms=value or 0.0)
