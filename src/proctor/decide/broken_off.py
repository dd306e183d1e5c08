"""A run that broke off: what can still be decided about it, live, in a recording and when it is decided again.

Evidence that carries an `error` is half of a run. What it had not come to is unknown, so claims of absence about its calls, its nodes and
its answer are not decided. Beyond that:

- A run that ended in an error has not passed, whatever holds of what it did until then. It has failed where a claim is certainly broken
  (a forbidden tool was called); in every other case it is an `error`, in the run's own words.
- A tool server that died in a call (`server_gone`) is no doing of the agent: that is an `error` with the server's last words, always.
- Documents of platforms (n8n, Flowise, Mibo, traces) record executions, and that one failed is something a suite may claim: there what was
  seen may pass.
- A case that claims the refusal itself (`http_status`, and that status of 400 or more came) is decided on what was answered.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proctor.checks.registry import MISSING
from proctor.evidence.values.text import as_text
from proctor.model.account import Account, Part
from proctor.model.case import Assertion, Case
from proctor.model.evidence import Evidence
from proctor.model.result import CaseResult
from proctor.model.verdict import Outcome, Verdict

RUN_ERROR = "run_error"
"""The code of a run that broke off, if the target gave it none."""
SERVER_GONE = "server_gone"
"""The code of a run whose tool server died during the run."""
_RECORD_FAILURES = ("n8n", "Flowise", "Mibo", "otlp")
"""Readers whose documents record failed executions."""
_REFUSED_FROM = 400
"""HTTP statuses from here on are a refusal, not an answer."""


def is_broken(evidence: Evidence) -> bool:
    """Return whether the run itself broke off, rather than one step of a complete execution."""
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
        or any(as_text(seen.input) != as_text(turn.input) for seen, turn in zip(recorded, case.turns, strict=False))
    ):
        return evidence
    why = f"the record ends after turn {len(recorded)} of {len(case.turns)}"
    account = evidence.account or Account()
    unknown: dict[Part, str] = {**dict.fromkeys(("tool_calls", "answer", "nodes", "turns"), why), **account.unknown}
    return msgspec.structs.replace(evidence, account=msgspec.structs.replace(account, unknown=unknown))


def cut_short(result: CaseResult, evidence: Evidence) -> CaseResult:
    """Return the result of a run that broke off: an error, unless a claim was certainly violated before."""
    code = evidence.metadata.get("code")
    has_code = isinstance(code, str)
    reason = evidence.error if has_code else f"the run ended in an error: {evidence.error}"
    # Later events cannot undo a forbidden call, but something not seen yet might still have happened.
    if code != SERVER_GONE and result.outcome == "fail" and _is_certain(result.case.assertions, result.verdicts):
        return result if result.reason is not None else msgspec.structs.replace(result, reason=reason)
    outcome: Outcome = "error"
    return msgspec.structs.replace(result, outcome=outcome, score=None, verdict=None, code=code if has_code else RUN_ERROR, reason=reason)


def _is_certain(assertions: Sequence[Assertion], verdicts: Sequence[Verdict]) -> bool:
    pairs = zip(assertions, verdicts, strict=True)
    return any(verdict.outcome == "fail" and verdict.code != MISSING and not assertion.advisory for assertion, verdict in pairs)
