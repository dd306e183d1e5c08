"""Servers, agents and attachments of an MCPLab file.

They affect no assertion, but a file that MCPLab would reject is rejected here too, with a position; values that MCPLab silently drops are
dropped with a warning. The results are plain data for a live run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from proctor.formats.text.located import Located, Reading
from proctor.model.evidence import Json
from proctor.model.show import show

Entry = dict[str, Json]

SERVER_KEYS: Final = ("id", "name", "transport", "url", "headers", "auth", "session")
SESSIONS: Final = ("attempt", "shared")
LLM_KEYS: Final = ("id", "name", "type", "provider", "model", "temperature", "max_tokens", "max_turns", "system")
BROWSER_KEYS: Final = ("id", "name", "type", "provider", "url", "new_conversation_between_scenarios")
PROVIDERS: Final = ("openai", "anthropic", "azure_openai")
ATTACHMENT_KEYS: Final = ("type", "media_type", "data", "path", "url", "name")

# type: required text keys, optional text keys
_AUTH: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "bearer": ((), ("token", "env")),
    "api_key": (("value",), ("header_name",)),
    "oauth_client_credentials": (("token_url", "client_id_env", "client_secret_env"), ("scope", "audience")),
    "oauth_authorization_code": (
        (),
        ("mode", "client_id", "client_secret", "redirect_url", "scope", "authorization_url", "token_url"),
    ),
}
_MEDIA_TYPES: Final = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
}
# Spellings, some from MCPLab's own documentation, that its loader does not understand.
_SERVER_HINTS: Final = {
    "token": "write auth: {type: bearer, token: '${NAME}'}",
    "command": "only servers over HTTP are supported: transport: http, url: ...",
}


def iterate_entries(node: Located | None, reading: Reading, what: str, *, warn_of_map: bool = True) -> Iterator[tuple[str | None, Located]]:
    """Yield the entries of a list, or of the older map `id -> definition`; only entries of a map have an id."""
    if node is None or node.value is None:
        return
    if node.is_object:
        if warn_of_map:
            reading.warn(node, f"{what} as a map is the old form", hint="write a list of entries with 'id'", code="legacy_form")
        yield from node.members()
    elif reading.require_list(node, what) is not None:
        for item in node.items():
            yield None, item


def read_entry_id(node: Located, reading: Reading, what: str, map_key: str | None = None) -> str | None:
    """Return the id of an entry: the key of a map, else `id`, else (older files) `name`."""
    own = node.get("id")
    if map_key is not None:
        return map_key
    if own is None:
        name = node.get("name")
        if name is None:
            reading.error(node, f"{what} needs 'id'", code="missing_key")
            return None
        reading.warn_at_key(node, "name", f"{what} without 'id': its name is taken for the id", hint="write 'id'", code="legacy_form")
        own = name
    text = reading.require_text(own, f"the id of {what}")
    if text is not None and not text.strip():
        reading.error(own, f"the id of {what} is empty")
        return None
    return text


def refuse_ref(node: Located, reading: Reading) -> bool:
    """Report a `$ref` entry, which MCPLab's documentation has but its loader does not, and return whether it is one."""
    if node.get("$ref") is None:
        return False
    reading.error_at_key(node, "$ref", "'$ref' is not understood", hint="write ref: <id of the library entry>", code="unknown_key")
    return True


def read_server(node: Located, reading: Reading, what: str, given_id: str | None = None) -> Entry | None:
    """Return one server that is defined in full."""
    if reading.require_object(node, what) is None or refuse_ref(node, reading):
        return None
    reading.check_keys(node, SERVER_KEYS, what, hints=_SERVER_HINTS)
    server: Entry = {"id": read_entry_id(node, reading, what, given_id)}
    _copy_text(node, reading, server, ("name",))
    transport = reading.require_member(node, "transport", what)
    if transport is not None:
        if transport.value != "http":
            reading.error(
                transport, f"transport {show(transport.plain(), 60)} is not supported", expected="'http' (MCP over streamable HTTP)"
            )
        server["transport"] = "http"
    _need_text(node, reading, server, ("url",), what)
    # MCPLab declares headers in its type but drops them on loading.
    headers = reading.require_object(node.find("headers"), "'headers'")
    if headers is not None:
        texts = {name: reading.require_text(member, f"the header {name!r}") for name, member in headers.members()}
        server["headers"] = {name: text for name, text in texts.items() if text is not None}
    # The owner of sessions is a key of our own; the original has one session per scenario run.
    session = node.find("session")
    if session is not None:
        if session.value not in SESSIONS:
            reading.error(session, f"session {show(session.plain(), 60)} is unknown", expected="one of " + ", ".join(SESSIONS))
        server["session"] = session.value
    auth = node.find("auth")
    if auth is not None:
        server["auth"] = read_auth(auth, reading)
    return None if server["id"] is None else server


def read_auth(node: Located, reading: Reading) -> Json:
    """Return the authentication for a server; environment variables are read only when connecting."""
    if reading.require_object(node, "'auth'") is None:
        return None
    kind = reading.require_choice(node, "type", _AUTH, "'auth'", lambda word: f"unknown type {word!r} of 'auth'")
    if kind is None:
        return None
    required, optional = _AUTH[kind]
    extra = ("token_params",) if kind == "oauth_client_credentials" else ()
    reading.check_keys(node, ("type", *required, *optional, *extra), f"'auth' of type {kind!r}")
    auth: Entry = {"type": kind}
    _need_text(node, reading, auth, required, f"'auth' of type {kind!r}")
    _copy_text(node, reading, auth, optional)
    if kind == "bearer" and "token" not in auth and "env" not in auth:
        reading.error(
            node, "'auth' of type 'bearer' needs 'token'", hint="token: ${NAME} takes it from the environment", code="missing_key"
        )
    mode = node.get("mode")
    if mode is not None and mode.value not in ("pre_registered", "dcr"):
        reading.error(mode, f"unknown mode {show(mode.plain(), 60)}", expected="one of pre_registered, dcr")
    parameters = node.get("token_params")
    if parameters is not None and reading.require_object(parameters, "'token_params'") is not None:
        auth["token_params"] = parameters.plain()
    # `Bearer ${X}` and `$X` look like variables but are sent literally.
    for secret in filter(None, (node.get("token"), node.get("value"))):
        text = secret.value if isinstance(secret.value, str) else ""
        whole = text.startswith("${") and text.endswith("}") and text[2:-1].isidentifier()
        if "${" in text and not whole:
            reading.warn(secret, "only a whole value of the form ${NAME} is taken from the environment; this text is sent unchanged")
        elif text.startswith("$") and text[1:].isidentifier():
            reading.warn(secret, "this text is sent unchanged", hint="write ${NAME} to take the value from the environment")
    return auth


def read_agent(node: Located, reading: Reading, what: str, given_id: str | None = None) -> Entry | None:
    """Return one agent that is defined in full: a model, or a chat page in a browser."""
    if reading.require_object(node, what) is None or refuse_ref(node, reading):
        return None
    kind_node = node.get("type")
    kind = "llm" if kind_node is None else kind_node.value
    if kind_node is not None and kind not in ("llm", "browser"):
        reading.error(kind_node, f"unknown type {show(kind_node.plain(), 60)} of {what}", expected="llm or browser")
        return None
    agent: Entry = {"id": read_entry_id(node, reading, what, given_id), "type": kind}
    if kind == "browser":
        reading.check_keys(node, BROWSER_KEYS, f"{what} of type 'browser'")
        _need_text(node, reading, agent, ("provider", "url"), f"{what} of type 'browser'")
        _copy_text(node, reading, agent, ("name",))
        fresh = reading.require_boolean(node.get("new_conversation_between_scenarios"), "'new_conversation_between_scenarios'")
        if fresh is not None:
            agent["new_conversation_between_scenarios"] = fresh
    else:
        reading.check_keys(node, LLM_KEYS, what)
        _need_text(node, reading, agent, ("provider", "model"), what)
        provider, provider_node = agent.get("provider"), node.get("provider")
        if provider_node is not None and provider is not None and provider not in PROVIDERS:
            reading.error_unknown(provider_node, f"unknown provider {provider!r}", provider, PROVIDERS)
        _copy_text(node, reading, agent, ("name",))
        _read_optional(node, reading, agent, "system", (str,), "text")
        _read_bounded(node, reading, agent, "temperature", (int, float), "a number", 0, 2)
        _read_bounded(node, reading, agent, "max_tokens", (int,), "a whole number", 1, 200_000)
        _read_bounded(node, reading, agent, "max_turns", (int,), "a whole number", 1, None)
    return None if agent["id"] is None else agent


def _read_optional(node: Located, reading: Reading, agent: Entry, key: str, kinds: tuple[type, ...], expected_kind: str) -> Json:
    """Copy a field; one of the wrong kind is dropped, as in MCPLab, with a warning."""
    member = node.find(key)
    if member is None:
        return None
    if not isinstance(member.value, kinds) or isinstance(member.value, bool):
        actual = f"{member.kind} {show(member.plain(), 60)}"
        reading.warn(member, f"{key!r} is ignored: expected {expected_kind}, found {actual}", code="ignored_key")
        return None
    agent[key] = member.value
    return member.value


def _read_bounded(
    node: Located, reading: Reading, agent: Entry, key: str, kinds: tuple[type, ...], expected: str, low: int, high: int | None
) -> None:
    value = _read_optional(node, reading, agent, key, kinds, expected)
    if value is not None and (value < low or (high is not None and value > high)):
        bounds = f"from {low} to {high}" if high is not None else f"of at least {low}"
        reading.warn(node.value[key], f"{key!r}: {show(value)} is out of bounds", expected=f"a value {bounds}")


def read_attachments(node: Located | None, reading: Reading) -> list[Entry]:
    """Read the files sent with the prompt; their content is only needed to run the agent."""
    attachments: list[Entry] = []
    for item in reading.list_items(node, "'attachments'"):
        if reading.require_object(item, "an attachment") is None:
            continue
        reading.check_keys(item, ATTACHMENT_KEYS, "an attachment")
        attachment: Entry = {}
        _copy_text(item, reading, attachment, ATTACHMENT_KEYS)
        if not any(attachment.get(key) for key in ("path", "data", "url")):
            reading.error(item, "an attachment needs 'path', 'data' or 'url'", code="missing_key")
            continue
        media_type = attachment.get("media_type") or _find_media_type(item, reading, attachment)
        if media_type is None:
            continue
        remote_only = not attachment.get("path") and not attachment.get("data")
        if remote_only and not media_type.startswith("image/") and media_type != "application/pdf":
            reading.error(item, f"an attachment of type {media_type} cannot be given by 'url' alone", expected="an image or a PDF")
        kind = "image" if media_type.startswith("image/") else "document"
        attachments.append({**attachment, "media_type": media_type, "type": kind})
    return attachments


def _find_media_type(node: Located, reading: Reading, attachment: Entry) -> str | None:
    source = attachment.get("path") or attachment.get("url") or ""
    if not source:
        return "application/octet-stream"
    # An address may have a query after its file name.
    ending = source.rsplit("/", 1)[-1].partition("?")[0].rpartition(".")[2].lower()
    if ending not in _MEDIA_TYPES:
        at = node.get("path") or node.get("url") or node
        message = f"the media type of {show(source, 60)} is unknown"
        reading.error(at, message, hint="write 'media_type'", expected="one of " + ", ".join(_MEDIA_TYPES))
        return None
    return _MEDIA_TYPES[ending]


def _need_text(node: Located, reading: Reading, into: Entry, keys: tuple[str, ...], what: str) -> None:
    for key in keys:
        text = reading.need_text(node, key, what)
        if text is not None:
            into[key] = text


def _copy_text(node: Located, reading: Reading, into: Entry, keys: tuple[str, ...]) -> None:
    for key in keys:
        text = reading.require_text(node.find(key), f"{key!r}")
        if text is not None:
            into[key] = text
