"""Builds one request to a judge: the trusted text, the checks, and the fenced material.

The system message describes how to judge, the reply format and where the data is. The user message holds the checks (the author's words),
then the data, then a reminder, so that the last words are ours. Outside the fence only the ids, the marker and the number of cuts depend
on the material. Texts are concatenated; nothing that contains data is used as a template.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from proctor.judge.bounds import show_material
from proctor.judge.prompt import Prompt
from proctor.llm import fence
from proctor.llm.ports import Attachment, ChatMessage
from proctor.model.evidence import Json
from proctor.model.judgement import Question

# The name of MCPLab's own requests to a judge.
SCHEMA_NAME = "judge_batch_result"


class RenderedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request, ready to be sent."""

    messages: tuple[ChatMessage, ...]
    schema: dict[str, Json]
    """The shape of the reply."""
    schema_name: str = SCHEMA_NAME
    ids: tuple[str, ...]
    """`ids[i]` is the judge's id for `questions[i]`."""
    marker: str
    line: str
    """The material as it is shown."""
    cuts: tuple[str, ...] = ()
    """Descriptions of the cuts in the material."""
    cuts_subject: bool = False
    """Whether the subject was shortened, not only its context."""

    @property
    def has_images(self) -> bool:
        """Whether the request has images."""
        return any(message.attachments for message in self.messages)


def render_request(
    questions: Sequence[Question], *, prompt: Prompt, max_chars: int, order_seed: int, repair: str | None = None
) -> RenderedRequest:
    """Return the request for `questions`, which share one material and one kind of answer.

    `repair` describes the fault of an earlier reply. It may quote the reply, which may quote the agent; so it is shown as data.
    """
    scored, choices = questions[0].threshold is not None, tuple(questions[0].choices)
    shown = show_material(questions[0].material, max_chars=max_chars, fault=repair)
    checks = [_write_check(question) for question in questions]
    listing = shuffle(len(checks), order_seed)
    # The ids depend on the whole request including the material, so no text in it can contain them. They are numbered in list order,
    # because some judges number the entries instead of copying the ids.
    digest = fence.digest_parts((prompt.version, fence.encode_line(checks), shown.line), order_seed)[:12]
    ids = tuple(f"check-{listing.index(position) + 1}-{digest}" for position in range(len(checks)))
    listed: list[dict[str, Json]] = [{"id": ids[position], **checks[position]} for position in listing]
    shape = prompt.choices if choices else prompt.scores if scored else prompt.passes
    if choices and len(listed) > 1:
        # Written once: a metric has the same members for every statement.
        shared = {key: value for key, value in listed[0].items() if all(each.get(key) == value for each in listed)}
        own: list[dict[str, Json]] = [{key: value for key, value in each.items() if key not in shared} for each in listed]
        shown_checks = [{"every_check": shared}, *own]
    else:
        shown_checks = listed
    before = f"{prompt.opening}\n{fence.encode_line(shown_checks)}\n\n"
    if questions[0].material.images:
        before += f"{prompt.images}\n\n"
    reminder = prompt.reminder.replace("{{cuts}}", str(shown.places)).replace("{{ids}}", ", ".join(check["id"] for check in listed))
    after = f"\n{reminder}\n{shape}" if repair is None else f"\n{reminder}\n{prompt.again}\n{shape}"
    # Identical for every request of a kind, so that providers can cache it.
    instruction = "\n\n".join(filter(None, (prompt.instruction, shape, prompt.boundary, prompt.decisions)))
    # Depends on everything but the marker itself, so that the same request always has the same marker.
    marker = fence.choose_marker(instruction, before, prompt.lead_in, shown.line, after)
    lead_in = prompt.lead_in.replace("{{marker}}", marker)
    images = tuple(Attachment(media_type=image.media_type, data=image.data) for image in questions[0].material.images)
    return RenderedRequest(
        messages=(
            ChatMessage(role="system", text=instruction),
            ChatMessage(role="user", text=f"{before}{lead_in}\n" + fence.fence_line(shown.line, marker) + after, attachments=images),
        ),
        schema=reply_schema(scored=scored, ids=ids, choices=choices),
        ids=ids,
        marker=marker,
        line=shown.line,
        cuts=shown.cuts,
        cuts_subject=shown.cuts_subject,
    )


def reply_schema(*, scored: bool, ids: Sequence[str] = (), choices: Sequence[str] = ()) -> dict[str, Json]:
    """Return the JSON Schema of a reply, without bounds of scores: several providers reject a schema that has any.

    With `ids` it lists the expected results: otherwise a small model under a schema does not stop.
    """
    decision: dict[str, Json] = {"score": {"type": "number", "description": "from 0 to 1"}} if scored else {"pass": {"type": "boolean"}}
    if choices:
        decision = {"choice": {"type": "string", "enum": list(choices)}}
    id_schema: dict[str, Json] = {"type": "string", "enum": list(ids)} if ids else {"type": "string"}
    quotes: dict[str, Json] = {
        "type": "array",
        "items": {"type": "string"},
        "description": "passages of the data that decided it, word for word",
    }
    if ids:
        quotes["maxItems"] = 3
    # The decision comes last: a model that writes it first writes the reason to suit it.
    members: dict[str, Json] = {"id": id_schema, "quotes": quotes, "reason": {"type": "string"}, **decision}
    item = {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}
    return {
        "type": "object",
        "properties": {"results": {"type": "array", "items": item, **({"minItems": len(ids), "maxItems": len(ids)} if ids else {})}},
        "required": ["results"],
        "additionalProperties": False,
    }


def without_ids(schema: dict[str, Json]) -> dict[str, Json]:
    """Return the schema of a reply without the list of expected results."""
    members: dict[str, Json] = schema["properties"]["results"]["items"]["properties"]
    return reply_schema(scored="score" in members, choices=members["choice"]["enum"] if "choice" in members else ())


def _write_check(question: Question) -> dict[str, Json]:
    check: dict[str, Json] = {"rule": "must_not" if question.forbidden else "must", "criterion": _drop_surrogates(question.criterion)}
    # The label of an unnamed claim consists of its check and criterion (`judged · The answer ...`), which would be shown twice.
    if question.label and not question.criterion.startswith(question.label.rpartition(" · ")[2].rstrip("…")):
        check["label"] = _drop_surrogates(question.label)
    if question.grounded:
        check["grounded"] = True
    if question.rubric:
        check["rubric"] = [_drop_surrogates(point) for point in question.rubric]
    if question.reference is not None:
        check["reference"] = _drop_surrogates(question.reference)
    if question.choices:
        check["choices"] = {name: _drop_surrogates(meaning) for name, meaning in question.choices.items()}
    return check


def _drop_surrogates(text: str) -> str:
    """Return an author's trusted text without lone surrogates, which cannot be sent."""
    return text if text.isascii() else text.encode("utf-8", "ignore").decode()


def shuffle(count: int, seed: int) -> list[int]:
    """Return a permutation of positions that is the same for the same seed in every Python version."""
    # Uses a digest, because `random.shuffle` may differ between Python versions and the cache relies on identical requests.
    return sorted(range(count), key=lambda position: sha256(f"{seed}:{position + 1}".encode()).digest())
