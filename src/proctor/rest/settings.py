"""The settings of the service: one table of flags, environment variables and defaults, and the source of the reference page.

A flag wins over a variable, a variable over the default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from proctor.errors import InputError
from proctor.network.addresses import AddressRefused
from proctor.service.settings import MAIL_ADDRESS, ServiceSettings

HOST, PORT = "127.0.0.1", 8700
DATABASE_FILE = "proctor.db"
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Address, database, secrets, and the settings of the service itself."""

    service: ServiceSettings
    host: str = HOST
    port: int = PORT
    database: str | None = None
    """None: a SQLite file in the workspace."""
    allowed_hosts: tuple[str, ...] = ()
    secret_key: str | None = None

    @property
    def database_url(self) -> str:
        """The address of the database."""
        return self.database or str(self.service.home / DATABASE_FILE)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting. `name` is a field of `ServeSettings` or `ServiceSettings`; the flag is the name with dashes."""

    name: str
    variable: str
    read: Callable[[str], Any]
    metavar: str
    text: str
    default: str | None = None
    """The displayed default, if the field does not have it."""
    flag: str | None = ""
    """None: there is no flag. Empty: made from the name."""
    many: bool = False
    """May be repeated as a flag, and separated by commas in the variable."""

    @property
    def option(self) -> str | None:
        """The flag, with its dashes."""
        return None if self.flag is None else f"--{(self.flag or self.name).replace('_', '-')}"


def _whole(least: int, most: int = 2**53) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise ValueError
        return value

    read.__doc__ = f"Expected a whole number from {least}" + (f" to {most}." if most < 2**53 else " on.")
    return read


def _seconds(text: str) -> float:
    """Expected a number of 0 or more."""
    value = float(text)
    # `float` also reads `nan` and `inf`.
    if not 0 <= value < float("inf"):
        raise ValueError
    return value


def _text(text: str) -> str:
    """Expected some text."""
    if not text.strip():
        raise ValueError
    return text.strip()


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        return words[words.index(text.strip().lower())]

    read.__doc__ = f"Expected {', '.join(words[:-1])} or {words[-1]}."
    return read


def _endpoint(text: str) -> str:
    """Expected an address that begins with https:// or http://, without a user name, a password, or anything after ? or #."""
    address = _public_url(text)
    return address if address.endswith("/v1/logs") else f"{address}/v1/logs"


def _public_url(text: str) -> str:
    """Expected an address that begins with https:// or http://, without anything after ? or #."""
    parts = urlsplit(text.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None or parts.query or parts.fragment:
        raise ValueError
    return parts.geturl().rstrip("/")


def _mail_address(text: str) -> str:
    """Expected an e-mail address without a name."""
    if not MAIL_ADDRESS.fullmatch(text.strip()):
        raise ValueError
    return text.strip()


def _headers(text: str) -> tuple[tuple[str, str], ...]:
    """Expected NAME=VALUE, several of them separated by commas."""
    headers: list[tuple[str, str]] = []
    for pair in text.split(","):
        name, equals, value = (part.strip() for part in pair.partition("="))
        value = unquote(value)
        # A decoded value may contain a line break, which would start another header.
        if not equals or not _HEADER.fullmatch(name) or not value.isascii() or not value.isprintable():
            raise ValueError
        headers.append((name.lower(), value))
    return tuple(headers)


def _s(name: str, metavar: str, read: Callable[[str], Any], text: str, **more: Any) -> Setting:
    return Setting(name=name, variable=more.pop("variable", f"PROCTOR_{name.upper()}"), read=read, metavar=metavar, text=text, **more)


SETTINGS = (
    _s("host", "ADDRESS", _text, "the address to listen on; any other than loopback needs an organization key to exist"),
    _s("port", "PORT", _whole(0, 65535), "the port; 0 takes a free one"),
    _s("database", "URL", _text, "`sqlite:///FILE` or `postgresql://USER@HOST/NAME`", variable="PROCTOR_DATABASE_URL",
       default=f"`{DATABASE_FILE}` in the workspace"),
    _s("home", "DIR", _text, "the workspace: the database file, the key file for secrets, the judge's memory",
       default="`.proctor` next to the nearest `proctor.yaml`"),
    _s("allowed_hosts", "NAME", _text, "a host name or address of the service, for the `Host` header; `*` accepts any",
       flag="allowed-host", many=True),
    _s("secret_key", "KEY", _text, "what secrets at rest are encrypted with",
       default="a key file of mode 0600 in the workspace", flag=None),
    _s("quiet_period_s", "S", _seconds, "seconds after the last span until an OTLP trace with an ended root is complete"),
    _s("largest_body", "BYTES", _whole(1_000), "maximum bytes of a request, before and after decompression"),
    _s("deepest_body", "N", _whole(10, 1_000), "maximum nesting depth of the JSON of a request"),
    _s("waiting_bytes", "BYTES", _whole(1_000_000), "maximum bytes of all request bodies in memory; more are answered 503"),
    _s("header_timeout_s", "S", _seconds, "seconds for the head of a request to arrive"),
    _s("body_timeout_s", "S", _seconds, "seconds for the body of a request to arrive"),
    _s("body_stall_s", "S", _seconds, "seconds without any byte of a body"),
    _s("body_pieces", "N", _whole(1), "number of pieces from which those of a body must have 64 bytes on average"),
    _s("write_stall_s", "S", _seconds, "seconds without a read after which the connection is closed"),
    _s("unsent_bytes", "BYTES", _whole(1_000_000), "maximum bytes of unread responses; the slowest readers of the address with the"
       " most are disconnected"),
    _s("connections", "N", _whole(1), "maximum open connections; more are answered 503, unless an idle one can be closed"),
    _s("connections_per_address", "N", _whole(0), "maximum open connections of one address; 0: no limit, for a proxy"),
    _s("streams_per_key", "N", _whole(1), "maximum open event streams of one key; more are answered 429"),
    _s("gzip_members", "N", _whole(1), "maximum gzip members in one body"),
    _s("compression_ratio", "N", _whole(1), "maximum compression ratio of a body, checked from 1 MB on"),
    _s("json_objects", "N", _whole(100), "maximum lists and objects in JSON with traces, a state or a dataset; other requests: a tenth"),
    _s("json_values", "N", _whole(100), "the same for values: list elements and object members"),
    _s("protobuf_messages", "N", _whole(100), "maximum messages in a protobuf request, including spans and attributes"),
    _s("protobuf_fields", "N", _whole(100), "maximum fields in a protobuf request"),
    _s("requests_per_minute", "N", _whole(0), "requests per key; 0: no limit"),
    _s("sandboxes", "N", _whole(1), "maximum active sandboxes of one organization"),
    _s("sandbox_rows", "N", _whole(100), "maximum rows of one sandbox"),
    _s("sandbox_bytes", "BYTES", _whole(100_000), "maximum bytes of one sandbox: initial data, events and changes"),
    _s("sandbox_hours", "HOURS", _seconds, "hours until an unused sandbox is deleted"),
    _s("sandbox_requests_per_minute", "N", _whole(0), "requests to the sandboxes of one organization; 0: no limit"),
    _s("queue_size", "N", _whole(1), "maximum requests with traces in the write queue; more are answered 503"),
    _s("evaluators", "N", _whole(0, 64), "traces judged concurrently; 0: other processes evaluate traces"),
    _s("workers", "N", _whole(0, 64), "runs executed concurrently; 0: other processes execute runs"),
    _s("lease_s", "S", _seconds, "seconds without a heartbeat until another worker takes over"),
    _s("allowed_addresses", "ADDRESS", _text, "a private host, address or network that suites and webhooks may use",
       flag="allowed-address", many=True),
    _s("allowed_commands", "COMMAND", _text, "a command that uploaded suites may start (stdio servers)", flag="allowed-command", many=True),
    _s("export_otlp_endpoint", "URL", _endpoint, "an OTLP/HTTP receiver that gets every verdict as a `gen_ai.evaluation.result` event;"
       " `/v1/logs` is appended if missing", default="nothing is exported"),
    _s("export_otlp_headers", "NAME=VALUE,...", _headers, "headers for that receiver, such as a key; values may be percent-encoded",
       flag=None),
    _s("retention_days", "DAYS", _seconds, "traces, runs and benchmark runs older than this are deleted",
       default="no limit"),
    _s("retention_bytes", "BYTES", _whole(0), "the oldest traces, runs and benchmark runs are deleted above this size",
       default="no limit"),
    _s("metrics_organization", "NAME", _text, "the name or id of the organization whose keys may read `/metrics`, which covers all of them",
       default="the only one; none if there are several"),
    _s("unknown_agents", "create|refuse", _one_of("create", "refuse"), "whether spans and logs with an unknown `service.name` create an"
       " agent or are rejected", default="`create` for the local user of a service without keys, else `refuse`"),
    _s("public_url", "URL", _public_url, "the address of the pages, for links in alerts", default="no links"),
    _s("smtp_host", "NAME", _text, "the mail server for alerts by e-mail", default="no e-mail"),
    _s("smtp_port", "PORT", _whole(1, 65535), "its port; 465 is usual for `tls`"),
    _s("smtp_security", "starttls|tls|none", _one_of("starttls", "tls", "none"), "how the connection to it is encrypted"),
    _s("smtp_from", "ADDRESS", _mail_address, "the sender of e-mails", default="required with `--smtp-host`"),
    _s("smtp_user", "NAME", _text, "the user name at the mail server", default="no login"),
    _s("smtp_password", "PASSWORD", _text, "the password at the mail server", default="none", flag=None),
)  # fmt: skip
"""All settings."""


def read_settings(flags: Mapping[str, Any], environment: Mapping[str, str], find_home: Callable[[str | None], Path]) -> ServeSettings:
    """Return the settings: flags (None if not given), then variables, then defaults. Raises `InputError`."""
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        value = flags.get(setting.name)
        place = setting.option or setting.variable
        if value is None or value == []:
            value = environment.get(setting.variable)
            place = setting.variable
            if value is not None and setting.many:
                value = [part for part in value.split(",") if part.strip()]
        if value is None or value == "":
            continue
        values[setting.name] = _read_value(setting, place, value)
    home = find_home(values.pop("home", None))
    ours = {name: values.pop(name) for name in ("host", "port", "database", "allowed_hosts", "secret_key") if name in values}
    settings = ServeSettings(service=ServiceSettings(home=home, **values), **ours)
    _check_export(settings.service)
    if settings.service.smtp_host is not None and settings.service.smtp_from is None:
        raise InputError("--smtp-host: also name the sender, with --smtp-from")
    if (settings.service.smtp_user is None) != (settings.service.smtp_password is None):
        raise InputError("--smtp-user: expected together with the variable PROCTOR_SMTP_PASSWORD")
    if settings.service.smtp_user is not None and settings.service.smtp_security == "none":
        raise InputError("--smtp-security: expected starttls or tls, so that the password is encrypted")
    return settings


def _check_export(settings: ServiceSettings) -> None:
    """Reject an invalid export address at startup instead of at the first export."""
    if settings.export_otlp_endpoint is None:
        return
    from proctor.network.guard import Guard  # loads an HTTP client

    try:
        Guard(settings.allowed_addresses).check_url(settings.export_otlp_endpoint)
    except AddressRefused as error:
        raise InputError(f"--export-otlp-endpoint: {error}") from None


def _read_value(setting: Setting, place: str, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_read_value(setting, place, str(part)) for part in value)
    try:
        return setting.read(value)
    except (ValueError, KeyError):
        # The value is not shown: it may be a secret, or an address with a password.
        expected = (setting.read.__doc__ or "").rstrip(".")
        raise InputError(f"{place}: {expected[:1].lower()}{expected[1:]}") from None


def show_default(setting: Setting) -> str:
    """Return the default as the reference shows it."""
    if setting.default is not None:
        return setting.default
    for kind in (ServeSettings, ServiceSettings):
        for field in msgspec.structs.fields(kind):
            if field.name == setting.name:
                return "none" if isinstance(field.default, tuple) else f"`{field.default}`"
    raise KeyError(setting.name)
