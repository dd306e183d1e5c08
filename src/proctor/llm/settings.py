"""Settings of one model.

Settings are read once where the environment may be read, and passed down. They hold a secret, so they never show themselves in
full: `repr` and `show_settings` leave out the key and the values of headers.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

from proctor.errors import SpecError
from proctor.llm.ports import ChatRequest
from proctor.model.evidence import Json
from proctor.model.json_values import is_finite
from proctor.model.show import show

REQUEST_SETTINGS: Final = ("temperature", "max_tokens", "seed")
"""Settings that a request may override."""
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_LOOPBACK = re.compile(r"localhost|.+\.localhost|127(?:\.\d{1,3}){3}|::1")


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model, as a workspace names it."""

    provider: str
    model: str = ""
    base_url: str | None = None
    """The base address of the provider's API (`https://api.openai.com/v1`); by default the provider's own."""
    api_key: str | None = None
    temperature: float | None = None
    """The default for requests."""
    max_tokens: int | None = None
    """The default for requests."""
    seed: int | None = None
    """The default for requests."""
    deployment: str | None = None
    """Azure: the deployment to use; by default the model's name."""
    api_version: str | None = None
    """Azure: the version of its API. Anthropic: the `anthropic-version` header."""
    timeout_s: float = 120.0
    """Maximum seconds for one request, from connecting to the last byte."""
    headers: dict[str, str] = {}
    """Sent with every request; they override those of the provider."""
    proxy: str | None = None
    """The address of an HTTP proxy; the environment is not searched for one."""
    input_price: float | None = None
    """The price of a million input tokens, in any currency; costs are reported if both prices are known."""
    output_price: float | None = None
    """The price of a million output tokens."""
    replies: tuple[Json, ...] = ()
    """For a `scripted` model: its answers, turn by turn."""

    def __repr__(self) -> str:
        """Return the settings without secrets."""
        return f"ModelSettings({', '.join(f'{key}={value!r}' for key, value in show_settings(self).items())})"

    def fill_defaults(self, request: ChatRequest) -> ChatRequest:
        """Return a request with unset fields filled in from these settings."""
        missing = {key: getattr(self, key) for key in REQUEST_SETTINGS if getattr(request, key) is None}
        filled = {key: value for key, value in missing.items() if value is not None}
        return msgspec.structs.replace(request, **filled) if filled else request

    def list_secrets(self) -> tuple[str, ...]:
        """Return the values that must never be exposed."""
        secrets = [self.api_key or "", *self.headers.values()]
        # `Bearer KEY`: the key alone is also secret.
        secrets.extend(value.partition(" ")[2] for value in self.headers.values())
        for address in (self.base_url, self.proxy):
            with suppress(ValueError):
                secrets.append(urlsplit(address or "").password or "")
        return tuple(value for value in secrets if value)

    def hide_secrets(self, text: str) -> str:
        """Return a text without the secrets of these settings."""
        # Longest first: a secret may be part of another. Replacing a text of three characters or fewer would damage ordinary words.
        for secret in sorted((secret for secret in self.list_secrets() if len(secret) >= 4), key=len, reverse=True):
            text = text.replace(secret, "[redacted]")
        return text


def show_settings(settings: ModelSettings) -> dict[str, Json]:
    """Return the settings without secrets."""
    visible: dict[str, Json] = msgspec.to_builtins(settings)
    visible.pop("api_key", None)
    visible.pop("replies", None)
    if settings.headers:
        visible["headers"] = sorted(settings.headers)
    for key in ("base_url", "proxy"):
        if visible.get(key):
            visible[key] = strip_url(visible[key])
    return visible


def check_settings(settings: ModelSettings) -> None:
    """Raise `SpecError` for settings that cannot be sent, without showing the secret."""
    _check_address(settings.base_url, "base_url")
    _check_address(settings.proxy, "proxy")
    if not (is_finite(settings.timeout_s) and settings.timeout_s > 0):
        raise SpecError(f"expected a number of seconds above 0, found {settings.timeout_s}", field="timeout_s")
    if settings.max_tokens is not None and settings.max_tokens < 1:
        raise SpecError(f"expected at least 1, found {settings.max_tokens}", field="max_tokens")
    if settings.api_key is not None:
        _check_header_value(settings.api_key, "api_key", "the API key")
    for name, value in settings.headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise SpecError(f"{show(name)} cannot be the name of a header", field=f"headers.{name}")
        _check_header_value(value, f"headers.{name}", f"the header {name}")


def is_loopback(address: str) -> bool:
    """Return whether an address is on this machine."""
    return bool(_LOOPBACK.fullmatch(urlsplit(address).hostname or ""))


def strip_url(address: str) -> str:
    """Return an address without user, password, query and fragment, safe to display."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "(an address that cannot be read)"
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}{parts.path}"


def join_url(base: str, path: str) -> str:
    """Return an address below another; a query of the base stays at the end."""
    head, mark, query = base.partition("?")
    return f"{head.rstrip('/')}/{path}{mark}{query}"


def quote_path_part(name: str) -> str:
    """Return a name as one path segment."""
    return quote(name, safe="")


def _check_address(address: str | None, field: str) -> None:
    if address is None:
        return
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or not address.isprintable() or " " in address:
        raise SpecError(f"expected an address such as https://host/v1, found {show(strip_url(address))}", field=field)


def _check_header_value(value: str, field: str, what: str) -> None:
    if not value.isascii() or not value.isprintable() or value != value.strip():
        raise SpecError(f"{what} holds a space at an end, a line break or a character that no header can carry", field=field)
