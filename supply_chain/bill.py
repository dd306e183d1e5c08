"""A software bill of materials: `python -m supply_chain.bill`, or `make sbom`, writes CycloneDX 1.6 as JSON.

It tells what `uv.lock` tells: every package that an installation with all extras may consist of, with its version, its files and their
hashes, its licence and what it depends on. The same lock gives the same bytes: there is no time in it, and its number is made of what
it says.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from proctor import __version__
from supply_chain.licences import find_licences, read_rules
from supply_chain.locked import CORE, ROOT, Package, runtime_packages

FILE = ROOT / "dist" / "sbom.cdx.json"


def package_url(name: str, version: str) -> str:
    """Return how others name this version of a package."""
    return f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"


def bill_of_materials(packages: Iterable[Package], licences: Mapping[str, str]) -> dict[str, Any]:
    """Return the document."""
    packages = list(packages)
    addresses = {package.name: package_url(package.name, package.version) for package in packages}
    whole: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _component("application", CORE, __version__, "Apache-2.0")},
        "components": [_of_package(package, licences.get(package.name)) for package in packages],
        "dependencies": [
            {"ref": package_url(CORE, __version__), "dependsOn": sorted(addresses[one.name] for one in packages if one.direct)},
            *({"ref": addresses[one.name], "dependsOn": sorted(addresses[need] for need in one.needs)} for one in packages),
        ],
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(whole, sort_keys=True))
    return {**whole, "serialNumber": f"urn:uuid:{number}"}


def _component(kind: str, name: str, version: str, licence: str | None) -> dict[str, Any]:
    address = package_url(name, version)
    found: dict[str, Any] = {"type": kind, "bom-ref": address, "name": name, "version": version, "purl": address}
    if licence is not None:
        found["licenses"] = [{"expression": licence} if " " in licence else {"license": {"id": licence}}]
    return found


def _of_package(package: Package, licence: str | None) -> dict[str, Any]:
    found = _component("library", package.name, package.version, licence)
    # Without extras only these are installed.
    found["scope"] = "required" if CORE in package.needed_by else "optional"
    found["externalReferences"] = [
        {"type": "distribution", "url": url, "hashes": [{"alg": "SHA-256", "content": digest}]} for url, digest in package.files
    ]
    return found


def main() -> int:
    """Write the bill; nothing is written while a licence is in doubt."""
    packages = runtime_packages()
    licences, complaints = find_licences(packages, read_rules())
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if complaints:
        return 1
    write_bill(bill_of_materials(packages, licences), FILE)
    print(f"{len(packages)} packages: {FILE.relative_to(ROOT)}")
    return 0


def write_bill(bill: Mapping[str, Any], file: Path) -> None:
    """Write the document so that two of them can be compared line by line."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(bill, indent=2, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
