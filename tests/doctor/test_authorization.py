"""Broken authorization: each setup of a local fake is reported by its check."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest

from proctor.doctor.authorization import list_resource_addresses, list_server_addresses, parse_challenge
from proctor.doctor.examine import Options, examine
from proctor.doctor.login import Login
from proctor.doctor.model import BROKEN, Examination
from proctor.doctor.report import build_document
from proctor.errors import InputError, TargetError
from proctor.report.document.terminal import write_terminal
from proctor.targets.mcp.settings import Bearer, ClientCredentials, ServerSettings
from tests.doctor.servers import QUICK
from tests.doctor.template_server import Shop

TOKEN = "a-token-of-the-shop"


class Setup:
    """A shop with its authorization server, with some answers changed."""

    def __init__(self, **changes: Any) -> None:
        self.changes = changes
        self.base = ""
        self.query: dict[str, str] = {}
        self.forms: list[dict[str, Any]] = []
        self.shop = Shop("", "handshake")

    def documents(self) -> dict[str, Any]:
        found = {
            "/.well-known/oauth-protected-resource/mcp": {
                "resource": f"{self.base}/mcp",
                "authorization_servers": [f"{self.base}/as"],
                "scopes_supported": ["orders"],
                "bearer_methods_supported": ["header"],
            },
            "/.well-known/oauth-authorization-server/as": {
                "issuer": f"{self.base}/as",
                "authorization_endpoint": f"{self.base}/as/authorize",
                "token_endpoint": f"{self.base}/as/token",
                "registration_endpoint": f"{self.base}/as/register",
                "code_challenge_methods_supported": ["S256"],
                "response_types_supported": ["code"],
                "authorization_response_iss_parameter_supported": True,
            },
        }
        for document, name in ((next(iter(found)), "resource"), (list(found)[1], "server")):
            for key, value in self.changes.get(name, {}).items():
                found[document] = {each: old for each, old in {**found[document], key: value}.items() if old is not None}
            if self.changes.get(f"no_{name}"):
                del found[document]
        return found

    def accepts(self, authorization: str | None, query: str) -> bool:
        rule = self.changes.get("accepts", "")
        token = (authorization or "").removeprefix("Bearer").strip()
        segments = token.split(".")
        return (
            token == TOKEN
            or (rule == "query" and "access_token=" in query)
            or (rule == "empty" and authorization is not None and not token)
            or (rule == "garbage" and bool(token) and len(segments) == 1)
            or (rule == "unsigned" and len(segments) == 3 and not segments[2])
            or (rule == "foreign" and self.read(segments).get("aud", "").startswith("https://elsewhere"))
            or (
                rule == "expired"
                and bool(segments[-1])
                and self.read(segments).get("exp", 1e12) < self.read(segments).get("iat", 0) + 7200 - 1
            )
            or rule == "anyone"
        )

    def fits(self, form: dict[str, str]) -> bool:
        """Whether the code is used by the client that requested it."""
        hashed = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        same = all(form[name] == self.query[name] for name in ("client_id", "redirect_uri", "resource"))
        return same and form["code"] == "c-1" and hashed == self.query["code_challenge"]

    def read(self, segments: list[str]) -> dict[str, Any]:
        if len(segments) != 3:
            return {}
        return json.loads(base64.urlsafe_b64decode(segments[1] + "=" * (-len(segments[1]) % 4)))


@contextlib.contextmanager
def serve(setup: Setup) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def reply(self, status: int, document: Any, **headers: str) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            if self.path.startswith("/as/authorize?"):
                # The user logs in at once.
                setup.query = parameters = dict(parse_qsl(self.path.partition("?")[2]))
                answer = {"code": "c-1", "state": parameters["state"], "iss": f"{setup.base}/as", **setup.changes.get("redirect", {})}
                back = urlencode({name: value for name, value in answer.items() if value is not None})
                self.reply(302, None, Location=f"{parameters['redirect_uri']}?{back}")
                return
            document = setup.documents().get(self.path)
            self.reply(404 if document is None else 200, document or {"error": "not found"})

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path == "/as/token":
                form = dict(parse_qsl(raw.decode()))
                setup.forms.append(form)
                fits = form["grant_type"] != "authorization_code" or setup.fits(form)
                granted = setup.changes.get("grant", {"access_token": TOKEN, "token_type": "Bearer"})
                self.reply(200 if fits else 400, granted if fits else {"error": "invalid_grant"})
                return
            if self.path == "/as/register":
                setup.forms.append(json.loads(raw))
                self.reply(*setup.changes.get("registered", (201, {"client_id": "new-client"})))
                return
            query = self.path.partition("?")[2]
            if not setup.accepts(self.headers.get("Authorization"), query):
                named = f'resource_metadata="{setup.base}/.well-known/oauth-protected-resource/mcp", scope="orders"'
                challenge = setup.changes.get("challenge", f"Bearer {named}")
                status = setup.changes.get("status", 401)
                self.reply(status, {"error": "unauthorized"}, **({"WWW_Authenticate": challenge} if challenge else {}))
                return
            answers = setup.shop.receive(json.loads(raw)) if raw.startswith(b"{") and raw.endswith(b"}") else []
            extra = {"WWW_Authenticate": "Bearer"} if setup.changes.get("always_challenges") else {}
            self.reply(200 if answers else 202, answers[-1] if answers else None, **extra)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    setup.base = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield f"{setup.base}/mcp"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def look(setup: Setup, *, given: str = "token", areas: tuple[str, ...] = ("authorization",), revision: str = "2025-11-25") -> Examination:
    with serve(setup) as url:
        credentials = ClientCredentials(token_url=f"{setup.base}/as/token", client_id="doctor", client_secret="secret-of-the-doctor")
        auth = {"token": Bearer(token=TOKEN), "wrong": Bearer(token="wrong-token"), "client": credentials, "": None}[given]
        settings = ServerSettings(id="shop", transport="http", url=url, auth=auth)
        return asyncio.run(examine(settings, Options(profiles=(f"mcp-{revision}@1",), areas=areas, authorization=True, **QUICK)))


BROKEN_SETUPS: dict[str, tuple[str, dict[str, Any]]] = {
    "anyone may use it": ("auth-required", {"accepts": "anyone"}),
    "403 instead of 401": ("auth-required", {"status": 403}),
    "no challenge and no metadata": ("auth-challenge", {"challenge": "", "no_resource": True}),
    "another scheme and no metadata": ("auth-challenge", {"challenge": "Basic", "no_resource": True}),
    "a challenge without metadata": ("auth-challenge-metadata", {"challenge": 'Bearer scope="orders"'}),
    "a challenge without scope": ("auth-challenge-scope", {"challenge": 'Bearer resource_metadata="http://127.0.0.1:9/x"'}),
    "a challenge on success": ("auth-no-challenge-on-success", {"always_challenges": True}),
    "no metadata of the resource": ("auth-resource-metadata", {"no_resource": True}),
    "metadata of another resource": ("auth-resource-equal", {"resource": {"resource": "https://elsewhere.example/mcp"}}),
    "no authorization server": ("auth-servers", {"resource": {"authorization_servers": []}}),
    "authorization servers are missing": ("auth-servers", {"resource": {"authorization_servers": None}}),
    "tokens in the body only": ("auth-bearer-header", {"resource": {"bearer_methods_supported": ["body"]}}),
    "no metadata of the server": ("auth-server-metadata", {"no_server": True}),
    "another issuer": ("auth-issuer-equal", {"server": {"issuer": "https://elsewhere.example"}}),
    "no token endpoint": ("auth-endpoints", {"server": {"token_endpoint": None}}),
    "no authorization endpoint": ("auth-endpoints", {"server": {"authorization_endpoint": None}}),
    "an endpoint without HTTPS": ("auth-https", {"server": {"token_endpoint": "http://shop.example/token"}}),
    "no PKCE": ("auth-pkce", {"server": {"code_challenge_methods_supported": None}}),
    "plain PKCE only": ("auth-pkce", {"server": {"code_challenge_methods_supported": ["plain"]}}),
    "no code": ("auth-response-code", {"server": {"response_types_supported": ["token"]}}),
    "no registration": ("auth-registration", {"server": {"registration_endpoint": None}}),
    "no registration and no code": ("auth-endpoints", {"server": {"registration_endpoint": None, "authorization_endpoint": None}}),
    "any word is a token": ("auth-token-garbage", {"accepts": "garbage"}),
    "an empty token": ("auth-token-empty", {"accepts": "empty"}),
    "unsigned tokens": ("auth-token-unsigned", {"accepts": "unsigned"}),
    "tokens of others": ("auth-token-foreign", {"accepts": "foreign"}),
    "expired tokens": ("auth-token-expired", {"accepts": "expired"}),
    "tokens in the address": ("auth-token-query", {"accepts": "query"}),
}


def find_broken(found: Examination) -> set[str]:
    return {finding.check for finding in found.findings if finding.verdict in BROKEN}


def test_a_correct_setup_has_no_finding() -> None:
    for given in ("token", "client"):
        found = look(Setup(), given=given)
        assert not find_broken(found) and not found.incomplete, given


@pytest.mark.in_turn
@pytest.mark.parametrize("name", BROKEN_SETUPS)
def test_a_broken_setup_is_reported(name: str) -> None:
    check, changes = BROKEN_SETUPS[name]
    found = look(Setup(**changes))
    assert check in find_broken(found)
    # Further findings of a missing document are allowed, except about tokens and grants.
    assert not [each for each in find_broken(found) - {check} if each.startswith("auth-token") != check.startswith("auth-token")]


@pytest.mark.parametrize(("check", "changes"), [("auth-no-offline-access", {"resource": {"scopes_supported": ["offline_access"]}})])
def test_rules_of_the_stateless_revision(check: str, changes: dict[str, Any]) -> None:
    assert check in find_broken(look(Setup(**changes), revision="2026-07-28"))
    server = {"server": {"authorization_response_iss_parameter_supported": None}}
    assert "auth-iss" in find_broken(look(Setup(**server), revision="2026-07-28"))


@pytest.mark.parametrize("grant", [{"access_token": TOKEN, "token_type": "mac"}, {"error": "invalid_client"}, "none"])
def test_a_grant_without_a_bearer_token_is_reported(grant: Any) -> None:
    assert "auth-grant" in find_broken(look(Setup(grant=grant), given="client"))


def test_a_server_with_keys_of_its_own_has_no_failure() -> None:
    found = look(Setup(challenge="Bearer", no_resource=True, no_server=True))
    assert find_broken(found) == {"auth-challenge-metadata", "auth-challenge-scope"} and not found.failed


def test_credentials_that_are_refused_are_reported() -> None:
    assert "auth-accepted" in find_broken(look(Setup(), given="wrong"))


def test_without_credentials_the_rest_could_not_run_and_no_secret_is_shown() -> None:
    found = look(Setup(), given="", areas=())
    assert found.incomplete and not found.failed
    assert "the server demands a token" in {finding.reason for finding in found.findings}
    text = write_terminal(build_document(found, "terminal"))
    assert "With --token, --login" in text and "/.well-known/oauth-protected-resource/mcp  protected resource" in text, (
        "addresses are whole"
    )
    shown = json.dumps([str(message) for finding in look(Setup(accepts="garbage")).findings for message in finding.evidence])
    assert TOKEN not in shown


def test_every_address_is_listed_in_the_order_clients_try() -> None:
    found = look(Setup())
    paths = [probed.url.partition("/.well")[2] for probed in found.metadata]
    assert [(path, probed.status) for path, probed in zip(paths, found.metadata, strict=True)] == [
        ("-known/oauth-protected-resource/mcp", "200"),
        ("-known/oauth-protected-resource", "404"),
        ("-known/oauth-authorization-server/as", "200"),
        ("-known/openid-configuration/as", "404"),
        ("-known/openid-configuration", "404"),
    ]
    assert list_resource_addresses("https://a.example/mcp/", "https://b.example/x")[0] == "https://b.example/x"
    assert list_server_addresses("https://a.example") == [
        "https://a.example/.well-known/oauth-authorization-server",
        "https://a.example/.well-known/openid-configuration",
    ]


def test_a_challenge_is_read_with_quotes_and_without() -> None:
    assert parse_challenge('Bearer error="invalid_token", scope="a b", resource_metadata=https://a.example/x') == (
        "Bearer",
        {"error": "invalid_token", "scope": "a b", "resource_metadata": "https://a.example/x"},
    )


BROKEN_LOGINS: dict[str, tuple[str, dict[str, Any]]] = {
    "registration is refused": ("auth-register", {"registered": (400, {"error": "invalid_redirect_uri"})}),
    "registration without a client": ("auth-register", {"registered": (201, {})}),
    "no code": ("auth-redirect", {"redirect": {"code": None, "error": "access_denied"}}),
    "another state": ("auth-redirect", {"redirect": {"state": "other"}}),
    "another issuer": ("auth-redirect", {"redirect": {"iss": "https://elsewhere.example"}}),
    "no issuer": ("auth-redirect", {"redirect": {"iss": None}}),
    "a token of another type": ("auth-code", {"grant": {"access_token": TOKEN, "token_type": "mac"}}),
    "no token": ("auth-code", {"grant": {"error": "server_error"}}),
}


def log_in(setup: Setup, **more: Any) -> Examination:
    with serve(setup) as url:
        login = Login(open_browser=lambda address: urllib.request.urlopen(address).read(), wait_s=5.0, **more)
        settings = ServerSettings(id="shop", transport="http", url=url)
        chosen = Options(profiles=("mcp-2025-11-25@1",), areas=("authorization",), login=login, **QUICK)
        return asyncio.run(examine(settings, chosen))


def test_at_least_twenty_five_broken_setups_are_tried() -> None:
    assert len(BROKEN_SETUPS) + len(BROKEN_LOGINS) >= 25


@pytest.mark.parametrize(
    ("more", "passed"),
    [
        ({}, {"auth-register", "auth-redirect", "auth-code"}),
        ({"client_id": "mine", "client_secret": "hush-hush"}, {"auth-redirect", "auth-code"}),
        ({"client_id": "mine", "client_secret": "hush-hush", "browser": False}, {"auth-grant"}),
    ],
    ids=["registered", "given", "for itself"],
)
def test_a_login_gets_the_token_for_the_examination(more: dict[str, Any], passed: set[str]) -> None:
    setup = Setup()
    found = log_in(setup, **more)
    assert not find_broken(found) and not found.incomplete
    assert passed | {"auth-accepted"} <= {finding.check for finding in found.findings if finding.verdict == "pass"}
    assert all(form["resource"].endswith("/mcp") for form in setup.forms if "grant_type" in form)
    if more.get("browser", True):
        assert setup.query["scope"] == "orders" and setup.query["code_challenge_method"] == "S256"
        assert setup.query["client_id"] == more.get("client_id", "new-client")


@pytest.mark.in_turn
@pytest.mark.parametrize("name", BROKEN_LOGINS)
def test_a_broken_login_is_reported(name: str) -> None:
    check, changes = BROKEN_LOGINS[name]
    assert find_broken(log_in(Setup(**changes))) & {"auth-register", "auth-redirect", "auth-code"} == {check}


def test_a_login_that_cannot_be() -> None:
    with pytest.raises(TargetError, match="there is no login"):
        log_in(Setup(no_resource=True, no_server=True))
    with pytest.raises(InputError, match="over HTTP"):
        asyncio.run(examine(ServerSettings(id="a", command="true"), Options(login=Login())))
