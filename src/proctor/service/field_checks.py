"""Checks that the verbs of several nouns share: names, and what a change may leave out."""

from __future__ import annotations

from collections.abc import Mapping

from proctor.model.evidence import Json
from proctor.service.plain_secrets import refuse_plain_secrets
from proctor.service.refusals import Refusal
from proctor.store.sql.compressed_json import to_json

LONGEST_NAME = 200
LONGEST_TEXT = 4_000
LARGEST_SETTINGS = 100_000


def check_fields(values: Mapping[str, object], *, names: tuple[str, ...] = ("name",), texts: tuple[str, ...] = ()) -> None:
    """Refuse names that are empty or too long, texts that are too long, and settings that are large or hold secrets."""
    fields: dict[str, list[str]] = {}
    for name in names:
        value = values.get(name)
        if isinstance(value, str) and (not value.strip() or len(value) > LONGEST_NAME or "\0" in value):
            fields[name] = [f"expected 1 to {LONGEST_NAME} characters"]
    for name in texts:
        value = values.get(name)
        if isinstance(value, str) and (len(value) > LONGEST_TEXT or "\0" in value):
            fields[name] = [f"expected at most {LONGEST_TEXT} characters"]
    settings: Json = values.get("settings")
    if settings is not None and len(to_json(settings)) > LARGEST_SETTINGS:
        fields["settings"] = [f"expected at most {LARGEST_SETTINGS} bytes"]
    if fields:
        raise Refusal("VALIDATION_ERROR", "some fields cannot be used", fields=fields)
    if settings is not None:
        refuse_plain_secrets(settings, "settings")


def refuse_emptying(changes: Mapping[str, object], *names: str) -> None:
    """Refuse a change that empties what must be there."""
    empty = {name: ["cannot be empty"] for name in names if name in changes and changes[name] is None}
    if empty:
        raise Refusal("VALIDATION_ERROR", "some fields cannot be used", fields=empty)
