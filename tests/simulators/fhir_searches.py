"""Searches derived from the resources to find: for each type and parameter the existing values, in several forms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proctor.codecs.fhir_matching import find_reference_text, iterate_strings, iterate_tokens, iterate_values
from proctor.codecs.fhir_parameters import Parameter, list_parameters, list_resource_types, read_date
from proctor.codecs.http import encode_query

_MOST_VALUES = 2
"""Values of one parameter that searches are made of."""


def list_searched(resources: list[Any]) -> list[Any]:
    """Return the resources of the types that have a table of parameters."""
    known = set(list_resource_types())
    return [resource for resource in resources if resource["resourceType"] in known]


def list_searches(resources: list[Any]) -> list[str]:
    """Return searches such as `Patient?gender=female`, the same for the same resources."""
    found: dict[str, None] = {}
    for resource_type in list_resource_types():
        held = [resource for resource in resources if resource["resourceType"] == resource_type]
        for parameter in list_parameters(resource_type).values() if held else ():
            elements = [element for resource in held for element in iterate_values(resource, parameter)]
            for name, value in _iterate_conditions(parameter, elements):
                found[f"{resource_type}?{encode_query([(name, value)])}"] = None
    return list(found)


def _iterate_conditions(parameter: Parameter, elements: list[Any]) -> Iterator[tuple[str, str]]:
    name = parameter.name
    if elements and parameter.kind in ("token", "reference", "date", "string"):
        yield f"{name}:missing", "true"
    match parameter.kind:
        case "token":
            tokens = dict.fromkeys(token for element in elements for token in iterate_tokens(element))
            for system, code in list(tokens)[:_MOST_VALUES]:
                if not set(",|$\\") & set(code):
                    yield name, code
                    if system is not None:
                        yield name, f"{system}|{code}"
            for _, code in list(tokens)[:1]:
                if not set(",|$\\") & set(code):
                    yield f"{name}:not", code
        case "reference":
            # Contained resources have no searchable address.
            texts = dict.fromkeys(text for element in elements if (text := find_reference_text(element)) and not {",", "#"} & set(text))
            for text in list(texts)[:_MOST_VALUES]:
                yield name, text
        case "string":
            texts = dict.fromkeys(text for element in elements for text in iterate_strings(element) if not set(",|$\\") & set(text))
            for text in list(texts)[:_MOST_VALUES]:
                yield name, text
                yield name, text[:4].lower()
        case "date":
            days = [element for element in elements if isinstance(element, str) and read_date(element) is not None]
            for day in list(dict.fromkeys(days))[:_MOST_VALUES]:
                yield from ((name, day[:10]), (name, f"ge{day[:7]}"), (name, f"lt{day[:10]}"))
        case _:
            pass
