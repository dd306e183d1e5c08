"""Bounds how much JSON one request may hold, before anybody decodes it.

Decoded, every list and object takes many times the bytes it came as, and whoever looks at it takes the time of all others. So the bytes are
measured first: lists and objects (`--json-objects`), values (elements and members, `--json-values`), levels (`--deepest-body`). Counted are
the commas and brackets outside of strings, slice by slice, so that other threads have their turn in between: 10 MB take about 50 ms, and at
worst three times that. The count is exact up to the first fault in the JSON, where every decoder stops. Requests that bring no traces, no
state and no dataset have a tenth of what these have.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import msgspec

from proctor.service.refusals import Refusal
from proctor.service.settings import ServiceSettings

_SLICE = 262_144
"""Bytes that are looked through in one call, in which no other thread has its turn."""
_NOT_STRUCTURE = bytes(code for code in range(256) if code not in b'"[]{},')
_NOT_COUNTED = bytes(code for code in range(256) if code not in b"[{,")
_NOT_OPENING = bytes(code for code in range(256) if code not in b"[{")
_NOT_BRACKETS = bytes(code for code in range(256) if code not in b"[]{}")
_ALIKE = bytes.maketrans(b"{}", b"[]")
_STEPS = [0] * 256
_STEPS[ord("[")], _STEPS[ord("]")] = 1, -1


class JsonLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much JSON one request may hold."""

    objects: int
    values: int
    deepest: int
    part: int = 1
    """How many times as much requests with traces, states and datasets may hold."""

    @classmethod
    def of(cls, settings: ServiceSettings, *, part: int = 1) -> JsonLimits:
        """Return the limits of a service, or the part of them that a request without traces, a state or a dataset has."""
        objects, values = settings.json_objects // part, settings.json_values // part
        return cls(objects=objects, values=values, deepest=settings.deepest_body, part=part)


def check_json(body: bytes, limits: JsonLimits) -> None:
    """Refuse JSON that holds more than the limits allow. Of what is no JSON the answer may be anything. Raises `Refusal`."""
    counted = body.translate(None, _NOT_COUNTED)
    if len(counted) <= limits.values and _count_objects(counted) <= min(limits.objects, limits.deepest):
        return  # even if all of them stood outside of strings
    objects = values = 0
    brackets: list[bytes] = []
    for outside in _cut_strings_out(body):
        counted = outside.translate(None, _NOT_COUNTED)
        values += len(counted)
        objects += _count_objects(counted)
        # What has too many is refused without its depth, so its brackets need not be held.
        if objects <= limits.objects:
            brackets.append(outside.translate(None, _NOT_BRACKETS))
    if objects > limits.objects:
        raise _refuse_count("lists and objects", objects, limits.objects, "--json-objects", limits.part)
    if values > limits.values:
        raise _refuse_count("values", values, limits.values, "--json-values", limits.part)
    # More closing brackets than opening ones are no JSON.
    if objects > limits.deepest and _measure_depth(b"".join(brackets)[: 2 * objects]) > limits.deepest:
        raise Refusal("BAD_REQUEST", f"the body is nested more than {limits.deepest} levels deep (--deepest-body)")


def _count_objects(counted: bytes) -> int:
    return len(counted.translate(None, _NOT_OPENING))


def _refuse_count(what: str, found: int, most: int, flag: str, part: int) -> Refusal:
    setting = flag if part == 1 else f"1/{part} of {flag}, which is for traces, states and datasets"
    return Refusal("PAYLOAD_TOO_LARGE", f"the JSON of the body holds {found} {what}, and at most {most} are taken ({setting})")


def _cut_strings_out(body: bytes) -> Iterator[bytes]:
    """Yield the commas and brackets outside of strings, slice by slice."""
    start = 0
    inside = 0
    while start < len(body):
        piece = body[start : start + _SLICE]
        if (len(piece) - len(piece.rstrip(b"\\"))) & 1:
            piece = body[start : start + _SLICE + 1]  # what a backslash escapes stays with it
        start += len(piece)
        if b"\\" in piece:
            # In this order: the second half of an escaped backslash does not escape the quote behind it.
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        # Two quotes with nothing between them change nothing about what is inside of a string and what is not.
        parts = piece.translate(None, _NOT_STRUCTURE).replace(b'""', b"").split(b'"')
        # Every second part stands outside of strings; `inside` is 1 where the slice begins within one.
        yield b"".join(parts[inside::2])
        inside ^= (len(parts) - 1) & 1


def _measure_depth(brackets: bytes) -> int:
    """Return how deeply brackets nest."""
    levels = 0
    # `[}` counts as a pair: it is no JSON, and no decoder gets beyond it.
    left = brackets.translate(_ALIKE)
    # Most of what is nested ends at once: without the innermost pairs there is a level less, and far fewer brackets.
    while len(left) > 1_000 and len(less := left.replace(b"[]", b"")) < 0.9 * len(left):
        left = less
        levels += 1
    depth = deepest = 0
    for start in range(0, len(left), _SLICE // 16):
        steps = list(accumulate(map(_STEPS.__getitem__, left[start : start + _SLICE // 16]), initial=depth))
        deepest = max(deepest, *steps)
        depth = steps[-1]
    return levels + deepest
