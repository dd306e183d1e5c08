"""Why an agent could not be driven.

`code` and `safe` are for the runner, the message is for the user. Observations before the fault are in `evidence`, so that a conversation
that fails in its third turn does not lose the first two.
"""

from __future__ import annotations

from typing import Literal

from proctor.errors import TargetError
from proctor.model.evidence import Evidence

TargetCode = Literal[
    "unreachable",  # no connection: nothing was sent
    "timeout",
    "transport",  # the connection broke during the exchange
    "too_large",
    "redirected",
    "bad_request",  # the request cannot be built
    "bad_answer",
    "http_status",  # the agent answered with a status other than success
    "rate_limited",  # it answered 429
    "empty_answer",
    "response_path",  # the answer is not at the expected place
    "unauthorized",
    "agent_failed",  # a Python function raised
    "no_execution",  # n8n has no finished execution
    "no_recording",
    "not_open",
]


class TargetFault(TargetError):
    """An agent could not be driven. `safe`: nothing reached it, so a retry is harmless."""

    def __init__(
        self,
        code: TargetCode | str,
        message: str,
        *,
        safe: bool = False,
        retry_after_s: float | None = None,
        evidence: Evidence | None = None,
    ) -> None:
        super().__init__(message, code=code, safe=safe, retry_after_s=retry_after_s)
        self.evidence = evidence
