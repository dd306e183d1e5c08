"""The pages of examinations: started from the form, shown by severity, and in `proctor view`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.cli.main import run
from tests.doctor.servers import SCRIPT, http_server
from tests.rest.services import Service
from tests.rest.test_runs import a_project, until
from tests.service.agents import LOOPBACK

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def examining(tmp_path: Path) -> Iterator[Service]:
    with Service(f"sqlite:///{tmp_path / 'proctor.db'}", tmp_path, with_workers=True, allowed_addresses=LOOPBACK) as running:
        yield running


def send(service: Service, project: str, **fields: str) -> tuple[int, str, str]:
    address = f"/ui/p/{project}/examinations/new"
    proof = re.search(r'name="proof" value="([^"]+)"', service.client.get(address).text)
    assert proof is not None
    answer = service.client.post(address, data={"proof": proof[1], **fields}, follow_redirects=False)
    return answer.status_code, answer.headers.get("location", ""), answer.text


def test_a_server_is_examined_from_the_form_and_shown_by_severity(examining: Service) -> None:
    project = a_project(examining)
    assert "No MCP server has been examined" in examining.client.get(f"/ui/p/{project}/examinations").text
    with http_server("--defect", "unknown-tool") as url:
        status, location, text = send(
            examining, project, server=url, profiles="mcp-2025-11-25", areas="tools\nsurface", timeout_s="2", note="<b>night</b>"
        )
        assert status == 303, re.findall(r"<p[^>]*>(.*?)</p>", text)
        id = location.rpartition("/")[2]
        until(lambda: examining.get(f"/api/runs/{id}"), lambda run: run["status"] == "completed", within_s=30)
    listed = examining.client.get(f"/ui/p/{project}/examinations").text
    assert f"/examinations/{id}" in listed and "<b>night" not in listed
    page = examining.client.get(f"/ui/p/{project}/examinations/{id}").text
    assert 'id="fail">Failed' in page and f'/runs/{id}?case=unknown-tool#all">unknown-tool</a>' in page
    assert 'href="https://modelcontextprotocol.io/specification/2025-11-25/server/tools"' in page
    assert "Unknown tool proctor-" in page, "the message that shows it"
    assert page.index('id="fail"') < page.index('id="areas"')
    page = examining.client.get(f"/ui/p/{project}/runs/{id}").text
    assert f"/examinations/{id}" in page and "Measure the suite" not in page, "its cases are checks of ours"
    (again,) = re.findall(r'href="([^"]+)">Examine again<', page)
    assert f'value="{url}"' in examining.client.get(again).text and "Run again" not in page


def test_a_rejected_form_keeps_what_was_typed(examining: Service) -> None:
    project = a_project(examining)
    status, _, text = send(examining, project, server="http://10.0.0.1/mcp", profiles="mcp-1999")
    assert status == 400 and "unknown profile" in text and "http://10.0.0.1/mcp" in text
    status, _, text = send(examining, project, server="http://10.0.0.1/mcp")
    assert status == 400 and "private network" in text.replace("a private", "private")
    status, _, text = send(examining, project, server="")
    assert status == 400 and "required" in text


def test_another_run_has_no_examination(examining: Service) -> None:
    project = a_project(examining)
    suite = {"proctor": 1, "cases": [{"id": "a", "input": "hi", "expect": [{"response_contains": "x"}]}]}
    body = {"project_id": project, "suite": suite, "target": {"type": "http", "url": "http://127.0.0.1:9/"}}
    id = examining.post("/api/runs", json=body).json()["id"]
    assert examining.client.get(f"/ui/p/{project}/examinations/{id}").status_code == 404
    assert examining.get(f"/api/examinations/{id}").status_code == 404


def test_a_folder_shows_its_examinations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from starlette.testclient import TestClient

    from proctor.rest.view import make_view_app

    monkeypatch.chdir(tmp_path)
    command = f"python -S {SCRIPT} --defect unknown-tool"
    assert run(["doctor", command, "--profile", "mcp-2025-11-25", "--only", "tools", "--quiet", "--timeout", "2"]) == 1
    with TestClient(make_view_app(tmp_path / ".proctor"), base_url="http://127.0.0.1:8700") as client:
        listed = client.get("/ui/p/local/examinations").text
        (id,) = set(re.findall(r"/examinations/([\w-]+)\"", listed)) - {"new"}
        page = client.get(f"/ui/p/local/examinations/{id}").text
        assert 'id="fail">Failed' in page and "unknown-tool" in page
        assert client.get("/ui/p/local/examinations/new").status_code == 404
