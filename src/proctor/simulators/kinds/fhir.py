"""A FHIR R4 server: what EHRs such as Epic and Cerner offer, as far as agents use it.

Create, read, vread, history, update, patch and delete, by id and by condition; search by GET and by `POST _search`; batch and transaction;
`/metadata` and `.well-known/smart-configuration` and a client-credentials `token` without the token of the sandbox. The files in
`simulators/fhir/` do one of these each. Every refusal is an OperationOutcome. JSON only; operations (`$everything`) are not simulated.

Seeded by a list of resources or bundles: `seed: [{resourceType: Patient, id: "1"}]`. A resource without an id gets one. References between
entries of bundles are resolved.
"""

from __future__ import annotations

import base64
import hmac
import re
from typing import cast

import msgspec

from proctor.codecs.fhir_matching import RESOURCE_TYPES, open_store
from proctor.codecs.fhir_parameters import list_parameters, list_resource_types
from proctor.codecs.http import decode_percent, decode_query, encode_percent
from proctor.errors import SpecError
from proctor.model.evidence import FhirState, Json, State
from proctor.model.show import show
from proctor.simulators.exchange import Refused, Request, Response, answer_json
from proctor.simulators.fhir.bundles import answer_bundle
from proctor.simulators.fhir.interactions import (
    answer_history,
    answer_read,
    answer_version,
    create,
    delete,
    find_one,
    patch,
    update,
    update_by_condition,
)
from proctor.simulators.fhir.resources import (
    CONFIG,
    FHIR_JSON,
    Resource,
    check_id,
    check_resource,
    check_type,
    describe_refusal,
    list_resources,
    load_definitions,
    make_version,
    refuse_fhir,
    replace_references,
)
from proctor.simulators.fhir.searching import answer_search, check_format, find_matches
from proctor.simulators.ports import Desk, Simulator, Tool
from proctor.simulators.rows import Draft
from proctor.simulators.seeds import read_flag, read_members
from proctor.simulators.tools import make_query

# --- references in seeded bundles, as Synthea writes them: a `fullUrl` of an entry (`urn:uuid:...`), or a condition on another resource

_ID_IN_URL = re.compile(r"(?:^urn:(?:uuid|oid):|/)([A-Za-z0-9\-.]{1,64})$")


def link_entries(listed: list[Json]) -> list[Json]:
    """Return resources and bundles with the references to entries of all these bundles resolved."""
    names: dict[str, str] = {}
    linked = [_name_entries(entry, names) for entry in listed]
    return [replace_references(entry, names.get) for entry in linked] if names else linked


def _name_entries(value: Json, names: dict[str, str]) -> Json:
    entries = value.get("entry") if isinstance(value, dict) and value.get("resourceType") == "Bundle" else None
    if not isinstance(entries, list):
        return value
    return {**value, "entry": [_name_entry(entry, names) for entry in cast("list[Json]", entries)]}


def _name_entry(entry: Json, names: dict[str, str]) -> Json:
    resource = entry.get("resource") if isinstance(entry, dict) else None
    if not isinstance(resource, dict):
        return entry
    url: Json = entry.get("fullUrl")
    match = _ID_IN_URL.search(url) if isinstance(url, str) else None
    if match is not None and "id" not in resource:
        resource = {**resource, "id": match[1]}
    if match is not None:
        names[url] = f"{resource.get('resourceType')}/{resource['id']}"
    return {**entry, "resource": _name_entries(resource, names)}


def _find_only(reference: str, rows: Draft) -> str | None:
    """Return the only resource that fits a reference by a condition, if it is one."""
    resource_type, _, query = reference.partition("?")
    if not query or resource_type not in RESOURCE_TYPES:
        return None
    try:
        matches = find_matches(resource_type, decode_query(query), rows)
    except Refused:
        return None
    return f"{resource_type}/{matches[0]['id']}" if len(matches) == 1 else None


# --- the metadata of a FHIR server: `/metadata` and `.well-known/smart-configuration`

_INTERACTIONS = ("read", "vread", "update", "patch", "delete", "history-instance", "history-type", "create", "search-type")
_OAUTH = "http://fhir-registry.smarthealthit.org/StructureDefinition/oauth-uris"
"""The extension of a CapabilityStatement in which SMART looks for the token addresses."""


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
                    # Some clients request this statement and the SMART configuration at once and use whichever arrives first.
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
    """Return the SMART configuration: it offers the token of the attempt."""
    return {
        "issuer": base,
        "token_endpoint": f"{base}/token",
        "grant_types_supported": ["client_credentials"],
        "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
        "scopes_supported": ["system/*.rs", "system/*.cruds"],
        "capabilities": ["client-confidential-symmetric", "permission-v2"],
    }


_METADATA, _SMART, _TOKEN = "/metadata", "/.well-known/smart-configuration", "/token"
_FORM = "application/x-www-form-urlencoded"
_TYPE: dict[str, Json] = {"type": "string", "description": "The FHIR resource type, such as Appointment."}
_ID: dict[str, Json] = {"type": "string", "description": "The id of the resource."}
_RESOURCE: dict[str, Json] = {"type": "object", "description": "The resource as FHIR R4 JSON, with its resourceType."}
_SEARCH: dict[str, Json] = {"type": "object", "additionalProperties": {"type": "string"}, "description": "FHIR search parameters."}


class FhirSimulator(Simulator):
    """A FHIR R4 server."""

    kind = "fhir"
    summary = "A FHIR R4 server: resources with versions, search, batch and transaction."
    steps = ("add_resource",)
    open_paths = (_METADATA, _SMART, _TOKEN)
    config_names = ("validate",)
    access = {"fhir_base_url": "{url}", "token_url": "{url}/token", "client_id": "{sandbox}", "client_secret": "{token}"}  # noqa: RUF012 - never changed

    def seed(self, seed: Json, desk: Desk) -> None:
        """Store resources: a list of resources and bundles, or one of them; or `resources` with `validate: true`."""
        if isinstance(seed, dict) and seed.keys() & {"validate", "resources"}:
            seed = self._read_config(cast("dict[str, Json]", seed), desk)
        listed = cast("list[Json]", seed) if isinstance(seed, list) else [seed]
        for index, resource in enumerate(listed):
            if not isinstance(resource, dict):
                raise SpecError(f"expected a resource, found {show(resource)}", field=str(index))
        stored = [
            self._seed_resource(seeded.resource, desk, seeded.place.removeprefix("resources[").replace("[", ".").replace("]", ""))
            for seeded in open_store(link_entries(listed))
        ]
        for row in stored:
            # By a condition, which most references are not: looked up when everything is stored.
            if b"?" in msgspec.json.encode(row):
                linked = replace_references(row, lambda reference: _find_only(reference, desk.rows))
                if linked != row:
                    desk.rows.put(row["resourceType"], row["id"], linked)

    def _read_config(self, seed: dict[str, Json], desk: Desk) -> Json:
        """Store whether writes of agents are validated, and return the resources."""
        if "validate" in seed:
            desk.rows.put(CONFIG, "validate", read_flag(seed["validate"], "validate"))
            load_definitions()
        rest = {name: value for name, value in seed.items() if name != "validate"}
        return rest if "resourceType" in rest else read_members(rest, ("resources", "seed")).get("resources", rest.get("seed", []))

    def perform(self, step: str, content: Json, desk: Desk) -> None:
        """Add a resource."""
        self._seed_resource(content, desk, "")

    def _seed_resource(self, resource: Json, desk: Desk, place: str) -> Resource:
        try:
            kind = resource.get("resourceType") if isinstance(resource, dict) else None
            checked = check_resource(resource, check_type(kind if isinstance(kind, str) else ""))
            key = check_id(checked["id"]) if "id" in checked else desk.around.new_id()
        except Refused as refused:
            raise SpecError(describe_refusal(refused), field=place or None) from None
        if desk.rows.get(checked["resourceType"], key) is not None:
            raise SpecError(f"duplicate resource {checked['resourceType']}/{key}", field=place or None)
        meta = checked.get("meta")
        # The author's time is preserved, so that searches by it find the resource.
        written = meta.get("lastUpdated") if isinstance(meta, dict) else None
        now = written if isinstance(written, str) else desk.around.now()
        stored = make_version(checked, key, 1, now)
        desk.rows.put(checked["resourceType"], key, stored)
        return stored

    def answer(self, request: Request, desk: Desk) -> Response:
        """Answer a request. Raises `Refused`."""
        if request.method == "HEAD":
            # HEAD is GET without a body.
            return msgspec.structs.replace(self.answer(msgspec.structs.replace(request, method="GET"), desk), body=b"")
        path = request.path.rstrip("/")
        if path == _TOKEN and request.method == "POST":
            return _answer_token(request)
        if path == _METADATA and request.method == "GET":
            return answer_json(200, build_capability(request.base, desk.around.now()), kind=FHIR_JSON)
        if path == _SMART and request.method == "GET":
            return answer_json(200, build_smart_configuration(request.base))
        if not path:
            if request.method == "POST":
                return answer_bundle(request, desk, self.answer)
            raise _refuse_method(request, "POST with a Bundle")
        check_format(request)
        parts = [decode_percent(part) for part in path.lstrip("/").split("/")]
        if any(part.startswith("$") for part in parts):
            raise refuse_fhir(404, "not-supported", f"the operation {show(parts[-1], 80)} is not simulated")
        resource_type = check_type(parts[0])
        match parts[1:]:
            case []:
                match request.method:
                    case "GET":
                        return answer_search(request, resource_type, request.query, desk.rows)
                    case "POST":
                        return create(request, resource_type, desk)
                    case "PUT":
                        return update_by_condition(request, resource_type, request.query, desk)
                    case "PATCH" | "DELETE":
                        key = find_one(request, resource_type, request.query, desk)
                        if key is not None:
                            return _handle_instance(request, resource_type, key, desk)
                        if request.method == "DELETE":
                            return Response(status=204)
                        raise refuse_fhir(404, "not-found", f"no {resource_type} fits the condition")
                    case _:
                        raise _refuse_method(request, "GET, POST, PUT, PATCH and DELETE")
            case ["_search"]:
                if request.method != "POST":
                    raise _refuse_method(request, "POST")
                kind = request.headers.get("content-type", _FORM).partition(";")[0].strip().lower()
                if request.body and kind != _FORM:
                    raise refuse_fhir(415, "not-supported", f"the parameters of _search are sent as {_FORM}, found {show(kind, 80)}")
                form = decode_query(request.body.decode("utf-8", "replace"))
                return answer_search(request, resource_type, (*request.query, *form), desk.rows)
            case ["_history"] | [_, "_history"] | [_, "_history", _] if request.method != "GET":
                raise _refuse_method(request, "GET")
            case ["_history"]:
                return answer_history(request, resource_type, None, desk.rows)
            case [key]:
                return _handle_instance(request, resource_type, key, desk)
            case [key, "_history"]:
                return answer_history(request, resource_type, check_id(key), desk.rows)
            case [key, "_history", version]:
                return answer_version(resource_type, key, version, desk.rows)
            case _:
                raise refuse_fhir(404, "not-found", f"there is nothing at {show(request.path, 200)}")

    def read_state(self, desk: Desk) -> State:
        """Return all resources."""
        return State(fhir=FhirState(resources=tuple(list_resources(desk.rows)), served=True))

    def list_tools(self) -> tuple[Tool, ...]:
        """Return the tools for the server."""

        def describe(properties: dict[str, Json], *required: str) -> dict[str, Json]:
            return {"type": "object", "properties": properties, "required": list(required)}

        by_id = describe({"resource_type": _TYPE, "id": _ID}, "resource_type", "id")
        return (
            Tool(
                name="fhir_search",
                description="Search resources of a type by FHIR search parameters.",
                schema=describe({"resource_type": _TYPE, "search": _SEARCH}, "resource_type"),
                make_request=lambda args: Request(
                    method="GET",
                    path=f"/{encode_percent(str(args.get('resource_type', '')))}",
                    query=make_query(args.get("search") or {}),
                ),
            ),
            Tool(name="fhir_read", description="Read one resource.", schema=by_id, make_request=lambda args: _ask("GET", args)),
            Tool(
                name="fhir_create",
                description="Create a resource.",
                schema=describe({"resource": _RESOURCE}, "resource"),
                make_request=lambda args: _ask("POST", args),
            ),
            Tool(
                name="fhir_update",
                description="Replace a resource; it has its id in it.",
                schema=describe({"resource": _RESOURCE}, "resource"),
                make_request=lambda args: _ask("PUT", args),
            ),
            Tool(name="fhir_delete", description="Delete a resource.", schema=by_id, make_request=lambda args: _ask("DELETE", args)),
        )


def _handle_instance(request: Request, resource_type: str, key: str, desk: Desk) -> Response:
    match request.method:
        case "GET":
            return answer_read(request, resource_type, key, desk.rows)
        case "PUT":
            return update(request, resource_type, key, desk)
        case "PATCH":
            return patch(request, resource_type, key, desk)
        case "DELETE":
            return delete(request, resource_type, key, desk)
        case _:
            raise _refuse_method(request, "GET, PUT, PATCH and DELETE")


def _refuse_method(request: Request, known: str) -> Refused:
    return refuse_fhir(405, "not-supported", f"{show(request.path, 200)} takes {known}, not {request.method}")


def _answer_token(request: Request) -> Response:
    """Issue the token of the sandbox to a client that has it as its secret."""
    form = dict(decode_query(request.body.decode("utf-8", "replace")))
    secret = form.get("client_secret", "")
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            secret = decode_percent(base64.b64decode(encoded, validate=True).decode().partition(":")[2])
        except ValueError:
            secret = ""
    if form.get("grant_type") != "client_credentials":
        return answer_json(400, {"error": "unsupported_grant_type"})
    if not request.token or not hmac.compare_digest(secret.encode(), request.token.encode()):
        return answer_json(401, {"error": "invalid_client"})
    return answer_json(200, {"access_token": request.token, "token_type": "bearer", "expires_in": 3600, "scope": form.get("scope", "")})


def _ask(method: str, arguments: dict[str, Json]) -> Request:
    resource: Json = arguments.get("resource") if isinstance(arguments.get("resource"), dict) else {}
    kind, key = arguments.get("resource_type", resource.get("resourceType", "")), arguments.get("id", resource.get("id", ""))
    if not kind:
        raise SpecError("the resource needs its resourceType, such as Appointment", field="resource")
    if method != "POST" and not key:
        # Without it, the address would mean all resources of the type.
        raise SpecError(f"{'the resource' if method == 'PUT' else 'id'}: expected an id, found none", field="id")
    path = f"/{encode_percent(str(kind))}" + ("" if method == "POST" else f"/{encode_percent(str(key))}")
    return Request(method=method, path=path, body=msgspec.json.encode(resource) if method in ("POST", "PUT") else b"")


SIMULATOR = FhirSimulator()
