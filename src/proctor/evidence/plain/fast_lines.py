"""The fast path: a line of JSONL that is plain evidence in our own spelling, decoded straight into `Evidence`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Union

import msgspec

from proctor.evidence.shared.usage import HOLDERS
from proctor.evidence.unknowns.markers import LAST_LETTERS, find_removed, is_redacted
from proctor.evidence.values.access import split_words
from proctor.evidence.values.json_bytes import UNWRITABLE, may_repeat_key
from proctor.evidence.values.text import MAYBE_JSON, may_be_json, parse_json
from proctor.model.account import Account
from proctor.model.evidence import Evidence, ToolCall, Usage, get_stored_account
from proctor.model.json_values import exceeds_depth
from proctor.model.typed import make_json_decoder

_LEVELS = 5
"""Levels of a JSON value that are read here; deeper values are left to the general reader, which checks their depth."""

_IN_BODY = split_words("meta responseMetadata response_metadata llm_output llmOutput tool_calls toolCalls tools_called").union(HOLDERS)
"""Fields of an answer that may contain tokens or calls, which only the general reader reads."""


def _build_bounded_type(levels: int) -> Any:
    scalar: Any = Union[str, int, float, bool, None]  # noqa: UP007 - built at run time, where `X | Y` has no meaning for the loop below
    value = scalar
    for _ in range(levels - 1):
        value = Union[scalar, list[value], dict[str, value]]  # noqa: UP007 - as above
    return value


if TYPE_CHECKING:
    _Value = Any
else:
    _Value = _build_bounded_type(_LEVELS)

_Count = Annotated[int, msgspec.Meta(ge=0)]
_Duration = Annotated[int, msgspec.Meta(ge=0)] | Annotated[float, msgspec.Meta(ge=0)]
_Error = Annotated[str, msgspec.Meta(pattern=r"(?i)^(?!\s*(?:none|null|nil|undefined|n/a|na|no|false|ok|0|-)?\s*$)")]
"""A blank error or a word such as `none` is not an error; an error that is not text is left to the general reader."""


# `gc=False`: evidence is a tree and holds no cycle, so the collector need not track it. `omit_defaults`: lines seldom spell out defaults,
# so that the re-encoded value mostly equals the line byte by byte (`may_repeat_key`).
class _RawCall(ToolCall, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    arguments: dict[str, _Value] = {}  # noqa: RUF012 - msgspec gives each instance its own
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: _Error | None = None
    # A call of a node is nested there.
    node: None = None
    # An integer stays an integer, so that the line can be compared with the re-encoded value.
    duration_ms: int | float | None = None


class _Call(_RawCall, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A call whose result is decoded when it is first read: results are most of a trace, and few checks read them."""

    @property
    def result(self) -> Any:  # type: ignore[override]  # hides the field of the same name
        value = _get_stored(self)
        if isinstance(value, msgspec.Raw):
            value = _decode_value(bytes(value))
            _set_stored(self, value)
        return value


# The field itself, which the property hides.
_get_stored: Any = ToolCall.__dict__["result"].__get__
_set_stored: Any = ToolCall.__dict__["result"].__set__
_store_account: Any = Evidence.__dict__["account"].__set__


def _decode_value(written: bytes) -> Any:
    try:
        value = msgspec.json.decode(written)
    except (msgspec.MsgspecError, RecursionError):
        return written.decode("utf-8", errors="replace")  # too deeply nested to decode: it stays text
    return written.decode() if exceeds_depth(value) else value


class _Usage(Usage, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    input_tokens: _Count | None = None
    output_tokens: _Count | None = None
    total_tokens: _Count | None = None


class _RawLine(Evidence, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    # Values that need normalising are typed as absent, so that the general reader reads such lines.
    nodes: None = None
    turns: None = None
    state: None = None
    renders: None = None
    input: _Value = None
    body: _Value = None
    tool_calls: tuple[_Call, ...] | None = None
    usage: _Usage | None = None
    error: _Error | None = None
    # From 400 on the run failed.
    http_status: Annotated[int, msgspec.Meta(lt=400)] | None = None
    duration_ms: _Duration | None = None
    context: dict[str, _Value] | None = None
    metadata: dict[str, _Value] = {}  # noqa: RUF012 - as above


class _Line(_RawLine, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A record that is searched for removed data only when its account is first read; claims of presence do not need it."""

    @property
    def account(self) -> Account | None:  # type: ignore[override]  # hides the field of the same name
        account = get_stored_account(self)
        if account is None and _has_removed_data(self):
            from proctor.evidence.plain.record import read_plain  # only a record with removed data needs it

            account = read_plain(_decode_any(msgspec.json.encode(self))).account
            _store_account(self, account)
        return account


_LONGEST_MARK = 200
_LINE = make_json_decoder(_Line)
_decode_any = msgspec.json.Decoder().decode
_encode_into = msgspec.json.Encoder().encode_into
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def decode_line(line: bytes) -> Evidence | None:
    """Return the evidence on a line, or None if the general reader must read it, for example because a key may be repeated."""
    return make_line_decoder()(line)


def make_line_decoder() -> Callable[[bytes], Evidence | None]:
    """Return a function like `decode_line`, for many lines and one thread; it encodes evidence into one buffer, which saves time."""
    buffer = bytearray()

    def decode_next_line(line: bytes) -> Evidence | None:
        evidence = decode_unique_line(line)
        if evidence is None:
            return None
        try:
            _encode_into(evidence, buffer)
        except UNWRITABLE:
            return None
        # Most lines were written by the same library: if the bytes are equal, no key is repeated.
        if line.startswith(buffer) and len(line) <= len(buffer) + 1:  # with or without its line break
            return evidence
        # Default values are not encoded, so a line that seems to repeat a key is examined a second time.
        repeats = may_repeat_key(line, evidence) and may_repeat_key(line, _decode_any(line))
        return None if repeats else evidence

    return decode_next_line


def decode_unique_line(line: bytes) -> Evidence | None:
    """Decode a line like `decode_line`, for claims that do not depend on which value of a repeated key counts.

    Finding repeated keys costs a fifth of the time from a line to its verdict, or half of it if keys are in another order.
    """
    try:
        evidence = _LINE.decode(line)
    except _UNREADABLE:
        return None
    # The general reader combines a stored account with markers.
    if get_stored_account(evidence) is not None and _has_removed_data(evidence):
        return None
    text = evidence.text
    # Most lines: the answer is neither JSON nor removed, and no field has to be filled in.
    if evidence.body is None and evidence.usage is None and text and text[0] not in MAYBE_JSON and text[-1] not in LAST_LETTERS:
        return evidence
    return _complete_evidence(evidence)


def _has_removed_data(evidence: _Line) -> bool:
    if find_removed(evidence.text) is not None:
        return True
    raw, marks, find = msgspec.Raw, LAST_LETTERS, find_removed  # local names, for a loop over all calls of every failure
    for call in evidence.tool_calls or ():
        name = call.name
        if not name.strip() or (name[-1:] in marks and is_redacted(name)):
            return True
        for value in (call.arguments or {}).values():
            # A mark ends in one of `LAST_LETTERS`; few texts do.
            kind = type(value)
            if kind is not int and (kind is not str or value[-1:] in marks) and find(value) is not None:
                return True
        result = _get_stored(call)
        if type(result) is raw:
            written = bytes(result)
            if not written.startswith(b'"') or len(written) >= _LONGEST_MARK:
                continue
            result = _decode_value(written)
        if result is not None and is_redacted(result):
            return True
    return False


def _complete_evidence(evidence: _Line) -> Evidence | None:
    """Return the evidence with the fields that our rules fill in, or None if the general reader must read it."""
    # The general reader decides what is unknown if a usage has no count.
    if evidence.usage is not None and evidence.usage.total() is None:
        return None
    body, text = evidence.body, evidence.text
    # Not even a claim of presence may take a mark for the answer.
    if is_redacted(text):
        return None
    # The body may contain the answer, calls and tokens; then the general rules apply.
    if body is not None:
        entries = body if type(body) is list else (body,)
        is_plain = text is not None and all(type(entry) is not dict or _IN_BODY.isdisjoint(entry) for entry in entries)
        return evidence if is_plain else None
    if text and may_be_json(text):
        # No other code has a reference to the instance yet.
        msgspec.structs.force_setattr(evidence, "body", parse_json(text))
    return evidence
