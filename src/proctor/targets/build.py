"""Builds a target from settings: a closed set of kinds, chosen by `type`.

Settings come as a section of a workspace or a suite (problems are reported at their place), or as a mapping from Python. Building
opens nothing and sends nothing; `open` does.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.cassettes.ports import Tape
from proctor.errors import InputError, SpecError
from proctor.formats.text.references import References
from proctor.formats.workspace_file import Section
from proctor.llm.ports import ChatModel
from proctor.model.case import Case, Suite
from proctor.model.evidence import Json
from proctor.model.problem import Problem
from proctor.model.show import show

if TYPE_CHECKING:
    from proctor.targets.local.callable import CallableTarget
    from proctor.targets.local.command import CommandTarget
    from proctor.targets.local.recorded import RecordedTarget
    from proctor.targets.mcp.agent import McpAgent
    from proctor.targets.platforms.http import WireTarget
    from proctor.targets.shared.wire import MakeTransport

    BuiltTarget = CallableTarget | CommandTarget | McpAgent | RecordedTarget | WireTarget

TYPES: dict[str, str] = {
    "http": "an agent with an HTTP API",
    "flowise": "a flow of Flowise",
    "n8n": "a workflow of n8n",
    "mcp_agent": "our agent loop over a chat model and MCP servers",
    "callable": "a Python function",
    "command": "a program that reads the message and prints the answer",
    "recorded": "an agent that was recorded",
}
_MODULES = {
    "http": ("platforms.http", "Http"),
    "flowise": ("platforms.flowise", "Flowise"),
    "n8n": ("platforms.n8n", "N8n"),
    "callable": ("local.callable", "Callable"),
    "command": ("local.command", "Command"),
    "recorded": ("local.recorded", "Recorded"),
}
"""The module of each kind, and what the names of its settings and its target begin with."""


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
    node = section.node.get("type")
    if node is None:
        raise section.unknown_member_error("type", f"target {name!r} needs 'type'", TYPES, code="missing_key")
    kind = node.value
    if not isinstance(kind, str) or kind not in TYPES:
        raise section.unknown_member_error("type", f"target {name!r}: unknown type {show(node.plain(), 60)}", TYPES, code="wrong_value")
    try:
        if kind == "mcp_agent":
            from proctor.targets.mcp.agent import build_mcp_agent  # loads the MCP client

            if model_for is None:
                raise SpecError(f"target {name!r} needs a model: `model` names one of `models`", field="model")
            return build_mcp_agent(section.plain(known), name=name, model_for=model_for, offline=offline, transport=transport)
        module_name, prefix = _MODULES[kind]
        module = importlib.import_module(f"proctor.targets.{module_name}")  # each kind is loaded only if it is used
        target = getattr(module, f"{prefix}Target")
        read = section.build(getattr(module, f"{prefix}Settings"), known, f"target {name!r}")
        if kind == "callable":
            function = module.load_function(read.function, base=base, trusted=section.trusted)
            return target(name, function, timeout_s=read.timeout_s, capture=read.capture)
        if kind == "command":
            # A program named by a foreign suite must not see the keys in this environment.
            return target(name, read, base=base, secrets=known.secrets, whole_environment=section.trusted)
        if kind == "recorded":
            return target(name, read, base=base)
        return target(name, read, secrets=known.secrets, transport=transport)
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
