"""Refusals by the server of a system, in the format of that system, which its clients expect."""

from __future__ import annotations

from proctor.simulators.exchange import Response, refuse
from proctor.simulators.fhir.outcomes import refuse_fhir

TOO_COSTLY = "too_costly"
# FHIR's issue types (https://hl7.org/fhir/R4/valueset-issue-type.html) by status.
_ISSUES = {
    400: "structure",
    401: "login",
    403: "forbidden",
    404: "not-found",
    409: "conflict",
    413: "too-long",
    429: "throttled",
    503: "transient",
}


def refuse_for(kind: str, status: int, code: str, message: str) -> Response:
    """Return the refusal of a request to a system of a kind: an OperationOutcome of a FHIR server, else a code and a sentence."""
    if kind == "fhir":
        issue = "too-costly" if code == TOO_COSTLY else _ISSUES.get(status, "exception" if status >= 500 else "processing")
        return refuse_fhir(status, issue, message).response
    return refuse(status, code, message).response
