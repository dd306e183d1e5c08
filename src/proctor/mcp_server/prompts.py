"""Prompts: how to write a suite, with what there is to write it with."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from proctor.actions.help.describe import describe
from proctor.formats.suites import DIALECTS
from proctor.service.refusals import Refusal

_LONGEST = 20_000


class Argument(msgspec.Struct, frozen=True):
    """What a prompt takes."""

    name: str
    about: str
    required: bool = False


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt."""

    name: str
    title: str
    about: str
    arguments: tuple[Argument, ...]


WRITE_SUITE = Prompt(
    name="write_suite",
    title="Write a suite",
    about="Write a suite for an agent, validate it, try it on evidence, and report.",
    arguments=(
        Argument("goal", "what the agent must and must not do, in your own words", required=True),
        Argument("tools", "the tools the agent has, with their arguments, where you know them"),
        Argument("dialect", f"the format to write: {', '.join(DIALECTS)} (default native)"),
        Argument("file", "where to put the suite (default suite.yaml)"),
    ),
)
PROMPTS = (WRITE_SUITE,)

_EXAMPLE = """\
proctor: 1
name: booking
cases:
  - id: books-the-named-doctor
    input: Book an appointment with Dr. Rivera on Monday
    expect:
      - tool_called: {name: create_appointment, arguments: {doctor: Dr. Rivera}}
      - response_contains: Rivera
      - no_tool_errors: {}
"""


def fill_prompt(name: str, given: Mapping[str, str]) -> tuple[str, str]:
    """What a prompt is about, and its text with the arguments put in; raises a `Refusal`."""
    known = {prompt.name: prompt for prompt in PROMPTS}
    prompt = known.get(name)
    if prompt is None:
        raise Refusal("NOT_FOUND", f"there is no prompt {name!r}; there are {', '.join(known)}")
    wrong = {word: ["unknown argument"] for word in given if word not in {argument.name for argument in prompt.arguments}}
    wrong |= {
        argument.name: ["required"] for argument in prompt.arguments if argument.required and not given.get(argument.name, "").strip()
    }
    dialect = given.get("dialect") or "native"
    if dialect not in DIALECTS:
        wrong["dialect"] = [f"expected one of {', '.join(DIALECTS)}"]
    if wrong:
        raise Refusal(
            "VALIDATION_ERROR", f"the prompt cannot be filled in: {next(iter(wrong))}: {next(iter(wrong.values()))[0]}", fields=wrong
        )
    return prompt.about, _write_suite(given, dialect)


def _write_suite(given: Mapping[str, str], dialect: str) -> str:
    checks = "\n".join(f"- `{entry.name}`: {entry.summary}" for entry in describe("checks"))
    tools = f"\n## The agent's tools\n\n{given['tools'][:_LONGEST]}\n" if given.get("tools", "").strip() else ""
    example = (
        f"\n```yaml\n{_EXAMPLE}```\n"
        if dialect == "native"
        else f"\nIts reference is the resource proctor://docs/reference/{dialect}.md.\n"
    )
    return f"""\
Write a proctor suite ({dialect} format) into {given.get("file") or "suite.yaml"} for this agent.

## What it must and must not do

{given["goal"][:_LONGEST]}
{tools}
## How to go about it

1. One case per situation: the user's message, and what must then be true. Include at least one thing that must not happen.
2. Assert what can be observed: which tools were called, with which arguments, in which order; what the answer contains; how long it took.
   Prefer exact checks to judged prose; use a judged check only if no exact one fits.
3. Look up fields and examples with the tool `describe` (kind `check`, and the name) before you use a check.
4. After every change call `validate_suite`, and mend every problem at the line and column it names.
5. Try it: call `check_evidence` with evidence that should pass and with evidence that should fail. A suite that nothing fails is of no use.
6. With a target configured, `run_suite` drives the real agent; `get_run` and `compare_runs` show what came of it.

## The format
{example}
## The checks there are

{checks}
"""
