"""Settings of MCP servers: plain values, already resolved, that show no secret.

`${NAME}` is resolved before these values are made; nothing here reads the environment. Whatever a server returns (its results, its
standard error) is scrubbed of the secrets it was given before it reaches a message, evidence or a recording.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

import msgspec

from proctor.errors import SpecError, TargetError
from proctor.model.evidence import Json
from proctor.model.json_values import is_finite
from proctor.model.show import kind_of
from proctor.model.typed import convert_to
from proctor.targets.shared.masking import rewrite_texts, sort_secrets

Transport = Literal["stdio", "http", "sse", "in_process"]
Era = Literal["auto", "handshake", "stateless"]
FaultCode = Literal[
    "bad_settings",
    "command_not_found",
    "server_exited",
    "server_gone",
    "timeout",
    "unreachable",
    "unauthorized",
    "refused",
    "protocol",
    "address_refused",
]

HIDDEN = "***"
_SECRET_WORDS = ("token", "key", "secret", "password", "passwd", "auth", "cookie", "credential")


class ServerFault(TargetError):
    """An MCP server could not be reached, refused a request, or ended; `permanent` means that a retry cannot help."""

    def __init__(self, code: FaultCode, server: str, message: str, *, permanent: bool = False, error_code: int | None = None) -> None:
        super().__init__(f"MCP server {server!r} {message}", code=code)
        self.server = server
        self.permanent = permanent
        self.error_code = error_code
        """The JSON-RPC code of a refused request."""


class ClientHooks(msgspec.Struct, frozen=True, kw_only=True):
    """How a client presents itself to a server, and who hears what the server sends unrequested."""

    client_info: dict[str, Json] = {}
    """Fields of the client's `clientInfo`, instead of ours."""
    on_notification: Callable[[str, dict[str, Json]], Any] | None = None
    """Called with method and parameters of every notification."""
    on_elicitation: Callable[[dict[str, Json]], Awaitable[dict[str, Json]]] | None = None
    """Answers requests for input of the user. Without it, the capability is not declared."""
    on_message: Callable[[str, dict[str, Json]], None] | None = None
    """Called with `send` or `receive` and every JSON-RPC message. A server in this process exchanges none."""


class Bearer(msgspec.Struct, frozen=True, kw_only=True, tag="bearer", forbid_unknown_fields=True):
    """A token sent as `Authorization: Bearer`, from the settings or the command line."""

    token: str

    def __repr__(self) -> str:
        return "Bearer(token=***)"


class ApiKey(msgspec.Struct, frozen=True, kw_only=True, tag="api_key", forbid_unknown_fields=True):
    """A key sent in its own header."""

    value: str
    header_name: str = "X-API-Key"

    def __repr__(self) -> str:
        return f"ApiKey(header_name={self.header_name!r}, value=***)"


class ClientCredentials(msgspec.Struct, frozen=True, kw_only=True, tag="oauth_client_credentials", forbid_unknown_fields=True):
    """A token fetched from `token_url` by the OAuth client credentials grant."""

    token_url: str
    client_id: str
    client_secret: str
    scope: str | None = None
    audience: str | None = None
    token_params: dict[str, str] = {}
    """Additional form fields of the token request."""

    def __repr__(self) -> str:
        return f"ClientCredentials(token_url={strip_url(self.token_url)!r}, client_id={self.client_id!r}, client_secret=***)"


Auth = Bearer | ApiKey | ClientCredentials


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One MCP server."""

    id: str
    transport: Transport = "stdio"
    command: str = ""
    """Over stdio: the program to start."""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """Added to the few harmless variables of a child process (PATH, HOME, USER, ...)."""
    cwd: str | None = None
    url: str = ""
    """Over HTTP, streamable or by server-sent events alone (`sse`, servers before 2025-03-26): the endpoint."""
    sse_fallback: bool = False
    """Try `sse` if a server does not support streamable HTTP."""
    headers: dict[str, str] = {}
    """Sent with every request; they override those of `auth`."""
    auth: Auth | None = None
    server: Json = None
    """In process: the server object of the `mcp` package."""
    era: Era = "auto"
    """`handshake` supports protocol versions up to 2025-11-25, `stateless` 2026-07-28; `auto` detects the version."""
    timeout_s: float = 30.0
    """Maximum seconds for one attempt to connect and list the tools, and for one tool call."""
    session: Literal["attempt", "shared"] = "attempt"
    """`attempt`: every attempt at a case has its own session (over stdio: its own process), made for its first tool call;
    `shared`: all attempts have one together, for servers that are expensive to start and keep nothing between calls."""

    def __repr__(self) -> str:
        return f"ServerSettings(id={self.id!r}, transport={self.transport!r}, at={self.describe_place()!r})"

    @property
    def is_remote(self) -> bool:
        """Whether it has an address."""
        return self.transport in ("http", "sse")

    def describe_place(self) -> str:
        """Return the command or the address of the server for messages, without secrets."""
        if self.is_remote:
            return strip_url(self.url)
        if self.transport == "in_process":
            return "in this process"
        return hide_secrets(" ".join((self.command, *self.args)), self.list_secrets())

    def list_secrets(self) -> tuple[str, ...]:
        """Return all values that must never be shown, longest first."""
        found: list[str] = []
        match self.auth:
            case Bearer(token=token):
                found.append(token)
            case ApiKey(value=value):
                found.append(value)
            case ClientCredentials(client_secret=secret, token_params=more):
                found += [secret, *_secret_values(more)]
            case None:
                pass
        return sort_secrets((*found, *_secret_values(self.headers), *_secret_values(self.env)))

    def check(self) -> None:
        """Raise `ServerFault` for unusable settings."""
        wrong = None
        if not (is_finite(self.timeout_s) and self.timeout_s > 0):
            wrong = f"needs a number of seconds above 0 as 'timeout_s', found {self.timeout_s}"
        elif self.transport == "stdio" and not self.command:
            wrong = "over stdio needs 'command'"
        elif self.is_remote and urlsplit(self.url).scheme not in ("http", "https"):
            wrong = f"needs an http:// or https:// 'url', found {self.describe_place()!r}"
        elif self.transport == "in_process" and self.server is None:
            wrong = "in process needs the server object"
        if wrong is not None:
            raise ServerFault("bad_settings", self.id, wrong, permanent=True)


def read_servers(value: Json) -> tuple[ServerSettings, ...]:
    """Read servers from a file: a list of entries with `id`, or a map of them. Raises `SpecError`.

    With a `url` it speaks HTTP (with a path ending in `/sse`, the older transport), with a `command` it is run, unless `transport` is set.
    """
    if isinstance(value, dict):
        entries = [{"id": key, **each} if isinstance(each, dict) else each for key, each in value.items()]
        places = [f"servers.{key}" for key in value]
    elif isinstance(value, list):
        entries, places = value, [f"servers.{index}" for index in range(len(value))]
    else:
        raise SpecError(f"expected a list of MCP servers, found {kind_of(value)}", field="servers")
    found: list[ServerSettings] = []
    for entry, place in zip(entries, places, strict=True):
        if not isinstance(entry, dict):
            raise SpecError(f"expected the settings of an MCP server, found {kind_of(entry)}", field=place)
        guess = {} if "transport" in entry or not entry.get("url") else {"transport": guess_transport(entry["url"])}
        try:
            server = convert_to({**guess, **entry}, ServerSettings)
            server.check()
        except msgspec.ValidationError as error:
            # `Expected `str`, got `int` - at `$.auth.token``
            problem, _, at = str(error).partition(" - at `$")
            raise SpecError(f"an MCP server: {problem}", field=place + at.rstrip("`")) from None
        except ServerFault as fault:
            raise SpecError(fault.message, field=place) from None
        found.append(server)
    return tuple(found)


def guess_transport(url: Json) -> Transport:
    """Return the transport for an address if the settings name none."""
    try:
        path = urlsplit(url).path if isinstance(url, str) else ""
    except ValueError:
        path = ""
    return "sse" if path.rstrip("/").endswith("/sse") else "http"


def _secret_values(named: Mapping[str, str]) -> list[str]:
    values = [value for name, value in named.items() if any(word in name.lower() for word in _SECRET_WORDS)]
    # `Bearer abc`: the token alone is also secret.
    return [*values, *(value.partition(" ")[2] for value in values if " " in value)]


def hide_secrets(text: str, secrets: tuple[str, ...]) -> str:
    """Return the text with every secret replaced."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def hide_secrets_in(value: Json, secrets: tuple[str, ...]) -> Json:
    """Return a JSON value with every secret replaced, keys included."""
    return rewrite_texts(value, lambda text: hide_secrets(text, secrets)) if secrets else value


def strip_url(url: str) -> str:
    """Return an address without user, password, query and fragment, which may carry secrets."""
    try:
        parts = urlsplit(url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:
        return "an address that cannot be read"
