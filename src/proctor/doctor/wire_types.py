"""What a server may send, revision by revision, and validation against it.

The table below has every type that a server sends. A line is `Name: field type; field! type; ...`, where `!` marks a required field.
`@2-` means from the third revision on, `@-3` up to the fourth, `@4` in the fifth only. Types: `text`, `integer`, `count` (an integer of at
least 0), `share` (0 to 1), `number`, `bool`, `any`, `object`, `'literal'`, `[list]`, `{map of}`, alternatives with `|`, and other lines.
`+Name` includes the fields of another line. Unknown fields are allowed, as in the published schemas.

The published schemas are the oracle of the tests; they are not shipped.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from proctor.doctor.model import REVISIONS
from proctor.model.evidence import Json
from proctor.model.show import show

_TABLE: Final = """
Result: _meta object @-3; _meta ResultMeta @4; resultType! text @4
ResultMeta: io.modelcontextprotocol/serverInfo Implementation
Cacheable: +Result; cacheScope! 'private'|'public' @4; ttlMs! count @4
Page: +Cacheable; nextCursor text
Implementation: name! text; version! text; title text @2-; description text @3-; icons [Icon] @3-; websiteUrl text @3-
Icon: src! text; mimeType text; sizes [text]; theme 'light'|'dark'
Annotations: audience ['user'|'assistant']; priority share; lastModified text @2-
ServerCapabilities: experimental {object}; logging object; completions object @1-; prompts Changes; resources ResourceChanges;\
 tools Changes; tasks TaskSupport @3; extensions {object} @4
Changes: listChanged bool
ResourceChanges: +Changes; subscribe bool
TaskSupport: cancel object; list object; requests object
InitializeResult: +Result; protocolVersion! text; capabilities! ServerCapabilities; serverInfo! Implementation; instructions text
DiscoverResult: +Cacheable; supportedVersions! [text]; capabilities! ServerCapabilities; instructions text
ListToolsResult: +Page; tools! [Tool]
Tool: name! text; title text @2-; description text; inputSchema! ObjectSchema; outputSchema ObjectSchema @2-3; outputSchema AnySchema @4;\
 annotations ToolAnnotations @1-; execution ToolExecution @3; icons [Icon] @3-; _meta object @2-
ObjectSchema: type! 'object'; properties {object} @-3; required [text] @-3; $schema text @3-
AnySchema: $schema text
ToolAnnotations: title text; readOnlyHint bool; destructiveHint bool; idempotentHint bool; openWorldHint bool
ToolExecution: taskSupport 'forbidden'|'optional'|'required'
ListResourcesResult: +Page; resources! [Resource]
ListResourceTemplatesResult: +Page; resourceTemplates! [ResourceTemplate]
Described: name! text; title text @2-; description text; mimeType text; annotations Annotations; icons [Icon] @3-; _meta object @2-
Resource: +Described; uri! text; size integer
ResourceTemplate: +Described; uriTemplate! text
ReadResourceResult: +Cacheable; contents! [TextContents|BlobContents]
TextContents: uri! text; mimeType text; text! text; _meta object @2-
BlobContents: uri! text; mimeType text; blob! text; _meta object @2-
ListPromptsResult: +Page; prompts! [Prompt]
Prompt: name! text; title text @2-; description text; arguments [PromptArgument]; icons [Icon] @3-; _meta object @2-
PromptArgument: name! text; title text @2-; description text; required bool
GetPromptResult: +Result; description text; messages! [PromptMessage]
PromptMessage: role! 'user'|'assistant'; content! Content
Content: *TextContent ImageContent AudioContent@1- ResourceLink@2- EmbeddedResource
TextContent: type! 'text'; text! text; +Block
ImageContent: type! 'image'; data! text; mimeType! text; +Block
AudioContent: type! 'audio'; data! text; mimeType! text; +Block
ResourceLink: type! 'resource_link'; +Resource
EmbeddedResource: type! 'resource'; resource! TextContents|BlobContents; +Block
Block: annotations Annotations; _meta object @2-
CallToolResult: +Result; content! [Content]; isError bool; structuredContent object @2-3
InputRequiredResult: +Result; inputRequests {object}; requestState text
CompleteResult: +Result; completion! Completion
Completion: values! [text]; total integer; hasMore bool
ListenResult: _meta! ListenMeta; resultType! text
ListenMeta: io.modelcontextprotocol/subscriptionId! text|integer; io.modelcontextprotocol/serverInfo Implementation
Noted: _meta object
Cancelled: +Noted; requestId! text|integer @-2; requestId text|integer @3; requestId! text|integer @4; reason text
Progress: +Noted; progressToken! text|integer; progress! number; total number; message text @1-
Logged: +Noted; level! 'debug'|'info'|'notice'|'warning'|'error'|'critical'|'alert'|'emergency'; logger text; data! any
Updated: +Noted; uri! text
Task: taskId! text; status! 'cancelled'|'completed'|'failed'|'input_required'|'working'; statusMessage text; createdAt! text;\
 lastUpdatedAt! text; ttl! integer|null @3; pollInterval integer @3; ttlMs integer|null @4; pollIntervalMs integer @4
TaskStatus: +Noted; +Task
CreateTaskResult: +Result; task! Task
GetTaskResult: +Result; +Task
ListTasksResult: +Result; nextCursor text; tasks! [Task]
FinishedTask: +GetTaskResult; result object; error Error
Elicited: elicitationId! text
Acknowledged: +Noted; notifications! Filter
Filter: promptsListChanged bool; resourcesListChanged bool; toolsListChanged bool; resourceSubscriptions [text]
Sampling: messages! [any]; maxTokens! integer
Elicitation: message! text; requestedSchema ElicitedSchema; mode 'form'|'url' @3-
ElicitedSchema: type! 'object'; properties! {object}; required [text]
Error: code! integer; message! text; data any
Request: jsonrpc! '2.0'; id! text|integer; method! text; params object
Notification: jsonrpc! '2.0'; method! text; params object
Response: jsonrpc! '2.0'; id! text|integer; result! object
ErrorResponse: jsonrpc! '2.0'; id text|integer|null; error! Error
"""

AS_TASK: Final = "tools/call as a task"

RESULTS: Final[Mapping[str, tuple[str, ...]]] = {
    "initialize": ("InitializeResult",),
    "server/discover": ("DiscoverResult",),
    "ping": ("Result",),
    "tools/list": ("ListToolsResult",),
    "tools/call": ("CallToolResult", "InputRequiredResult"),
    "resources/list": ("ListResourcesResult",),
    "resources/templates/list": ("ListResourceTemplatesResult",),
    "resources/read": ("ReadResourceResult", "InputRequiredResult"),
    "resources/subscribe": ("Result",),
    "resources/unsubscribe": ("Result",),
    "prompts/list": ("ListPromptsResult",),
    "prompts/get": ("GetPromptResult", "InputRequiredResult"),
    "completion/complete": ("CompleteResult",),
    "logging/setLevel": ("Result",),
    "subscriptions/listen": ("ListenResult",),
    AS_TASK: ("CreateTaskResult",),
    "tasks/get": ("GetTaskResult",),
    "tasks/cancel": ("GetTaskResult",),
    "tasks/list": ("ListTasksResult",),
    "tasks/result": ("CallToolResult",),
}
"""The type of the result by the method of the request; the second one is for a result that asks for more input."""

_EXTENSION_RESULTS: Final[Mapping[str, tuple[str, ...]]] = {
    AS_TASK: ("GetTaskResult",),
    "tasks/get": ("FinishedTask",),
    "tasks/cancel": ("Result",),
}
"""In the stateless era, tasks are an extension with other results."""

NOTIFICATIONS: Final[Mapping[str, tuple[str, int, int]]] = {
    "notifications/cancelled": ("Cancelled", 0, 4),
    "notifications/progress": ("Progress", 0, 4),
    "notifications/message": ("Logged", 0, 4),
    "notifications/resources/updated": ("Updated", 0, 4),
    "notifications/resources/list_changed": ("Noted", 0, 4),
    "notifications/tools/list_changed": ("Noted", 0, 4),
    "notifications/prompts/list_changed": ("Noted", 0, 4),
    "notifications/tasks/status": ("TaskStatus", 3, 3),
    "notifications/elicitation/complete": ("Elicited", 3, 3),
    "notifications/subscriptions/acknowledged": ("Acknowledged", 4, 4),
}
"""The parameters of each notification, with its first and last revision."""
OPTIONAL_PARAMS: Final = ("Noted",)

SERVER_REQUESTS: Final[Mapping[str, tuple[str, int, int]]] = {
    "ping": ("Noted", 0, 3),
    "roots/list": ("Noted", 0, 3),
    "sampling/createMessage": ("Sampling", 0, 3),
    "elicitation/create": ("Elicitation", 2, 3),
}
"""The parameters of each request of a server, with its first and last revision."""


class Fault(msgspec.Struct, frozen=True):
    """One difference between a message and its schema."""

    path: str
    """Such as `tools[0].inputSchema.type`."""
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.path else self.problem


class _Field(msgspec.Struct, frozen=True):
    name: str
    kind: str
    required: bool


_FIELD = re.compile(r"(?P<name>[^\s!]+)(?P<required>!?) (?P<kind>.+?)(?: @(?P<range>[\d-]+))?")


@functools.cache
def _read_table() -> dict[str, str]:
    lines = _TABLE.replace("\\\n", "").strip().splitlines()
    return {name: fields for name, _, fields in (line.partition(": ") for line in lines)}


def _is_in_range(text: str | None, revision: int) -> bool:
    if not text:
        return True
    low, dash, high = text.partition("-")
    return int(low or 0) <= revision <= (int(high or 4) if dash else int(low))


@functools.cache
def _read_fields(name: str, revision: int) -> tuple[_Field, ...]:
    fields: list[_Field] = []
    for part in _read_table()[name].split("; "):
        if part.startswith("+"):
            fields += _read_fields(part[1:], revision)
            continue
        match = _FIELD.fullmatch(part)
        assert match is not None, part
        if _is_in_range(match["range"], revision):
            fields.append(_Field(match["name"], match["kind"], bool(match["required"])))
    return tuple(fields)


@functools.cache
def _read_kinds(name: str, revision: int) -> dict[str, str]:
    """Return the alternatives of a `*` line of the table by the value of their `type`."""
    kinds: dict[str, str] = {}
    for part in _read_table()[name][1:].split():
        line, _, range_ = part.partition("@")
        if _is_in_range(range_, revision):
            kinds[_read_fields(line, revision)[0].kind.strip("'")] = line
    return kinds


def validate(value: Json, kind: str, revision: str) -> list[Fault]:
    """Return the differences between a value and a type of this revision."""
    return list(_compare(value, kind, REVISIONS.index(revision), ""))


def _is_number(value: Json) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_integer(value: Json) -> bool:
    # JSON Schema counts 1.0 as an integer.
    return _is_number(value) and float(value) == int(value) if not isinstance(value, float) or abs(value) < 1e300 else False


_SIMPLE: Final = {
    "any": ("any value", lambda value: True),
    "text": ("a string", lambda value: isinstance(value, str)),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "integer": ("an integer", _is_integer),
    "count": ("an integer of at least 0", lambda value: _is_integer(value) and value >= 0),
    "number": ("a number", _is_number),
    "share": ("a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1),
    "object": ("an object", lambda value: isinstance(value, dict)),
    "null": ("null", lambda value: value is None),
}


def _compare(value: Json, kind: str, revision: int, path: str) -> Iterator[Fault]:
    if kind[0] == "[":
        if not isinstance(value, list):
            yield Fault(path, f"expected a list, found {show(value, 60)}")
            return
        for number, item in enumerate(value):
            yield from _compare(item, kind[1:-1], revision, f"{path}[{number}]")
    elif kind[0] == "{":
        if not isinstance(value, dict):
            yield Fault(path, f"expected an object, found {show(value, 60)}")
            return
        for key, item in value.items():
            yield from _compare(item, kind[1:-1], revision, f"{path}.{key}")
    elif "|" in kind:
        faults = [list(_compare(value, each, revision, path)) for each in kind.split("|")]
        if all(faults):
            best = min(faults, key=len)
            expected = kind.replace("|", " or ")
            yield best[0] if isinstance(value, dict) else Fault(path, f"expected {expected}, found {show(value, 60)}")
    elif kind[0] == "'":
        if value != kind[1:-1]:
            yield Fault(path, f"expected {kind}, found {show(value, 60)}")
    elif kind in _SIMPLE:
        expected, holds = _SIMPLE[kind]
        if not holds(value):
            yield Fault(path, f"expected {expected}, found {show(value, 60)}")
    else:
        yield from _compare_object(value, kind, revision, path)


def _compare_object(value: Json, kind: str, revision: int, path: str) -> Iterator[Fault]:
    if not isinstance(value, dict):
        yield Fault(path, f"expected an object, found {show(value, 60)}")
        return
    if _read_table()[kind].startswith("*"):
        kinds = _read_kinds(kind, revision)
        tag = value.get("type")
        if not isinstance(tag, str) or tag not in kinds:
            yield Fault(f"{path}.type".lstrip("."), f"expected one of {', '.join(kinds)}, found {show(tag, 60)}")
            return
        kind = kinds[tag]
    for field in _read_fields(kind, revision):
        place = f"{path}.{field.name}".lstrip(".")
        if field.name in value:
            yield from _compare(value[field.name], field.kind, revision, place)
        elif field.required:
            yield Fault(place, "is missing")


def validate_result(method: str, result: Json, revision: str) -> list[Fault]:
    """Return the differences between the result of a request and its schema."""
    kinds = RESULTS.get(method, ("Result",))
    if revision == REVISIONS[-1]:
        kinds = _EXTENSION_RESULTS.get(method, kinds)
    asks_more = isinstance(result, dict) and result.get("resultType") == "input_required" and len(kinds) > 1
    return validate(result, kinds[1 if asks_more and revision == REVISIONS[-1] else 0], revision)


def validate_call(message: Mapping[str, Json], table: Mapping[str, tuple[str, int, int]], revision: str) -> list[Fault] | None:
    """Return the differences between the parameters of a request or notification and their schema; None for an unknown method."""
    kind, first, last = table.get(str(message.get("method")), ("", 0, -1))
    if not first <= REVISIONS.index(revision) <= last:
        return None
    if "params" not in message:
        return [] if kind in OPTIONAL_PARAMS else [Fault("params", "is missing")]
    return [Fault(f"params.{fault.path}", fault.problem) for fault in validate(message["params"], kind, revision)]
