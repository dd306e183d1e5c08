"""Authenticates requests to an MCP server over HTTP: adds the credentials to each request as it is sent.

* A header in the settings overrides the same header of the authentication, as in MCPLab.
* A token of the client credentials grant is fetched by a form POST, cached until 30 seconds before it expires, and fetched again
  when the server rejects it. Redirects of the token endpoint are not followed.
* Tokens are never logged or shown. `list_secrets()` returns the fetched ones, so that they can be removed from texts of the server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from contextvars import ContextVar
from urllib.parse import urlencode

import httpx2
import msgspec

from proctor.model.evidence import Json
from proctor.targets.mcp.settings import ApiKey, Bearer, ClientCredentials, ServerFault, ServerSettings, strip_url
from proctor.targets.shared.masking import sort_secrets

REQUEST_ID: ContextVar[str | None] = ContextVar("proctor_mcp_request_id", default=None)
"""The attempt of a tool call; sent as `x-request-id`."""

LIFE_LEFT_S = 30.0
"""Minimum remaining lifetime, in seconds, of a token that is still used."""
_TOKEN_ERRORS = ("invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope")
_DEFAULT_LIFE_S = 3600.0


class FetchedToken:
    """The token of one server, shared by all its sessions."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.token: str | None = None
        self.stale_at = 0.0
        self.fetched: list[str] = []
        """The latest tokens, which must never be shown."""


class ServerAuth(httpx2.Auth):
    """Adds the headers of one server's auth, and remembers the last refusal for messages."""

    def __init__(
        self, settings: ServerSettings, *, clock: Callable[[], float] = time.monotonic, fetched: FetchedToken | None = None
    ) -> None:
        self._settings = settings
        self._auth = settings.auth
        self._own_headers = {name.lower() for name in settings.headers}
        self._clock = clock
        self._fetched = fetched or FetchedToken()
        self.refusal: tuple[int, str] | None = None
        """Status and reason of the last error or redirect."""

    def list_secrets(self) -> tuple[str, ...]:
        """Return the tokens fetched so far."""
        return sort_secrets(self._fetched.fetched)

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Add the required credentials, and fetch a token first if needed."""
        request_id = REQUEST_ID.get()
        if request_id is not None and "x-request-id" not in self._own_headers:
            request.headers["x-request-id"] = request_id
        match self._auth:
            case Bearer(token=token):
                self._add_header(request, "Authorization", f"Bearer {token}")
            case ApiKey(value=value, header_name=name):
                self._add_header(request, name, value)
            case ClientCredentials() as credentials:
                cache = self._fetched
                # Twice at most: a token may be revoked early, but a new token that is rejected stays rejected.
                for last in (False, True):
                    # One request fetches for all: concurrent sessions would otherwise each fetch a token.
                    async with cache.lock:
                        if cache.token is None or self._clock() >= cache.stale_at:
                            answer = yield self._make_token_request(credentials)
                            await answer.aread()
                            self._read_token(answer, credentials)
                        used = cache.token
                    self._add_header(request, "Authorization", f"Bearer {used}")
                    response = yield request
                    self._note_refusal(response)
                    if response.status_code != 401 or last:
                        return
                    await response.aread()
                    # Another session may have fetched a new one in the meantime, which must not be discarded.
                    if cache.token == used:
                        cache.token = None
                return
            case None:
                pass
        response = yield request
        self._note_refusal(response)

    def _add_header(self, request: httpx2.Request, name: str, value: str) -> None:
        if name.lower() not in self._own_headers:
            request.headers[name] = value

    def _note_refusal(self, response: httpx2.Response) -> None:
        if response.status_code >= 300:
            self.refusal = (response.status_code, response.reason_phrase)

    def _make_token_request(self, auth: ClientCredentials) -> httpx2.Request:
        form = {"grant_type": "client_credentials", "client_id": auth.client_id, "client_secret": auth.client_secret}
        if auth.scope:
            form["scope"] = auth.scope
        if auth.audience:
            form["audience"] = auth.audience
        return httpx2.Request(
            "POST",
            auth.token_url,
            content=urlencode({**form, **auth.token_params}).encode(),
            headers={"content-type": "application/x-www-form-urlencoded", "accept": "application/json"},
            # A manually built request has no timeouts.
            extensions={"timeout": httpx2.Timeout(self._settings.timeout_s).as_dict()},
        )

    def _read_token(self, response: httpx2.Response, auth: ClientCredentials) -> None:
        where = strip_url(auth.token_url)
        answer: Json = None
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            answer = msgspec.json.decode(response.content)
        if response.status_code >= 300:
            # Only the `error` code of RFC 6749, because the rest of the answer may echo the secret.
            word = answer.get("error") if isinstance(answer, dict) else None
            code = f" ({word})" if word in _TOKEN_ERRORS else ""
            raise self._make_fault(f"got no token: {where} answered {response.status_code} {response.reason_phrase}{code}")
        if answer is None:
            raise self._make_fault(f"got no token: {where} did not answer with JSON")
        token = answer.get("access_token") if isinstance(answer, dict) else None
        if not isinstance(token, str) or not token:
            raise self._make_fault(f"got no token: the answer of {where} has no 'access_token'")
        life = answer.get("expires_in", _DEFAULT_LIFE_S)
        try:
            life_s = float(life)
        except (TypeError, ValueError):
            life_s = _DEFAULT_LIFE_S
        cache = self._fetched
        cache.token = token
        # A long run fetches many; the last ten are enough to remove echoed tokens.
        cache.fetched = [*cache.fetched[-9:], token]
        cache.stale_at = self._clock() + life_s - LIFE_LEFT_S

    def _make_fault(self, message: str) -> ServerFault:
        return ServerFault("unauthorized", self._settings.id, message, permanent=True)
