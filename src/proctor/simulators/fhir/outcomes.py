"""What a FHIR server answers: resources, bundles, and an OperationOutcome for every refusal."""

from __future__ import annotations

import msgspec

from proctor.model.evidence import Json
from proctor.simulators.exchange import Refused, Request, Response, answer_json

FHIR_JSON = "application/fhir+json; charset=utf-8"


def refuse_fhir(status: int, code: str, message: str, *, expression: str | None = None) -> Refused:
    """Return a refusal with an OperationOutcome; `code` is one of FHIR's issue types."""
    issue: dict[str, Json] = {"severity": "error", "code": code, "diagnostics": message}
    if expression is not None:
        issue["expression"] = [expression]
    return Refused(answer_json(status, {"resourceType": "OperationOutcome", "issue": [issue]}, kind=FHIR_JSON))


def refuse_invalid(issues: list[tuple[str, str, str]]) -> Refused:
    """Return the refusal of a resource that is not valid: code, place and reason of each issue."""
    entries = [{"severity": "error", "code": code, "diagnostics": f"{at}: {why}", "expression": [at]} for code, at, why in issues]
    return Refused(answer_json(422, {"resourceType": "OperationOutcome", "issue": entries}, kind=FHIR_JSON))


def describe_refusal(refused: Refused) -> str:
    """Return the message of a refusal."""
    return msgspec.json.decode(refused.response.body)["issue"][0]["diagnostics"]


def answer_resource(status: int, resource: dict[str, Json], *, headers: dict[str, str] | None = None) -> Response:
    """Return a resource, with its version and its time in the headers."""
    meta = resource.get("meta")
    found = dict(headers or {})
    if isinstance(meta, dict) and isinstance(meta.get("versionId"), str):
        found["etag"] = f'W/"{meta["versionId"]}"'
    return answer_json(status, resource, headers=found, kind=FHIR_JSON)


def answer_write(request: Request, status: int, resource: dict[str, Json]) -> Response:
    """Return what a write answers: the resource, or as little as the client prefers."""
    name, version = f"{resource['resourceType']}/{resource['id']}", resource["meta"]["versionId"]
    headers = {"location": f"{request.base}/{name}/_history/{version}", "etag": f'W/"{version}"'}
    preferred = request.headers.get("prefer", "")
    if "return=minimal" in preferred:
        return Response(status=status, headers=headers)
    if "return=operationoutcome" in preferred.lower():
        issue = {"severity": "information", "code": "informational", "diagnostics": f"{name} is version {version} now"}
        return answer_json(status, {"resourceType": "OperationOutcome", "issue": [issue]}, headers=headers, kind=FHIR_JSON)
    return answer_resource(status, resource, headers=headers)
