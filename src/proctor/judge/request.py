"""Builds one request to a judge: the trusted words, the checks, and the material behind its fence.

The system message says how to judge, what the reply looks like and where the data stands. The user message holds the checks (the
author's words), then the data, then a reminder: the last word is ours. Outside the fence nothing depends on the material but the marker
and the number of cuts. Texts are put together by concatenation; nothing that holds data is ever a template.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from proctor.judge.bounds import show_material
from proctor.judge.prompt import Prompt
from proctor.llm import fence
from proctor.llm.ports import ChatMessage
from proctor.model.evidence import Json
from proctor.model.judgement import Material, Question

# Name and ids are those of MCPLab's own requests to a judge.
SCHEMA_NAME = "judge_batch_result"


class RenderedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request, ready to be sent."""

    messages: tuple[ChatMessage, ...]
    schema: dict[str, Json]
    """The shape of the reply."""
    schema_name: str = SCHEMA_NAME
    ids: tuple[str, ...]
    """`ids[i]` is what the judge calls `questions[i]`."""
    marker: str
    cuts: tuple[str, ...] = ()
    """What of the material was shortened, in words."""


def render_request(
    questions: Sequence[Question], *, prompt: Prompt, max_chars: int, order_seed: int, repair: str | None = None
) -> RenderedRequest:
    """Return the request that asks `questions`, which share one material and are either all scored or all yes/no.

    `repair` says what was wrong with an earlier reply. It may quote that reply, and by that the agent, so it is shown as data.
    """
    scored = _is_scored(questions)
    shown = show_material(questions[0].material, max_chars=max_chars, fault=repair)
    ids = tuple(f"agent-check-{number}" for number in range(1, len(questions) + 1))
    checks = [_write_check(id_, question) for id_, question in zip(ids, questions, strict=True)]
    shape = prompt.scores if scored else prompt.passes
    before = f"{prompt.opening}\n{fence.encode_line(_shuffle_checks(checks, order_seed))}\n\n{prompt.lead_in}\n"
    reminder = prompt.reminder.replace("{{cuts}}", str(shown.places)).replace("{{ids}}", ", ".join(ids))
    after = f"\n{reminder}\n{shape}" if repair is None else f"\n{reminder}\n{prompt.again}\n{shape}"
    instruction = f"{prompt.instruction}\n\n{shape}\n\n"
    # Of everything but the marker itself, so that the same request always has the same one.
    marker = fence.choose_marker(instruction, prompt.boundary, before, shown.line, after)
    return RenderedRequest(
        messages=(
            ChatMessage(role="system", text=instruction + prompt.boundary.replace("{{marker}}", marker)),
            ChatMessage(role="user", text=before + fence.fence_line(shown.line, marker) + after),
        ),
        schema=reply_schema(scored=scored, ids=ids),
        ids=ids,
        marker=marker,
        cuts=shown.cuts,
    )


def reply_schema(*, scored: bool, ids: Sequence[str] = ()) -> dict[str, Json]:
    """Return the JSON Schema of a reply. The bounds of a score are not in it: several providers refuse a schema that has any.

    With `ids` it says which results there are and how many: a small model that is held to the shape finds no end without.
    """
    decision: dict[str, Json] = {"score": {"type": "number", "description": "from 0 to 1"}} if scored else {"pass": {"type": "boolean"}}
    named: dict[str, Json] = {"type": "string", "enum": list(ids)} if ids else {"type": "string"}
    members: dict[str, Json] = {"id": named, **decision, "reason": {"type": "string"}}
    item = {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}
    return {
        "type": "object",
        "properties": {"results": {"type": "array", "items": item, **({"minItems": len(ids), "maxItems": len(ids)} if ids else {})}},
        "required": ["results"],
        "additionalProperties": False,
    }


def without_ids(schema: dict[str, Json]) -> dict[str, Json]:
    """Return the schema of a reply that does not list which results there are."""
    return reply_schema(scored="score" in schema["properties"]["results"]["items"]["properties"])


def _is_scored(questions: Sequence[Question]) -> bool:
    """Return whether the questions are scored. Raises `ValueError` where they cannot be asked in one request."""
    if not questions:
        raise ValueError("a request needs at least one question")
    first = questions[0]
    for question in questions:
        if (question.threshold is None) != (first.threshold is None):
            raise ValueError("scored questions and yes/no questions are asked in requests of their own")
        if question.material is not first.material and not _is_same_material(question.material, first.material):
            raise ValueError("the questions of one request share one material")
    return first.threshold is not None


def _is_same_material(one: Material, other: Material) -> bool:
    try:
        return one == other
    except RecursionError:
        # Nested beyond what Python compares: equal is then what looks the same to a judge.
        return show_material(one, max_chars=1_000_000) == show_material(other, max_chars=1_000_000)


def _write_check(id_: str, question: Question) -> dict[str, Json]:
    check: dict[str, Json] = {
        "id": id_,
        "rule": "must_not" if question.forbidden else "must",
        "criterion": _drop_surrogates(question.criterion),
    }
    if question.label and question.label != question.criterion:
        check["label"] = _drop_surrogates(question.label)
    if question.grounded:
        check["grounded"] = True
    if question.rubric:
        check["rubric"] = [_drop_surrogates(point) for point in question.rubric]
    if question.reference is not None:
        check["reference"] = _drop_surrogates(question.reference)
    return check


def _drop_surrogates(text: str) -> str:
    """Return an author's text, which is trusted, without lone surrogates, which cannot be sent."""
    return text if text.isascii() else text.encode("utf-8", "ignore").decode()


def _shuffle_checks(checks: list[dict[str, Json]], seed: int) -> list[dict[str, Json]]:
    """Return the checks in another order, the same for the same seed with every version of Python."""
    # By a digest and not by `random`, whose shuffle may differ between versions of Python: the cache lives by the same request.
    if len(checks) < 2:
        return checks
    return sorted(checks, key=lambda check: sha256(f"{seed}:{check['id']}".encode()).digest())
