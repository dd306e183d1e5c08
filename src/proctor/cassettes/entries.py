"""The cassette file: one JSON document per line, readable by people and stored next to the suite.

    {"proctor_cassette": 1, "created": "...", "proctor": "0.1.0"}
    {"scope": {"case": "refund-1", "attempt": 0}, "seq": 0, "kind": "chat", "about": "...", "request": {...}, "response": {...}}
    {"scope": {"case": "refund-1", "attempt": 0}, "seq": 1, "kind": "http", "about": "...", "request": {...}, "fault": {...}}
    {"begin": {"case": "refund-1", "attempt": 0}}

`seq` numbers the exchanges of a scope in the order in which they started. `begin` marks a new recording of a scope, which replaces the
lines above; compacting the file removes it. An incomplete last line was being written when the recorder died and is ignored. Any other
line that cannot be read is an `InputError` with its number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from proctor import __version__
from proctor.cassettes.ports import Kind
from proctor.errors import InputError, TargetError
from proctor.evidence.values.json_bytes import MAX_DEPTH, exceeds_depth
from proctor.model.evidence import Json
from proctor.model.problem import Origin, Problem
from proctor.model.show import shorten, show
from proctor.model.typed import convert_to

VERSION = 1
"""The shape of the file that this code writes and reads."""


class Scope(msgspec.Struct, frozen=True, order=True):
    """One attempt at one case; each attempt has its own recordings."""

    case: str
    attempt: int = 0

    def __str__(self) -> str:
        """As messages name it."""
        return f"case {self.case!r}, attempt {self.attempt}"


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why an exchange failed."""

    type: str
    message: str
    code: str | None = None
    safe: bool = False
    retry_after_s: float | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One exchange."""

    scope: Scope
    seq: int
    kind: Kind
    about: str = ""
    """What it is about, for people."""
    request: Json = None
    response: Json = None
    fault: Fault | None = None


class Line(msgspec.Struct, frozen=True):
    """An entry and its place in the file."""

    number: int
    raw: bytes
    entry: Entry


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What a file holds."""

    header: bytes
    lines: tuple[Line, ...]
    """What is valid, in the order of the file."""
    size: int
    """Bytes up to the end of the last whole line."""
    replaced: bool
    """Whether the file also holds what is no longer valid."""


def make_header_line(created: str) -> bytes:
    """Return the first line of a new cassette."""
    return encode_line({"proctor_cassette": VERSION, "created": created, "proctor": __version__})


def encode_line(document: Json) -> bytes:
    """Return one document as one line."""
    # Readable in a review.
    text = json.dumps(document, ensure_ascii=False)
    try:
        return f"{text}\n".encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can write
        return f"{json.dumps(document)}\n".encode()


def to_plain_json(value: Json) -> Json:
    """Return a value as JSON that can be written. Raises `TargetError` for what nests without end."""
    try:
        return _copy_bounded(msgspec.to_builtins(value, str_keys=True), MAX_DEPTH)
    except RecursionError:
        raise TargetError(f"the exchange is nested more than {MAX_DEPTH} levels deep and cannot be recorded") from None


def make_lookup_key(request: Json) -> str:
    """Return the text by which a request is found again: the order of keys does not count, and `1` is `1.0`."""
    # As text, in which `true` and `1` differ; as values of Python they are equal.
    return json.dumps(_normalise_numbers(request), sort_keys=True, separators=(",", ":"))


def summarise(kind: Kind, request: Json) -> str:
    """Return what an exchange is about, in a few words."""
    if not isinstance(request, dict):
        return ""
    if kind == "http":
        words = [request.get("method"), request.get("url")]
    elif kind == "tool":
        words = [request.get("server"), request.get("tool") or request.get("name") or request.get("method")]
    else:
        messages: Json = request.get("messages")
        last = messages[-1] if isinstance(messages, list) and messages else None
        text = last.get("text") if isinstance(last, dict) else None
        words = [request.get("provider"), request.get("model"), show(text, 60) if text else None]
    return shorten(" ".join(word for word in words if isinstance(word, str) and word), 200)


def read_file(path: Path) -> Contents:
    """Return the valid entries of a file. Raises `InputError`."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"there is no cassette {path}; `--record` makes one") from None
    except OSError as error:
        raise InputError(f"the cassette {path} cannot be read: {error.strerror}") from None
    rows = data.split(b"\n")
    # Every line that was written whole ends with a line feed, so this is empty or a part of a line.
    torn = rows.pop()
    if not rows or not rows[0].strip():
        raise _make_error(path, 1, "not a cassette: it is empty" if not torn else "not a cassette: its first line has no end")
    _check_header(path, _decode_line(path, 1, rows[0]))
    valid: dict[Scope, list[Line]] = {}
    replaced = False
    for number, raw in enumerate(rows[1:], start=2):
        if not raw.strip():
            continue
        found = _read_entry(path, number, raw)
        if isinstance(found, Scope):
            replaced = True
            valid.pop(found, None)
        else:
            valid.setdefault(found.scope, []).append(Line(number, raw + b"\n", found))
    # Back into the order of the file, so that a compacted one differs from it only by what is gone.
    lines = sorted((line for group in valid.values() for line in group), key=lambda line: line.number)
    return Contents(header=rows[0] + b"\n", lines=tuple(lines), size=len(data) - len(torn), replaced=replaced)


def group_by_scope(lines: Iterable[Line]) -> dict[Scope, list[Line]]:
    """Return the lines of each scope, in the order in which the exchanges were started."""
    groups: dict[Scope, list[Line]] = {}
    for line in lines:
        groups.setdefault(line.entry.scope, []).append(line)
    for group in groups.values():
        # Lines are written as answers come, and exchanges that run side by side are answered in any order.
        group.sort(key=lambda line: (line.entry.seq, line.number))
    return groups


def _check_header(path: Path, header: Json) -> None:
    version: Json = header.get("proctor_cassette") if isinstance(header, dict) else None
    if version is None:
        raise _make_error(path, 1, 'not a cassette: its first line does not say {"proctor_cassette": 1}')
    # `true` equals 1 in Python.
    if isinstance(version, bool) or version != VERSION:
        raise _make_error(
            path,
            1,
            f"a cassette of version {show(version)}, written by proctor {show(header.get('proctor'))}; "
            f"this is proctor {__version__}, which reads version {VERSION}",
            hint="record it again with `--record`",
        )


def _read_entry(path: Path, number: int, raw: bytes) -> Entry | Scope:
    document = _decode_line(path, number, raw)
    try:
        if isinstance(document, dict) and "begin" in document:
            return convert_to(document["begin"], Scope)
        return convert_to(document, Entry)
    except msgspec.ValidationError as error:
        raise _make_error(path, number, f"not an entry of a cassette: {error}") from None


def _decode_line(path: Path, number: int, raw: bytes) -> Any:
    try:
        document = json.loads(raw)
    except RecursionError:
        raise _make_error(path, number, f"nested more than {MAX_DEPTH} levels deep") from None
    except UnicodeDecodeError as error:
        raise _make_error(path, number, f"not UTF-8 text: byte 0x{raw[error.start]:02x}", column=error.start + 1) from None
    except json.JSONDecodeError as error:
        what = f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        raise _make_error(path, number, what, column=error.colno, excerpt=raw.decode("utf-8", "replace")) from None
    except ValueError as error:  # a number of thousands of digits
        raise _make_error(path, number, f"not JSON that can be used: {error}") from None
    # Looking an entry up and copying it recurse: a file that nests deep must not overflow the stack there.
    if exceeds_depth(document):
        raise _make_error(path, number, f"nested more than {MAX_DEPTH} levels deep")
    return document


def _make_error(
    path: Path, line: int, message: str, *, column: int | None = None, excerpt: str | None = None, hint: str | None = None
) -> InputError:
    origin = Origin(file=str(path), line=line, column=column)
    return InputError(message, [Problem(message=message, origin=origin, excerpt=excerpt, hint=hint)])


def _copy_bounded(value: Json, depth: int) -> Json:
    # As it will be read again: a list where a tuple was.
    if depth < 0:
        raise RecursionError
    if isinstance(value, dict):
        return {key: _copy_bounded(member, depth - 1) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copy_bounded(item, depth - 1) for item in value]
    return value


def _normalise_numbers(value: Json) -> Json:
    # JavaScript writes `1.0` as `1`, and a request may have been made of what it wrote.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _normalise_numbers(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_normalise_numbers(item) for item in value]
    return value
