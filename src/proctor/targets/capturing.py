"""What `capture` of a callable target may say, and the door to what captures. OpenTelemetry is loaded only where it is needed."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import Literal

from proctor.errors import SpecError
from proctor.model.evidence import Evidence
from proctor.model.show import shorten

Capture = Literal["otel"]


def check_capture(capture: object) -> None:
    """Refuse a capture that does not exist, or that lacks the package it needs. Raises `SpecError`."""
    if capture is None:
        return
    if capture != "otel":
        raise SpecError(f"capture: expected otel, found {shorten(repr(capture))}", field="capture")
    try:
        importlib.import_module("opentelemetry.sdk.trace")
    except ImportError:
        raise SpecError("capture: otel needs the SDK of OpenTelemetry: pip install opentelemetry-sdk", field="capture") from None


def prepare_capture(capture: Capture | None) -> None:
    """Make sure that what is asked for can be captured. Raises `InputError` where it cannot."""
    if capture is not None:
        from proctor.targets.span_processor import find_provider  # loads the SDK

        find_provider()


async def observe_call(answer: Callable[[], Awaitable[Evidence]], *, capture: Capture | None, name: str) -> Evidence:
    """Return what the function of an agent answered, with what was captured meanwhile."""
    if capture is None:
        return await answer()
    from proctor.targets.otel_capture import capture_call  # loads the SDK

    return await capture_call(answer, name=name)
