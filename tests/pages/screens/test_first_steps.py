"""The page of an empty project: commands that lead to the first verdict, and example data."""

from __future__ import annotations

import html
import json
import re

from proctor.service.access.callers import LOCAL
from proctor.service.access.projects import NewProject, create_project
from tests.pages.markup import Markup
from tests.pages.world import World


def make_project(world: World) -> str:
    made = world.service.run(lambda hub: create_project(hub, LOCAL, NewProject(name="Empty")))
    return str(made["id"])


def list_bodies(page: str) -> dict[str, dict[str, object]]:
    """The JSON that each command of the page sends, by its address."""
    found: dict[str, dict[str, object]] = {}
    for command in re.findall(r"<code>(curl .*?)</code>", page, re.S):
        text = html.unescape(command)
        address, body = re.findall(r"http://[^/]+(/\S+)", text)[0], text.partition(" -d '")[2].removesuffix("'")
        for word, value in (("$(openssl rand -hex 16)", "a" * 32), ("$(openssl rand -hex 8)", "b" * 16), ("$(date +%s)", "1794700000")):
            body = body.replace(f"'{word}'", value)
        found[address] = json.loads(body)
    return found


def test_the_commands_of_an_empty_project_work_as_they_are_printed(world: World) -> None:
    project = make_project(world)
    page = world.get(f"/ui/p/{project}", "organization").text
    assert Markup(page).problems == [] and "Load example data" in page
    bodies = list_bodies(page)
    assert list(bodies) == ["/api/agents", "/api/cases", "/v1/traces"]
    for address, body in bodies.items():
        answer = world.service.client.post(address, json=body, headers={"x-api-key": world.keys["organization"]})
        assert answer.status_code in (200, 201), answer.text
    found = world.service.get(f"/api/traces?project_id={project}", key=world.keys["organization"]).json()["data"]
    assert len(found) == 1
    # The case is only for traces with its input: it must not fail those that come later.
    assert bodies["/api/cases"]["when"] == {"input": "^hello$"}
    # Finished steps are not shown again.
    assert "Create an agent" in world.get(f"/ui/p/{project}?start", "organization").text
    assert list(list_bodies(world.get(f"/ui/p/{project}?start", "organization").text)) == ["/api/cases", "/v1/traces"]


def test_the_settings_of_opentelemetry_are_one_variable_per_line(world: World) -> None:
    page = world.get(f"/ui/p/{make_project(world)}", "organization").text
    block = html.unescape(re.findall(r"<code>(export OTEL.*?)</code>", page, re.S)[0])
    values = dict(re.findall(r"^export OTEL_(\w+)=(\S+)$", block, re.M))
    assert len(values) == len(block.splitlines()) == 4, block
    assert values["EXPORTER_OTLP_TRACES_PROTOCOL"] == "http/protobuf" and values["EXPORTER_OTLP_TRACES_HEADERS"] == "x-api-key=YOUR_KEY"


def test_example_data_fills_a_project(world: World) -> None:
    project = make_project(world)
    proof = world.find_proof(f"/ui/p/{project}", "organization")
    answer = world.post(f"/ui/p/{project}/example", "organization", proof=proof)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/ui/p/{project}/traces")
    key = world.keys["organization"]
    assert len(world.service.get(f"/api/traces?project_id={project}", key=key).json()["data"]) == 12
    assert [run["name"] for run in world.service.get(f"/api/runs?project_id={project}", key=key).json()["data"]] == [
        "Refunds on stored traces"
    ]
    # Only users who may write.
    refused = world.service.client.post(f"/api/projects/{project}/example", headers={"x-api-key": world.keys["project"]})
    assert refused.status_code in (403, 404)
