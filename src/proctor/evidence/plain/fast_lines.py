"""The hot path: a line of JSONL that is plain evidence in our own spelling, decoded straight into `Evidence`.

Over a stream of a million lines the general reader, which looks at every key, would be most of the cost. So each line is first
decoded by a strict twin of the evidence types: same fields, no unknown keys, arguments that are objects, and values nested
only a few levels. What comes out *is* an `Evidence` and needs no second look except where a rule fills something in. Whatever
does not fit (another format, another spelling, deep nesting, a mistake) yields nothing, and the general reader takes over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Union

import msgspec

from proctor.evidence.shared.usage import HOLDERS, holds_counts
from proctor.evidence.unknowns.conflicts import tells_of_other_calls
from proctor.evidence.values.json_bytes import UNWRITABLE, exceeds_depth, may_repeat_key
from proctor.evidence.values.text import MAYBE_JSON, may_be_json, parse_json
from proctor.model.evidence import Evidence, ToolCall, Usage
from proctor.model.typed import make_json_decoder

# A JSON value of at most this many levels: deeper ones go the general way, where depth is checked.
_LEVELS = 6

# Members of an answer that may hold tokens or calls. With one of them the general reader decides what counts.
_BOXED = frozenset((*HOLDERS, "meta", "responseMetadata", "response_metadata", "llm_output", "llmOutput", "tool_calls"))


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


# `gc=False`: evidence is a tree and holds no cycle, so the collector need not track it. `omit_defaults`: lines seldom spell out defaults,
# so that what is encoded anew mostly equals the line byte by byte (`may_repeat_key`).
class _RawCall(ToolCall, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    arguments: dict[str, _Value] = {}  # noqa: RUF012 - msgspec gives each instance its own
    result: msgspec.Raw = msgspec.Raw(b"null")
    # A blank error is none, and one that is not text needs a look.
    error: Annotated[str, msgspec.Meta(pattern=r"\S")] | None = None
    # A call of a node is nested there.
    node: None = None
    # A whole number stays one, so that the line can be compared with what was read of it.
    duration_ms: int | float | None = None


class _Call(_RawCall, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A call whose result stays as it was written until somebody reads it: results are most of a trace, and few checks look."""

    @property
    def result(self) -> Any:  # type: ignore[override]  # stands before the field of the same name
        value = _get_stored(self)
        if isinstance(value, msgspec.Raw):
            value = _decode_value(bytes(value))
            _set_stored(self, value)
        return value


# The field itself, behind the property.
_get_stored: Any = ToolCall.__dict__["result"].__get__
_set_stored: Any = ToolCall.__dict__["result"].__set__


def _decode_value(written: bytes) -> Any:
    try:
        value = msgspec.json.decode(written)
    except (msgspec.MsgspecError, RecursionError):
        return written.decode("utf-8", errors="replace")  # nested beyond what can be decoded: it stays text
    return written.decode() if exceeds_depth(value) else value


class _Usage(Usage, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    input_tokens: _Count | None = None
    output_tokens: _Count | None = None
    total_tokens: _Count | None = None


class _Line(Evidence, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    # What needs normalising is typed as absent, so that a line that has it goes the general way.
    nodes: None = None
    turns: None = None
    state: None = None
    renders: None = None
    input: _Value = None
    body: _Value = None
    tool_calls: tuple[_Call, ...] | None = None
    usage: _Usage | None = None
    error: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    duration_ms: int | float | None = None
    context: dict[str, _Value] | None = None
    metadata: dict[str, _Value] = {}  # noqa: RUF012 - as above


_decode = make_json_decoder(_Line).decode
_decode_any = msgspec.json.Decoder().decode
_encode_into = msgspec.json.Encoder().encode_into
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def decode_line(line: bytes) -> Evidence | None:
    """Return the evidence on a line, or None if the general reader must look at it, also if a key may stand twice in it."""
    evidence = decode_unique_line(line)
    return None if evidence is None or _repeats_key(line, evidence) else evidence


def make_line_decoder() -> Callable[[bytes], Evidence | None]:
    """Return a function that does what `decode_line` does, for many lines and one thread.

    It writes evidence anew into a buffer of its own, which takes a quarter less time than new bytes for each line.
    """
    buffer = bytearray()

    def decode_next_line(line: bytes) -> Evidence | None:
        evidence = decode_unique_line(line)
        if evidence is None:
            return None
        try:
            _encode_into(evidence, buffer)
        except UNWRITABLE:
            return None
        # Written by the same library, as most lines are: equal bytes cannot hide a key.
        same = buffer == line  # pyright: ignore[reportUnnecessaryComparison] - both compare by what they hold
        return evidence if same or not _repeats_key(line, evidence) else None

    return decode_next_line


def _repeats_key(line: bytes, evidence: Evidence) -> bool:
    # What is written and has its default value is not written anew, so a line that seems to repeat a key is looked at a second time.
    return may_repeat_key(line, evidence) and may_repeat_key(line, _decode_any(line))


def decode_unique_line(line: bytes) -> Evidence | None:
    """Decode a line as `decode_line` does, for claims that hold whichever value of a repeated key counts.

    To look for repeated keys costs a fifth of the whole way from a line to its verdict, or half of it where keys stand in another order.
    """
    try:
        evidence = _decode(line)
    except _UNREADABLE:
        return None
    text = evidence.text
    # Most lines: an answer in words and nothing to fill in.
    if evidence.body is None and evidence.usage is None and text and text[0] not in MAYBE_JSON:
        return evidence
    return _complete_evidence(evidence)


def _complete_evidence(evidence: _Line) -> Evidence | None:
    """Return the evidence with the fields that our rules fill in, or None if the general reader must look at it."""
    # A usage without any count says that tokens were recorded and does not tell them: that is for the general reader to doubt.
    usage = evidence.usage
    if usage is not None and usage.total() is None:
        return None
    body, text = evidence.body, evidence.text
    # The answer may stand in the body, or calls and tokens may: then the general rules decide which, and this is not the place.
    if body is not None:
        entries = body if type(body) is list else (body,)
        if text is None or any(type(entry) is dict and not _BOXED.isdisjoint(entry) for entry in entries):
            return None
        return None if _counts_tokens(body, usage) or _lists_other_calls(body, evidence.tool_calls) else evidence
    if text and may_be_json(text):
        value = parse_json(text)
        if value is not None:
            # The instance is ours alone until it is returned.
            msgspec.structs.force_setattr(evidence, "body", value)
    return evidence


def _counts_tokens(body: Any, usage: Usage | None) -> bool:
    """Return whether an answer may count tokens under an unknown name while none are recorded beside it."""
    return usage is None and type(body) is dict and any(holds_counts(value) for value in body.values() if isinstance(value, (dict, list)))


def _lists_other_calls(body: Any, calls: tuple[_Call, ...] | None) -> bool:
    """Return whether an answer may tell of calls that are not recorded beside it; an answer of plain fields tells of none."""
    if calls is None or not isinstance(body, (dict, list)):
        return False
    members: Any = body.items() if isinstance(body, dict) else (("", body),)
    # A call under an alias is the same call.
    names = {name for call in calls for name in (call.name, *call.aliases)}
    return any(tells_of_other_calls(key, value, names) for key, value in members if isinstance(value, (dict, list, str)))
