"""Captures the OpenTelemetry spans recorded while an agent's function runs, and combines them with its return value.

Installed instrumentation writes its spans to the tracer provider of the process; a span processor of ours keeps those of each call in
memory (`processor.py`), the reader of traces reads them, and `merge_returned_and_traced` makes one evidence of both.
If no model or tool span was recorded, the calls are unknown, unless the function itself returns a list of calls.

The SDK of OpenTelemetry is loaded only if a target captures.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal

import msgspec

from proctor.errors import EvidenceError, SpecError
from proctor.model.account import CALL_PARTS, PLAIN_READERS, Account, Part
from proctor.model.evidence import Evidence
from proctor.model.show import exception_text, shorten
from proctor.targets.answers.account import mark_unknown
from proctor.targets.shared.faults import TargetFault

if TYPE_CHECKING:
    from proctor.targets.capture.processor import CapturedSpans

Capture = Literal["otel"]
WAIT_S = 1.0
"""Seconds to wait for spans that are still open when the function returns; spans of a stream end a little later."""
NEXT_STEP = (
    "install an OpenTelemetry instrumentation for the agent's framework and switch it on where its module is imported "
    "(docs/how-to/capture-traces-in-process.md)"
)
_MAX_CHARACTERS = 300
_INCOMPLETE: tuple[Part, ...] = ("tool_calls", "usage", "nodes")
"""The parts that missing spans could contain."""


class Captured(msgspec.Struct, frozen=True):
    """The evidence of one call, and which kinds of spans it had."""

    evidence: Evidence
    has_work: bool = True
    """Whether a span of a model or a tool was recorded."""
    has_inner_work: bool = False
    """Whether spans of an agent were recorded inside a tool."""


def check_capture(capture: object) -> None:
    """Reject an unknown capture, or one whose package is missing. Raises `SpecError`."""
    if capture is None:
        return
    if capture != "otel":
        raise SpecError(f"capture: expected otel, found {shorten(repr(capture))}", field="capture")
    try:
        importlib.import_module("opentelemetry.sdk.trace")
    except ImportError:
        raise SpecError("capture: otel needs the SDK of OpenTelemetry: pip install opentelemetry-sdk", field="capture") from None


def prepare_capture(capture: Capture | None) -> None:
    """Make sure that spans can be captured. Raises `InputError` if they cannot."""
    if capture is not None:
        from proctor.targets.capture.processor import find_provider  # loads the SDK

        find_provider()


async def capture_call(answer: Callable[[], Awaitable[Evidence]], *, name: str) -> Captured:
    """Return the function's result combined with the spans captured while it ran; a fault includes the spans before it."""
    from proctor.evidence.traces.merge_returned_and_traced import find_inner_work, merge_returned_and_traced
    from proctor.targets.capture.processor import CallSpans, CapturedSpans, stop_watching, watch_call  # loads the SDK

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
            fault.evidence = msgspec.structs.replace(read_captured(captured)[0], error=fault.message)
        raise
    traced, has_work = read_captured(captured)
    inner = find_inner_work(captured.spans, traced) if traced.tool_calls else None
    evidence = merge_returned_and_traced(returned, traced, inner)
    # A list of calls written by the function is complete; a framework's result may lack calls that only spans show.
    reader = returned.account.reader if returned.account is not None else ""
    if not has_work and traced.account is not None and reader not in PLAIN_READERS:
        evidence = mark_unknown(evidence, CALL_PARTS, traced.account.unknown["tool_calls"], is_overridable=True)
    return Captured(evidence, has_work, inner is not None)


def read_captured(captured: CapturedSpans) -> tuple[Evidence, bool]:
    """Return the spans of one call as evidence, and whether one of them is of a model or a tool."""
    from proctor.evidence.traces.build import build_evidence

    if not captured.spans:
        why = f"no span was recorded while the function ran: {captured.gaps[0] if captured.gaps else NEXT_STEP}"
        return Evidence(account=Account("otlp", {"tool_calls": shorten(why, _MAX_CHARACTERS)})), False
    try:
        # One call is one run, even if parts of it started separate traces.
        evidence = build_evidence(captured.spans)
    except (EvidenceError, RecursionError) as error:
        return Evidence(account=Account("otlp", {"tool_calls": f"the spans cannot be read: {exception_text(error)}"})), True
    account = evidence.account or Account("otlp")
    unknown = dict(account.unknown)
    if evidence.no_run is not None:
        unknown["tool_calls"] = shorten(f"no span of this call is of a model or a tool: {NEXT_STEP}", _MAX_CHARACTERS)
    for part in _INCOMPLETE if captured.gaps else ():
        unknown[part] = shorten(captured.gaps[0], _MAX_CHARACTERS)
    account = msgspec.structs.replace(
        account,
        unknown=unknown,
        notes=(*captured.gaps[1:], *account.notes),
        seen_tools=() if captured.gaps else account.seen_tools,
        overridable=() if captured.gaps else account.overridable,
    )
    # The id of the trace identifies it in other exports; the other metadata is already known.
    metadata = {key: value for key, value in evidence.metadata.items() if key == "trace_id"}
    return msgspec.structs.replace(evidence, no_run=None, account=account, metadata=metadata), evidence.no_run is None
