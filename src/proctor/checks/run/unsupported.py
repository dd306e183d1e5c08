"""A claim that is not supported: it fails with the reason."""

from __future__ import annotations

import msgspec

from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.answer import decide_always
from proctor.model.verdict import failed


class Unsupported(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An assertion that no check understands; always fails with code `unsupported_assertion`."""

    reason: str
    """Why it cannot be understood."""


@check("unsupported", shorthand="reason", example="unsupported: the original assertion has no counterpart", reads=Reads((), "presence"))
def unsupported(spec: Unsupported) -> Decide:
    """An assertion that no check understands; always fails with code `unsupported_assertion`."""
    return decide_always(failed(f"this assertion is not decided here: {spec.reason}", code="unsupported_assertion"))
