"""The bill of materials: the content of the lock as CycloneDX, the same bytes each time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from supply_chain.bill import bill_of_materials, package_url, write_bill
from supply_chain.licences import find_licences, read_rules
from supply_chain.locked import read_lock, runtime_packages

# The requirements of bom-1.6.schema.json on the parts we write.
TEXT = {"type": "string", "minLength": 1}
COMPONENT: dict[str, Any] = {
    "type": "object",
    "required": ["type", "name", "version", "bom-ref", "purl", "licenses"],
    "additionalProperties": False,
    "properties": {
        "type": {"enum": ["application", "library"]},
        "name": TEXT,
        "version": TEXT,
        "bom-ref": TEXT,
        "purl": {"type": "string", "pattern": "^pkg:pypi/[a-z0-9.-]+@[^@]+$"},
        "scope": {"enum": ["required", "optional", "excluded"]},
        "licenses": {
            "type": "array",
            "minItems": 1,
            "maxItems": 1,
            "items": {
                "oneOf": [
                    {"required": ["expression"], "properties": {"expression": TEXT}, "additionalProperties": False},
                    {"required": ["license"], "properties": {"license": {"required": ["id"]}}, "additionalProperties": False},
                ]
            },
        },
        "externalReferences": {
            "type": "array",
            "items": {
                "required": ["url", "type", "hashes"],
                "properties": {
                    "type": {"const": "distribution"},
                    "hashes": {
                        "items": {
                            "required": ["alg", "content"],
                            "properties": {"alg": {"const": "SHA-256"}, "content": {"pattern": "^[a-f0-9]{64}$"}},
                        }
                    },
                },
            },
        },
    },
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["bomFormat", "specVersion", "serialNumber", "version", "metadata", "components", "dependencies"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"const": "http://cyclonedx.org/schema/bom-1.6.schema.json"},
        "bomFormat": {"const": "CycloneDX"},
        "specVersion": {"const": "1.6"},
        "serialNumber": {"pattern": "^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
        "version": {"type": "integer", "minimum": 1},
        "metadata": {"required": ["component"], "properties": {"component": COMPONENT}},
        "components": {"type": "array", "uniqueItems": True, "items": COMPONENT},
        "dependencies": {
            "type": "array",
            "uniqueItems": True,
            "items": {"required": ["ref", "dependsOn"], "properties": {"dependsOn": {"type": "array", "uniqueItems": True}}},
        },
    },
}


def made() -> dict[str, Any]:
    packages = runtime_packages()
    return bill_of_materials(packages, find_licences(packages, read_rules())[0])


def test_it_has_what_the_schema_asks_for() -> None:
    assert [str(error) for error in jsonschema_rs.validator_for(SCHEMA).iter_errors(made())] == []


def test_it_names_every_package_with_its_files_and_what_it_depends_on() -> None:
    bill, lock = made(), read_lock()
    by_name = {component["name"]: component for component in bill["components"]}
    assert by_name["msgspec"]["version"] == lock["msgspec"]["version"] and by_name["msgspec"]["scope"] == "required"
    assert len(by_name["msgspec"]["externalReferences"]) == len(lock["msgspec"]["wheels"]) + 1
    assert by_name["fastapi"]["scope"] == "optional"
    edges = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    everything = {component["bom-ref"] for component in bill["components"]}
    assert set(edges) == everything | {bill["metadata"]["component"]["bom-ref"]}
    assert {end for ends in edges.values() for end in ends} == everything, "every package is needed"
    assert package_url("starlette", lock["starlette"]["version"]) in edges[package_url("fastapi", lock["fastapi"]["version"])]


@pytest.mark.timeout(30)
def test_the_same_lock_gives_the_same_bytes_and_another_one_another_number(tmp_path: Path) -> None:
    for name in ("one.json", "two.json"):
        write_bill(made(), tmp_path / name)
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    assert not re.search(r'"timestamp"', (tmp_path / "one.json").read_text())
    assert bill_of_materials([], {})["serialNumber"] != made()["serialNumber"]
