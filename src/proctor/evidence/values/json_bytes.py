"""Decodes bytes as JSON; any other content is rejected with a message that identifies it."""

from __future__ import annotations

import re
from collections import Counter

import msgspec

from proctor.errors import EvidenceError
from proctor.model.evidence import Json
from proctor.model.json_values import MAX_DEPTH, decode_embedded
from proctor.model.lazy_pattern import lazy_pattern
from proctor.model.show import shorten, show

_BINARY = {
    b"\x1f\x8b": "gzip-compressed data; unpack it first (gunzip)",
    b"\x28\xb5\x2f\xfd": "zstd-compressed data; unpack it first",
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"BZh": "bzip2-compressed data; unpack it first",
    b"\xfd7zXZ": "xz-compressed data; unpack it first",
    b"PAR1": "a Parquet file, not JSON",
    b"SQLite format 3": "a SQLite database, not JSON",
    b"\x89PNG": "a PNG picture, not JSON",
    b"%PDF": "a PDF document, not JSON",
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), "UTF-16 text; save it as UTF-8"),
}
_BETWEEN_OBJECTS = lazy_pattern(rb"\n\}\r?\n\{\r?\n")
"""Where one object printed over several lines ends and the next begins; inside an object a bracket is indented."""
BOM = b"\xef\xbb\xbf"
_AT_BYTE = lazy_pattern(r"^(.*) \(byte (\d+)\)$", re.DOTALL)
# An escaped backslash, a whole surrogate pair, or a half one. Only the last is replaced.
_SURROGATES = lazy_pattern(rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_ANY = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode


def decode(data: bytes) -> Json:
    """Decode JSON. Raises `EvidenceError` for any other content."""
    data = data.removeprefix(BOM)
    try:
        try:
            value = _ANY.decode(data)
        except msgspec.MsgspecError:
            # Only after a failure: half pairs are rare, and the search reads every byte.
            data = mend_surrogates(data) or data
            value = _ANY.decode(data)
    except RecursionError:
        raise too_deep_error() from None
    except UnicodeDecodeError:
        raise _not_utf8_error(data) from None
    except msgspec.MsgspecError as error:
        raise _not_json_error(data, str(error)) from None
    _refuse_duplicate_keys(data, value)
    return value


def split_documents(data: bytes) -> list[Json] | None:
    """Return the objects of text that consists of pretty-printed objects, as exporters write them; None for any other text."""
    pieces = _BETWEEN_OBJECTS.split(data.strip())
    if len(pieces) < 2 or data[:2] not in (b"{\n", b"{\r"):
        return None
    try:
        return [decode(b"{\n" * bool(place) + piece + b"\n}" * (place < len(pieces) - 1)) for place, piece in enumerate(pieces)]
    except EvidenceError:
        return None


def _refuse_duplicate_keys(data: bytes, value: Json) -> None:
    """Raise `EvidenceError` if an object in JSON text repeats a key; `value` is the decoded text."""
    if not may_repeat_key(data, value):
        return
    import json  # slow, and needed only to name the key

    def refuse_repeated(pairs: list[tuple[str, Json]]) -> None:
        if len(dict(pairs)) < len(pairs):
            repeated = Counter(key for key, _ in pairs).most_common(1)[0][0]
            raise EvidenceError(f"duplicate key {show(shorten(repeated, 60))} in one object", code="duplicate_key")

    try:
        json.loads(data, object_pairs_hook=refuse_repeated)
    except RecursionError:
        raise too_deep_error() from None


UNWRITABLE = (RecursionError, TypeError, ValueError, OverflowError, msgspec.MsgspecError)


def may_repeat_key(data: bytes, value: Json) -> bool:
    """Return whether an object in JSON text may repeat a key; `value` is the decoded text."""
    # Every key is followed by a colon, and a dropped key drops its colon. So text without repeated keys has as many colons as the
    # re-encoded value, unless a colon inside a text is escaped.
    try:
        written = _encode(value)
    except UNWRITABLE:
        return True
    # Most lines were written by the same library.
    if written == data:
        return False
    return data.count(b":") != written.count(b":") or (b"\\" in data and (b"\\u003a" in data or b"\\u003A" in data))


def find_binary_kind(data: bytes) -> str | None:
    """Return the kind of a binary file by its first bytes, or None for text."""
    return next((meaning for magic, meaning in _BINARY.items() if data.startswith(magic)), None)


def decode_container(value: Json) -> Json:
    """Decode an object or list in a text; return any other value unchanged."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        inner = decode_embedded(value)
        if isinstance(inner, (dict, list)):
            return inner
    return value


def too_deep_error() -> EvidenceError:
    """Return the error for a document that nests too deep."""
    return EvidenceError(f"nested more than {MAX_DEPTH} levels deep", code="too_deep")


def _not_utf8_error(data: bytes) -> EvidenceError:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return EvidenceError(f"not UTF-8 text: byte 0x{data[error.start]:02x} at offset {error.start}")
    return EvidenceError("not UTF-8 text")


def mend_surrogates(data: bytes) -> bytes | None:
    """Replace every half surrogate pair in the JSON by U+FFFD, or return None if there is none and the JSON is invalid otherwise."""
    if b"\\ud" not in data and b"\\uD" not in data:
        return None
    repaired = _SURROGATES.sub(lambda found: b"\\ufffd" if len(found.group()) == 6 else found.group(), data)
    return repaired if repaired != data else None


def _not_json_error(data: bytes, message: str) -> EvidenceError:
    if not data.strip():
        return EvidenceError("empty: no JSON in it")
    if b"\0" in data[:1000]:
        return EvidenceError("not JSON: binary data")
    found = _AT_BYTE.match(message)
    if found is None:
        if "truncated" in message:
            return EvidenceError("not JSON: it ends too early")
        what = message.partition(" - at ")[0]
        return EvidenceError(f"not JSON: {what[:1].lower()}{what[1:]}")
    offset = int(found.group(2))
    what = found.group(1).removeprefix("JSON is malformed: ")
    if what == "trailing characters":
        offset -= 1  # The decoder names the byte after the first of them.
    rest = data[offset : offset + 9]
    if rest.startswith((b"NaN", b"Infinity")) or (rest.startswith(b"I") and data[max(0, offset - 1) : offset] == b"-"):
        what = "NaN and Infinity are not JSON"
    line = data.count(b"\n", 0, offset) + 1
    column = offset - (data.rfind(b"\n", 0, offset) + 1) + 1
    return EvidenceError(f"not JSON: {what} at line {line}, column {column}")
