"""A message list that ends before the agent finished leaves open the answer and further calls, in every recorded format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from proctor.evidence.reading import read_document
from tests.evidence.message_samples import NAMES, TRUTHS, documents
from tests.evidence.messages.test_recorded import REFUSED
from tests.evidence.mutants import Place, apply

LISTS: tuple[Place, ...] = (
    (),
    ("messages",),
    ("events",),
    (0, "messages"),
    ("llm_context", "messages"),
    ("state", "in_memory", "messages"),
)
OTHERS = frozenset(("agno-run", "openai-assistants", "smolagents-steps", "beeai", "ag2-history"))
"""Formats that record the end of a run elsewhere, answer through a tool, or cannot be recognised by their beginning."""


def unfinished(name: str, scenario: str) -> Iterator[Any]:
    """The beginnings of a recorded list that end in a question, in a call or in a result."""
    document, truth = documents(name).get(scenario), TRUTHS[name]["scenarios"].get(scenario)
    if document is None or truth is None or (name, scenario) in REFUSED:
        return
    place = next(place for place in reversed(LISTS) if isinstance(at(document, place), list))
    listed = at(document, place)
    answers = {json.dumps(text)[1:-1] for text in (truth["text"], *(turn["text"] for turn in truth.get("turns", ())))}
    question = next(index for index, entry in enumerate(listed) if "system" not in (entry.get("role"), entry.get("type")))
    for end in range(question + 1, len(listed)):
        last = json.dumps(listed[end - 1])
        if not any(answer in last for answer in answers):
            yield apply(document, ("cut", place, lambda value, end=end: value[:end]))


def at(document: Any, place: Place) -> Any:
    """Return the value at a place, or None."""
    try:
        for step in place:
            document = document[step]
    except (KeyError, IndexError, TypeError):
        return None
    return document


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OTHERS])
@pytest.mark.parametrize("scenario", ["sequential", "multi"])
def test_a_list_without_its_end_leaves_open_the_answer_and_further_calls(name: str, scenario: str) -> None:
    wrong: list[str] = []
    for document in unfinished(name, scenario):
        [evidence] = read_document(document)
        unknown = evidence.account.unknown if evidence.account is not None else {}
        missing = {"answer", "tool_calls"} - set(unknown)
        if missing or evidence.text:
            wrong.append(f"known: {sorted(missing)}, text {evidence.text!r} after {json.dumps(document)[-150:]}")
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:10])
