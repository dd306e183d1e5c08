"""Forms that are returned: never with keys or secrets, hostile text stays text, and sizes are limited."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from proctor.pages import nouns
from proctor.pages.forms import LARGEST_FORM, hides_value
from proctor.rest.view import make_view_app
from tests.pages.hostile.test_hostile import HOSTILE, quote
from tests.pages.markup import Markup
from tests.pages.world import World
from tests.rest.services import Service

HOME = "/ui/p/proj_home"
FORM = "application/x-www-form-urlencoded"
SECRET = "hunter2-and-swordfish"
FOREIGN = (
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:8700", "x-forwarded-proto": "https"},
    {"host": "evil.example"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
)
NAMES_OF_SECRETS = (
    "value", "Value", " value", "secret", "SECRET", "client_secret", "key", "KEY", "api_key", "apiKey", "x-api-key", "password",
    "db.password", "passphrase", "token", "access-token", "authorization", "settings[credentials]",
)  # fmt: skip


@pytest.fixture(scope="module")
def visited(seen: World) -> World:
    """The service, and a cookie that was never one of its sessions."""
    seen.sessions["gone"] = "x" * 43
    return seen


def send(world: World, path: str, body: str | bytes, who: str = "gone", kind: str = FORM, **headers: str) -> Any:
    return world.ask("POST", path, who, content=body, headers={"content-type": kind, **headers})


@pytest.mark.parametrize("name", NAMES_OF_SECRETS)
def test_no_key_or_secret_comes_back_whatever_its_field_is_called(visited: World, name: str) -> None:
    for who, status in (("gone", 401), ("organization", 403)):
        answer = send(visited, f"{HOME}/settings/change", urlencode({"name": "mine", name: SECRET, "description": "", "proof": "00"}), who)
        page = Markup(answer.text)
        assert answer.status_code == status and SECRET not in answer.text and page.problems == []
        assert "mine" in page.words and "re-enter it" in page.words and answer.text.count('type="password"') == 1


def test_fields_of_our_forms_come_back_unless_they_are_for_secrets() -> None:
    names = {name for one in nouns.OPERATIONS if one.takes is not None for name in one.takes.fields}
    assert len(names) > 30 and [name for name in (*names, "key_id", "kind", "settings", "tokens_per_second") if hides_value(name)] == []


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/form-data; boundary=b", f'--b\r\nContent-Disposition: form-data; name="value"\r\n\r\n{SECRET}\r\n--b--\r\n'),
        ("text/plain", f"name=x\r\nvalue={SECRET}\r\n"),
        ("application/json", f'{{"value": "={SECRET}"}}'),
        ("", f"x={SECRET}"),
        (f"{FORM}x", f"x={SECRET}"),
    ],
    ids=["multipart", "text", "json", "none", "another"],
)
def test_nothing_comes_back_of_what_is_no_form_of_ours(visited: World, kind: str, body: str) -> None:
    for who, status in (("gone", 401), ("organization", 415)):
        answer = send(visited, f"{HOME}/secrets", body, who, kind)
        assert answer.status_code == status and SECRET not in answer.text and "Your input" not in answer.text


def test_a_secret_that_is_refused_in_its_own_form_is_not_written_into_the_page(visited: World) -> None:
    for path, fields in (
        (f"{HOME}/secrets", {"name": "no spaces please", "value": SECRET}),
        (f"{HOME}/alerts/new?kind=pass_rate", {"name": "", "below": "0.9", "secret": SECRET}),
        (f"{HOME}/alerts/new?kind=pass_rate", {"name": "n", "below": "0.9", "secret": SECRET, "only": "preview"}),
    ):
        proof = visited.find_proof(path, "organization")
        answer = visited.post(path, "organization", proof=proof, **fields)
        page = Markup(answer.text)
        assert answer.status_code in (200, 400) and page.problems == []
        assert SECRET not in answer.text and "re-enter it" in page.words
        assert f'value="{fields["name"]}"' in answer.text


def test_hostile_names_and_values_stay_text_in_a_form_that_comes_back(visited: World) -> None:
    for who, status in (("gone", 401), ("organization", 403)):
        for at in range(0, len(HOSTILE), 50):
            body = "proof=0&" + "&".join(f"{quote(text[:2000])}={quote(text[:2000])}" for text in HOSTILE[at : at + 50])
            answer = send(visited, f"{HOME}/settings/change?next=%22%3E%3Cscript%3E", body, who)
            assert answer.status_code == status and Markup(answer.text).problems == []
            assert "Your input" in answer.text
            assert answer.headers["cache-control"] == "no-store" and "cookie" in answer.headers["vary"]
            assert "require-trusted-types-for 'script'" in answer.headers["content-security-policy"]
            assert "form-action 'self'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("count", [200, 201, 5_000])
def test_a_form_has_so_many_fields_and_no_more(visited: World, count: int) -> None:
    for body in ("&".join(f"f{number}=mine" for number in range(1, count)), "&".join("a[b][c]=mine" for _ in range(1, count))):
        for who, status in (("gone", 401), ("organization", 403 if count <= 200 else 400)):
            answer = send(visited, f"{HOME}/settings/change", f"proof=0&{body}", who)
            assert answer.status_code == status and answer.text.count("mine</textarea>") == (count - 1 if count <= 200 else 0)


def test_a_run_of_as_many_cases_as_there_may_be_is_one_form(visited: World) -> None:
    proof = visited.find_proof(f"{HOME}/runs/new", "organization")
    fields = [("proof", proof), *(("case", f"case_{number}") for number in range(100)), ("what", "cases"), ("repeat", "1"), ("do", "plan")]
    answer = send(visited, f"{HOME}/runs/new", urlencode([*fields, ("concurrency", "1"), ("timeout_s", "9")]), "organization")
    assert answer.status_code == 200 and "the form cannot be read" not in answer.text


@pytest.mark.parametrize("path", ["/settings/change", "/cases/new", "/nowhere"])
def test_a_form_that_is_far_too_large_does_not_come_back(visited: World, path: str) -> None:
    answer = send(visited, HOME + path, b"name=" + b"%22" * 2_000_000, "project")
    assert answer.status_code in (403, 404, 413) and len(answer.text) < 30_000


@pytest.mark.parametrize("headers", FOREIGN)
def test_a_foreign_page_gets_no_form_filled_in(visited: World, headers: dict[str, str]) -> None:
    for who in ("gone", "organization"):
        answer = send(visited, f"{HOME}/settings/change", "name=mine", who, **headers)
        assert answer.status_code == 403 and "mine" not in answer.text


@pytest.mark.parametrize("path", ["/settings/change", "/agents/new", "/runs/new"])
def test_a_form_without_any_proof_does_not_come_back_with_one(visited: World, path: str) -> None:
    """A page written by an agent has our address and may send a form; it is never returned as one of ours, ready to submit."""
    for who in ("gone", "organization"):
        answer = send(visited, HOME + path, "name=mine&kind=http", who)
        assert answer.status_code in (401, 403) and "mine" not in answer.text


def test_input_of_one_session_is_not_shown_to_another(visited: World) -> None:
    """The service stores nothing of a returned form: the next user of that browser finds no trace of it."""
    assert "only for me" in send(visited, f"{HOME}/settings/change", "proof=0&name=only+for+me").text
    for path in ("/ui/", f"{HOME}/settings/change", "/ui/login"):
        assert "only for me" not in visited.get(path, "organization").text
    # A form of another session does nothing until the current user has seen it and submits it again.
    proof = visited.find_proof("/ui/", "foreign_organization")
    answer = send(visited, f"{HOME}/settings/change", f"name=only+for+me&proof={proof}", "organization")
    assert answer.status_code == 403 and "Form of another session" in answer.text
    assert "only for me" not in visited.get(f"{HOME}/settings", "organization").text


def forge_proof(token: str) -> str:
    """The proof of a session, computed from its token."""
    proof = hashlib.blake2b(b"form", key=token.encode(), digest_size=16).digest()
    return (b"\0" * 16 + proof).hex()


def test_a_planted_cookie_makes_no_proof_for_the_local_user(url: str, tmp_path: Path) -> None:
    """Cookies know no ports: another service on this machine can set one that this service gets."""
    with Service(url, tmp_path) as service:
        fields = {"name": "planted", "proof": forge_proof("planted"), "settings": "", "description": ""}
        planted = {"cookie": "proctor_session=planted"}
        assert service.ask("POST", "/ui/projects/new", data=fields, headers=planted, follow_redirects=False).status_code == 403
        page = service.get("/ui/projects/new", headers=planted).text
        fields["proof"] = page.partition('name="proof" value="')[2].partition('"')[0]
        assert service.ask("POST", "/ui/projects/new", data=fields, headers=planted, follow_redirects=False).status_code == 303


def test_over_a_folder_no_more_of_a_form_is_read_than_it_may_have(tmp_path: Path) -> None:
    app = make_view_app(tmp_path)
    received, status = 0, 0

    async def receive() -> dict[str, Any]:
        nonlocal received
        received += 1
        return {"type": "http.request", "body": b"x" * 50_000, "more_body": received < 1_000}

    async def send_back(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)

    headers = [(b"host", b"127.0.0.1:8000"), (b"content-type", FORM.encode()), (b"transfer-encoding", b"chunked")]
    scope = {"type": "http", "method": "POST", "path": "/ui/p/local/agents/new", "raw_path": b"/ui/p/local/agents/new", "headers": headers}
    scope |= {"query_string": b"", "scheme": "http", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000), "http_version": "1.1"}
    asyncio.run(app(scope, receive, send_back))
    assert status == 413 and received == LARGEST_FORM // 50_000 + 1
