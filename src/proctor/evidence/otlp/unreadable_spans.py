"""Spans that could not be read: which traces they belonged to, and what is unknown of these.

A record that cannot be read may still name its traces. Where it names none, or was cut off, or holds more spans than it names traces, it
may have told of any trace.
"""

from __future__ import annotations

import re

import msgspec

from proctor.evidence.otlp.spans import fold_id
from proctor.model.account import Account, Part
from proctor.model.evidence import Evidence
from proctor.model.show import shorten

_TRACE = re.compile(rb'"(?:context\.)?trace_?id"\s*:\s*"([^"\\]{1,256})"', re.IGNORECASE)
_SPAN = re.compile(rb'"(?:context\.)?span_?id"\s*:', re.IGNORECASE)
_ENDINGS = (b"}", b"]")
_PARTS: tuple[Part, ...] = ("tool_calls", "tool_results", "answer", "input", "turns", "usage", "nodes")
"""What a span could have told that was not seen; the arguments of a call stand where the call stands."""
_LONGEST = 300


def find_lost_traces(record: bytes, *, readable: bool = False) -> frozenset[str] | None:
    """Return the traces that a record names which could not be read as spans; None where it may be about any.

    A `readable` one is JSON that tells of no spans: it is about the traces it names, be it none.
    """
    found = [fold_id(match[1].decode("utf-8", "replace")) for match in _TRACE.finditer(record)]
    is_cut = not record.rstrip().endswith(_ENDINGS)
    if not readable and (not found or is_cut or len(_SPAN.findall(record)) > len(found)):
        return None
    return frozenset(found)


def mark_lost_spans(evidence: Evidence, why: str) -> Evidence:
    """Return the evidence of a trace that may lack spans: nothing is known to be all there was of it."""
    account = evidence.account or Account()
    told = shorten(why, _LONGEST)
    # What a reader did not understand is its own doubt, and names the part more exactly.
    unknown = {**dict.fromkeys(_PARTS, told), **account.unknown}
    account = msgspec.structs.replace(account, unknown=unknown, seen_tools=())
    turns = evidence.turns and tuple(msgspec.structs.replace(turn, duration_ms=None) for turn in evidence.turns)
    # A span that began earlier or ended later would make it longer.
    return msgspec.structs.replace(evidence, account=account, duration_ms=None, turns=turns)
