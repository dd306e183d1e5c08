"""An agent to be evaluated: a model, its tools, and the history of its prompts.

`prompt` never raises for a failure while it works: a rejecting provider, a crashed server, a timeout or an invalid model name gives a
result with an error. Prompts are independent: a conversation continues by `context`. Every change of options returns a new agent with an
empty history, so that iterations of an eval do not see each other.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from inspect import Parameter, isawaitable, signature
from typing import TYPE_CHECKING, Any, Final, Self, cast

from proctor.errors import ProctorError, TargetError
from proctor.evals.agents.calling import PromptLimit, run_blocking
from proctor.evals.agents.models import CustomProviders, make_model, split_model
from proctor.evals.agents.prompt_result import PromptResult
from proctor.evals.agents.prompting import Prompting, PromptOptions, StopCondition, Timeout, read_options
from proctor.evals.agents.tools import AgentTool, ToolsLike, list_tools_of
from proctor.llm.ports import ChatModel
from proctor.model.show import show
from proctor.targets.mcp.agent_conversation import AgentSettings

if TYPE_CHECKING:
    from proctor.evals.agents.client_manager import MCPClientManager

SYSTEM_PROMPT: Final = "You are a helpful assistant."
LONGEST_PROMPT_S: Final = 600.0
"""The time limit of a prompt without its own."""
Context = PromptResult | Iterable[PromptResult] | None


class EvalAgent(ABC):
    """The agent that a test function gets: the variants of `prompt`, and the history."""

    __test__ = False

    def __init__(self) -> None:
        self._history: list[PromptResult] = []

    @abstractmethod
    def with_options(self, **options: Any) -> EvalAgent:
        """Return a new agent with these options changed, and an empty history."""

    @abstractmethod
    async def _answer(self, message: str, options: PromptOptions) -> PromptResult:
        """Answer one message, and add the result to the history."""

    async def prompt(
        self,
        message: str,
        /,
        *,
        context: Context = None,
        timeout: Timeout | None = None,
        timeout_ms: float | None = None,
        stop_after_tool_call: str | Iterable[str] = (),
        stop_when: StopCondition | Iterable[StopCondition] = (),
    ) -> PromptResult:
        """Send one message and let the agent work on it.

        `context` are earlier results that the model gets first. At a tool of `stop_after_tool_call` the work ends, and that tool is not
        executed. `stop_when` is called after every step. `timeout` is for the whole prompt, or `{"total_ms", "step_ms"}` for it and for
        each answer of the model; `timeout_ms` is used without `timeout`. Raises `ValueError` for an invalid limit.
        """
        return await self._answer(message, read_options(context, timeout, timeout_ms, stop_after_tool_call, stop_when))

    async def run(self, message: str, /, **options: Any) -> PromptResult:
        """Do as `prompt`, of which this is the newer name."""
        return await self.prompt(message, **options)

    def prompt_sync(self, message: str, /, **options: Any) -> PromptResult:
        """`prompt` for code that is not asynchronous."""
        return run_blocking(self.prompt(message, **options))

    def run_sync(self, message: str, /, **options: Any) -> PromptResult:
        """`run` for code that is not asynchronous."""
        return self.prompt_sync(message, **options)

    def get_prompt_history(self) -> list[PromptResult]:
        """Return the results so far."""
        return list(self._history)

    def reset_prompt_history(self) -> None:
        """Forget the results so far."""
        self._history.clear()

    def get_last_result(self) -> PromptResult | None:
        """Return the latest result."""
        return self._history[-1] if self._history else None

    def tools_called(self) -> list[str]:
        """Return the names of the tools that the latest prompt called."""
        last = self.get_last_result()
        return last.tools_called() if last is not None else []


class TestAgent(EvalAgent):
    """An agent with a model and tools.

    `model` is `provider/model` or a chat model of ours, with its key by default from the environment; `tools` come from
    `MCPClientManager.get_tools()`. Without `tools` the agent has all of `mcp_client_manager`. `temperature` is from 0 to 2.
    """

    def __init__(
        self,
        *,
        model: str | ChatModel,
        tools: ToolsLike | None = None,
        api_key: str | None = None,
        system_prompt: str = SYSTEM_PROMPT,
        temperature: float | None = None,
        max_steps: int = 10,
        base_url: str | None = None,
        custom_providers: CustomProviders | None = None,
        mcp_client_manager: MCPClientManager | None = None,
    ) -> None:
        super().__init__()
        if isinstance(max_steps, bool) or max_steps < 1:
            raise ValueError(f"max_steps: expected at least 1, found {show(max_steps)}")
        self._options: dict[str, Any] = {
            "model": model,
            "tools": None if tools is None else list_tools_of(tools),
            "api_key": api_key,
            "system_prompt": system_prompt,
            "temperature": temperature,
            "max_steps": max_steps,
            "base_url": base_url,
            "custom_providers": custom_providers or {},
            "mcp_client_manager": mcp_client_manager,
        }

    def __repr__(self) -> str:
        return f"TestAgent(model={self.get_model()!r})"

    @staticmethod
    def mock(function: Callable[..., PromptResult | Awaitable[PromptResult]]) -> MockAgent:
        """Return an agent that answers by a function of the message, and of the options if it takes two; its exceptions are raised."""
        return MockAgent(function)

    def with_options(self, **options: Any) -> TestAgent:
        """Return a new agent with these options changed."""
        return TestAgent(**{**self._options, **options})

    def get_tools(self) -> list[AgentTool]:
        """Return the tools that the agent was given."""
        return list(self._options["tools"] or ())

    def get_model(self) -> str:
        """Return provider and model."""
        model = self._options["model"]
        return model if isinstance(model, str) else f"{model.provider}/{model.name}"

    def get_api_key(self) -> str | None:
        """Return the key that the agent was given."""
        return self._options["api_key"]

    def get_parsed_provider(self) -> str:
        """Return the part before the first `/`. Raises `SpecError` if there is none."""
        return split_model(self.get_model())[0]

    def get_parsed_model(self) -> str:
        """Return the part after the first `/`."""
        return split_model(self.get_model())[1]

    def get_max_steps(self) -> int:
        """Return the maximum number of model calls per prompt."""
        return self._options["max_steps"]

    def get_system_prompt(self) -> str:
        """Return the system prompt."""
        return self._options["system_prompt"]

    def set_system_prompt(self, text: str) -> None:
        """Set the system prompt."""
        self._options["system_prompt"] = text

    def get_temperature(self) -> float | None:
        """Return the temperature; None is not sent."""
        return self._options["temperature"]

    def set_temperature(self, temperature: float | None) -> None:
        """Set the temperature, from 0 to 2. Raises `ValueError`."""
        if temperature is not None and not 0 <= temperature <= 2:
            raise ValueError(f"temperature: expected a number from 0 to 2, found {show(temperature)}")
        self._options["temperature"] = temperature

    async def _answer(self, message: str, options: PromptOptions) -> PromptResult:
        provider, _, name = self.get_model().partition("/")
        work = Prompting(message, options, provider=provider if name else None, model=name or provider)
        try:
            limit_s = LONGEST_PROMPT_S if options.timeout_ms is None else options.timeout_ms / 1000
            result = await self._run_in_time(work, PromptLimit(limit_s))
        except asyncio.CancelledError:
            # After an external cancellation, the partial result is still available.
            self._history.append(work.make_result("the prompt was cancelled", "timeout"))
            raise
        self._history.append(result)
        return result

    async def _run_in_time(self, work: Prompting, limit: PromptLimit) -> PromptResult:
        options, limit_s = self._options, limit.seconds
        if limit_s <= 0:
            return work.make_result(limit.explain_expiry(), "timeout")
        clock = asyncio.get_running_loop().time
        ends = clock() + limit_s
        # The loop ends itself in time, with a partial result. This limit applies if something blocks it longer.
        outer = asyncio.timeout(limit_s + min(1.0, limit_s))
        try:
            async with outer, self._open_model() as model:
                # Lazily connected servers are connected here, within the time of the prompt.
                async with asyncio.timeout_at(ends):
                    tools, manager = options["tools"] or (), options["mcp_client_manager"]
                    if options["tools"] is None and manager is not None:
                        tools = await manager.get_tools()
                settings = AgentSettings(
                    system=options["system_prompt"], max_turns=options["max_steps"], temperature=options["temperature"]
                )
                await work.run(model, tools, settings, ends - clock())
        # Before `ProctorError`, its base class: its code is more precise than `bad_request`.
        except TargetError as fault:
            return work.make_result(str(fault), fault.code)
        except TimeoutError:
            return work.make_result(limit.explain_expiry(), "timeout")
        except ProctorError as error:
            return work.make_result(str(error), "bad_request")
        except Exception as error:
            # A user's model or tool object may raise anything, which must not end the eval.
            return work.make_result(f"{type(error).__name__}: {error}", "agent_failed")
        return work.make_result(limit.explain_expiry(), "timeout") if work.timed_out else work.make_result()

    @asynccontextmanager
    async def _open_model(self) -> AsyncGenerator[ChatModel]:
        """Yield a model for one prompt. Connections belong to an event loop, and an agent outlives many loops, so none are cached."""
        options = self._options
        if not isinstance(options["model"], str):
            yield options["model"]
            return
        access = {key: options[key] for key in ("api_key", "base_url")}
        model = make_model(options["model"], **access, custom=options["custom_providers"], environment=os.environ)
        try:
            yield model
        finally:
            await model.close()


class MockAgent(EvalAgent):
    """An agent that answers by a function, to test evals."""

    def __init__(self, function: Callable[..., PromptResult | Awaitable[PromptResult]]) -> None:
        super().__init__()
        self._function = function

    def with_options(self, **_options: Any) -> Self:
        """Return a new agent with the same function; options have no effect."""
        return type(self)(self._function)

    async def _answer(self, message: str, options: PromptOptions) -> PromptResult:
        answer = self._function(message, options) if _takes_two(self._function) else self._function(message)
        if isawaitable(answer):
            answer = await answer
        # The return value may differ from the annotation.
        if not isinstance(answer, PromptResult):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a mock answers with a PromptResult, found {type(cast(object, answer)).__name__}")
        self._history.append(answer)
        return answer


def _takes_two(function: Callable[..., object]) -> bool:
    try:
        parameters = signature(function).parameters.values()
    # Some functions written in C have no signature.
    except (TypeError, ValueError):
        return False
    kinds = [parameter.kind for parameter in parameters]
    positional = sum(kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)
    return positional >= 2 or Parameter.VAR_POSITIONAL in kinds
