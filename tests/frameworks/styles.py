"""Ways for a model to express the script: by calls, by a tool that ends the loop, by code, or by text that the framework parses.

A style turns the steps of a scenario into the model's output; the intended step is stored with it, for the truth.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.frameworks.shop import Scenario, Step


@dataclass(frozen=True)
class Spoken:
    """The step the model sends, the step it means, and its place in the turn."""

    sent: Step
    means: Step
    place: int


def by_calls(steps: tuple[Step, ...]) -> Iterator[tuple[Step, Step]]:
    for step in steps:
        yield step, step


def by_final_tool(tool: str, parameter: str) -> Callable[[tuple[Step, ...]], Iterator[tuple[Step, Step]]]:
    """The answer is the argument of a tool."""

    def speak(steps: tuple[Step, ...]) -> Iterator[tuple[Step, Step]]:
        for step in steps:
            yield (Step(calls=((tool, {parameter: step.text}),)) if step.text else step), step

    return speak


def by_prefix(prefix: str) -> Callable[[tuple[Step, ...]], Iterator[tuple[Step, Step]]]:
    """Tool names are prefixed with their plugin or server."""

    def speak(steps: tuple[Step, ...]) -> Iterator[tuple[Step, Step]]:
        for step in steps:
            named = Step(calls=tuple((prefix + name, arguments) for name, arguments in step.calls), text=step.text)
            yield named, named

    return speak


def one_by_one(steps: tuple[Step, ...]) -> Iterator[Step]:
    """Each call in its own step, for agents that take one at a time."""
    for step in steps:
        if step.text:
            yield step
        for one in step.calls:
            yield Step(calls=(one,))


def by_single_calls(steps: tuple[Step, ...]) -> Iterator[tuple[Step, Step]]:
    for step in one_by_one(steps):
        yield step, step


def by_code(steps: tuple[Step, ...]) -> Iterator[tuple[Step, Step]]:
    """smolagents' CodeAgent."""
    for step in steps:
        lines = [f"print({name}({', '.join(f'{k}={v!r}' for k, v in arguments.items())}))" for name, arguments in step.calls]
        lines = lines or [f"final_answer({step.text!r})"]
        yield Step(text="Thought: I write code.\n<code>\n" + "\n".join(lines) + "\n</code>"), step


def by_react(steps: tuple[Step, ...]) -> Iterator[tuple[Step, Step]]:
    """Thought, Action and Action Input, as llama-index's ReActAgent reads them."""
    for step in one_by_one(steps):
        if step.text:
            thought = "Thought: I can answer without using any more tools. I'll use the user's language to answer\nAnswer: "
            yield Step(text=thought + step.text), step
        for name, arguments in step.calls:
            yield Step(text=f"Thought: I need a tool.\nAction: {name}\nAction Input: {json.dumps(arguments)}"), step


def by_fields(steps: tuple[Step, ...]) -> Iterator[tuple[Step, Step]]:
    """The fields of dspy's ReAct: thought, tool name and arguments; at the end reasoning and answer."""

    def write(**fields: str) -> Step:
        return Step(text="".join(f"[[ ## {key} ## ]]\n{value}\n\n" for key, value in fields.items()) + "[[ ## completed ## ]]")

    for step in one_by_one(steps):
        for name, arguments in step.calls:
            yield write(next_thought="I need a tool.", next_tool_name=name, next_tool_args=json.dumps(arguments)), step
        if step.text:
            yield write(next_thought="I know enough.", next_tool_name="finish", next_tool_args="{}"), Step()
            yield write(reasoning="All is done.", answer=step.text), step


STYLES: dict[str, Callable[[tuple[Step, ...]], Iterator[tuple[Step, Step]]]] = {
    "calls": by_calls,
    "single_calls": by_single_calls,
    "final_answer": by_final_tool("final_answer", "answer"),
    "beeai_final_answer": by_final_tool("final_answer", "response"),
    "plugin": by_prefix("Shop-"),
    "mcp": by_prefix("mcp__shop__"),
    "code": by_code,
    "react": by_react,
    "fields": by_fields,
}


def speak(scenario: Scenario, style: str) -> list[Spoken]:
    """The model's output in a scenario, step by step."""
    return [Spoken(sent, means, place) for turn in scenario.turns for place, (sent, means) in enumerate(STYLES[style](turn.steps))]
