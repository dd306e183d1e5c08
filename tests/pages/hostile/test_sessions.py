"""Login and logout: a key becomes a session, the session ends with its key, and a form proves its origin."""

from __future__ import annotations

import asyncio
import gzip
import re
from typing import Any

import pytest

from proctor.errors import StoreError
from proctor.service.access import keys as service_sessions
from proctor.service.access.callers import LOCAL
from proctor.service.access.keys import SESSION_S, KeySpec, create_key, find_session_caller, hash_token, list_keys, open_session, revoke_key
from proctor.service.hub import Hub
from proctor.store.sql.tables import sessions
from tests.pages.world import World
from tests.rest.services import Service


def log_in(world: World, key: str, **fields: str) -> Any:
    return world.post("/ui/login", key=key, **fields)


def test_a_key_is_shown_once_and_becomes_a_session(world: World) -> None:
    page = world.get("/ui/p/proj_home/runs?status=queued")
    assert (page.status_code, page.headers["location"]) == (303, "/ui/login?next=%2Fui%2Fp%2Fproj_home%2Fruns%3Fstatus%3Dqueued")
    form = world.get(page.headers["location"]).text
    assert 'value="/ui/p/proj_home/runs?status=queued"' in form
    answer = log_in(world, f" {world.keys['organization']}\n", next="/ui/p/proj_home/runs?status=queued")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/p/proj_home/runs?status=queued")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Path=/" in cookie and f"Max-Age={SESSION_S}" in cookie
    assert world.keys["organization"] not in cookie
    world.sessions["new"] = re.search(r"proctor_session=([^;]+)", cookie)[1]  # type: ignore[index]
    assert world.get("/ui/", "new").status_code == 200
    assert world.get("/ui/login", "new").headers["location"] == "/ui/"


def test_only_the_hash_of_a_token_is_stored(world: World) -> None:
    async def read_stored(hub: Hub) -> list[str]:
        async with hub.database.reading() as connection:
            return [str(value) for row in await connection.execute(sessions.select()) for value in row]

    values = world.service.run(read_stored)
    assert world.sessions["organization"] not in values and hash_token(world.sessions["organization"]) in values


@pytest.mark.parametrize("key", ["", "vk_" + "x" * 43, "x" * 300, "\u202e\ud7ff", "'; DROP TABLE keys; --"])
def test_a_wrong_key_is_refused_with_what_to_do(world: World, key: str) -> None:
    answer = log_in(world, key)
    assert answer.status_code == 401 and "expired key" in answer.text and "set-cookie" not in answer.headers


@pytest.mark.parametrize("kind", ["solver", "run"])
def test_keys_of_machines_do_not_open_the_pages(world: World, kind: str) -> None:
    answer = log_in(world, world.keys[kind])
    assert answer.status_code == 403 and "organization or project key" in answer.text


@pytest.mark.parametrize(
    "next",
    [
        "https://evil.example/",
        "//evil.example",
        "/ui//evil.example",
        "/ui/\\evil",
        "/api/projects",
        "javascript:alert(1)",
        "",
        "/ui/../api/projects",
        "/ui/%2e%2E/api/projects",
        "/ui/p/.%2e/../../api/projects?x=1",
        "/ui/./..#x",
        "/ui/\t/evil.example",
        "/ui/\r\nset-cookie: a=b",
        "?/ui/",
    ],
)
def test_the_way_in_leads_nowhere_else(seen: World, next: str) -> None:
    assert log_in(seen, seen.keys["organization"], next=next).headers["location"] == "/ui/"


@pytest.mark.parametrize("next", ["/ui/search?q=http://x", "/ui/p/a..b/runs", "/ui/audit#a//b"])
def test_the_way_in_leads_to_every_page(seen: World, next: str) -> None:
    assert log_in(seen, seen.keys["organization"], next=next).headers["location"] == next


def test_logging_in_again_ends_the_session_before(world: World) -> None:
    token = world.sessions["organization"]
    answer = world.ask("POST", "/ui/login", "organization", data={"key": world.keys["project"]})
    assert answer.status_code == 303 and token not in answer.headers["set-cookie"]
    assert world.service.run(lambda hub: find_session_caller(hub, token)) is None
    # A mistyped key does not end the session.
    assert world.ask("POST", "/ui/login", "project", data={"key": "vk_wrong"}).status_code == 401
    assert world.get("/ui/p/proj_home", "project").status_code == 200


def test_with_tls_the_cookie_is_for_this_host_alone(world: World) -> None:
    secure = {"x-forwarded-proto": "https"}
    answer = world.ask("POST", "/ui/login", data={"key": world.keys["organization"]}, headers=secure)
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-proctor_session=") and "Secure" in cookie
    token = cookie.partition("=")[2].partition(";")[0]
    assert world.get("/ui/", headers={**secure, "cookie": f"__Host-proctor_session={token}"}).status_code == 200
    # Over TLS the plain name is not believed: any neighbour under the same domain could have set it.
    assert world.get("/ui/", headers={**secure, "cookie": f"proctor_session={token}"}).status_code == 303
    # Of several proxies the first one speaks to the browser.
    several = world.ask("POST", "/ui/login", data={"key": world.keys["organization"]}, headers={"x-forwarded-proto": "https, http"})
    assert several.headers["set-cookie"].startswith("__Host-proctor_session=")


def test_logging_out_needs_the_proof_and_ends_the_session(world: World) -> None:
    proof = world.find_proof("/ui/", "organization")
    assert world.find_proof("/ui/", "organization") != proof
    for wrong in ("", "zz", proof[:-2], world.find_proof("/ui/", "project")):
        assert world.post("/ui/logout", "organization", proof=wrong).status_code == 403
    assert world.get("/ui/", "organization").status_code == 200
    answer = world.post("/ui/logout", "organization", proof=proof)
    assert answer.headers["location"] == "/ui/login" and 'proctor_session=""' in answer.headers["set-cookie"]
    assert world.get("/ui/", "organization").status_code == 303
    assert world.get("/ui/", "project").status_code == 200


def test_a_session_ends_in_the_moment_its_key_is_revoked(world: World) -> None:
    async def revoke(hub: Hub) -> None:
        found = await list_keys(hub, LOCAL, kind="project")
        for key in found["data"]:
            await revoke_key(hub, LOCAL, key["id"])

    assert world.get("/ui/p/proj_home", "project").status_code == 200
    world.service.run(revoke)
    assert world.get("/ui/p/proj_home", "project").status_code == 303
    assert world.get("/api/runs", "project").status_code == 401
    # The login page shows why the user is there again; a new visitor gets no message.
    message = "Your session has ended"
    assert message in world.get("/ui/login?next=%2Fui%2Fp%2Fproj_home", "project").text
    assert message not in world.get("/ui/login").text
    assert world.get("/ui/p/proj_home", "organization").status_code == 200


def test_a_session_ends_when_its_time_is_over(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    token = world.sessions["organization"]
    assert world.service.run(lambda hub: find_session_caller(hub, token)) is not None
    later = world.service.hub.clock() + SESSION_S + 1
    monkeypatch.setattr(type(world.service.hub), "now", lambda hub: "2100-01-01T00:00:00.000Z" if later else "")
    assert world.service.run(lambda hub: find_session_caller(hub, token)) is None


def test_with_a_session_the_interface_is_read_but_not_written(world: World) -> None:
    assert world.get("/api/runs/run_after", "organization").json()["id"] == "run_after"
    assert world.ask("POST", "/api/projects", "organization", json={"name": "x"}).status_code == 401
    assert world.ask("DELETE", "/api/projects/proj_home", "organization").status_code == 401
    assert world.get("/metrics", "organization").status_code == 401
    assert world.get("/environments", "organization").status_code == 401


def test_nothing_large_is_taken_from_a_stranger(world: World) -> None:
    assert log_in(world, "x" * 5_000).status_code == 401
    assert "log in first" in log_in(world, "x" * 5_000).text
    assert world.post("/ui/logout", proof="x").status_code == 401
    assert world.ask("POST", "/ui/login", content=b"{}", headers={"content-type": "application/json"}).status_code == 415
    bomb = gzip.compress(b"key=" + b"x" * 1_000_000)
    packed = {"content-type": "application/x-www-form-urlencoded", "content-encoding": "gzip"}
    answer = world.ask("POST", "/ui/login", content=bomb, headers=packed)
    assert len(bomb) < 4_000 and answer.status_code == 401 and "log in first" in answer.text


def test_foreign_pages_cannot_log_anybody_in(world: World) -> None:
    own = "127.0.0.1:8700"
    for origin, proto in (("https://evil.example", "http"), ("null", "http"), (f"http://{own}", "https"), (f"https://{own}.evil", "https")):
        headers = {"origin": origin, "x-forwarded-proto": proto}
        answer = world.ask("POST", "/ui/login", data={"key": world.keys["organization"]}, headers=headers)
        assert answer.status_code == 403 and "set-cookie" not in answer.headers, origin
    for proto in ("http", "https"):
        headers = {"origin": f"{proto}://{own}", "x-forwarded-proto": proto}
        assert world.ask("POST", "/ui/login", data={"key": world.keys["organization"]}, headers=headers).status_code == 303


def test_guessing_is_slowed_down(url: str, tmp_path: Any) -> None:
    with World(url, tmp_path, requests_per_minute=3) as world:
        assert [log_in(world, f"vk_{number}").status_code for number in range(5)][-1] == 429


def test_the_local_user_of_an_open_service_needs_no_login(url: str, tmp_path: Any) -> None:
    with Service(url, tmp_path) as service:
        page = service.get("/ui/")
        assert page.status_code == 200 and "No projects yet" in page.text and "Log out" not in page.text
        # A link in a chat leads here; a fetch by a foreign page has no session.
        foreign = {"sec-fetch-site": "cross-site"}
        assert service.get("/ui/", headers={**foreign, "sec-fetch-dest": "document"}).status_code == 200
        assert service.ask("GET", "/ui/", headers={**foreign, "sec-fetch-dest": "empty"}, follow_redirects=False).status_code == 303


def test_an_unreachable_database_has_its_own_page(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(self: object) -> Any:
        raise StoreError("the database cannot be reached")

    monkeypatch.setattr(type(world.service.hub.database), "reading", away)
    answer = world.get("/ui/", "organization")
    assert answer.status_code == 503 and "Database unavailable" in answer.text and answer.headers["retry-after"]


def test_the_oldest_sessions_of_a_key_end_when_many_were_opened_with_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_sessions, "MOST_SESSIONS", 3)
    key, other = world.keys["organization"], world.keys["project"]

    async def open_many(hub: Hub) -> list[bool]:
        before = (await open_session(hub, other))[1]
        tokens = []
        for _ in range(5):
            tokens.append((await open_session(hub, key))[1])
            await asyncio.sleep(0.002)  # opening times are stored in milliseconds
        return [await find_session_caller(hub, token) is not None for token in (before, *tokens)]

    assert world.service.run(open_many) == [True, False, False, True, True, True]


def test_keys_of_an_earlier_version_with_another_prefix_stay_valid(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before:
        before.setattr("proctor.service.access.keys.PREFIXES", {"organization": "vk_", "project": "mibo_"})
        whole = world.service.run(lambda hub: create_key(hub, LOCAL, KeySpec(kind="organization", name="old")))[1]
        part = world.service.run(lambda hub: create_key(hub, LOCAL, KeySpec(kind="project", name="old", project_id="proj_home")))[1]
    assert whole.startswith("vk_") and part.startswith("mibo_")
    for key in (whole, part):
        assert log_in(world, key).status_code == 303
        for headers in ({"authorization": f"Bearer {key}"}, {"x-api-key": key}):
            assert world.service.client.get("/api/projects/proj_home", headers=headers).status_code == 200
    spans = [{"span_id": "a", "parent_span_id": None, "name": "flow", "attributes": {"gen_ai.response.text": "hi"}}]
    body = {"spans": spans, "metadata": {}, "platformId": "agent_home_1"}
    sent = world.service.client.post("/public/traces", json=body, headers={"x-api-key": part})
    assert sent.status_code in (200, 201), sent.text
    listed = world.service.client.get("/api/keys", headers={"x-api-key": whole}).json()["data"]
    assert {"vk_..." + whole[-4:], "mibo_..." + part[-4:]} <= {one["masked"] for one in listed}
