"""Pictures in what a judge looks at: content parts of OpenAI, Anthropic, Gemini, Bedrock and MCP, with their data inline.

In the data each picture is replaced by its number, and the pictures go with the request in this order. A picture that is only named by an
address stays text: the address may later serve something else than what the agent produced.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

import msgspec

from proctor.model.evidence import Json
from proctor.model.judgement import Image, Material

_DATA_URL: Final = re.compile(r"data:(image/[\w.+-]+);base64,([A-Za-z0-9+/=_-]+)")
_KINDS: Final = ("media_type", "mediaType", "mimeType", "mime_type")


def attach_images(material: Material, body: Json) -> Material:
    """Return the material with its pictures apart from the data, and with those of the response body where the subject is its text."""
    images: list[Image] = []
    subject, context = _take_out(material.subject, images), _take_out(material.context, images)
    before = len(images)
    _take_out(body, images)
    if len(images) > before:
        context["images_of_the_answer"] = [_number_image(image, images) for image in images[before:]]
    return msgspec.structs.replace(material, subject=subject, context=context, images=tuple(images))


def _take_out(value: Json, images: list[Image]) -> Json:
    found = _read_image(value)
    if found is not None:
        if found not in images:
            images.append(found)
        return _number_image(found, images)
    if isinstance(value, dict):
        return {key: _take_out(member, images) for key, member in value.items()}
    return [_take_out(member, images) for member in value] if isinstance(value, list) else value


def _number_image(image: Image, images: list[Image]) -> dict[str, Json]:
    # The digest ties the request to the picture: the ids of a request depend on everything in its data.
    return {"image": images.index(image) + 1, "sha256": sha256(image.data.encode()).hexdigest()[:16]}


def _read_image(value: Json) -> Image | None:
    """Return the picture that a content part is, or a text that is a data URL."""
    if isinstance(value, str):
        matched = _DATA_URL.fullmatch(value)
        return None if matched is None else Image(media_type=matched[1], data=matched[2])
    if not isinstance(value, dict):
        return None
    data: Json = value.get("data", value.get("bytes"))
    kind: Json = next((value[key] for key in _KINDS if key in value), None)
    if isinstance(data, str) and isinstance(kind, str) and kind.startswith("image/"):
        return Image(media_type=kind, data=data)
    # {type: image_url, image_url: {url}}, {type: input_image, image_url}, {type: image, source: {media_type, data}}, {inlineData: {...}}
    inner: Json = next((value[key] for key in ("image_url", "source", "inlineData", "inline_data", "image") if key in value), None)
    if isinstance(inner, dict) and isinstance(inner.get("url"), str):
        inner = inner["url"]
    return _read_image(inner) if inner is not None and len(value) <= 3 else None
