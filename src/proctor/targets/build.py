"""Builds a target from settings: a closed set of kinds, chosen by `type`.

Settings come as a section of a workspace or a suite (problems are reported at their place), or as a mapping from Python. Building
opens nothing and sends nothing; `open` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from proctor.cassettes.ports import Tape
from proctor.errors import InputError, SpecError
from proctor.formats.text.references import References
from proctor.formats.workspace_file import Section
from proctor.llm.ports import ChatModel
from proctor.model.attempt import Attempt
from proctor.model.case import Case, Suite
from proctor.model.evidence import Evidence, Json
from proctor.model.problem import Problem
from proctor.model.show import show

if TYPE_CHECKING:
    from proctor.targets.shared.wire import MakeTransport

TYPES: dict[str, str] = {
    "http": "an agent with an HTTP API",
    "flowise": "a flow of Flowise",
    "n8n": "a workflow of n8n",
    "mcp_agent": "our agent loop over a chat model and MCP servers",
    "callable": "a Python function",
    "command": "a program that reads the message and prints the answer",
    "recorded": "an agent that was recorded",
}
"""Every kind of target, with a description."""


class BuiltTarget(Protocol):
    """A target that the runner can drive, built from settings."""

    @property
    def name(self) -> str:
        """The name that reports show."""
        ...

    async def open(self) -> None:
        """Open resources shared by all attempts."""
        ...

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Drive the agent through the case."""
        ...

    async def close(self) -> None:
        """Close everything that `open` opened."""
        ...


def build_target(
    name: str,
    settings: Section | Mapping[str, Json],
    references: References | None = None,
    *,
    base: Path | None = None,
    model_for: Callable[[Tape], ChatModel] | None = None,
    offline: bool = False,
    transport: MakeTransport | None = None,
) -> BuiltTarget:
    """Return the target that `settings` describe; raises `InputError` with every problem in them.

    Relative files and modules are searched next to the file that names them, else in the folder `base`. For an `mcp_agent`, `model_for`
    creates its model, and `offline` means that everything comes from a tape. `transport` makes the HTTP connections, if given.
    """
    section = settings if isinstance(settings, Section) else Section.of(settings, path=f"$.targets.{name}")
    known = references or References({})
    if section.file is not None:
        base = Path(section.file).resolve().parent
    given = section.node.get("type")
    if given is None:
        raise section.unknown_member_error("type", f"target {name!r} needs 'type'", TYPES, code="missing_key")
    kind = given.value
    if not isinstance(kind, str) or kind not in TYPES:
        raise section.unknown_member_error("type", f"target {name!r}: unknown type {show(given.plain(), 60)}", TYPES, code="wrong_value")
    try:
        if kind == "mcp_agent":
            from proctor.targets.mcp.agent import build_mcp_agent  # loads the MCP client

            if model_for is None:
                raise SpecError(f"target {name!r} needs a model: `model` names one of `models`", field="model")
            return build_mcp_agent(section.plain(known), name=name, model_for=model_for, offline=offline, transport=transport)
        return _build_kind(kind, name, section, known, base, transport)
    except SpecError as error:
        raise section.refusal_error(error) from error


def problems_with(target: object, cases: Iterable[Case]) -> list[Problem]:
    """Return the problems that can be detected before anything is sent, such as a template with a variable that a case lacks."""
    look = getattr(target, "problems_with", None)
    return list(look(cases)) if look is not None else []


def check_cases(target: object, suite: Suite) -> None:
    """Raise `InputError` for cases that `target` cannot send, and pass the cases to a target of recordings."""
    learn = getattr(target, "learn_cases", None)
    if learn is not None:
        learn(suite.cases, suite.unselected)
    problems = [*problems_with(target, suite.cases), *_refuse_users(target, suite.cases)]
    if problems:
        raise InputError(problems[0].message, problems)


def _refuse_users(target: object, cases: Iterable[Case]) -> list[Problem]:
    """Return the cases with a simulated user if `target` does not support one (`takes_speakers`)."""
    if getattr(target, "takes_speakers", False):
        return []
    name = getattr(target, "name", type(target).__name__)
    return [
        Problem(
            message=f"case {case.id!r} has a simulated user, and the target {show(name, 80)} cannot hold a conversation with one",
            origin=case.origin,
            hint="a target of type http, n8n, flowise, mcp_agent, callable or command can",
            code="unsupported_user",
        )
        for case in cases
        if case.user is not None and case.skip is None
    ]


def _build_kind(
    kind: str, name: str, section: Section, references: References, base: Path | None, transport: MakeTransport | None
) -> BuiltTarget:
    # A run needs one of the kinds, and some of them are slow to load.
    what = f"target {name!r}"
    match kind:
        case "http":
            from proctor.targets.platforms.http import HttpSettings, HttpTarget

            settings = section.build(HttpSettings, references, what)
            return HttpTarget(name, settings, secrets=references.secrets, transport=transport)
        case "flowise":
            from proctor.targets.platforms.flowise import FlowiseSettings, FlowiseTarget

            flow = section.build(FlowiseSettings, references, what)
            return FlowiseTarget(name, flow, secrets=references.secrets, transport=transport)
        case "n8n":
            from proctor.targets.platforms.n8n import N8nSettings, N8nTarget

            workflow = section.build(N8nSettings, references, what)
            return N8nTarget(name, workflow, secrets=references.secrets, transport=transport)
        case "callable":
            from proctor.targets.local.callable import CallableSettings, CallableTarget, load_function

            function = section.build(CallableSettings, references, what)
            loaded = load_function(function.function, base=base, trusted=section.trusted)
            return CallableTarget(name, loaded, timeout_s=function.timeout_s, capture=function.capture)
        case "command":
            from proctor.targets.local.command import CommandSettings, CommandTarget

            program = section.build(CommandSettings, references, what)
            # A program named by a foreign suite must not see the keys in this environment.
            return CommandTarget(name, program, base=base, secrets=references.secrets, whole_environment=section.trusted)
        case _:
            from proctor.targets.local.recorded import RecordedSettings, RecordedTarget

            return RecordedTarget(name, section.build(RecordedSettings, references, what), base=base)
