"""Connects, reads every list and validates every message; nothing is called.

`connect` decides whether the server supports a revision. `read_surface` fetches the lists. `check_wire` judges the recording last, so that
it covers the messages of all other parts too.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from proctor.doctor.client import CLIENT, META, TASKS, Listed, Reply, Session
from proctor.doctor.model import REVISIONS, Verdicts
from proctor.doctor.recording import Frame, parse_message
from proctor.doctor.wire_types import AS_TASK, NOTIFICATIONS, SERVER_REQUESTS, validate_call, validate_result
from proctor.doctor.wire_types import validate as validate_value
from proctor.model.evidence import Json
from proctor.model.show import shorten, show
from proctor.report.words.wording import count_noun

LISTS: Final = {
    "tools": ("tools", "tools/list", "tools"),
    "resources": ("resources", "resources/list", "resources"),
    "templates": ("resources", "resources/templates/list", "resourceTemplates"),
    "prompts": ("prompts", "prompts/list", "prompts"),
}
"""By list: the capability, the method, and the field of the result."""
_MOST_READ: Final = 3
"""The maximum number of resources that are read."""
_LARGE: Final = 1_000_000
_MOST_FAULTS: Final = 20
_DECLARED_BY: Final = {
    "notifications/message": ("logging", None),
    "notifications/tools/list_changed": ("tools", "listChanged"),
    "notifications/prompts/list_changed": ("prompts", "listChanged"),
    "notifications/resources/list_changed": ("resources", "listChanged"),
    "notifications/resources/updated": ("resources", "subscribe"),
}
"""The capability that each notification requires, and the flag inside it."""
_CHECKS_OF_FAULTS: Final = {
    r".*: resultType\Z": "wire-result-type",
    r".*: (?:ttlMs|cacheScope)\Z": "cache-hints",
    r"initialize: (?:protocolVersion|serverInfo|capabilities)(?:[.\[]|\Z)": "initialize",
    r"server/discover: (?:supportedVersions|capabilities)(?:[.\[]|\Z)": "discover",
    rf"(?:{AS_TASK}|tasks/(?:get|list|cancel)): ": "task-shape",
    r"tools/list: .*\.inputSchema": "tools-input-schema",
    r"tools/list: .*\.outputSchema": "tools-output-schema",
}
"""The check that reports a fault in a result, by method and path."""
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")
_TEMPLATE = re.compile(r"(?:[^{}\s]|\{[+#./;?&]?[\w.%]+(?::\d+|\*)?(?:,[\w.%]+(?::\d+|\*)?)*\})+")


class Surface(msgspec.Struct, kw_only=True):
    """What a server offers."""

    server: Mapping[str, Any] = {}
    instructions: str = ""
    capabilities: Mapping[str, Any] = {}
    tools: tuple[Mapping[str, Any], ...] = ()
    resources: tuple[Mapping[str, Any], ...] = ()
    templates: tuple[Mapping[str, Any], ...] = ()
    prompts: tuple[Mapping[str, Any], ...] = ()


async def connect(session: Session, v: Verdicts, surface: Surface, *, timeout_s: float) -> bool:
    """Connect with the revision of the session, and return whether the server supports it."""
    if session.is_stateless:
        return await _discover(session, v, surface, timeout_s)
    reply = await initialize(session, timeout_s=timeout_s)
    result = reply.result
    shown = session.show(reply)
    if not isinstance(result, dict):
        if session.link.is_open() and reply.status not in (401, 403):
            v.broken("initialize", f"expected a result, got {reply.describe()}", *shown)
        return False
    v.ok("initialize")
    version = result.get("protocolVersion")
    if v.require("initialize-known-version", version in REVISIONS[:4], f"the server chose {show(version, 40)}", *shown):
        session.revision = str(version)
    _take_identity(session, v, surface, result, result.get("serverInfo"))
    began = len(session.recording.frames)
    accepted = await session.notify("notifications/initialized")
    await session.link.wait(session.quiet_s)
    await session.request("ping")  # a response to the notification was sent before this one
    request, first = session.show(accepted)
    if accepted.status:  # over HTTP the status is the answer
        has_body = bool(accepted.body.strip())
        what = f"`notifications/initialized` got {accepted.status}" + (" with a body" if has_body else "")
        v.require("http-notification-202", accepted.status == 202 and not has_body, what, request, first)
        v.ok("wire-notification-silence")
        return True
    answers = [frame for frame in session.recording.frames[began:] if frame.direction == "received" and frame.is_response()]
    stray = next((frame for frame in answers if frame.fields.get("id") is None), None)
    v.require("wire-notification-silence", stray is None, "a notification got a response", request, session.recording.show(stray))
    return True


async def initialize(session: Session, version: str | None = None, *, timeout_s: float) -> Reply:
    """Send `initialize`, and take over the session id."""
    params: dict[str, Json] = {"protocolVersion": version or session.offered, "capabilities": session.declared, "clientInfo": CLIENT}
    reply = await session.request("initialize", params, timeout_s=timeout_s)
    session.session_id = reply.headers.get("mcp-session-id")
    return reply


async def _discover(session: Session, v: Verdicts, surface: Surface, timeout_s: float) -> bool:
    reply = await session.request("server/discover", timeout_s=timeout_s)
    result = reply.result
    shown = session.recording.show(reply.shown)
    if not isinstance(result, dict):
        if session.link.is_open() and reply.status not in (401, 403):
            v.broken("discover", f"expected a result, got {reply.describe()}", session.recording.show(reply.request), shown)
        return False
    v.ok("discover")
    spoken = result.get("supportedVersions")
    if isinstance(spoken, list):
        v.require("discover-own-version", session.revision in spoken, f"it has {show(spoken, 100)} without {session.revision}", shown)
    else:
        v.obstruct("`supportedVersions` is no list", "discover-own-version")
    meta = result.get("_meta")
    _take_identity(session, v, surface, result, meta.get(f"{META}serverInfo") if isinstance(meta, dict) else None)
    return True


def _take_identity(session: Session, v: Verdicts, surface: Surface, result: Mapping[str, Any], server: Json) -> None:
    capabilities = result.get("capabilities")
    session.capabilities = surface.capabilities = capabilities if isinstance(capabilities, dict) else {}
    surface.instructions = str(result.get("instructions") or "")
    surface.server = server if isinstance(server, dict) else {}
    if server is None:
        v.skip("the server does not name itself", "server-info")
    else:
        empty = [name for name in ("name", "version") if not str(surface.server.get(name) or "").strip()]
        v.require("server-info", not empty, f"{' and '.join(empty)} of the server is empty")


# --- lists ----------------------------------------------------------------------------------------------------------------------


async def read_surface(session: Session, v: Verdicts, surface: Surface) -> None:
    """Fetch every list with all pages, twice, and read a few resources."""
    for attribute, (capability, method, key) in LISTS.items():
        declared = capability in session.capabilities
        listed = await session.list_all(method, key)
        setattr(surface, attribute, listed.items)
        if not session.link.is_open():
            return
        if declared:
            _check_listed(session, v, attribute, method, listed)
            again = await session.list_all(method, key) if attribute != "templates" and listed.items and not listed.endless else None
            if again is not None and not again.problem:
                first, second = ([item.get("uri") or item.get("name") for item in each.items] for each in (listed, again))
                difference = "the order differs" if sorted(map(str, first)) == sorted(map(str, second)) else "the items differ"
                shown = [session.recording.show(each.first.response) for each in (listed, again)]
                v.require("paging-stable", first == second, f"`{method}`: {difference} the second time", *shown)
        else:
            why = f"`{capability}` is not declared"
            v.skip(why, f"{capability}-list", *(["resources-templates"] if capability == "resources" else []))
            has_items = isinstance(listed.first.result, dict) and listed.items
            if has_items:
                shown = session.recording.show(listed.first.response)
                v.broken("capabilities-complete", f"`{method}` gives {len(listed.items)} items, but {why}", shown)
    v.ok("capabilities-complete")
    _check_names(v, surface)
    await _read_resources(session, v, surface)


def _check_listed(session: Session, v: Verdicts, attribute: str, method: str, listed: Listed) -> None:
    check = "resources-templates" if attribute == "templates" else f"{attribute}-list"
    last = listed.pages[-1]
    shown = session.show(last)
    not_found = attribute == "templates" and last.code == -32601
    v.require(check, not listed.problem or not_found, f"`{method}`: expected a list, got {listed.problem}", *shown)
    if listed.problem:
        return
    v.require("paging-ends", not listed.endless, f"`{method}`: {listed.endless}", *shown)
    if session.is_stateless:
        scopes = {str(page.result.get("cacheScope")) for page in listed.pages if isinstance(page.result, dict)}
        v.require("cache-scope-stable", len(scopes) == 1, f"the pages of `{method}` have {' and '.join(sorted(scopes))}", *shown)
        lives = [page.result.get("ttlMs") for page in listed.pages if isinstance(page.result, dict)]
        v.require("cache-useful", any(life != 0 for life in lives), f"`ttlMs` of `{method}` is 0", shown[1])
    if listed.endless:
        return
    keys = {"tools": "name", "prompts": "name", "resources": "uri", "templates": "uriTemplate"}
    pages = [page.result for page in listed.pages if isinstance(page.result, dict)]
    field = LISTS[attribute][2]
    names = [{str(item.get(keys[attribute])) for item in page.get(field, []) if isinstance(item, dict)} for page in pages]
    repeated = sorted(name for name, count in Counter(name for page in names for name in page).items() if count > 1)
    v.require("paging-no-repeats", not repeated, f"`{method}` has {_quote(repeated)} on several pages", *shown)


def _check_names(v: Verdicts, surface: Surface) -> None:
    v.skip("there are no tools", "tools-unique", "tools-name-format", "tools-input-schema", "tools-output-schema", "tools-param-headers")
    v.skip("there are no resources", "resources-unique", "resources-uri")
    v.skip("there are no resource templates", "resources-template-syntax")
    v.skip("there are no prompts", "prompts-unique")
    v.skip("there are no lists", "paging-ends", "paging-no-repeats", "paging-stable", "cache-hints", "cache-scope-stable", "cache-useful")
    for kind, key in (("tools", "name"), ("resources", "uri"), ("prompts", "name")):
        if items := getattr(surface, kind):
            repeated = [name for name, count in Counter(str(item.get(key)) for item in items).items() if count > 1]
            # Items that are on two pages are reported as such.
            v.require(f"{kind}-unique", not repeated or v.is_broken("paging-no-repeats"), f"several have the name {_quote(repeated)}")
    if surface.tools:
        wrong = [name for tool in surface.tools if not re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", name := str(tool.get("name")))]
        v.require("tools-name-format", not wrong, f"not allowed: {_quote(wrong)}")
    if surface.resources:
        wrong = [uri for each in surface.resources if not _URI.fullmatch(uri := str(each.get("uri")))]
        v.require("resources-uri", not wrong, f"no URI: {_quote(wrong)}")
    if surface.templates:
        wrong = [uri for each in surface.templates if not _TEMPLATE.fullmatch(uri := str(each.get("uriTemplate")))]
        v.require("resources-template-syntax", not wrong, f"no URI template: {_quote(wrong)}")
    _check_tool_schemas(v, surface.tools)


def _check_tool_schemas(v: Verdicts, tools: Sequence[Mapping[str, Any]]) -> None:
    """Note which schemas no validator accepts."""
    from mcp.shared.inbound import find_invalid_x_mcp_header  # the `mcp` package is an extra

    for tool in tools:
        name = str(tool.get("name"))
        for key, check in (("inputSchema", "tools-input-schema"), ("outputSchema", "tools-output-schema")):
            if isinstance(tool.get(key), dict):
                fault = explain_schema(tool[key])
                v.require(check, not fault, f"{name}: {fault}")
        fault = find_invalid_x_mcp_header(tool.get("inputSchema")) if "x-mcp-header" in str(tool.get("inputSchema")) else None
        v.require("tools-param-headers", fault is None, f"{name}: {fault}")
    if tools and not any("outputSchema" in tool for tool in tools):
        v.skip("no tool has an output schema", "tools-output-schema")


def explain_schema(schema: Mapping[str, Any]) -> str:
    """Return why a JSON Schema is invalid; "" for a valid one. An unknown dialect is read as 2020-12."""
    import jsonschema_rs  # slow to load

    known = {key: value for key, value in schema.items() if key != "$schema" or "json-schema.org" in str(value)}
    try:
        jsonschema_rs.validator_for(known, offline=True, validate_formats=False)
    except (jsonschema_rs.ValidationError, ValueError) as error:
        message = str(error).splitlines()[0]
        # References to other documents, and patterns of ECMAScript, say nothing about the schema itself.
        return "" if "not present in a registry" in message or "regex" in message.lower() else shorten(message, 200)
    return ""


async def _read_resources(session: Session, v: Verdicts, surface: Surface) -> None:
    checks = ("resources-read", "resources-content", "resources-base64", "resources-mime")
    small = [each for each in surface.resources if not isinstance(each.get("size"), int) or each["size"] <= _LARGE]
    v.skip("there are no resources" if not surface.resources else "all resources are large", *checks)
    for resource in small[:_MOST_READ]:
        uri = resource.get("uri")
        reply = await session.request("resources/read", {"uri": uri})
        shown = session.show(reply)
        result = reply.result
        if not session.link.is_open():
            return
        if not v.require("resources-read", isinstance(result, dict), f"{uri}: expected contents, got {reply.describe()}", *shown):
            continue
        assert isinstance(result, dict)
        contents = [each for each in result.get("contents") or [] if isinstance(each, dict)]
        v.require("resources-content", bool(contents), f"{uri}: no contents", *shown)
        for content in contents:
            if isinstance(content.get("blob"), str):
                v.require("resources-base64", is_base64(content["blob"]), f"{uri}: `blob` is not base64", *shown)
            listed, read = resource.get("mimeType"), content.get("mimeType")
            if listed and read and content.get("uri") == uri:
                v.require("resources-mime", listed == read, f"{uri}: {listed} in the list, {read} in the contents", *shown)


def is_base64(text: str) -> bool:
    """Return whether a text is base64."""
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _quote(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{shorten(name, 60)}`" for name in names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown


# --- every message --------------------------------------------------------------------------------------------------------------


def check_wire(session: Session, v: Verdicts) -> None:
    """Judge every message that was received."""
    judge = _WireJudge(session, v)
    received = [frame for frame in session.recording.list_received() if frame.raw.strip()]
    judge.check_noise(received)
    for frame in received:
        if isinstance(frame.message, list):
            batches = session.revision == "2025-03-26"
            v.require("wire-no-batch", batches, "a batch was sent", session.recording.show(frame))
            for message in frame.message:
                judge.check_message(message, frame)
        elif isinstance(frame.message, dict):
            judge.check_message(frame.message, frame)
    large = [frame for frame in received if len(frame.raw) > _LARGE]
    if session.link.overflow:
        v.broken("message-size", session.link.overflow)
    if not any(frame.fields for frame in received):
        return
    v.require("message-size", not large, f"{max((len(each.raw) for each in large), default=0):,} bytes")
    v.ok(
        *("stdio-only-messages", "stdio-one-line", "stdio-utf8", "wire-jsonrpc", "wire-schema", "wire-response-id", "wire-one-response"),
        *("wire-error-object", "wire-no-batch", "wire-known-notification", "wire-declared-notification", "wire-no-undeclared-request"),
        *("wire-no-request", "wire-progress-token", "wire-result-type", "wire-no-log-without-level"),
        *("error-without-trace", "wire-notification-silence"),
    )
    if any(session.capabilities.get(each) is not None for each in ("tools", "resources", "prompts")):
        v.ok("cache-hints")


class _WireJudge:
    """Judges messages one by one."""

    def __init__(self, session: Session, v: Verdicts) -> None:
        self._session = session
        self._v = v
        self._answered: Counter[str] = Counter()
        self._faults = 0

    def check_noise(self, frames: Sequence[Frame]) -> None:
        """Judge the lines that are not messages."""
        if any(frame.http for frame in frames):
            return
        for is_noise, group in itertools.groupby(frames, lambda frame: not isinstance(frame.message, (dict, list))):
            noise = list(group)
            if not is_noise:
                continue
            shown = self._session.recording.show(noise[0])
            joined, _ = parse_message(b"\n".join(frame.raw for frame in noise))
            if any(frame.fault == "not UTF-8" for frame in noise):
                self._v.broken("stdio-utf8", "a line is not UTF-8", shown)
            elif isinstance(joined, dict) and "jsonrpc" in joined:
                self._v.broken("stdio-one-line", f"a message is written over {len(noise)} lines", shown)
            else:
                text = shorten(noise[0].raw.decode("utf-8", "replace").strip(), 100)
                self._v.broken(
                    "stdio-only-messages", f"standard output has {count_noun(len(noise), 'other line')}, such as {text!r}", shown
                )

    def check_message(self, message: Json, frame: Frame) -> None:
        """Judge one message."""
        shown = self._session.recording.show(frame)
        kinds = [key for key in ("method", "result", "error") if isinstance(message, dict) and key in message]
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or len(kinds) != 1:
            # HTTP errors below the protocol (a proxy, a login page) may have a JSON body of their own.
            if not (frame.http and isinstance(message, dict) and "jsonrpc" not in message and not frame.http.startswith("HTTP 2")):
                has = " and ".join(kinds) or "neither method nor result nor error"
                self._v.broken("wire-jsonrpc", '`jsonrpc` is not "2.0"' if len(kinds) == 1 else f"a message has {has}", shown)
            return
        if kinds == ["method"]:
            (self._check_request if "id" in message else self._check_notification)(message, frame)
        else:
            self._check_response(message, frame)

    def _check_response(self, message: Mapping[str, Any], frame: Frame) -> None:
        v, shown, identity = self._v, self._session.recording.show(frame), message.get("id")
        if "error" in message:
            faults = validate_value(message["error"], "Error", self._session.revision)
            if faults:
                v.broken("wire-error-object", f"error.{faults[0]}" if faults[0].path else f"error: {faults[0]}", shown)
            text = str(message["error"])
            if "Traceback (most recent call last)" in text or re.search(r"\\n\s+at \S.*:\d+:\d+\)?", text):
                v.broken("error-without-trace", "an error has a stack trace", shown)
        if identity is None:
            return  # an answer to a message whose id could not be read; the probes judge it
        request = self._session.recording.find_request(identity)
        if request is None:
            v.broken("wire-response-id", f"no request has the id {show(identity, 40)}", shown)
            return
        if type(request.fields["id"]) is not type(identity):
            v.broken("wire-response-id", f"the id {show(request.fields['id'], 40)} came back as {show(identity, 40)}", shown)
        self._answered[str(identity)] += 1
        if self._answered[str(identity)] == 2:
            v.broken("wire-one-response", f"the request {show(identity, 40)} got two responses", shown)
        if "result" in message:
            method = _name_result(request, message["result"])
            for fault in validate_result(method, message["result"], self._session.revision):
                self._faults += 1
                if self._faults <= _MOST_FAULTS:
                    v.broken(find_check_of_fault(method, fault.path), f"`{method}`: {fault}", shown)

    def _check_notification(self, message: Mapping[str, Any], frame: Frame) -> None:
        v, session, method = self._v, self._session, str(message.get("method"))
        shown = session.recording.show(frame)
        faults = validate_call(message, NOTIFICATIONS, session.revision)
        if faults is None:
            v.broken("wire-known-notification", f"{session.revision} has no `{method}`", shown)
            return
        if faults:
            v.broken("wire-schema", f"`{method}`: {faults[0]}", shown)
        params = message.get("params")
        fields: Mapping[str, Any] = params if isinstance(params, dict) else {}
        capability, part = _DECLARED_BY.get(method, (None, None))
        declared = session.capabilities.get(capability) if capability else {}
        if capability and session.capabilities and (declared is None or (part and not (isinstance(declared, dict) and declared.get(part)))):
            name = f"{capability}.{part}" if part else capability
            v.broken("wire-declared-notification", f"`{method}` without the capability `{name}`", shown)
        if method == "notifications/progress":
            tokens = [_find_token(sent_frame) for sent_frame in session.recording.frames if sent_frame.direction == "sent"]
            is_known = fields.get("progressToken") in [each for each in tokens if each is not None]
            v.require("wire-progress-token", is_known, "progress for an unknown token", shown)
        if session.is_stateless and method == "notifications/message":
            v.broken("wire-no-log-without-level", "a log message that was not requested", shown)

    def _check_request(self, message: Mapping[str, Any], frame: Frame) -> None:
        v, session, method = self._v, self._session, str(message.get("method"))
        shown = session.recording.show(frame)
        if session.is_stateless:
            v.broken("wire-no-request", f"the server sent the request `{method}`", shown)
            return
        faults = validate_call(message, SERVER_REQUESTS, session.revision)
        needed = {"roots/list": "roots", "sampling/createMessage": "sampling", "elicitation/create": "elicitation"}.get(method)
        if method != "ping" and (needed is None or needed not in session.declared):
            v.broken("wire-no-undeclared-request", f"the server sent `{method}`", shown)
        elif faults:
            v.broken("wire-schema", f"`{method}`: {faults[0]}", shown)


def _name_result(request: Frame, result: Json) -> str:
    """Return the method that decides the type of a result: a call as a task has another one."""
    method, params = str(request.fields.get("method")), request.fields.get("params")
    if method == "tools/call" and isinstance(params, dict) and isinstance(result, dict):
        extended = TASKS in str(params.get("_meta")) and result.get("resultType") == "task"
        if extended or ("task" in params and "task" in result):
            return AS_TASK
    return method


def _find_token(frame: Frame) -> Json:
    params = frame.fields.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta.get("progressToken") if isinstance(meta, dict) else None


def find_check_of_fault(method: str, path: str) -> str:
    """Return the check that reports a fault in a result; `wire-schema` for most."""
    place = f"{method}: {path}"
    return next((check for pattern, check in _CHECKS_OF_FAULTS.items() if re.match(pattern, place)), "wire-schema")
