"""Decides what is still certain about an aborted run: live, recorded, or decided again.

Evidence with an `error` shows only the beginning of a run. The rest is unknown, so no claim that something is absent from its calls, nodes
or answer can be decided. In addition:

- An aborted run never passes. It fails if a claim is certainly violated (a forbidden tool was called); otherwise it is an `error` with the
  message of the run.
- If a tool server died during a call (`server_gone`), the agent is not to blame: the result is always an `error` with the server's output.
- Documents of platforms (n8n, Flowise, Mibo, traces) record failed executions too, and a suite may claim the failure: these may pass.
- A case that claims the refusal itself (`http_status` of 400 or more) is decided on the response.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proctor.checks.missing_evidence import MISSING
from proctor.evidence.values.text import as_text
from proctor.model.account import Account, Part
from proctor.model.case import Assertion, Case
from proctor.model.evidence import Evidence
from proctor.model.result import CaseResult
from proctor.model.verdict import Outcome, Verdict

RUN_ERROR = "run_error"
"""The code of an aborted run if the target sets none."""
SERVER_GONE = "server_gone"
"""The code of a run whose tool server died during the run."""
_RECORD_FAILURES = ("n8n", "Flowise", "Mibo", "otlp")
"""Readers whose documents record failed executions."""
_REFUSED_FROM = 400
"""HTTP statuses from here on are a refusal, not an answer."""


def is_broken(evidence: Evidence) -> bool:
    """Return whether the run itself was aborted, rather than one step of a complete execution."""
    if evidence.error is None:
        return False
    reader = evidence.account.reader if evidence.account is not None else ""
    return isinstance(evidence.metadata.get("code"), str) or not reader.startswith(_RECORD_FAILURES)


def may_claim_refusal(assertion: Assertion) -> bool:
    """Return whether an assertion can claim that the agent refused."""
    return assertion.check == "http_status" and not assertion.advisory and assertion.turn is None


def is_refusal(evidence: Evidence) -> bool:
    """Return whether the agent answered with an HTTP status that refuses."""
    return evidence.http_status is not None and evidence.http_status >= _REFUSED_FROM


def mark_missing_turns(evidence: Evidence, case: Case) -> Evidence:
    """Return evidence of a conversation that stops before the last turn of its case, with everything after that marked unknown."""
    recorded = evidence.turns
    if (
        recorded is None
        or not 0 < len(recorded) < len(case.turns)
        or any(as_text(recorded_turn.input) != as_text(turn.input) for recorded_turn, turn in zip(recorded, case.turns, strict=False))
    ):
        return evidence
    why = f"the record ends after turn {len(recorded)} of {len(case.turns)}"
    account = evidence.account or Account()
    unknown: dict[Part, str] = {**dict.fromkeys(("tool_calls", "answer", "nodes", "turns"), why), **account.unknown}
    return msgspec.structs.replace(evidence, account=msgspec.structs.replace(account, unknown=unknown))


def cut_short(result: CaseResult, evidence: Evidence) -> CaseResult:
    """Return the result of an aborted run: an error, unless a claim was certainly violated before."""
    code = evidence.metadata.get("code")
    has_code = isinstance(code, str)
    reason = evidence.error if has_code else f"the run ended in an error: {evidence.error}"
    # Later events cannot undo a forbidden call, but a missing call might still have followed.
    if code != SERVER_GONE and result.outcome == "fail" and _is_certain(result.case.assertions, result.verdicts):
        return result if result.reason is not None else msgspec.structs.replace(result, reason=reason)
    outcome: Outcome = "error"
    return msgspec.structs.replace(result, outcome=outcome, score=None, verdict=None, code=code if has_code else RUN_ERROR, reason=reason)


def _is_certain(assertions: Sequence[Assertion], verdicts: Sequence[Verdict]) -> bool:
    pairs = zip(assertions, verdicts, strict=True)
    return any(verdict.outcome == "fail" and verdict.code != MISSING and not assertion.advisory for assertion, verdict in pairs)
