"""The login of a user, as a client does it: registration, PKCE, a browser that comes back to a loopback address, and the token.

Only on request: it registers a client and opens a browser. The token is used for the rest of the examination and stored nowhere.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import webbrowser
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import msgspec

from proctor.doctor.authorization import AuthorizationProbe
from proctor.doctor.model import Verdicts
from proctor.errors import TargetError
from proctor.model.show import show
from proctor.network.addresses import AddressRefused
from proctor.targets.mcp.settings import Bearer, ClientCredentials, ServerSettings, strip_url

_MOST_REQUEST_BYTES: Final = 16_000
_PAGE: Final = b"<!doctype html><title>proctor</title><p>You are logged in. You can close this page."
LOGIN_CHECKS: Final = ("auth-register", "auth-redirect", "auth-code")


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """How to get a token."""

    client_id: str = ""
    """A client that is registered already; empty: one is registered."""
    client_secret: str = ""
    browser: bool = True
    """Log in a user in a browser; else the client gets a token for itself."""
    open_browser: Callable[[str], Any] = webbrowser.open
    wait_s: float = 180.0
    """Seconds for the user to log in."""


async def log_in(login: Login, settings: ServerSettings, probe: AuthorizationProbe, v: Verdicts) -> ServerSettings:
    """Return the settings with credentials; the verdicts say what was wrong. Raises `TargetError` if there is nothing to log in to."""
    await probe.is_demanded()
    async with await probe.open_client() as http:
        await probe.find_metadata(http)
        server = probe.server
        if server is None or not isinstance(server.get("token_endpoint"), str):
            raise TargetError(f"there is no login: no metadata of an authorization server was found for {strip_url(settings.url)}")
        if not login.browser:
            client = ClientCredentials(
                token_url=server["token_endpoint"],
                client_id=login.client_id,
                client_secret=login.client_secret,
                scope=probe.scope or None,
                token_params={"resource": settings.url},
            )
            v.skip("the client got a token for itself", *LOGIN_CHECKS)
            return msgspec.structs.replace(settings, auth=client)
        token = await _log_in_user(login, settings, probe, server, http, v)
    return msgspec.structs.replace(settings, auth=Bearer(token=token)) if token else settings


async def _log_in_user(
    login: Login, settings: ServerSettings, probe: AuthorizationProbe, server: Mapping[str, Any], http: httpx2.AsyncClient, v: Verdicts
) -> str:
    """Return a token, or "" after noting why there is none."""
    arrived: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline())[:_MOST_REQUEST_BYTES].decode("latin-1").split(" ")
        url = urlsplit(line[1] if len(line) > 1 else "")
        is_callback = url.path == "/callback"
        head = b"HTTP/1.1 200 OK" if is_callback else b"HTTP/1.1 404 Not Found"
        body = _PAGE if is_callback else b""
        writer.write(head + b"\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()
        if is_callback and not arrived.done():
            arrived.set_result(dict(parse_qsl(url.query)))

    listener = await asyncio.start_server(receive, "127.0.0.1", 0)
    try:
        redirect = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/callback"
        client = await _find_client(login, server, redirect, http, v)
        if not client:
            v.skip("there is no registered client", "auth-redirect", "auth-code")
            return ""
        state, verifier = secrets.token_urlsafe(24), secrets.token_urlsafe(48)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {"response_type": "code", "client_id": client["client_id"], "redirect_uri": redirect, "state": state}
        query |= {"code_challenge": challenge, "code_challenge_method": "S256", "resource": settings.url}
        query |= {"scope": probe.scope} if probe.scope else {}
        endpoint = str(server.get("authorization_endpoint"))
        await asyncio.to_thread(login.open_browser, f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}")
        try:
            answer = await asyncio.wait_for(arrived, login.wait_s)
        except TimeoutError:
            v.obstruct(f"no browser came back from {strip_url(endpoint)} within {login.wait_s:g} s", "auth-redirect", "auth-code")
            return ""
    finally:
        listener.close()
    fault = _explain_answer(answer, state, server)
    if not v.require("auth-redirect", not fault, fault) and "code" not in answer:
        v.skip("there is no code", "auth-code")
        return ""
    form = {"grant_type": "authorization_code", "code": answer.get("code", ""), "redirect_uri": redirect}
    form |= {"code_verifier": verifier, "client_id": client["client_id"], "resource": settings.url}
    form |= {"client_secret": client["client_secret"]} if client.get("client_secret") else {}
    status, fields = await _post(http, str(server["token_endpoint"]), data=form)
    token, kind = fields.get("access_token"), str(fields.get("token_type"))
    good = status == "200" and isinstance(token, str) and bool(token) and kind.lower() == "bearer"
    described = f"`token_type` {kind!r}" if token else f"no `access_token`{_quote_error(fields)}"
    v.require("auth-code", good, f"{strip_url(str(server['token_endpoint']))}: status {status}, {described}")
    return token if isinstance(token, str) else ""


async def _find_client(login: Login, server: Mapping[str, Any], redirect: str, http: httpx2.AsyncClient, v: Verdicts) -> dict[str, str]:
    """Return the given client, or register one."""
    if login.client_id:
        v.skip("a registered client was given", "auth-register")
        return {"client_id": login.client_id, "client_secret": login.client_secret}
    place = server.get("registration_endpoint")
    if not isinstance(place, str):
        v.obstruct("no registration endpoint is advertised; give --client-id", "auth-register")
        return {}
    registration = {"client_name": "proctor doctor", "redirect_uris": [redirect], "token_endpoint_auth_method": "none"}
    registration |= {"grant_types": ["authorization_code"], "response_types": ["code"], "application_type": "native"}
    status, fields = await _post(http, place, json=registration)
    client = fields.get("client_id")
    good = status in ("200", "201") and isinstance(client, str) and bool(client)
    v.require("auth-register", good, f"{strip_url(place)}: status {status}, `client_id` {show(client, 40)}{_quote_error(fields)}")
    return {"client_id": str(client), "client_secret": str(fields.get("client_secret") or "")} if good else {}


def _explain_answer(answer: Mapping[str, str], state: str, server: Mapping[str, Any]) -> str:
    """Return what is wrong with the parameters that came back; "" if nothing is."""
    if "code" not in answer:
        return f"it came back without `code`{_quote_error(answer)}"
    if answer.get("state") != state:
        return f"`state` came back as {show(answer.get('state'), 40)}"
    issuer = answer.get("iss")
    if server.get("authorization_response_iss_parameter_supported") is True and issuer is None:
        return "`iss` is advertised and missing"
    return f"`iss` is {show(issuer, 80)}, not the issuer" if issuer is not None and issuer != server.get("issuer") else ""


async def _post(http: httpx2.AsyncClient, url: str, **body: Any) -> tuple[str, Mapping[str, Any]]:
    """Return status and fields of a JSON answer."""
    try:
        response = await http.post(url, headers={"Accept": "application/json"}, **body)
        answer: Any = msgspec.json.decode(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "without JSON", {}
    except (httpx2.HTTPError, AddressRefused, OSError, ValueError) as error:
        return type(error).__name__, {}
    return str(response.status_code), answer if isinstance(answer, dict) else {}


def _quote_error(fields: Mapping[str, Any]) -> str:
    return f", error {show(fields['error'], 60)}" if "error" in fields else ""
