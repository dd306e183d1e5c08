"""The hot path: a line of JSONL that is plain evidence in our own spelling, decoded straight into `Evidence`.

Over a stream of a million lines the general reader, which looks at every key, would be most of the cost. So each line is first
decoded by a strict twin of the evidence types: same fields, no unknown keys, arguments that are objects, and values nested
only a few levels. What comes out *is* an `Evidence` and needs no second look except where a rule fills something in. Whatever
does not fit (another format, another spelling, deep nesting, a mistake) yields nothing, and the general reader takes over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Union

import msgspec

from proctor.evidence.calls import says_error
from proctor.evidence.text import MAYBE_JSON, json_in, may_be_json
from proctor.evidence.usage import HOLDERS
from proctor.model.evidence import Evidence, ToolCall, Usage

# A JSON value of at most this many levels: deeper ones go the general way, where depth is checked.
_LEVELS = 6

_BOXED = frozenset((*HOLDERS, "meta", "responseMetadata", "response_metadata", "llm_output", "llmOutput", "tool_calls"))


def _bounded(levels: int) -> Any:
    scalar: Any = Union[str, int, float, bool, None]  # noqa: UP007 - built at run time, where `X | Y` has no meaning for the loop below
    value = scalar
    for _ in range(levels - 1):
        value = Union[scalar, list[value], dict[str, value]]  # noqa: UP007 - as above
    return value


if TYPE_CHECKING:
    _Value = Any
else:
    _Value = _bounded(_LEVELS)


_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Call(ToolCall, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    arguments: dict[str, _Value] = {}  # noqa: RUF012 - msgspec gives each instance its own
    result: _Value = None
    error: _Value = None


class _Usage(Usage, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    input_tokens: _Count | None = None
    output_tokens: _Count | None = None
    total_tokens: _Count | None = None


class _Line(Evidence, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    # What needs normalising is typed as absent, so that a line that has it goes the general way.
    nodes: None = None
    turns: None = None
    state: None = None
    renders: None = None
    input: _Value = None
    body: _Value = None
    tool_calls: tuple[_Call, ...] | None = None
    usage: _Usage | None = None
    context: dict[str, _Value] | None = None
    metadata: dict[str, _Value] = {}  # noqa: RUF012 - as above


_DECODER = msgspec.json.Decoder(_Line)


def decode_line(line: bytes) -> Evidence | None:
    """The evidence on this line, or nothing if the general reader must look at it."""
    try:
        evidence = _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    for call in evidence.tool_calls or ():
        # A call of a node is nested there, a blank error is none, and a result may say that it failed.
        if call.node is not None or (call.error is not None and not says_error(call.error)):
            return None
        if type(result := call.result) is dict and "isError" in result:
            return None
    if (evidence.usage is not None and evidence.usage.total() is None) or evidence.error == "":
        return None
    body, text = evidence.body, evidence.text
    if body is not None:
        return None if text is None or (type(body) is dict and not _BOXED.isdisjoint(body)) else evidence
    if text is not None and text[:1] in MAYBE_JSON and may_be_json(text):
        value = json_in(text)
        if value is not None:
            # The instance is ours alone until it is returned.
            msgspec.structs.force_setattr(evidence, "body", value)
    return evidence
