"""What sent suites may connect to and start.

A sender is not the administrator. Connections of a suite, or of the settings of its project, use a guarded transport (`network/guard.py`):
the public internet, and addresses in `allowed_addresses`. Local commands, functions and files must be in `allowed_commands`:

    COMMAND ARG ...           an MCP server over stdio, or a program as the target; a final `*` allows further arguments
    callable MODULE:FUNCTION  a Python function as the target
    recorded FILE             recorded evidence as the target

A started program gets no working folder from a suite, and only credentials as variables, by the ending of their name: others can make any
program run anything (`PATH`, `LD_PRELOAD`, `NODE_OPTIONS`). `${NAME}` is always a secret of the project.
"""

from __future__ import annotations

import shlex
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING

from proctor.errors import InputError, SpecError
from proctor.formats.text.references import References
from proctor.formats.workspace_file import Section
from proctor.model.evidence import Json
from proctor.model.show import show
from proctor.network.addresses import AddressRefused
from proctor.service.refusals import Refusal
from proctor.service.settings import ServiceSettings

if TYPE_CHECKING:
    import httpx2

    from proctor.network.guard import Guard

LONGEST_ATTEMPT_S = 3_600.0
"""Seconds of one attempt, and of each wait in it: a model, a judge, an MCP server."""
MOST_SERVERS = 50
"""MCP servers of one target, which are connected at once."""
_CREDENTIALS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "USER", "USERNAME")
_ADDRESSES = {"http": ("url",), "flowise": ("url",), "n8n": ("webhook", "api")}


class ProjectSecrets(References):
    """The secrets of a project, for `${NAME}` on the service."""

    missing = "the project has no secret {name}"
    remedy = "add it as a secret of the project"


class Outbound:
    """The rules of one service."""

    def __init__(self, settings: ServiceSettings, *, guard: Guard | None = None) -> None:
        from proctor.network.guard import Guard  # loads an HTTP client

        self._guard = guard or Guard(settings.allowed_addresses)
        self._commands = [_split_words(entry) for entry in settings.allowed_commands]
        self._certificates: ssl.SSLContext | None = None

    def transport(self, certificates: bool) -> httpx2.AsyncBaseTransport:
        """Return the transport of targets."""
        import httpx2  # loaded only when needed

        from proctor.network.guard import GuardedTransport

        if certificates and self._certificates is None:
            # Loaded once: it takes 80 ms, and a model has a transport per connection.
            self._certificates = httpx2.create_ssl_context(trust_env=False)
        verify = self._certificates if certificates and self._certificates else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return GuardedTransport(self._guard, verify=verify, limits=httpx2.Limits(max_connections=200, max_keepalive_connections=100))

    def model_transport(self, certificates: bool) -> httpx2.AsyncBaseTransport:
        """Return the transport of models: a forbidden address is a connection error."""
        import httpx2  # as above

        inner = self.transport(certificates)

        class Translated(httpx2.AsyncBaseTransport):
            async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
                try:
                    return await inner.handle_async_request(request)
                except AddressRefused as error:
                    raise httpx2.ConnectError(str(error), request=request) from error

            async def aclose(self) -> None:
                await inner.aclose()

        return Translated()

    def check_target(self, name: str, section: Section) -> Section:
        """Return the settings of a permitted target. Raises `Refusal` for others."""
        settings: Json = section.node.plain()
        kind = settings.get("type") if isinstance(settings, dict) else None
        if kind in ("callable", "recorded"):
            values: Json = settings.get("function" if kind == "callable" else "evidence")
            for value in values if isinstance(values, list) and values else [values]:
                self._check_command([kind, str(value)], f"target {name!r}")
            # Allowed by an administrator, so that it is trusted and may name files and functions.
            return Section.of(settings, path=section.node.path)
        if kind == "command":
            self._check_program(f"target {name!r}", settings)
            # Not trusted: it gets nothing of the service's environment.
            return Section.of(settings, path=section.node.path, trusted=False)
        if kind == "mcp_server" and isinstance(server := settings.get("server"), dict):
            self.check_server("the server", server)
        for field in _ADDRESSES.get(str(kind), ()):
            self.check_address(settings.get(field), f"target {name!r}, {field}")
        if kind == "mcp_agent":
            value = settings.get("servers")
            entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
            servers = [(str(place), entry) for place, entry in entries if isinstance(entry, dict)]
            if len(servers) > MOST_SERVERS:
                raise _make_refusal(f"target {name!r}", f"{len(servers)} MCP servers; expected at most {MOST_SERVERS}")
            for place, server in servers:
                self.check_server(f"target {name!r}, server {place}", server)
        return section

    def check_model(self, name: str, section: Section) -> None:
        """Reject a model at a forbidden address."""
        settings: Json = section.node.plain()
        self.check_address(settings.get("base_url") if isinstance(settings, dict) else None, f"model {name!r}, base_url")

    def check_server(self, what: str, server: Mapping[str, Json], *, field: str = "target") -> None:
        """Reject an MCP server at a forbidden address or with a forbidden command; `field` is that of the request."""
        check_wait(server.get("timeout_s"), what, field=field)
        transport = server.get("transport") or ("http" if server.get("url") else "stdio")
        if transport in ("http", "sse"):
            self.check_address(server.get("url"), what, field=field)
            auth = server.get("auth")
            self.check_address(auth.get("token_url") if isinstance(auth, dict) else None, f"{what}, token_url", field=field)
            return
        if transport != "stdio":
            raise _make_refusal(what, f"the transport {transport!r} is not supported; expected http, sse or stdio", field)
        args: Json = server.get("args") or []
        if not isinstance(server.get("command"), str) or not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
            raise _make_refusal(what, "expected `command`, a text, and `args`, a list of texts", field)
        self._check_command([server["command"], *args], what, field)
        _check_child_settings(what, server, field)

    def _check_program(self, what: str, settings: Mapping[str, Json]) -> None:
        """Reject a forbidden program; its input is not part of the check."""
        from proctor.targets.local.command import split_command  # few suites name a program

        command: Json = settings.get("command")
        words = command if isinstance(command, list) else [command]
        if not words or not all(isinstance(word, str) for word in words):
            raise _make_refusal(what, "expected `command`, a text or a list of texts")
        try:
            line = list(split_command(words))
        except SpecError as error:
            raise _make_refusal(what, error.message) from None
        check_wait(settings.get("timeout_s"), what)
        self._check_command(line, what)
        _check_child_settings(what, settings, "target")

    def _check_command(self, line: list[str], what: str, field: str = "target") -> None:
        for allowed in self._commands:
            # A `*` needs a word before it, or it would allow every program.
            if line == allowed or (len(allowed) > 1 and allowed[-1] == "*" and line[: len(allowed) - 1] == allowed[:-1]):
                return
        raise Refusal(
            "FORBIDDEN",
            f"{what} is not allowed on the server: {shlex.join(line)}",
            fields={field: ["not among the allowed commands"]},
            hint=f"an administrator allows it with --allowed-command {shlex.quote(shlex.join(line))}",
        )

    def check_address(self, address: Json, what: str, *, field: str = "target") -> None:
        """Reject a forbidden address, as far as the text shows; `field` is that of the request."""
        # References and placeholders are checked when the connection is made, like every address.
        if not isinstance(address, str) or "${" in address or "{" in address.partition("//")[2].partition("/")[0]:
            return
        try:
            self._guard.check_url(address)
        except AddressRefused as error:
            raise _make_refusal(what, str(error), field) from None


def _check_child_settings(what: str, settings: Mapping[str, Json], field: str) -> None:
    """Reject a working folder, and variables that are not credentials."""
    if settings.get("cwd") is not None:
        raise _make_refusal(what, "`cwd` cannot be set here", field)
    variables: Json = settings.get("env") or {}
    if not isinstance(variables, dict):
        raise _make_refusal(what, "expected `env`, an object of texts", field)
    for variable in variables:
        # An allow list, since a list of dangerous variables is never complete.
        if not str(variable).upper().endswith(_CREDENTIALS):
            reason = f"the variable {variable!r} cannot be set here; only credentials can: {', '.join(_CREDENTIALS)}"
            raise _make_refusal(what, reason, field)


def check_wait(seconds: Json, what: str, *, field: str = "target") -> None:
    """Reject a wait longer than an attempt; anything but a number is rejected when it is read."""
    if isinstance(seconds, (int, float)) and seconds > LONGEST_ATTEMPT_S:
        raise _make_refusal(what, f"timeout_s: expected at most {LONGEST_ATTEMPT_S:g} seconds, found {show(seconds, 40)}", field)


def _split_words(entry: str) -> list[str]:
    try:
        return shlex.split(entry)
    except ValueError as error:
        raise InputError(f"the allowed command {entry!r} cannot be read: {error}") from None


def _make_refusal(what: str, why: str, field: str = "target") -> Refusal:
    return Refusal("VALIDATION_ERROR", f"{what}: {why}", fields={field: [why]})
