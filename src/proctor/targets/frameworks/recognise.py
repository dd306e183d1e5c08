"""Finds the framework of a returned value, and reads the value as evidence.

Every framework's reader recognises values by their classes, without importing the framework. A value of a framework that cannot be read
raises `Unreadable`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import cast

import msgspec

from proctor.evidence.reading import read_document
from proctor.evidence.shared.calls import CONTENT_ERROR
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.text import as_text
from proctor.model.account import CALL_PARTS, Account
from proctor.model.evidence import Evidence, ToolCall
from proctor.model.show import shorten
from proctor.targets import frameworks
from proctor.targets.answers.account import AGENT_FAILED, UNFINISHED, add_account, mark_messages, mark_unknown, trust_end, trust_start
from proctor.targets.frameworks.base import EVERYTHING, LOOKS_WHOLE, Framework, RunData, find_package, mark_stand_in, read_last
from proctor.targets.frameworks.simplify import Budget

# Every module next to this one that declares a framework.
_MODULES = [importlib.import_module(f"{frameworks.__name__}.{found.name}") for found in pkgutil.iter_modules(frameworks.__path__)]
FRAMEWORKS: tuple[Framework, ...] = tuple(module.FRAMEWORK for module in _MODULES if hasattr(module, "FRAMEWORK"))
FUNCTION_PAGE = "docs/how-to/test-a-python-function.md"


def read_returned(value: object) -> Evidence | None:
    """Return the evidence in a value of a framework; None for any other value."""
    if type(value) is not list:
        return _read_first(lambda framework, budget: framework.read(value, budget))
    items = cast("list[object]", value)
    found = _read_first(lambda framework, budget: framework.read(value, budget) or _read_items(framework, items, budget))
    return found or _read_last(items)


def read_streamed(items: list[object]) -> Evidence | None:
    """Return the evidence in the items of a stream; None if they belong to no known framework."""
    # A stream of text or progress messages ends with the result.
    return _read_first(lambda framework, budget: _read_items(framework, items, budget)) or _read_last(items)


def _read_items(framework: Framework, items: list[object], budget: Budget) -> RunData | None:
    return framework.read_stream(items, budget) if framework.read_stream is not None else None


def _read_last(items: list[object]) -> Evidence | None:
    return _read_first(lambda framework, budget: read_last(items, framework.read, budget))


def _read_first(read: Callable[[Framework, Budget], RunData | None]) -> Evidence | None:
    """Return the evidence of the first framework whose reader recognises the value."""
    budget = Budget()
    for framework in FRAMEWORKS:
        run = read(framework, budget)
        if run is not None:
            return _make_evidence(run, framework)
    return None


def find_page(value: object) -> str:
    """Return the guide for an unreadable value: its framework's, else the one for functions."""
    package = find_package(value)
    if type(value) is list and value:
        package = find_package(cast("list[object]", value)[0])
    for framework in FRAMEWORKS:
        if framework.page and any(package == own or package.startswith(f"{own}.") for own in framework.packages):
            return f"docs/how-to/frameworks/{framework.page}.md"
    return FUNCTION_PAGE


def _make_evidence(run: RunData, framework: Framework) -> Evidence:
    evidence = read_document(run.document, format=run.format)[0]
    # A framework's result is a complete run unless its reader marks otherwise, even if it does not repeat the user's message.
    evidence = evidence if run.needs_message else trust_start(evidence)
    for part, why in run.unknowns:
        evidence = mark_unknown(evidence, (part,), why)
    evidence = trust_end(evidence, CALL_PARTS) if run.is_over else evidence
    unknown = (evidence.account or Account()).unknown
    if unknown.get("answer") in UNFINISHED and not run.is_over:
        # Calls after the last one may be missing as well as the answer.
        evidence = mark_unknown(evidence, CALL_PARTS, unknown["answer"])
    if run.usage is None and "tool_calls" in unknown:
        # Missing steps used tokens, too.
        evidence = mark_unknown(evidence, ("usage",), unknown["tool_calls"])
    if run.calls is not None:
        evidence = msgspec.structs.replace(evidence, tool_calls=(*(evidence.tool_calls or ()), *run.calls))
    if run.body is not None:
        evidence = msgspec.structs.replace(evidence, body=run.body, text=evidence.text or as_text(run.body))
    if run.usage is not None:
        # For a whole conversation, the tokens of this run are those of its last exchange.
        turns = evidence.turns and (*evidence.turns[:-1], msgspec.structs.replace(evidence.turns[-1], usage=run.usage))
        account = evidence.account or Account()
        account = msgspec.structs.replace(account, unknown={part: why for part, why in account.unknown.items() if part != "usage"})
        evidence = msgspec.structs.replace(evidence, usage=run.usage, turns=turns, account=account)
    unknowns = Unknowns()
    unknowns.notes = [*run.notes]
    if not framework.has_stop_reason:
        unknowns.note(f"{framework.name} does not report why its model stopped: {LOOKS_WHOLE}")
    evidence = _mark_raised(add_account(evidence, unknowns, f"{framework.name} result"), framework.raised)
    evidence = mark_stand_in(mark_messages(evidence) if run.needs_message else evidence)
    if run.failed is None:
        return evidence
    # The last text of a run that ended in an error is the error's.
    error = f"the run of {framework.name} ended in an error: {shorten(run.failed, 2_000)}"
    turns = evidence.turns and (*evidence.turns[:-1], msgspec.structs.replace(evidence.turns[-1], text=None))
    evidence = mark_unknown(evidence, (*EVERYTHING, "usage"), error, is_cause=True)
    metadata = {**evidence.metadata, "code": AGENT_FAILED}
    return msgspec.structs.replace(evidence, text=None, body=None, turns=turns, error=error, metadata=metadata)


def _mark_raised(evidence: Evidence, raised: tuple[str, ...]) -> Evidence:
    if not raised or not evidence.tool_calls:
        return evidence
    turns = tuple(msgspec.structs.replace(turn, tool_calls=_mark_calls(turn.tool_calls, raised)) for turn in evidence.turns or ())
    return msgspec.structs.replace(evidence, tool_calls=_mark_calls(evidence.tool_calls, raised), turns=turns or None)


def _mark_calls(calls: tuple[ToolCall, ...] | None, raised: tuple[str, ...]) -> tuple[ToolCall, ...] | None:
    if calls is None:
        return None
    return tuple(
        msgspec.structs.replace(call, result=None, error=call.result, error_kind=CONTENT_ERROR)
        if isinstance(call.result, str) and call.result.startswith(raised) and not call.failed()
        else call
        for call in calls
    )
