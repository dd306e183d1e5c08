"""The metadata of a FHIR server: `/metadata` and `.well-known/smart-configuration`."""

from __future__ import annotations

from proctor.codecs.fhir_parameters import list_parameters, list_resource_types
from proctor.model.evidence import Json

_INTERACTIONS = ("read", "vread", "update", "patch", "delete", "history-instance", "history-type", "create", "search-type")
_OAUTH = "http://fhir-registry.smarthealthit.org/StructureDefinition/oauth-uris"
"""Where SMART looks in a CapabilityStatement for the addresses of tokens."""


def build_capability(base: str, now: str) -> dict[str, Json]:
    """Return the CapabilityStatement."""
    return {
        "resourceType": "CapabilityStatement",
        "status": "active",
        "date": now,
        "kind": "instance",
        "software": {"name": "proctor simulated FHIR server"},
        "implementation": {"description": "A simulated FHIR server for one attempt of an agent", "url": base},
        "fhirVersion": "4.0.1",
        "format": ["json"],
        "patchFormat": ["application/json-patch+json", "application/merge-patch+json"],
        "rest": [
            {
                "mode": "server",
                "security": {
                    # Some clients ask for this statement and for the SMART configuration at once and believe whichever comes first.
                    "extension": [{"url": _OAUTH, "extension": [{"url": "token", "valueUri": f"{base}/token"}]}],
                    "service": [{"text": "A bearer token that the attempt is given"}],
                },
                "resource": [_describe_type(name) for name in sorted(list_resource_types())],
                "interaction": [{"code": "transaction"}, {"code": "batch"}],
            }
        ],
    }


def _describe_type(name: str) -> dict[str, Json]:
    return {
        "type": name,
        "interaction": [{"code": code} for code in _INTERACTIONS],
        "versioning": "versioned-update",
        "readHistory": True,
        "updateCreate": True,
        "conditionalCreate": True,
        "conditionalUpdate": True,
        "conditionalDelete": "single",
        "searchParam": [{"name": each.name, "type": each.kind} for each in list_parameters(name).values()],
    }


def build_smart_configuration(base: str) -> dict[str, Json]:
    """Return the SMART configuration: what is offered is the token that the attempt is given."""
    return {
        "issuer": base,
        "token_endpoint": f"{base}/token",
        "grant_types_supported": ["client_credentials"],
        "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
        "scopes_supported": ["system/*.rs", "system/*.cruds"],
        "capabilities": ["client-confidential-symmetric", "permission-v2"],
    }
