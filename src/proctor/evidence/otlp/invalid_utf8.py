"""OTLP in JSON with texts that are not UTF-8: what is broken costs the span (log record) that it stands in, not the batch.

JSON is UTF-8 as a whole, so no reader reads such a document. A mark that nobody can guess takes the place of the broken bytes; then the
document is read, and whatever holds the mark is taken out of it.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.otlp.salvage import Refuse
from proctor.evidence.values.access import dict_or_empty, list_of
from proctor.evidence.values.json_bytes import decode
from proctor.model.evidence import Json

_GROUPS = ("resourceSpans", "resource_spans", "resourceLogs", "resource_logs")
_SCOPES = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans", "scopeLogs", "scope_logs")
_ITEMS = {"spans": "span", "logRecords": "log record", "log_records": "log record"}
# How `surrogateescape` decodes each byte that is not UTF-8; valid text cannot contain these characters.
_BROKEN = re.compile("[\udc80-\udcff]+")


def decode_otlp(data: bytes, refuse: Refuse) -> Json:
    """Decode a request in JSON, without what has texts that are not UTF-8. Raises `EvidenceError`."""
    # Asked first, as nearly every request is UTF-8; all that follows is for the few that are not.
    try:
        data.decode()
    except UnicodeDecodeError:
        mark = f"\ufffd{secrets.token_hex(16)}\ufffd"
        document = decode(_BROKEN.sub(mark, data.decode(errors="surrogateescape")).encode())
    else:
        return decode(data)
    for key in _GROUPS:
        for group in map(dict_or_empty, list_of(dict_or_empty(document).get(key))):
            _drop(group, mark, refuse)
    # Broken bytes outside of every group belong to no span that could be given up, so the whole request is refused.
    if _holds(document, mark):
        raise EvidenceError("not UTF-8 text")
    return document


def _drop(group: dict[str, Json], mark: str, refuse: Refuse) -> None:
    """Take out of a group of one resource what holds the mark."""
    whole = _holds({name: value for name, value in group.items() if name not in _SCOPES}, mark)
    for scope in (scope for key in _SCOPES for scope in map(dict_or_empty, list_of(group.get(key)))):
        around = whole or _holds({name: value for name, value in scope.items() if name not in _ITEMS}, mark)
        for key, noun in _ITEMS.items():
            items = list_of(scope.get(key))
            good = [] if around else [item for item in items if not _holds(item, mark)]
            if len(good) < len(items):
                place = "the resource of a " if whole else "the scope of a " if around else "a "
                refuse(f"{place}{noun} has a text that is not UTF-8", len(items) - len(good))
                scope[key] = good
        # What is left around the items still holds the mark, and would have the whole request refused by `decode_otlp`.
        if around and not whole:
            _clear(scope, _ITEMS)
    if whole:
        _clear(group, _SCOPES)


def _clear(entry: dict[str, Json], kept: Any) -> None:
    for name in [name for name in entry if name not in kept]:
        del entry[name]


def _holds(value: Json, mark: str) -> bool:
    return mark.encode() in msgspec.json.encode(value)
