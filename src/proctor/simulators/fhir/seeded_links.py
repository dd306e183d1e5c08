"""References in seeded bundles, as Synthea writes them: a `fullUrl` of an entry (`urn:uuid:...`), or a condition on another resource.

A reference to an entry becomes the type and id of that entry; an entry without an id gets the one in its `fullUrl`. A condition
(`Practitioner?identifier=system|17`) becomes the one resource that fits among those that are there. Everything else stays as it is.
"""

from __future__ import annotations

import re
from typing import cast

from proctor.codecs.fhir_types import RESOURCE_TYPES
from proctor.codecs.query import decode_query
from proctor.model.evidence import Json
from proctor.simulators.exchange import Refused
from proctor.simulators.fhir.resources import Resource
from proctor.simulators.fhir.searching import find_matches
from proctor.simulators.rows import Draft

_ID_IN_URL = re.compile(r"(?:^urn:(?:uuid|oid):|/)([A-Za-z0-9\-.]{1,64})$")


def link_entries(listed: list[Json]) -> list[Json]:
    """Return resources and bundles with the references to entries of all these bundles resolved."""
    names: dict[str, str] = {}
    named = [_name_entries(one, names) for one in listed]
    return [_replace(one, names) for one in named] if names else named


def _name_entries(given: Json, names: dict[str, str]) -> Json:
    entries = given.get("entry") if isinstance(given, dict) and given.get("resourceType") == "Bundle" else None
    if not isinstance(entries, list):
        return given
    return {**given, "entry": [_name_entry(entry, names) for entry in cast("list[Json]", entries)]}


def _name_entry(entry: Json, names: dict[str, str]) -> Json:
    resource = entry.get("resource") if isinstance(entry, dict) else None
    if not isinstance(resource, dict):
        return entry
    url: Json = entry.get("fullUrl")
    found = _ID_IN_URL.search(url) if isinstance(url, str) else None
    if found is not None and "id" not in resource:
        resource = {**resource, "id": found[1]}
    if found is not None:
        names[url] = f"{resource.get('resourceType')}/{resource['id']}"
    return {**entry, "resource": _name_entries(resource, names)}


def _replace(value: Json, names: dict[str, str]) -> Json:
    if isinstance(value, list):
        return [_replace(item, names) for item in cast("list[Json]", value)]
    if not isinstance(value, dict):
        return value
    return {
        name: names.get(member, member) if name == "reference" and isinstance(member, str) else _replace(member, names)
        for name, member in cast("dict[str, Json]", value).items()
    }


def link_conditions(resource: Resource, rows: Draft) -> Resource | None:
    """Return a resource with the conditions in its references resolved; None where it has none that one resource fits."""
    conditions = {text for text in _iterate_references(resource) if "?" in text and text.partition("?")[0] in RESOURCE_TYPES}
    names = {text: name for text in conditions if (name := _find_only(text, rows)) is not None}
    return cast(Resource, _replace(resource, names)) if names else None


def _iterate_references(value: Json) -> list[str]:
    found: list[str] = []
    waiting: list[Json] = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, dict):
            if isinstance(inner.get("reference"), str):
                found.append(inner["reference"])
            waiting.extend(cast("dict[str, Json]", inner).values())
        elif isinstance(inner, list):
            waiting.extend(cast("list[Json]", inner))
    return found


def _find_only(reference: str, rows: Draft) -> str | None:
    resource_type, _, query = reference.partition("?")
    try:
        found = find_matches(resource_type, decode_query(query), rows)
    except Refused:
        return None
    return f"{resource_type}/{found[0]['id']}" if len(found) == 1 else None
