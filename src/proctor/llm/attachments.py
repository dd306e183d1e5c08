"""Distinguishes pictures and documents of a message."""

from __future__ import annotations

import base64
import binascii
from typing import Literal

from proctor.llm.ports import Attachment, ModelFault
from proctor.model.show import show

_TEXTS = ("application/json", "application/xml", "application/yaml", "application/x-yaml")

Sort = Literal["image", "document", "audio", "text"]


def classify_attachment(attachment: Attachment) -> Sort:
    """Return which of the kinds that providers know this is. Raises `ModelFault` for one that none of them takes."""
    if attachment.data is None and attachment.url is None:
        raise ModelFault("bad_request", f"the attachment {_show_name(attachment)} has neither data nor an address")
    kind = attachment.media_type.partition(";")[0].strip().lower()
    if kind.startswith("image/"):
        return "image"
    if kind == "application/pdf":
        return "document"
    if kind.startswith("audio/"):
        return "audio"
    if attachment.data is not None and (kind.startswith("text/") or kind in _TEXTS):
        return "text"
    raise refuse_attachment(attachment)


def refuse_attachment(attachment: Attachment) -> ModelFault:
    """Return the fault for an attachment that this provider cannot be given."""
    return ModelFault(
        "bad_request", f"the attachment {_show_name(attachment)} of type {show(attachment.media_type)} cannot be given to this model"
    )


def read_text_attachment(attachment: Attachment) -> str:
    """Return the text of a text attachment, under its name."""
    try:
        text = base64.b64decode(attachment.data or "", validate=True).decode()
    except (binascii.Error, ValueError):
        raise ModelFault("bad_request", f"the attachment {_show_name(attachment)} is not base64 of UTF-8 text") from None
    return f"{attachment.name}:\n{text}" if attachment.name else text


def make_data_url(attachment: Attachment) -> str:
    """Return the attachment as one address: its own, or one that carries the data."""
    return attachment.url or f"data:{attachment.media_type};base64,{attachment.data}"


def _show_name(attachment: Attachment) -> str:
    return show(attachment.name or "(without a name)")
