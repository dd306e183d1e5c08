"""Captures what OpenTelemetry records while the function of an agent runs, and reads it together with what the function returned.

Whatever instrumentation is installed writes its spans to the tracer provider of the process; a span processor of ours keeps those of each
call in memory (`span_processor.py`, `call_spans.py`), the reader of traces reads them, and `two_tellings.py` makes one evidence of both.
Where no span came, the tool calls are unknown, unless what was returned tells them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.traces.build import build_evidence
from proctor.evidence.traces.merge_returned_and_traced import find_inner_work, merge_returned_and_traced
from proctor.model.account import Account, Part
from proctor.model.evidence import Evidence
from proctor.model.show import exception_text, shorten
from proctor.targets.call_spans import CallSpans, CapturedSpans
from proctor.targets.faults import TargetFault
from proctor.targets.span_processor import stop_watching, watch_call

WAIT_S = 1.0
"""How long spans are waited for that are open when the function has returned: those of a stream end a little later."""
NEXT_STEP = (
    "install an OpenTelemetry instrumentation for the agent's framework and switch it on where its module is imported "
    "(docs/how-to/capture-traces-in-process.md)"
)
_LONGEST = 300
_INCOMPLETE: tuple[Part, ...] = ("tool_calls", "usage", "nodes")
"""What spans that are missing could have told."""


async def capture_call(answer: Callable[[], Awaitable[Evidence]], *, name: str) -> Evidence:
    """Return what the function returned, with what was captured while it ran; a fault keeps what was captured before it."""
    call = CallSpans()
    captured = CapturedSpans()
    try:
        try:
            with watch_call(call, name):
                returned = await answer()
            await call.wait_until_ended(WAIT_S)
        finally:
            captured, unfinished = call.close()
            stop_watching(call, unfinished)
    except TargetFault as fault:
        if captured.spans and fault.evidence is None:
            fault.evidence = msgspec.structs.replace(read_captured(captured), error=fault.message)
        raise
    traced = read_captured(captured)
    inner = find_inner_work(captured.spans, traced) if traced.tool_calls else None
    return merge_returned_and_traced(returned, traced, inner)


def read_captured(captured: CapturedSpans) -> Evidence:
    """Return the spans of one call as evidence, with everything that may be missing in its account."""
    if not captured.spans:
        why = f"no span was recorded while the function ran: {captured.gaps[0] if captured.gaps else NEXT_STEP}"
        return Evidence(account=Account("otlp", {"tool_calls": shorten(why, _LONGEST)}))
    try:
        # One call is one run, also where parts of it began traces of their own.
        evidence = build_evidence(captured.spans)
    except (EvidenceError, RecursionError) as error:
        return Evidence(account=Account("otlp", {"tool_calls": f"the spans cannot be read: {exception_text(error)}"}))
    account = evidence.account or Account("otlp")
    unknown = dict(account.unknown)
    if evidence.no_run is not None:
        unknown["tool_calls"] = shorten(f"no span of this call tells of a model or a tool: {NEXT_STEP}", _LONGEST)
    for part in _INCOMPLETE if captured.gaps else ():
        unknown[part] = shorten(captured.gaps[0], _LONGEST)
    notes = (*captured.gaps[1:], *account.notes)
    seen_tools = () if captured.gaps else account.seen_tools
    # Where it ran is known; of the trace, its id finds it again wherever else its spans went.
    metadata = {key: value for key, value in evidence.metadata.items() if key == "trace_id"}
    overridable = tuple(part for part in account.overridable if unknown[part] == account.unknown[part])
    account = msgspec.structs.replace(account, unknown=unknown, notes=notes, seen_tools=seen_tools, overridable=overridable)
    return msgspec.structs.replace(evidence, no_run=None, account=account, metadata=metadata)
