"""Never green without having looked, over message lists: no change into something unknown makes a failing check pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path as FilePath
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.checks.registry import default_registry
from proctor.errors import EvidenceError
from proctor.evidence.messages.formats import MESSAGE_FORMATS, recognise_formats
from proctor.evidence.reading import read_document
from proctor.model.evidence import Evidence
from proctor.model.verdict import Verdict
from tests.evidence.gap_marks import OWN, named_marks, shortened
from tests.evidence.message_samples import NAMES, documents
from tests.evidence.mutations import Mutation, Path, mutate, mutations
from tests.tables import load

SAMPLES = FilePath(__file__).parents[1] / "samples"


def readable_rows() -> Iterator[dict[str, Any]]:
    """The rows of all tables of message lists that are read, each with its document."""
    for table in ("messages", "messages_gaps", "messages_answers"):
        for row in load(f"evidence/cases/{table}.yaml"):
            if "expect" in row:
                yield {"given": msgspec.json.decode((SAMPLES / row["file"]).read_bytes())} | row if "file" in row else row


ROWS = tuple(readable_rows())
Decide = Callable[[Evidence], Verdict]
Failing = dict[str, Decide]


def prepared(name: str, spec: dict[str, Any]) -> Decide:
    registry = default_registry()
    return registry.prepare(name, msgspec.convert(spec, registry.get(name).spec))


def failing_checks(evidence: Evidence) -> Failing:
    """Checks of absence that fail on this evidence."""
    names = [call.name for call in evidence.tool_calls or ()]
    claims: dict[str, Decide] = {"no_tools_called": prepared("no_tools_called", {}), "no_tool_errors": prepared("no_tool_errors", {})}
    claims["tools_exactly none"] = prepared("tools_exactly", {"names": []})
    claims["tools_exactly fewer"] = prepared("tools_exactly", {"names": names[:-1]})
    for name in set(names):
        claims[f"tool_not_called {name}"] = prepared("tool_not_called", {"name": name})
        claims[f"tool_call_count {name}"] = prepared("tool_call_count", {"name": name, "count": 0})
    if evidence.text:
        claims["response_not_contains"] = prepared("response_not_contains", {"text": evidence.text})
    total = evidence.usage.total() if evidence.usage is not None else None
    if total:
        claims["tokens_within"] = prepared("tokens_within", {"total": total - 1})
    return {claim: decide for claim, decide in claims.items() if decide(evidence).outcome == "fail"}


def passes_after(document: Any, failing: Failing, format: str | None = None) -> list[str]:
    """Return the checks that pass on a changed document; a refused document passes none."""
    try:
        found = read_document(document, format=format)
    except EvidenceError:
        return []
    return [claim for claim, decide in failing.items() for evidence in found if decide(evidence).outcome == "pass"]


def one(document: Any, format: str | None = None) -> Evidence | None:
    try:
        found = read_document(document, format=format)
    except EvidenceError:
        return None
    return found[0] if len(found) == 1 else None


def all_documents() -> Iterator[tuple[str, Any, str | None]]:
    for name in NAMES:
        for scenario, document in documents(name).items():
            yield f"{name} {scenario}", document, None
    for row in ROWS:
        yield row["id"], row["given"], row.get("format")


@pytest.mark.in_turn
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.timeout(60)
def test_no_change_of_any_key_of_a_recorded_message_list_makes_a_failing_check_pass(name: str) -> None:
    document = documents(name).get("error") or documents(name)["sequential"]
    evidence = one(document)
    assert evidence is not None
    failing = failing_checks(evidence)
    wrong = {mutation: claims for mutation in mutations(document) if (claims := passes_after(mutate(document, mutation), failing))}
    assert not wrong


@pytest.mark.in_turn
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_no_change_of_any_key_of_a_row_makes_a_failing_check_pass(row: dict[str, Any]) -> None:
    evidence = one(row["given"], row.get("format"))
    assert evidence is not None
    failing = failing_checks(evidence)
    wrong = {
        mutation: claims
        for mutation in mutations(row["given"])
        if (claims := passes_after(mutate(row["given"], mutation), failing, row.get("format")))
    }
    assert not wrong


@pytest.mark.parametrize("name", NAMES)
def test_a_marked_shortened_list_passes_no_check_that_fails_on_the_whole(name: str) -> None:
    document = documents(name).get("error") or documents(name)["sequential"]
    evidence, tail = one(document), shortened(document)
    assert evidence is not None
    if tail is None:
        return
    (format,) = recognise_formats(document)
    failing = failing_checks(evidence)
    marks = {**dict(named_marks()), **OWN.get(format, {})}
    assert not {label: claims for label, mark in marks.items() if (claims := passes_about_tools(mark(tail), failing, format))}


def passes_about_tools(document: Any, failing: Failing, format: str | None) -> list[str]:
    # The answer itself may be complete; calls, turns and tokens before it are missing.
    return [claim for claim in passes_after(document, failing, format) if claim != "response_not_contains"]


def test_without_a_mark_a_shortened_list_passes_claims_of_absence() -> None:
    # No reader can detect this, so the docs require the whole list. It also shows that the marks above decide.
    blind = {name for name in NAMES if (tail := shortened(documents(name)["sequential"])) is not None and is_blind(name, tail)}
    assert {"openai-chat", "openai-responses", "pydantic-ai-messages", "langchain-lc", "agent-framework"} <= blind


def is_blind(name: str, tail: list[Any]) -> bool:
    whole = documents(name)["sequential"]
    evidence = one(whole)
    return evidence is not None and "no_tools_called" in passes_after(tail, failing_checks(evidence), recognise_formats(whole)[0])


_SAMPLES = list(all_documents())


def starts(path: Path, beginning: Path) -> bool:
    return path[: len(beginning)] == beginning


@cache
def prepared_sample(index: int) -> tuple[Failing, list[Mutation]]:
    _, document, format = _SAMPLES[index]
    evidence = one(document, format)
    return ({}, []) if evidence is None else (failing_checks(evidence), list(mutations(document)))


@given(data=st.data())
@settings(max_examples=2000, deadline=None)
@pytest.mark.timeout(60)
def test_no_two_changes_turn_a_failing_check_green(data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(_SAMPLES) - 1))
    _, document, format = _SAMPLES[index]
    failing, possible = prepared_sample(index)
    if not possible:
        return
    first = data.draw(st.sampled_from(possible))
    document = mutate(document, first)
    if data.draw(st.booleans()):
        # Elsewhere: a second change at the same place could undo the first.
        others = [mutation for mutation in mutations(document) if not (starts(mutation[1], first[1]) or starts(first[1], mutation[1]))]
        document = mutate(document, data.draw(st.sampled_from(others))) if others else document
    named = data.draw(st.sampled_from([format, *MESSAGE_FORMATS]))
    if named == format:
        assert not passes_after(document, failing, format)
    else:
        # Under the name of another format the pieces of one answer may be messages of their own, and tokens have other names.
        assert not [claim for claim in passes_about_tools(document, failing, named) if claim != "tokens_within"]
