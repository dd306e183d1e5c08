"""Every check, with its level, its clause and the revisions it applies to; and the profiles made of them.

A profile is frozen: a new check gets the next number as `since`, and belongs to profiles of that version on. A test holds the list of every
published profile, so that a change to an old one is noticed.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from proctor.doctor.model import HANDSHAKE, REVISIONS, STATELESS, Area, Check, Level, Profile
from proctor.errors import InputError
from proctor.model.show import nearest

VERSION: Final = 1
"""The current version of the profiles."""

_H: Final[dict[str, Any]] = {"revisions": HANDSHAKE}
_S: Final[dict[str, Any]] = {"revisions": STATELESS}
_SINCE_2025_06: Final[dict[str, Any]] = {"revisions": REVISIONS[2:]}
_SINCE_2025_11: Final[dict[str, Any]] = {"revisions": REVISIONS[3:]}
_ONLY_2025_11: Final[dict[str, Any]] = {"revisions": REVISIONS[3:4]}
_STDIO: Final[dict[str, Any]] = {"transports": ("stdio",)}
_HTTP: Final[dict[str, Any]] = {"transports": ("http",)}
_CALLS: Final[dict[str, Any]] = {"part": "calls"}
_AUTH: Final[dict[str, Any]] = {"part": "authorization", "transports": ("http",)}

_Row = tuple[str, Level, str, str, dict[str, Any]]

_WIRE: Final = "basic/transports"
_TOOLS: Final = "server/tools"
_AUTHORIZATION: Final = "basic/authorization"
_PAGES: Final = "server/utilities/pagination"
_TASKS: Final = "basic/utilities/tasks"
_TABLE: Final[dict[Area, tuple[_Row, ...]]] = {
    "transport": (
        ("stdio-only-messages", "MUST", "Standard output carries nothing but messages.", _WIRE, _STDIO),
        ("stdio-one-line", "MUST", "A message is one line, without line breaks.", _WIRE, _STDIO),
        ("stdio-utf8", "MUST", "Messages are UTF-8.", _WIRE, _STDIO),
        ("stdio-stays", "MUST", "The process stays until its input is closed.", "basic/lifecycle", _STDIO),
        ("stdio-shutdown", "SHOULD", "The process ends within 2 s of the end of its input.", "basic/lifecycle", _STDIO),
        ("message-size", "SHOULD", "No message has more than 1 MB.", _WIRE, {}),
    ),
    "wire": (
        ("wire-jsonrpc", "MUST", 'Every message is JSON-RPC 2.0, and has one of method, result and error.', "basic", {}),
        ("wire-schema", "MUST", "Every message fits the schema of its revision, a response that of its request.", "schema", {}),
        ("wire-response-id", "MUST", "A response has the id of a request, with the same type.", "basic", {}),
        ("wire-one-response", "MUST", "A request has one response.", "basic", {}),
        ("wire-error-object", "MUST", "An error has an integer code and a message.", "basic", {}),
        ("wire-no-batch", "MUST", "Messages are not sent in batches.", "basic", _SINCE_2025_06),
        ("wire-known-notification", "MUST", "A notification is one that the revision defines.", "schema", {}),
        ("wire-declared-notification", "MUST", "A notification belongs to a declared capability.", "basic/lifecycle", {}),
        ("wire-no-undeclared-request", "MUST", "The server asks for nothing that the client did not declare.", "basic/lifecycle", _H),
        ("wire-no-request", "MUST", "The server sends no requests.", "basic", _S),
        ("wire-notification-silence", "MUST", "A notification gets no response.", "basic", {}),
        ("wire-progress-token", "MUST", "Progress is reported only for a token that the client gave.", "basic/utilities/progress", {}),
        ("wire-result-type", "MUST", "Every result has a `resultType`.", "basic", _S),
        ("wire-no-log-without-level", "MUST", "No log messages without a `logLevel` in the request.", "server/utilities/logging", _S),
    ),
    "lifecycle": (
        ("initialize", "MUST", "`initialize` gives version, capabilities and name of the server.", "basic/lifecycle", _H),
        ("initialize-known-version", "MUST", "The negotiated version is a published revision.", "basic/lifecycle", _H),
        ("initialize-other-version", "MUST", "A request for an unknown version is answered with a supported one.", "basic/lifecycle", _H),
        ("ping", "MUST", "`ping` is answered with an empty result.", "basic/utilities/ping", _H),
        ("server-info", "SHOULD", "Name and version of the server are not empty.", "basic/lifecycle", {}),
        ("capabilities-complete", "MUST", "What the server lists, it declares as a capability.", "basic/lifecycle", {}),
        ("discover", "MUST", "`server/discover` gives versions and capabilities.", "server/discover", _S),
        ("discover-own-version", "MUST", "`supportedVersions` has the version that is spoken.", "server/discover", _S),
        ("discover-all-versions", "MAY", "`supportedVersions` has the older versions, too, that the server speaks.", "server/discover", _S),
        ("unsupported-version", "MUST", "An unknown version gets error -32022 with the supported ones.", "basic/versioning", _S),
        ("removed-methods", "MUST", "Methods that the revision removed are not found.", "basic/versioning", _S),
        ("eras-agree", "SHOULD", "Handshake and stateless revisions have the same tools and capabilities.", "basic/versioning", _S),
    ),
    "errors": (
        ("unknown-method", "MUST", "An unknown method gets error -32601.", "basic", {}),
        ("wrong-params", "SHOULD", "Parameters of a wrong type get error -32602.", "basic", {}),
        ("survives-malformed-json", "MUST", "After malformed JSON the server still answers.", "basic", {}),
        ("malformed-json", "MAY", "Malformed JSON gets error -32700.", "basic", _STDIO),
        ("survives-non-request", "MUST", "After JSON that is no request the server still answers.", "basic", {}),
        ("unknown-notification", "MUST", "An unknown notification gets no response, and the server still answers.", "basic", {}),
        ("cancel-unknown", "SHOULD", "A cancellation of an unknown request is ignored.", "basic/utilities/cancellation", {}),
        ("concurrent-requests", "MUST", "Of several requests at once, each gets its own response.", "basic", {}),
        ("error-without-trace", "SHOULD", "Errors show no stack traces.", _TOOLS, {}),
        ("unknown-task", "MUST", "An unknown task gets error -32602, if tasks are declared.", _TASKS, _SINCE_2025_11),
    ),
    "paging": (
        ("paging-ends", "MUST", "The pages of a list end.", _PAGES, {}),
        ("paging-no-repeats", "SHOULD", "No item is on two pages.", _PAGES, {}),
        ("paging-stable", "SHOULD", "A list that is read again is the same, in the same order.", _PAGES, {}),
        ("unknown-cursor", "SHOULD", "An unknown cursor gets error -32602.", _PAGES, {}),
    ),
    "tools": (
        ("tools-list", "MUST", "`tools/list` works if `tools` is declared.", _TOOLS, {}),
        ("tools-unique", "SHOULD", "Tools have different names.", _TOOLS, {}),
        ("tools-name-format", "SHOULD", "Names have 1 to 128 characters: letters, digits, `_`, `-`, `.`.", _TOOLS, _SINCE_2025_11),
        ("tools-input-schema", "MUST", "Input schemas are valid JSON Schemas of type object.", _TOOLS, {}),
        ("tools-output-schema", "MUST", "Output schemas are valid JSON Schemas.", _TOOLS, _SINCE_2025_06),
        ("tools-param-headers", "MUST", "`x-mcp-header` marks parameters that a header can carry.", _WIRE, _S),
        ("unknown-tool", "MUST", "A call of an unknown tool fails.", _TOOLS, {}),
        ("unknown-tool-code", "SHOULD", "A call of an unknown tool gets error -32602.", _TOOLS, {}),
    ),
    "resources": (
        ("resources-list", "MUST", "`resources/list` works if `resources` is declared.", "server/resources", {}),
        ("resources-templates", "MUST", "`resources/templates/list` works or is not found.", "server/resources", {}),
        ("resources-unique", "SHOULD", "Resources have different URIs.", "server/resources", {}),
        ("resources-uri", "MUST", "A resource has a URI with a scheme.", "server/resources", {}),
        ("resources-template-syntax", "MUST", "URI templates are written as RFC 6570 defines.", "server/resources", {}),
        ("resources-read", "MUST", "A listed resource can be read.", "server/resources", {}),
        ("resources-content", "SHOULD", "A resource that is read has contents.", "server/resources", {}),
        ("resources-base64", "MUST", "Binary contents are base64.", "server/resources", {}),
        ("resources-mime", "SHOULD", "Contents have the MIME type that the list gives.", "server/resources", {}),
        ("unknown-resource", "MUST", "Reading an unknown resource gets an error, not a result.", "server/resources", {}),
        ("unknown-resource-code", "SHOULD", "An unknown resource gets error -32002 (from 2026-07-28: -32602).", "server/resources", {}),
        ("resources-subscribe", "MUST", "`resources/subscribe` and `unsubscribe` work if declared.", "server/resources", _H),
    ),
    "prompts": (
        ("prompts-list", "MUST", "`prompts/list` works if `prompts` is declared.", "server/prompts", {}),
        ("prompts-unique", "SHOULD", "Prompts have different names.", "server/prompts", {}),
        ("unknown-prompt", "MUST", "Getting an unknown prompt gets an error.", "server/prompts", {}),
        ("unknown-prompt-code", "SHOULD", "Getting an unknown prompt gets error -32602.", "server/prompts", {}),
        ("prompts-required-arguments", "SHOULD", "A declared prompt without required arguments gets -32602.", "server/prompts", _CALLS),
        ("prompts-get", "MUST", "A declared prompt gives messages.", "server/prompts", _CALLS),
    ),
    "utilities": (
        ("logging-set-level", "MUST", "`logging/setLevel` works if `logging` is declared.", "server/utilities/logging", _H),
        ("logging-bad-level", "SHOULD", "An unknown level gets error -32602.", "server/utilities/logging", _H),
        ("completion", "MUST", "`completion/complete` works if `completions` is declared.", "server/utilities/completion", {}),
        ("completion-bound", "MUST", "A completion has at most 100 values.", "server/utilities/completion", {}),
        ("completion-unknown", "SHOULD", "A completion for an unknown prompt gets error -32602.", "server/utilities/completion", {}),
    ),
    "caching": (
        ("cache-hints", "MUST", "Lists and contents have `ttlMs` of at least 0 and a `cacheScope`.", "server/utilities/caching", _S),
        ("cache-scope-stable", "SHOULD", "All pages of a list have one `cacheScope`.", "server/utilities/caching", _S),
        ("cache-useful", "MAY", "`ttlMs` is above 0 for lists that do not change.", "server/utilities/caching", _S),
    ),
    "subscriptions": (
        ("listen-acknowledged", "MUST", "`subscriptions/listen` is acknowledged first.", "basic/utilities/subscriptions", _S),
        ("listen-tagged", "MUST", "Notices of a subscription carry its `subscriptionId`.", "basic/utilities/subscriptions", _S),
        ("listen-filter", "MUST", "Only notices that were requested are sent.", "basic/utilities/subscriptions", _S),
    ),
    "http": (
        ("http-content-type", "MUST", "A response is `application/json` or `text/event-stream`.", _WIRE, _HTTP),
        ("http-notification-202", "MUST", "An accepted notification gets 202 without a body.", _WIRE, _HTTP | _H),
        ("http-get", "MUST", "GET gives a stream of events or 405.", _WIRE, _HTTP),
        ("http-session-id", "MUST", "A session id has visible ASCII characters only.", _WIRE, _HTTP | _H),
        ("http-missing-session", "SHOULD", "A request without the session id gets 400.", _WIRE, _HTTP | _H),
        ("http-unknown-session", "SHOULD", "A request of an unknown session gets 404.", _WIRE, _HTTP | _H),
        ("http-ended-session", "MUST", "A session that was deleted gets 404.", _WIRE, _HTTP | _H),
        ("http-version-header", "MUST", "An unknown `MCP-Protocol-Version` gets 400.", _WIRE, _HTTP | {"revisions": REVISIONS[2:]}),
        ("http-malformed-json", "MUST", "Malformed JSON gets a status of 400 to 499.", _WIRE, _HTTP),
        ("http-origin", "MUST", "On this machine, a foreign `Origin` is refused (DNS rebinding).", _WIRE, _HTTP),
        ("http-host", "MUST", "On this machine, a foreign `Host` is refused (DNS rebinding).", _WIRE, _HTTP),
        ("http-own-host", "MUST", "On this machine, its own `Host` and `Origin` are accepted.", _WIRE, _HTTP),
        ("http-no-session", "MUST", "Responses carry no `Mcp-Session-Id`.", _WIRE, _HTTP | _S),
        ("http-method-404", "MUST", "An unknown method gets status 404.", _WIRE, _HTTP | _S),
        ("http-version-mismatch", "MUST", "A version header that differs from the body gets 400 and -32020.", _WIRE, _HTTP | _S),
        ("http-method-mismatch", "MUST", "An `Mcp-Method` that differs from the body gets 400 and -32020.", _WIRE, _HTTP | _S),
        ("http-missing-method", "MUST", "A request without `Mcp-Method` gets 400 and -32020.", _WIRE, _HTTP | _S),
        ("http-name-mismatch", "MUST", "An `Mcp-Name` that differs from the body gets 400 and -32020.", _WIRE, _HTTP | _S),
        ("http-header-case", "MUST", "Header names are read without regard to case.", _WIRE, _HTTP | _S),
        ("http-missing-meta", "MUST", "A request without its `_meta` gets 400.", _WIRE, _HTTP | _S),
    ),
    "authorization": (
        ("auth-required", "MUST", "A request without a token gets 401.", _AUTHORIZATION, _AUTH),
        ("auth-challenge", "MUST", "The 401 has a `WWW-Authenticate: Bearer` header, or metadata is well-known.", _AUTHORIZATION, _AUTH),
        ("auth-challenge-metadata", "SHOULD", "The challenge names `resource_metadata`.", _AUTHORIZATION, _AUTH),
        ("auth-challenge-scope", "SHOULD", "The challenge names the `scope` that is needed.", _AUTHORIZATION, _AUTH | _SINCE_2025_11),
        ("auth-no-challenge-on-success", "SHOULD", "A successful response has no challenge.", _AUTHORIZATION, _AUTH),
        ("auth-resource-metadata", "MUST", "The metadata of the protected resource can be fetched (RFC 9728).", _AUTHORIZATION, _AUTH),
        ("auth-resource-equal", "MUST", "Its `resource` is the address of the server.", _AUTHORIZATION, _AUTH),
        ("auth-servers", "MUST", "It names at least one authorization server.", _AUTHORIZATION, _AUTH),
        ("auth-bearer-header", "SHOULD", "It accepts tokens in the header (`bearer_methods_supported`).", _AUTHORIZATION, _AUTH),
        ("auth-no-offline-access", "SHOULD", "Its scopes do not contain `offline_access`.", _AUTHORIZATION, _AUTH | _S),
        ("auth-server-metadata", "MUST", "The authorization server has metadata (RFC 8414 or OpenID).", _AUTHORIZATION, _AUTH),
        ("auth-issuer-equal", "MUST", "Its `issuer` is the address it was found under.", _AUTHORIZATION, _AUTH),
        ("auth-endpoints", "MUST", "It names authorization and token endpoints, as far as its grants need them.", _AUTHORIZATION, _AUTH),
        ("auth-https", "MUST", "Endpoints use HTTPS, except on this machine.", _AUTHORIZATION, _AUTH),
        ("auth-pkce", "MUST", "PKCE with S256 is advertised.", _AUTHORIZATION, _AUTH),
        ("auth-response-code", "MUST", "The response type `code` is supported.", _AUTHORIZATION, _AUTH),
        ("auth-registration", "SHOULD", "Clients can register: by a metadata document (CIMD) or dynamically.", _AUTHORIZATION, _AUTH),
        ("auth-iss", "SHOULD", "The `iss` parameter of RFC 9207 is advertised.", _AUTHORIZATION, _AUTH | _S),
        ("auth-token-garbage", "MUST", "A token that is no token gets 401.", _AUTHORIZATION, _AUTH),
        ("auth-token-empty", "MUST", "An empty token gets 401 or 400.", _AUTHORIZATION, _AUTH),
        ("auth-token-unsigned", "MUST", "An unsigned JWT gets 401.", _AUTHORIZATION, _AUTH),
        ("auth-token-foreign", "MUST", "A JWT of another issuer and audience gets 401.", _AUTHORIZATION, _AUTH),
        ("auth-token-expired", "MUST", "An expired JWT gets 401.", _AUTHORIZATION, _AUTH),
        ("auth-token-query", "MUST", "A token in the address is not accepted.", _AUTHORIZATION, _AUTH),
        ("auth-grant", "MUST", "The client credentials that were given get a token of type Bearer.", _AUTHORIZATION, _AUTH),
        ("auth-register", "MUST", "A client can register as the metadata describes, with a loopback address.", _AUTHORIZATION, _AUTH),
        ("auth-redirect", "MUST", "The login comes back with `code`, the same `state` and the right `iss`.", _AUTHORIZATION, _AUTH),
        ("auth-code", "MUST", "The code gets a token of type Bearer.", _AUTHORIZATION, _AUTH),
        ("auth-accepted", "MUST", "With the credentials that were given, the server answers.", _AUTHORIZATION, _AUTH),
    ),
    "surface": (
        ("tool-description", "SHOULD", "Every tool has a description.", _TOOLS, {}),
        ("tool-description-length", "SHOULD", "Descriptions have 15 to 2,000 characters.", _TOOLS, {}),
        ("tool-description-unique", "SHOULD", "Tools have different descriptions.", _TOOLS, {}),
        ("parameter-descriptions", "SHOULD", "Every parameter has a description.", _TOOLS, {}),
        ("parameter-types", "SHOULD", "Every parameter has a type.", _TOOLS, {}),
        ("parameter-required", "SHOULD", "`required` names parameters that exist.", _TOOLS, {}),
        ("parameter-choice", "MAY", "A parameter such as `action` or `mode` lists its values.", _TOOLS, {}),
        ("tool-hints", "MAY", "Tools say whether they only read.", _TOOLS, {"revisions": REVISIONS[1:]}),
        ("tool-hints-agree", "SHOULD", "Hints do not contradict each other or the name.", _TOOLS, {"revisions": REVISIONS[1:]}),
        ("tool-output-schema", "MAY", "Tools have an output schema.", _TOOLS, _SINCE_2025_06),
        ("tool-name-length", "SHOULD", "Names have at most 64 characters, the limit of model providers.", _TOOLS, {}),
        ("tool-count", "SHOULD", "There are at most 100 tools and prompts.", _TOOLS, {}),
        ("token-cost", "SHOULD", "The definitions of all tools take at most 25,000 tokens.", _TOOLS, {}),
        ("tool-token-cost", "SHOULD", "The definition of a tool takes at most 3,000 tokens.", _TOOLS, {}),
        ("schema-dialect", "SHOULD", "Schemas name a known dialect of JSON Schema, or none.", _TOOLS, {}),
        ("instructions-length", "SHOULD", "Instructions have at most 8,000 characters.", "basic/lifecycle", {}),
    ),
    "security": (
        ("hidden-characters", "MUST", "Texts have no invisible characters.", _TOOLS, {}),
        ("orders-to-agent", "MUST", "Texts do not order the agent to ignore its instructions, or to act before other tools.", _TOOLS, {}),
        ("concealment", "MUST", "Texts do not ask the agent to hide something from the user.", _TOOLS, {}),
        ("secret-access", "MUST", "Texts do not ask for keys, passwords or private files.", _TOOLS, {}),
        ("pretended-markup", "MUST", "Texts have no tags that pretend to be instructions of the system.", _TOOLS, {}),
        ("encoded-text", "MUST", "Texts have no long encoded parts.", _TOOLS, {}),
        ("foreign-tools", "MUST", "Texts do not direct the use of tools of other servers.", _TOOLS, {}),
    ),
    "calls": (
        ("call-works", "MUST", "A declared call gives a result, and an error only where declared.", _TOOLS, _CALLS),
        ("call-output-schema", "MUST", "Results conform to the output schema of their tool.", _TOOLS, _CALLS | _SINCE_2025_06),
        ("call-structured-text", "SHOULD", "Structured results are repeated as text.", _TOOLS, _CALLS | _SINCE_2025_06),
        ("call-content", "MUST", "Images and sounds are base64 with a MIME type.", _TOOLS, _CALLS),
        ("call-progress-increases", "MUST", "Progress increases with every notification.", "basic/utilities/progress", _CALLS),
        ("call-progress-stops", "MUST", "No progress after the response.", "basic/utilities/progress", _CALLS),
        ("call-cancel", "SHOULD", "A cancelled call gets no response.", "basic/utilities/cancellation", _CALLS),
        ("call-elicitation", "MUST", "Questions to the user have flat, simple schemas.", "client/elicitation", _CALLS | _SINCE_2025_06),
        ("task-created", "MUST", "A call as a task gives a task.", _TASKS, _CALLS | _ONLY_2025_11),
        ("task-shape", "MUST", "Tasks have an id, times and a known status.", _TASKS, _CALLS | _SINCE_2025_11),
        ("task-result", "MUST", "A completed task gives the result of its call, and names the task.", _TASKS, _CALLS | _SINCE_2025_11),
        ("task-listed", "MUST", "`tasks/list` has the tasks that `tasks/get` gives.", _TASKS, _CALLS | _ONLY_2025_11),
        ("task-cancel", "MUST", "A cancelled task is `cancelled` (from 2026-07-28: it gets a result).", _TASKS, _CALLS | _SINCE_2025_11),
        ("task-cancel-ended", "MUST", "Cancelling a task that ended gets error -32602.", _TASKS, _CALLS | _ONLY_2025_11),
        ("call-concurrent", "MUST", "Calls at once get their own results.", "basic", _CALLS),
        ("call-read-only", "MUST", "A tool with `readOnlyHint` changes no list.", _TOOLS, _CALLS | {"revisions": REVISIONS[1:]}),
        ("call-wrong-arguments", "SHOULD", "Arguments against the input schema get an error.", _TOOLS, _CALLS),
        ("call-fuzz-survives", "MUST", "The server survives boundary values of the input schema.", _TOOLS, _CALLS),
        ("call-fuzz-internal", "SHOULD", "Valid boundary values get no internal error.", _TOOLS, _CALLS),
    ),
}  # fmt: skip

CHECKS: Final = tuple(
    Check(id=name, area=area, level=level, claim=claim, clause=clause, **more)
    for area, rows in _TABLE.items()
    for name, level, claim, clause, more in rows
)


@functools.cache
def find_profile(revision: str, version: int = VERSION, transport: str | None = None, parts: frozenset[str] = frozenset()) -> Profile:
    """Return the checks of a revision, for one transport and these optional parts, or all of them."""
    checks = tuple(
        check
        for check in CHECKS
        if revision in check.revisions
        and check.since <= version
        and (transport is None or (transport in check.transports and (check.part == "base" or check.part in parts)))
    )
    return Profile(revision=revision, version=version, checks=checks)


def parse_profile(name: str) -> tuple[str, int]:
    """Return revision and version of a profile, such as `mcp-2025-11-25@1`. Raises `InputError`."""
    revision, _, version = name.removeprefix("mcp-").partition("@")
    known = [f"mcp-{each}@{number}" for each in REVISIONS for number in range(1, VERSION + 1)]
    full = f"mcp-{revision}@{version or VERSION}"
    if full not in known:
        close = nearest(full, known)
        raise InputError(f"unknown profile {name!r}" + (f"; nearest: {close[0]}" if close else "") + f"; known: {', '.join(known)}")
    return revision, int(version or VERSION)


def read_expected(text: str, name: str) -> tuple[str, ...]:
    """Return the entries of a file of expected failures. Raises `InputError` with the line of an unknown check.

    # why
    unknown-tool
    stdio-only-messages@2025-11-25     only in this revision
    """
    known = {check.id for check in CHECKS}
    checks: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.partition("#")[0].split()
        if not entry:
            continue
        check, _, revision = entry[0].partition("@")
        if check not in known:
            close = nearest(check, known)
            raise InputError(f"{name}:{number}: unknown check {check!r}" + (f"; nearest: {', '.join(close)}" if close else ""))
        if revision and revision not in REVISIONS:
            raise InputError(f"{name}:{number}: unknown revision {revision!r}; known: {', '.join(REVISIONS)}")
        checks.append(entry[0])
    return tuple(checks)
