"""Finds the framework that a returned value is of, and reads it as evidence.

A value is tried with every framework's reader, which knows it by the classes it is of; nothing is imported. What is of a framework and
cannot be read raises `Unreadable`; what is of none is None, and the caller says so.
"""

from __future__ import annotations

from typing import cast

import msgspec

from proctor.evidence.reading import read_document
from proctor.evidence.shared.calls import CONTENT_ERROR
from proctor.evidence.shared.conversation import ENDS_EARLY
from proctor.model.account import CALL_PARTS, Account, Part
from proctor.model.evidence import Evidence, Json, ToolCall
from proctor.model.show import shorten
from proctor.targets.frameworks import (
    ag2,
    ag2_events,
    agent_framework,
    agno,
    agno_workflows,
    autogen,
    crewai,
    dspy,
    google_adk,
    haystack,
    langchain,
    llama_index,
    openai_agents,
    providers,
    pydantic_ai,
    semantic_kernel,
    smolagents,
    strands,
)
from proctor.targets.frameworks.found import EVERYTHING, LOOKS_WHOLE, Found, Framework, read_last
from proctor.targets.frameworks.looking import find_package
from proctor.targets.frameworks.simplify import Budget
from proctor.targets.frameworks.stand_ins import mark_stand_in
from proctor.targets.lost_messages import mark_lost_messages, trust_beginning

FRAMEWORKS: tuple[Framework, ...] = tuple(
    module.FRAMEWORK
    for module in (
        langchain,
        openai_agents,
        pydantic_ai,
        crewai,
        agno_workflows,
        agno,
        smolagents,
        strands,
        llama_index,
        autogen,
        ag2,
        ag2_events,
        google_adk,
        haystack,
        semantic_kernel,
        agent_framework,
        dspy,
        providers,
    )
)
"""Every framework whose values are read."""
FUNCTION_PAGE = "docs/how-to/test-a-python-function.md"
FAILED = "agent_failed"
"""The code of a run that its own framework calls failed."""


def read_returned(value: object) -> Evidence | None:
    """Return the evidence in a value of a framework; None where it is of none that is known."""
    budget = Budget()
    for framework in FRAMEWORKS:
        found = framework.read(value, budget)
        if found is None and framework.read_stream is not None and type(value) is list:
            found = framework.read_stream(cast("list[object]", value), budget)
        if found is not None:
            return _make_evidence(found, framework)
    return _read_last(cast("list[object]", value)) if type(value) is list else None


def _read_last(items: list[object]) -> Evidence | None:
    """Return the evidence in the last item, where it is the result of a framework."""
    budget = Budget()
    for framework in FRAMEWORKS:
        found = read_last(items, framework.read, budget)
        if found is not None:
            return _make_evidence(found, framework)
    return None


def read_streamed(items: list[object]) -> Evidence | None:
    """Return the evidence in the items of a stream; None where they are of no framework that is known."""
    budget = Budget()
    for framework in FRAMEWORKS:
        found = framework.read_stream(items, budget) if framework.read_stream is not None else None
        if found is not None:
            return _make_evidence(found, framework)
    # Pieces of text, or what else a program shows while it works, and at the end the result.
    return _read_last(items)


def find_page(value: object) -> str:
    """Return the guide that helps with a value that cannot be read: its framework's, else that of functions."""
    package = find_package(value)
    if type(value) is list and value:
        package = find_package(cast("list[object]", value)[0])
    for framework in FRAMEWORKS:
        if framework.page and any(package == own or package.startswith(f"{own}.") for own in framework.packages):
            return f"docs/how-to/frameworks/{framework.page}.md"
    return FUNCTION_PAGE


def _make_evidence(found: Found, framework: Framework) -> Evidence:
    # What the framework gave is a whole run unless its reader says otherwise, whether or not it repeats what was said to the agent.
    evidence = read_document(found.document, format=found.format)[0]
    evidence = evidence if found.needs_message else trust_beginning(evidence)
    given = evidence.account or Account()
    unknown: dict[Part, str] = {}
    for part, why in (*given.unknown.items(), *found.unknowns):
        unknown.setdefault(part, why)
    if found.is_over:
        unknown = {part: why for part, why in unknown.items() if part == "answer" or why not in ENDS_EARLY}
    elif unknown.get("answer") in ENDS_EARLY:
        # What was done after the call is as little here as what was said.
        for part in CALL_PARTS:
            unknown.setdefault(part, unknown["answer"])
    if found.usage is None and "tool_calls" in unknown:
        # Steps that are not here spent tokens, too.
        unknown.setdefault("usage", unknown["tool_calls"])
    told = () if framework.tells_end else (f"{framework.name} does not tell why its model stopped: {LOOKS_WHOLE}",)
    reader = given.reader if given.reader not in ("", "plain") else f"{framework.name} result"
    changes: dict[str, Json] = {
        "account": msgspec.structs.replace(
            given, reader=reader, unknown=unknown, notes=tuple(dict.fromkeys((*given.notes, *found.notes, *told)))
        )
    }
    if found.unknowns and given.seen_tools and any(part in CALL_PARTS for part, _ in found.unknowns):
        changes["account"] = msgspec.structs.replace(changes["account"], seen_tools=())
    if found.calls is not None:
        changes["tool_calls"] = (*(evidence.tool_calls or ()), *found.calls)
    if found.body is not None:
        changes["body"] = found.body
        if evidence.text is None:
            changes["text"] = _write_json(found.body)
    if found.usage is not None:
        changes["usage"] = found.usage
        # Of a whole conversation, the tokens of this run are those of its last exchange.
        turns = evidence.turns or ()
        changes["turns"] = (*turns[:-1], msgspec.structs.replace(turns[-1], usage=found.usage)) if turns else None
        changes["account"] = msgspec.structs.replace(
            changes["account"], unknown={part: why for part, why in changes["account"].unknown.items() if part != "usage"}
        )
    made = _mark_raised(msgspec.structs.replace(evidence, **changes), framework.raised)
    made = mark_stand_in(mark_lost_messages(made) if found.needs_message else made)
    return (
        made
        if found.failed is None
        else _mark_failed(made, f"the run of {framework.name} ended in an error: {shorten(found.failed, 2_000)}")
    )


def _mark_failed(evidence: Evidence, error: str) -> Evidence:
    """Return the evidence of a run that ended in an error: what was said to the end of it was said by the error."""
    account = evidence.account or Account()
    unknown = {**account.unknown, **dict.fromkeys((*EVERYTHING, "usage"), error)}
    turns = evidence.turns and (*evidence.turns[:-1], msgspec.structs.replace(evidence.turns[-1], text=None))
    return msgspec.structs.replace(
        evidence,
        text=None,
        body=None,
        turns=turns,
        error=error,
        account=msgspec.structs.replace(account, unknown=unknown, seen_tools=()),
        metadata={**evidence.metadata, "code": FAILED},
    )


def _mark_raised(evidence: Evidence, raised: tuple[str, ...]) -> Evidence:
    """Return the evidence with results that tell of an exception as errors."""
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


def _write_json(body: Json) -> str:
    return msgspec.json.encode(body).decode()
