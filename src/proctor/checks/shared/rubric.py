"""Rubrics: claims that a judge decides by our text, with fields filled in by the author.

The text of a rubric is in `rubrics/<name>/<version>.md`, exactly as the judge gets it: the first paragraph is the criterion, followed by
points, marked `-`, and choices, marked `*`, if the judge chooses one. A changed text is a new version in a new file: name and version are
part of the question, so replies to other versions are never reused. `{{name}}` is filled with the suite author's text. Anything written by
the agent, its tools or its users goes into the fenced material, never into the text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from pkgutil import get_data
from typing import Final, Literal

import msgspec

from proctor.checks.registry import Decide
from proctor.checks.shared.answer import Place
from proctor.checks.shared.calls import list_recorded_calls
from proctor.errors import SpecError
from proctor.model.account import Part
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import MISSING, is_finite
from proctor.model.judgement import Image, Material, Opinion, Question, make_pending, make_verdict
from proctor.model.show import show
from proctor.model.verdict import Verdict, lacking, missing
from proctor.paths.dotted import find_dotted

VERSIONS: Final = {
    "answers_the_question": "1",
    "context_relevance": "1",
    "faithful_to_context": "1",
    "no_personal_data": "1",
    "refuses_politely": "1",
    "sql_equivalent": "1",
    "summary_covers": "1",
    "tone": "1",
}
"""The rubrics, with the current version of each."""
METRICS: Final = dict.fromkeys(
    ["answer_relevancy", "bias", "context_precision", "context_recall", "faithfulness", "pairwise", "task_completion", "toxicity"], "1"
)
"""The texts of metrics, which have no labelled set, with the current version of each."""

_PLACE: Final = re.compile(r"\{\{(\w+)\}\}")

ContextSource = Literal["tool_results", "steps", "variables", "body"]
SOURCE_PARTS: Final[dict[ContextSource, tuple[Part, ...]]] = {
    "tool_results": ("tool_calls", "tool_results"),
    "steps": ("nodes",),
    "variables": (),
    "body": ("answer",),
}
"""The parts of the evidence that each source of context is read from."""


class Rubric(msgspec.Struct, frozen=True):
    """The text of one version of a rubric."""

    name: str
    version: str
    criterion: str
    points: tuple[str, ...]
    choices: dict[str, str] = {}

    def identify(self) -> dict[str, Json]:
        """Return name and version, for the details of a verdict."""
        return {"name": self.name, "version": self.version}


class ContextFields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The source of an answer's context."""

    context: tuple[str, ...] = ()
    """The context itself, as one text or several; left out: it is taken from the evidence."""
    context_from: ContextSource | None = None
    """The part of the evidence that is the context: `tool_results` (the default), `steps`, `variables` or `body`."""
    context_path: str | None = None
    """A dot path to the context inside the variables or the body."""

    def require_source(self) -> None:
        """Reject a context given in two ways, and a path without a source."""
        if self.context and self.context_from is not None:
            raise SpecError(
                "the context is either given or taken from the evidence: `context` or `context_from`, not both", field="context_from"
            )
        for index, text in enumerate(self.context):
            require_filled(text, f"context.{index}")
        if self.context_path is not None and self.context_from not in ("variables", "body"):
            raise SpecError("a path leads into the variables or the body: add `context_from: variables` or `body`", field="context_path")
        require_filled(self.context_path, "context_path")

    def list_parts(self) -> tuple[Part, ...]:
        """Return the parts of the evidence that the context is read from."""
        return () if self.context else SOURCE_PARTS[self.context_from or "tool_results"]

    def find_in(self, evidence: Evidence) -> Place | Verdict:
        """Return the context of the answer, or `missing_evidence` if none was recorded."""
        if self.context:
            return Place(list(self.context), "")
        match self.context_from or "tool_results":
            case "tool_results":
                if (calls := list_recorded_calls(evidence)) is None:
                    return missing("tool calls")
                results = [
                    {"tool": call.name, "error": call.failure()} if call.failed() else {"tool": call.name, "result": call.result}
                    for call in calls
                    if call.failed() or call.result is not None
                ]
                # If no tool returned anything, there is no context that an answer could be faithful to.
                return Place(results, "$.tool_calls") if results else missing("results of tool calls")
            case "steps":
                outputs = [
                    {"step": node.name, "output": node.output} for node in evidence.nodes or () if node.ran() and node.output is not None
                ]
                return Place(outputs, "$.nodes") if outputs else missing("outputs of steps")
            case "variables":
                return _find_inside(evidence.context, self.context_path, "variables", "$.context")
            case "body":
                return _find_inside(evidence.body, self.context_path, "response body", "$.body")


@functools.cache
def load_rubric(name: str, version: str | None = None) -> Rubric:
    """Return the text of a rubric, by default in the current version."""
    version = version or (VERSIONS | METRICS)[name]
    content = get_data("proctor.checks", f"rubrics/{name}/{version}.md")
    assert content is not None, "part of the package"
    criterion, _, points = content.decode().strip().partition("\n\n")
    lines = [line for line in points.split("\n") if line]
    choices = dict(line.removeprefix("* ").split(": ", 1) for line in lines if line.startswith("* "))
    return Rubric(name, version, criterion, tuple(line.removeprefix("- ") for line in lines if line.startswith("- ")), choices)


def decide_by_rubric(
    name: str,
    threshold: float | None,
    find_context: Callable[[Evidence], dict[str, Json] | Verdict] = lambda _: {},
    *,
    find_subject: Callable[[Evidence], Place | Verdict] | None = None,
    subject: str = "final_answer",
    fill: Mapping[str, str] = {},
    reference: str | None = None,
) -> Decide:
    """Return a decision by one rubric on the answer, or on another subject. What is missing of subject or context decides."""
    if threshold is not None and not (is_finite(threshold) and 0 < threshold <= 1):
        raise SpecError(f"the threshold is a number above 0 and up to 1, found {show(threshold)}", field="threshold")
    rubric = load_rubric(name)

    def decide(evidence: Evidence) -> Verdict:
        if isinstance(judged := (find_subject or find_answer)(evidence), Verdict):
            return judged
        if isinstance(context := find_context(evidence), Verdict):
            return context
        material = Material(subject=judged.value, name=subject, context=context)
        question = build_question(rubric, material, threshold=threshold, fill=fill, reference=reference)

        pointers = (judged.pointer,) if judged.pointer else ()
        return make_pending([question], lambda opinions: settle_one(opinions[0], threshold, pointers, rubric=rubric.identify()))

    return decide


def settle_one(opinion: Opinion, threshold: float | None, pointers: tuple[str, ...], **details: Json) -> Verdict:
    """Return the verdict of a single opinion, with the threshold and further details."""
    bound = {} if threshold is None else {"threshold": threshold}
    return make_verdict(msgspec.structs.replace(opinion, details={**opinion.details, **details, **bound}), pointers=pointers)


def build_question(
    rubric: Rubric, material: Material, *, threshold: float | None = None, fill: Mapping[str, str] = {}, reference: str | None = None
) -> Question:
    """Return the question of a rubric about some material."""
    return Question(
        criterion=_fill_in(rubric.criterion, fill),
        material=material,
        label=f"{rubric.name}, rubric version {rubric.version}",
        threshold=threshold,
        rubric=tuple(_fill_in(point, fill) for point in rubric.points),
        reference=reference,
        worded_by=rubric.name,
    )


def _fill_in(text: str, fill: Mapping[str, str]) -> str:
    # In one pass, so that the author's text is not searched for further placeholders.
    return _PLACE.sub(lambda place: fill[place[1]], text)


def require_filled(text: str | None, field: str) -> None:
    """Reject an empty text."""
    if text is not None and not text.strip():
        raise SpecError("expected text, found an empty one", field=field)


def find_answer(evidence: Evidence) -> Place | Verdict:
    """Return the answer: its text, else its body."""
    if evidence.text is not None:
        return Place(evidence.text, "$.text")
    return missing("response text") if evidence.body is None else Place(evidence.body, "$.body")


def find_request(evidence: Evidence) -> Json:
    """Return the input of the agent, in a conversation the last one; None if it was not recorded."""
    if evidence.turns and evidence.turns[-1].input is not None:
        return evidence.turns[-1].input
    return evidence.input if evidence.input != "" else None


def show_request(evidence: Evidence, name: str = "request") -> dict[str, Json]:
    """Return the input of the agent as part of the context, called `name`; empty if it was not recorded."""
    request = find_request(evidence)
    return {} if request is None else {name: request}


def find_question(evidence: Evidence, given: str | None) -> Json | Verdict:
    """Return the suite author's question, else the agent's input, or `missing_evidence`."""
    question = given if given is not None else find_request(evidence)
    return missing("input") if question is None else question


def list_exchanges(evidence: Evidence) -> list[Json]:
    """Return the messages of user and agent in the turns of a conversation."""
    return [{"user": turn.input, "agent": turn.text if turn.text is not None else turn.body} for turn in evidence.turns or ()]


def find_conversation(evidence: Evidence) -> dict[str, Json]:
    """Return the turns of a conversation as part of the context; empty if there was only one."""
    turns = list_exchanges(evidence)
    return {"conversation": turns} if len(turns) > 1 else {}


def _find_inside(document: Json, path: str | None, what: str, pointer: str) -> Place | Verdict:
    if document is None or document == {} or document == []:
        return missing(what)
    if path is None:
        return Place(document, pointer)
    found = find_dotted(document, path)
    if found is MISSING or found is None or found in ("", [], {}):
        return missing(f"{what} at {show(path)}")
    return Place(found, f"{pointer}.{path}")


# Images in the judged material: content parts of OpenAI, Anthropic, Gemini, Bedrock and MCP, with their data inline.
# In the data each image is replaced by its number, and the images are attached to the request in this order. An image given only by an
# address stays text: the address may later serve something other than what the agent produced.

_BASE64: Final = r"[A-Za-z0-9+/_-][A-Za-z0-9+/_\r\n-]{2,}={0,2}\s*"
"""An image as data; other text is no image, so that no claim about images is decided without one."""
_DATA_URL: Final = re.compile(rf"data:(image/[\w.+-]+);base64,({_BASE64})")
_PLACES: Final = frozenset(("image_url", "source", "data", "bytes", "image", "url", "uri", "fileUri", "file_uri"))
"""Keys under which an image has its data or its address."""
_IMAGE_KIND: Final = re.compile(r"(?:input_)?image(?:_url|/.+)?\Z")
_KINDS: Final = ("media_type", "mediaType", "mimeType", "mime_type")


def attach_images(material: Material, body: Json) -> Material | Verdict:
    """Return the material with its images detached from the data, plus those of the response body if the subject is its text.

    Without an image, or with one that has no data, nothing can be judged about the images.
    """
    images: list[Image] = []
    subject, context = _detach_images(material.subject, images), _detach_images(material.context, images)
    original = len(images)
    remaining = _detach_images(body, images)
    if any(map(_has_address, (subject, context, remaining))):
        return lacking("an image is recorded without its data, and no address is fetched")
    if not images:
        return missing("an image as data")
    if len(images) > original:
        context["images_of_the_answer"] = [_number_image(image, images) for image in images[original:]]
    return msgspec.structs.replace(material, subject=subject, context=context, images=tuple(images))


def _detach_images(value: Json, images: list[Image]) -> Json:
    found = _read_image(value)
    if found is not None:
        if found not in images:
            images.append(found)
        return _number_image(found, images)
    if isinstance(value, dict):
        return {key: _detach_images(member, images) for key, member in value.items()}
    return [_detach_images(member, images) for member in value] if isinstance(value, list) else value


def _has_address(value: Json) -> bool:
    """Return whether there is an image among detached data: one without data, such as an address."""
    if isinstance(value, list):
        return any(map(_has_address, value))
    if not isinstance(value, dict):
        return False
    kinds = [value.get("type"), *(value.get(key) for key in _KINDS)]
    is_image = "image_url" in value or any(isinstance(kind, str) and _IMAGE_KIND.match(kind) for kind in kinds)
    return (is_image and not _PLACES.isdisjoint(value)) or any(map(_has_address, value.values()))


def _number_image(image: Image, images: list[Image]) -> dict[str, Json]:
    # The digest ties the request to the image: the ids of a request depend on everything in its data.
    return {"image": images.index(image) + 1, "sha256": sha256(image.data.encode()).hexdigest()[:16]}


def _read_image(value: Json) -> Image | None:
    """Return the image in a content part or in a text that is a data URL."""
    if isinstance(value, str):
        matched = _DATA_URL.fullmatch(value)
        return None if matched is None else Image(media_type=matched[1], data=matched[2])
    if not isinstance(value, dict):
        return None
    data: Json = value.get("data", value.get("bytes"))
    kind: Json = next((value[key] for key in _KINDS if key in value), None)
    if isinstance(data, str) and isinstance(kind, str) and kind.startswith("image/") and re.fullmatch(_BASE64, data):
        return Image(media_type=kind, data=data)
    # {type: image_url, image_url: {url}}, {type: input_image, image_url}, {type: image, source: {media_type, data}}, {inlineData: {...}}
    inner: Json = next((value[key] for key in ("image_url", "source", "inlineData", "inline_data", "image") if key in value), None)
    if isinstance(inner, dict) and isinstance(inner.get("url"), str):
        inner = inner["url"]
    return _read_image(inner) if inner is not None and len(value) <= 3 else None
