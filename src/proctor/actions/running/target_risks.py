"""Warnings about targets: before a run conversations that are lost or mixed and tools that do not exist, after it what was not recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from proctor.checks.registry import Registry
from proctor.model.case import Suite
from proctor.model.lazy_cases import may_have
from proctor.runner.ports import Target


def list_risks(driven: Sequence[tuple[Target, Suite]], registry: Registry) -> list[str]:
    """Return a warning for everything that the targets say of themselves, each with the cases that it gets."""
    return list(dict.fromkeys(line for target, suite in driven for line in _describe_risks(target, suite, registry)))


def list_warnings(driven: Sequence[tuple[Target, Suite]]) -> list[str]:
    """Return the warnings that the run showed to be due, each once."""
    return list(dict.fromkeys(line for target, _ in driven for line in _ask(target, "list_warnings") or ()))


def _describe_risks(target: Target, suite: Suite, registry: Registry) -> Iterator[str]:
    shared: str | None = _ask(target, "describe_risk")
    if shared:
        yield shared
    forgets: str | None = None if shared else _ask(target, "describe_forgetting")
    if forgets and (case := _find_conversation(suite)) is not None:
        yield (
            f"warning: target {target.name!r} cannot tell conversations apart: {forgets}; what was said in earlier turns of {case!r} "
            "is forgotten, or mixed with other cases"
        )
    tools: frozenset[str] | None = _ask(target, "find_tools")
    if tools:
        from proctor.actions.workspace.tool_names import list_unknown_tools  # only of some agents the tools are known

        yield from list_unknown_tools(suite, tools, registry)


def _find_conversation(suite: Suite) -> str | None:
    """Return the id of the first case in which something is said after an answer."""
    if not may_have(suite.cases, "turns", "user"):
        return None
    spoken = (case.id for case in suite.cases if case.skip is None and (len(case.turns) > 1 or case.user is not None))
    return next(spoken, None)


def _ask(target: Target, question: str) -> Any:
    """Return what a target answers to a question that only some can be asked; None where it cannot."""
    answer: Callable[[], Any] | None = getattr(target, question, None)
    return None if answer is None else answer()
