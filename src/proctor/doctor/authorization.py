"""Authorization over HTTP, as a client without any knowledge would find it: challenge, metadata, tokens that must be refused.

Every address is tried in the order clients try them, and the table of them is part of the result. Nothing is registered, and no login is
started here (see `login`). Metadata of a server on the public internet may only lead to public addresses.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import httpx2
import msgspec

from proctor.doctor.client import CLIENT, Reply, Session
from proctor.doctor.http_link import HttpLink
from proctor.doctor.model import Message, Probed, Verdicts
from proctor.doctor.probe import is_on_this_machine
from proctor.doctor.recording import Recording
from proctor.model.show import shorten, show
from proctor.network.addresses import AddressRefused
from proctor.network.guard import Guard, guarded_client
from proctor.targets.mcp.auth import FetchedToken
from proctor.targets.mcp.settings import ClientCredentials, ServerSettings, strip_url
from proctor.targets.shared.wire import MakeTransport

_RESOURCE: Final = "/.well-known/oauth-protected-resource"
_SERVER: Final = "/.well-known/oauth-authorization-server"
_OPENID: Final = "/.well-known/openid-configuration"
_MOST_BYTES: Final = 200_000
_OF_RESOURCE, _OF_SERVER = "protected resource", "authorization server"
_PARAMETER = re.compile(r'([a-zA-Z_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_ENDPOINTS: Final = ("authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint", "jwks_uri")
_RESOURCE_CHECKS: Final = ("auth-resource-equal", "auth-servers", "auth-bearer-header", "auth-no-offline-access")
_SERVER_CHECKS: Final = (
    *("auth-issuer-equal", "auth-endpoints", "auth-https", "auth-pkce"),
    *("auth-response-code", "auth-registration", "auth-iss"),
)
Document = Mapping[str, Any]


def list_resource_addresses(url: str, challenged: str | None = None) -> list[str]:
    """Return where the metadata of a protected resource may be, in the order clients try."""
    path = urlsplit(url).path.rstrip("/")
    places = [_join(url, f"{_RESOURCE}{path}"), _join(url, _RESOURCE)]
    return list(dict.fromkeys([*([challenged] if challenged else []), *places]))


def list_server_addresses(issuer: str) -> list[str]:
    """Return where the metadata of an authorization server may be, in the order clients try."""
    path = urlsplit(issuer).path.rstrip("/")
    if not path:
        return [_join(issuer, _SERVER), _join(issuer, _OPENID)]
    return [_join(issuer, f"{_SERVER}{path}"), _join(issuer, f"{_OPENID}{path}"), _join(issuer, f"{path}{_OPENID}")]


def _join(url: str, path: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def parse_challenge(header: str) -> tuple[str, dict[str, str]]:
    """Return the scheme and the parameters of a `WWW-Authenticate` header."""
    scheme, _, rest = header.strip().partition(" ")
    return scheme, {name.lower(): quoted or bare for name, quoted, bare in _PARAMETER.findall(rest)}


class AuthorizationProbe:
    """Examines the authorization of one server."""

    def __init__(
        self,
        settings: ServerSettings,
        revision: str,
        v: Verdicts,
        recording: Recording,
        timeout_s: float,
        *,
        transport: MakeTransport | None = None,
    ) -> None:
        self._settings = settings
        self._revision = revision
        self._v = v
        self._recording = recording
        self._timeout_s = timeout_s
        self._anonymous = HttpLink(settings, recording, FetchedToken(), without_auth=True, transport=transport)
        self._transport = transport
        self._challenge: dict[str, str] = {}
        self._first: Reply = Reply()
        self.probed: list[Probed] = []
        """Every address that was tried."""
        self.server: Document | None = None
        """The metadata of the authorization server."""
        self.scope = ""
        """The scopes to ask for."""

    async def is_demanded(self) -> bool:
        """Return whether a request without a token is refused."""
        self._first = await self._ask({})
        return self._first.status == 401

    async def close(self) -> None:
        """Close the connections."""
        await self._anonymous.close()

    async def probe(self) -> None:
        """Examine challenge, metadata and wrong tokens."""
        async with await self.open_client() as http:
            await self.find_metadata(http)
            await self._examine_grant(http)
        await self._examine_tokens()

    async def find_metadata(self, http: httpx2.AsyncClient) -> None:
        """Look for the metadata of resource and authorization server, and judge it."""
        metadata = await self._examine_resource(http)
        issuers = metadata.get("authorization_servers") if metadata is not None else None
        # Before 2025-06-18, the authorization server was found at the server itself.
        issuer = str(issuers[0]) if isinstance(issuers, list) and issuers else _join(self._settings.url, "")
        has_metadata = await self._examine_server(http, issuer)
        if metadata is None and not has_metadata and "resource_metadata" not in self._challenge:
            # Without any metadata, it has keys of its own.
            self._v.skip("the server offers no OAuth: it has keys of its own", "auth-resource-metadata", "auth-server-metadata")
        else:
            tried = [", ".join(each.url for each in self.probed if each.what == what) for what in (_OF_RESOURCE, _OF_SERVER)]
            self._v.require("auth-resource-metadata", metadata is not None, f"not found at {shorten(tried[0], 300)}")
            self._v.require("auth-server-metadata", has_metadata, f"not found at {shorten(tried[1], 300)}")
        scopes = (metadata or {}).get("scopes_supported")
        self.scope = self._challenge.get("scope") or " ".join(map(str, scopes if isinstance(scopes, list) else []))

    async def open_client(self) -> httpx2.AsyncClient:
        """Return a client for metadata: that of a public server may only lead to public addresses."""
        if self._transport is not None:
            return httpx2.AsyncClient(transport=self._transport(True), timeout=self._timeout_s, follow_redirects=False)
        parts, guard = urlsplit(self._settings.url), Guard()
        try:
            await guard.resolve_checked(parts.hostname or "", parts.port or 443)
        except (AddressRefused, httpx2.HTTPError, OSError):
            return httpx2.AsyncClient(timeout=self._timeout_s, trust_env=False, follow_redirects=False)
        return guarded_client(guard, timeout_s=self._timeout_s)

    async def _ask(self, headers: Mapping[str, str | None], suffix: str = "") -> Reply:
        """Send the first request of a client, without credentials of the settings."""
        session = Session(self._anonymous, self._revision, timeout_s=self._timeout_s)
        self._anonymous.url = self._settings.url + suffix
        identity = f"anonymous-{len(self._recording.frames)}"
        if session.is_stateless:
            return await session.request("server/discover", identity=identity, headers=headers)
        params = {"protocolVersion": self._revision, "capabilities": {}, "clientInfo": CLIENT}
        return await session.request("initialize", params, identity=identity, headers=headers)

    def _show(self, reply: Reply) -> tuple[Message | None, Message | None]:
        return self._recording.show(reply.request), self._recording.show(reply.shown)

    # --- the protected resource ------------------------------------------------------------------------------------------------

    async def _examine_resource(self, http: httpx2.AsyncClient) -> Document | None:
        v, first = self._v, self._first
        v.require("auth-required", first.status == 401, f"expected 401, got {first.status}", *self._show(first))
        scheme, self._challenge = parse_challenge(first.headers.get("www-authenticate", ""))
        metadata_url = self._challenge.get("resource_metadata")
        metadata: Document | None = None
        place = ""
        for address in list_resource_addresses(self._settings.url, metadata_url):
            document = await self._fetch(http, address, _OF_RESOURCE)
            if metadata is None and document is not None and "resource" in document:
                metadata, place = document, address
        has_challenge = scheme.lower() == "bearer"
        what = f"the header is {show(first.headers.get('www-authenticate'), 80)}, and no well-known metadata was found"
        v.require("auth-challenge", has_challenge or metadata is not None, what, *self._show(first))
        v.require("auth-challenge-metadata", bool(metadata_url), "`resource_metadata` is missing", *self._show(first))
        v.require("auth-challenge-scope", "scope" in self._challenge, "`scope` is missing", *self._show(first))
        if metadata is None:
            v.skip("there is no metadata of the protected resource", *_RESOURCE_CHECKS)
            return None
        resource = metadata.get("resource")
        allowed = [self._settings.url]
        if urlsplit(place).path == _RESOURCE:
            allowed.append(_join(self._settings.url, ""))
        equal = any(_normalise(str(resource)) == _normalise(each) for each in allowed)
        v.require("auth-resource-equal", equal, f"`resource` is {show(resource, 100)}, the server is {strip_url(self._settings.url)}")
        servers = metadata.get("authorization_servers")
        v.require("auth-servers", isinstance(servers, list) and bool(servers), f"`authorization_servers` is {show(servers, 60)}")
        methods = metadata.get("bearer_methods_supported")
        v.require("auth-bearer-header", methods is None or "header" in methods, f"`bearer_methods_supported` is {show(methods, 60)}")
        scopes = metadata.get("scopes_supported") or []
        v.require("auth-no-offline-access", "offline_access" not in scopes, "`scopes_supported` has `offline_access`")
        return metadata

    # --- the authorization server ----------------------------------------------------------------------------------------------

    async def _examine_server(self, http: httpx2.AsyncClient, issuer: str) -> bool:
        """Judge the metadata of the authorization server, and return whether there is any."""
        v = self._v
        metadata: Document | None = None
        for address in list_server_addresses(issuer):
            document = await self._fetch(http, address, _OF_SERVER)
            if metadata is None and document is not None and ("issuer" in document or "token_endpoint" in document):
                metadata = document
        self.server = metadata
        if metadata is None:
            v.skip("there is no metadata of the authorization server", *_SERVER_CHECKS)
            return False
        same = str(metadata.get("issuer")).rstrip("/") == issuer.rstrip("/")
        v.require("auth-issuer-equal", same, f"`issuer` is {show(metadata.get('issuer'), 100)}, found under {strip_url(issuer)}")
        grants = metadata.get("grant_types_supported") or ["authorization_code"]
        uses_code = "authorization_code" in grants
        needed = ["token_endpoint", *(["authorization_endpoint"] if uses_code else [])]
        missing = [name for name in needed if not isinstance(metadata.get(name), str)]
        v.require("auth-endpoints", not missing, f"missing: {', '.join(missing)}")
        plain = [name for name in _ENDPOINTS if isinstance(metadata.get(name), str) and not _is_safe(metadata[name])]
        v.require("auth-https", not plain, f"not HTTPS: {', '.join(plain)}")
        if uses_code:
            methods = metadata.get("code_challenge_methods_supported")
            v.require("auth-pkce", isinstance(methods, list) and "S256" in methods, f"the methods are {show(methods, 60)}")
            kinds = metadata.get("response_types_supported")
            v.require("auth-response-code", isinstance(kinds, list) and "code" in kinds, f"the types are {show(kinds, 60)}")
        else:
            v.skip("there is no grant of authorization codes", "auth-pkce", "auth-response-code")
        registers = metadata.get("client_id_metadata_document_supported") is True or isinstance(metadata.get("registration_endpoint"), str)
        v.require("auth-registration", registers or not uses_code, "neither CIMD nor a registration endpoint is advertised")
        iss = metadata.get("authorization_response_iss_parameter_supported")
        v.require("auth-iss", iss is True or not uses_code, f"`authorization_response_iss_parameter_supported` is {show(iss)}")
        return True

    async def _fetch(self, http: httpx2.AsyncClient, address: str, what: str) -> Document | None:
        """Return a JSON document, and note the attempt."""
        document: Any = None
        try:
            async with http.stream("GET", address, headers={"Accept": "application/json"}) as response:
                body = b""
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > _MOST_BYTES:
                        break
            status = str(response.status_code)
            if response.status_code == 200:
                document = msgspec.json.decode(body)
                status = "200" if isinstance(document, dict) else "200, no object"
        except (msgspec.DecodeError, UnicodeDecodeError):
            status = "200, no JSON"
        except (httpx2.HTTPError, httpx2.InvalidURL, AddressRefused, OSError, ValueError) as error:
            status = shorten(str(error) or type(error).__name__, 80)
        self.probed.append(Probed(url=strip_url(address), what=what, status=status))
        return document if isinstance(document, dict) else None

    # --- tokens ----------------------------------------------------------------------------------------------------------------

    async def _examine_tokens(self) -> None:
        if self._first.status != 401:
            checks = [check.id for check in self._v.profile.checks if check.id.startswith("auth-token-")]
            self._v.skip("the server demands no token", *checks)
            return
        now = int(time.time())
        claims = {"sub": "doctor", "aud": self._settings.url, "iat": now - 60, "exp": now + 600}
        foreign = {**claims, "aud": "https://elsewhere.example/mcp", "iss": "https://issuer.example"}
        tokens = {
            "auth-token-garbage": secrets.token_hex(20),
            "auth-token-empty": "",
            "auth-token-unsigned": make_token(claims, "none"),
            "auth-token-foreign": make_token(foreign, "HS256"),
            "auth-token-expired": make_token({**claims, "exp": now - 3600, "iat": now - 7200}, "HS256"),
        }
        for check, token in tokens.items():
            reply = await self._ask({"Authorization": f"Bearer {token}".strip()})
            allowed = (400, 401) if check == "auth-token-empty" else (401,)
            self._v.require(check, reply.status in allowed, f"expected 401, got {reply.status or reply.problem}", *self._show(reply))
        reply = await self._ask({}, f"?access_token={secrets.token_hex(20)}")
        self._anonymous.url = self._settings.url
        self._v.require("auth-token-query", reply.status in (400, 401), f"expected 401, got {reply.status}", *self._show(reply))

    async def _examine_grant(self, http: httpx2.AsyncClient) -> None:
        auth = self._settings.auth
        if not isinstance(auth, ClientCredentials):
            self._v.skip("no client credentials were given", "auth-grant")
            return
        form = {"grant_type": "client_credentials", "client_id": auth.client_id, "client_secret": auth.client_secret, **auth.token_params}
        form |= {name: value for name, value in (("scope", auth.scope), ("audience", auth.audience)) if value}
        try:
            response = await http.post(auth.token_url, data={**form, "resource": self._settings.url})
            answer: Any = msgspec.json.decode(response.content)
        except (httpx2.HTTPError, msgspec.DecodeError, UnicodeDecodeError, AddressRefused) as error:
            self._v.broken("auth-grant", f"{strip_url(auth.token_url)}: {type(error).__name__}")
            return
        fields: Document = answer if isinstance(answer, dict) else {}
        kind = str(fields.get("token_type"))
        good = response.status_code == 200 and bool(fields.get("access_token")) and kind.lower() == "bearer"
        described = f"status {response.status_code}, " + (f"`token_type` {kind!r}" if "access_token" in fields else "no `access_token`")
        self._v.require("auth-grant", good, f"{strip_url(auth.token_url)}: {described}")

    def judge_access(self, session: Session, *, connected: bool) -> None:
        """Note whether the given credentials work, after the session was used; `connected` is whether the server accepted it."""
        v, settings = self._v, self._settings
        has_credentials = settings.auth is not None or any(name.lower() == "authorization" for name in settings.headers)
        if not has_credentials and self._first.status == 401:
            v.skip("no credentials were given", "auth-accepted", "auth-no-challenge-on-success")
            return
        v.require("auth-accepted", connected, "the server refuses the credentials that were given")
        successes = [frame.http for frame in session.recording.list_received() if frame.http.startswith("HTTP 2")]
        challenged = any("www-authenticate" in http for http in successes)
        v.require("auth-no-challenge-on-success", not challenged, "a response with status 200 has `WWW-Authenticate`")


def make_token(claims: Mapping[str, Any], algorithm: str) -> str:
    """Return a JWT: unsigned, or signed with a random key."""
    parts = [_encode(msgspec.json.encode(each)) for each in ({"alg": algorithm, "typ": "JWT"}, claims)]
    body = ".".join(parts)
    if algorithm == "none":
        return f"{body}."
    return f"{body}.{_encode(hmac.new(secrets.token_bytes(32), body.encode(), hashlib.sha256).digest())}"


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _normalise(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return urlunsplit((parts.scheme.lower(), parts.netloc.lower(), parts.path.rstrip("/"), parts.query, ""))


def _is_safe(url: str) -> bool:
    return urlsplit(url).scheme == "https" or is_on_this_machine(url)
