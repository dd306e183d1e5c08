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
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from proctor import __version__
from proctor.cassettes.ports import Kind
from proctor.errors import InputError, TargetError
from proctor.model.evidence import Json
from proctor.model.json_values import MAX_DEPTH, exceeds_depth, to_whole_numbers
from proctor.model.problem import Origin, Problem
from proctor.model.show import shorten, show
from proctor.model.typed import convert_to

VERSION = 1


class Scope(msgspec.Struct, frozen=True, order=True):
    """One attempt at one case; each attempt has its own recordings."""

    case: str
    attempt: int = 0

    def __str__(self) -> str:
        """Return the scope as shown in messages."""
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
    """A short description for people."""
    request: Json = None
    response: Json = None
    fault: Fault | None = None


class Line(msgspec.Struct, frozen=True):
    """An entry and its place in the file."""

    number: int
    raw: bytes
    entry: Entry


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a file."""

    header: bytes
    lines: tuple[Line, ...]
    """The valid lines, in file order."""
    size: int
    """The number of bytes up to the end of the last complete line."""
    replaced: bool
    """Whether the file also has replaced lines."""


def make_header_line(created: str) -> bytes:
    """Return the first line of a new cassette."""
    return encode_line({"proctor_cassette": VERSION, "created": created, "proctor": __version__})


def encode_line(document: Json) -> bytes:
    """Return one document as one line."""
    # Readable in a review.
    text = json.dumps(document, ensure_ascii=False)
    try:
        return f"{text}\n".encode()
    except UnicodeEncodeError:  # a lone surrogate, which only an escape can represent
        return f"{json.dumps(document)}\n".encode()


def to_plain_json(value: Json) -> Json:
    """Return a value as JSON that can be written. Raises `TargetError` for a value that is nested too deeply."""
    try:
        return _copy_bounded(msgspec.to_builtins(value, str_keys=True), MAX_DEPTH)
    except RecursionError:
        raise TargetError(f"the exchange is nested more than {MAX_DEPTH} levels deep and cannot be recorded") from None


def make_lookup_key(request: Json) -> str:
    """Return the lookup key of a request: the order of keys is ignored, and `1` equals `1.0`."""
    # As text, in which `true` and `1` differ; as Python values they are equal.
    return json.dumps(to_whole_numbers(request), sort_keys=True, separators=(",", ":"))


def summarise(kind: Kind, request: Json) -> str:
    """Return a short description of an exchange."""
    if not isinstance(request, dict):
        return ""
    if kind == "http":
        parts = [request.get("method"), request.get("url")]
    elif kind == "tool":
        parts = [request.get("server"), request.get("tool") or request.get("name") or request.get("method")]
    else:
        messages: Json = request.get("messages")
        last = messages[-1] if isinstance(messages, list) and messages else None
        text = last.get("text") if isinstance(last, dict) else None
        parts = [request.get("provider"), request.get("model"), show(text, 60) if text else None]
    return shorten(" ".join(word for word in parts if isinstance(word, str) and word), 200)


def read_file(path: Path) -> Contents:
    """Return the valid entries of a file. Raises `InputError`."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"there is no cassette {path}; `--record` makes one") from None
    except OSError as error:
        raise InputError(f"the cassette {path} cannot be read: {error.strerror}") from None
    rows = data.split(b"\n")
    # Every complete line ends with a line feed, so this is empty or an incomplete line.
    torn = rows.pop()
    if not rows or not rows[0].strip():
        raise _make_error(path, 1, "not a cassette: it is empty" if not torn else "not a cassette: its first line has no end")
    header = _decode_line(path, 1, rows[0])
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
    valid: dict[Scope, list[Line]] = {}
    replaced = False
    for number, raw in enumerate(rows[1:], start=2):
        if not raw.strip():
            continue
        document = _decode_line(path, number, raw)
        is_start = isinstance(document, dict) and "begin" in document
        try:
            record = convert_to(document["begin"], Scope) if is_start else convert_to(document, Entry)
        except msgspec.ValidationError as error:
            raise _make_error(path, number, f"not an entry of a cassette: {error}") from None
        if isinstance(record, Scope):
            replaced = True
            valid.pop(record, None)
        else:
            valid.setdefault(record.scope, []).append(Line(number, raw + b"\n", record))
    # Restores file order, so that a compacted file differs only by the removed lines.
    lines = sorted((line for group in valid.values() for line in group), key=lambda line: line.number)
    return Contents(header=rows[0] + b"\n", lines=tuple(lines), size=len(data) - len(torn), replaced=replaced)


def group_by_scope(lines: Iterable[Line]) -> dict[Scope, list[Line]]:
    """Return the lines of each scope, in the order in which the exchanges were started."""
    groups: dict[Scope, list[Line]] = {}
    for line in lines:
        groups.setdefault(line.entry.scope, []).append(line)
    for group in groups.values():
        # Lines are written as responses arrive, and concurrent exchanges finish in any order.
        group.sort(key=lambda line: (line.entry.seq, line.number))
    return groups


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
    # Looking up and copying an entry recurse: a deeply nested file must not overflow the stack there.
    if exceeds_depth(document):
        raise _make_error(path, number, f"nested more than {MAX_DEPTH} levels deep")
    return document


def _make_error(
    path: Path, line: int, message: str, *, column: int | None = None, excerpt: str | None = None, hint: str | None = None
) -> InputError:
    origin = Origin(file=str(path), line=line, column=column)
    return InputError(message, [Problem(message=message, origin=origin, excerpt=excerpt, hint=hint)])


def _copy_bounded(value: Json, depth: int) -> Json:
    # As it will be read again: a tuple becomes a list.
    if depth < 0:
        raise RecursionError
    if isinstance(value, dict):
        return {key: _copy_bounded(member, depth - 1) for key, member in value.items()}
    return [_copy_bounded(item, depth - 1) for item in value] if isinstance(value, (list, tuple)) else value


# Removes secrets from a recording before it is written, and from a request before it is looked up.
# Removed: values of headers, fields and query parameters with a secret name; secrets from the settings, also escaped for JSON or URLs;
# text that looks like a key (bearer tokens, keys of well-known services, JSON web tokens, private keys); user and password in URLs. Only
# text is removed: `max_tokens: 100` is no secret.
# A secret becomes `[redacted]`, which no rule changes again. So a request that was built from a replayed answer is the same as the one
# that was recorded. Every pattern is linear in the length of the text.

REDACTED = "[redacted]"

SHORTEST_SECRET = 8
"""The minimum length of a known secret that is searched for: a key such as `test` would remove ordinary words from every sentence."""

_NAMES = (
    "authorization", "proxy-authorization", "www-authenticate", "cookie", "set-cookie",
    "api-key", "apikey", "x-api-key", "x-goog-api-key", "x-n8n-api-key", "ocp-apim-subscription-key",
    "x-auth-token", "x-access-token", "x-csrf-token", "access-token", "refresh-token", "id-token", "auth-token", "session-token",
    "bearer-token", "token",
    "client-secret", "secret", "secret-key", "secret-access-key", "aws-secret-access-key",
    "private-key", "signing-key", "encryption-key", "access-key",
    "password", "passwd", "passphrase", "credential", "credentials",
)  # fmt: skip
# Compared without dashes and underscores: `api_key`, `api-key` and `apiKey` are one name.
_SECRET_NAMES = frozenset(name.replace("-", "") for name in _NAMES)
_QUERY_NAMES = (
    "api[-_]?key",
    "key",
    "(?:access|auth|id|refresh)[-_]?token",
    "token",
    "sig",
    "signature",
    "client[-_]?secret",
    "secret",
    "password",
)

_NAME_PATTERN = "|".join(sorted((name.replace("-", "[-_]?") for name in _NAMES), key=len, reverse=True))
# A field inside JSON that is embedded in a text, at the first and at the second level of quoting.
_QUOTED_FIELD = re.compile(rf'(?P<head>"(?:{_NAME_PATTERN})"\s{{0,9}}:\s{{0,9}}")(?:[^"\\]|\\.)++(?=")', re.IGNORECASE | re.DOTALL)
_TWICE_QUOTED_FIELD = re.compile(
    rf'(?P<head>\\"(?:{_NAME_PATTERN})\\"\s{{0,9}}:\s{{0,9}}\\")(?:[^"\\]|\\\\\\"|\\\\|\\[^"\\])++(?=\\")', re.IGNORECASE | re.DOTALL
)
_HEADER_LINE = re.compile(
    r"(?P<head>^[ \t]{0,9}(?:proxy-authorization|authorization|cookie|set-cookie|x-api-key|api-key):[ \t]{0,9})[^\r\n]+",
    re.IGNORECASE | re.MULTILINE,
)
_QUERY = re.compile(rf"(?P<head>[?&](?:{'|'.join(_QUERY_NAMES)})=)[^&#\s\"'<>]+", re.IGNORECASE)
_USER = re.compile(r"(?P<head>\b[a-z][a-z0-9+.-]{1,20}://)[^\s/@:\"'<>]{1,200}:[^\s/@\"'<>]{1,500}(?=@)", re.IGNORECASE)
# A digit is required: `basic authentication` is prose.
_SCHEME = re.compile(r"(?P<head>\b(?:bearer|basic)[ ]{1,3})(?=[^\s]*[0-9])[A-Za-z0-9._~+/=-]{12,}", re.IGNORECASE)
# A digit is also required after `sk-` and the like, so that ordinary names with dashes stay readable.
_KEYS = re.compile(
    r"""
      (?<![\w-])sk-(?=[A-Za-z_-]{0,200}[0-9])[A-Za-z0-9_-]{16,}                           # OpenAI, Anthropic, OpenRouter
    | (?<![\w-])(?:vk|vrl_(?:slv|run|sbx|shr)|mibo)_(?=[A-Za-z_-]{0,200}[0-9])[A-Za-z0-9_-]{16,}  # our own service
    | \bgh[opsur]_[A-Za-z0-9]{20,} | \bgithub_pat_[A-Za-z0-9_]{20,} | \bglpat-[A-Za-z0-9_-]{16,}
    | \bxox[abeoprs]-[A-Za-z0-9-]{10,}
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b
    | \bAIza[0-9A-Za-z_-]{30,}
    | \bhf_[A-Za-z0-9]{20,} | \bgsk_[A-Za-z0-9]{20,} | \bnvapi-[A-Za-z0-9_-]{20,} | \br8_[A-Za-z0-9]{20,}
    | (?<![\w-])eyJ[A-Za-z0-9_-]{10,4000}+\.[A-Za-z0-9_-]{10,8000}+\.[A-Za-z0-9_-]{10,2000}+
    | -----BEGIN\ [A-Z ]{0,30}PRIVATE\ KEY-----[A-Za-z0-9+/=\s\\]{0,20000}+(?:-----END\ [A-Z ]{0,30}PRIVATE\ KEY-----)?
    """,
    re.VERBOSE,
)
# Contains a marker of every pattern above: a text without any of these markers is not searched.
_MAY_HOLD = re.compile(r"[\"?&@]|bearer|basic|authorization|cookie|api-key|sk-|_|-----|xox|AKIA|ASIA|AIza|eyJ|glpat-|nvapi-", re.IGNORECASE)


def names_a_secret(name: str) -> bool:
    """Return whether a header or field of this name contains a secret."""
    return name.lower().replace("-", "").replace("_", "") in _SECRET_NAMES


class Scrubber:
    """Removes secrets from texts and from JSON."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        spellings: set[str] = set()
        for secret in secrets:
            if len(secret) >= SHORTEST_SECRET:
                # Plain, percent-encoded, and escaped for JSON.
                spellings |= {secret, quote(secret, safe=""), json.dumps(secret)[1:-1]}
        # Longest first: one secret may be part of another.
        ordered = sorted(spellings, key=lambda spelling: (-len(spelling), spelling))
        self._known = re.compile("|".join(re.escape(spelling) for spelling in ordered)) if ordered else None

    def scrub_text(self, text: str) -> str:
        """Return the text without secrets."""
        # Before the fast path: a known secret need not look like one.
        if self._known is not None:
            text = self._known.sub(REDACTED, text)
        # Most texts have none of these markers, and one search instead of six is enough for them.
        if not _MAY_HOLD.search(text):
            return text
        if '"' in text:
            text = _QUOTED_FIELD.sub(_redact_tail, text)
            text = _TWICE_QUOTED_FIELD.sub(_redact_tail, text)
        text = _HEADER_LINE.sub(_redact_tail, text)
        if "://" in text or "?" in text or "&" in text:
            text = _USER.sub(_redact_tail, _QUERY.sub(_redact_tail, text))
        return _KEYS.sub(REDACTED, _SCHEME.sub(_redact_tail, text))

    def scrub_value(self, value: Json) -> Json:
        """Return a copy of JSON without secrets. The caller ensures that its nesting is limited."""
        if isinstance(value, str):
            return self.scrub_text(value)
        if isinstance(value, dict):
            out = {self.scrub_text(key): self._scrub_field(key, member) for key, member in value.items()}
            # Headers are also written as objects with `name` and `value`, as in HAR.
            named: Json = out.get("name")
            if isinstance(named, str) and names_a_secret(named) and isinstance(out.get("value"), str):
                out["value"] = _redact(out["value"])
            return out
        if isinstance(value, list):
            # Headers are also written as pairs.
            if len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], str) and names_a_secret(value[0]):
                return [value[0], _redact(value[1])]
            return [self.scrub_value(item) for item in value]
        return value

    def _scrub_field(self, name: str, value: Json) -> Json:
        if names_a_secret(name):
            if isinstance(value, str):
                return _redact(value)
            if isinstance(value, list):
                return [_redact(item) if isinstance(item, str) else self.scrub_value(item) for item in value]
        return self.scrub_value(value)


def _redact_tail(match: re.Match[str]) -> str:
    return match["head"] + REDACTED


def _redact(value: str) -> str:
    # An empty field is not secret, and its absence is informative.
    return REDACTED if value else value
