"""Tool calls as people and platforms spell them; absent and empty arguments are {}, null and redacted ones are unknown."""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.markers import is_redacted, mark_call, mark_call_flags
from proctor.evidence.unknowns.statuses import STATUS_FIELDS, Status, is_error, read_flag, read_status, reports_failure, to_snake_case
from proctor.evidence.unknowns.unrecognised import check_object, list_unrecognised, take_agreeing
from proctor.evidence.values.access import SHOWN, dict_or_empty, list_at, list_texts, number_at, read_object, read_text, wrong_kind_error
from proctor.evidence.values.json_bytes import UNWRITABLE, decode_container
from proctor.evidence.values.text import as_text
from proctor.model.account import Part
from proctor.model.evidence import Json, ToolCall, find_result_error
from proctor.model.lazy_pattern import lazy_pattern
from proctor.model.show import kind_of, shorten, show

CONTENT_ERROR = "content-error"
PROTOCOL_ERROR = "protocol-error"

_NAMES = ("name", "toolName", "tool_name", "tool", "function")
ARGUMENTS = ("arguments", "args", "input", "toolInput", "tool_input", "tool_args", "action_input", "parameters", "params", "kwargs")
RESULTS = ("result", "output", "toolOutput", "tool_output", "response", "observation")
_FLAGS = {"is_error": True, "isError": True, "failed": True, "success": False, "ok": False}
"""Fields that report whether a call failed, and the value for failure."""
IDS = ("id", "toolCallId", "tool_call_id", "call_id")
_FIELDS: dict[str, Part | None] = {
    **dict.fromkeys((*_NAMES, "aliases"), "tool_calls"),
    **dict.fromkeys(ARGUMENTS, "tool_arguments"),
    **dict.fromkeys((*RESULTS, *_FLAGS, "error", "status"), "tool_results"),
    **dict.fromkeys((*IDS, "action", "type", "error_kind", "duration_ms", "durationMs", "server", "serverId"), None),
    "node": "nodes",
}
_FUNCTION: dict[str, Part | None] = {"name": None, "arguments": "tool_arguments", "description": None, "parameters": None}
_SPELLINGS = {
    **dict.fromkeys(("toolName", "tool_name", "tool"), "name"),
    **dict.fromkeys(ARGUMENTS, "arguments"),
    **dict.fromkeys(RESULTS, "result"),
    **dict.fromkeys(IDS, "id"),
    "durationMs": "duration_ms",
}
CARRYING = frozenset((*_NAMES, *ARGUMENTS, *RESULTS))
_OURS = frozenset(("name", "arguments", "result", "error", "duration_ms", "id"))
_ORDINARY = _OURS.union(_SPELLINGS)
_LITERAL = lazy_pattern(
    r"""(?:'(?:[^'\\]|\\[\\'nrtxuU])*+'|"(?:[^"\\]|\\[\\"nrtxuU])*+"|-?\d+(?:\.\d*)?(?:e[+-]?\d+)?|True|False|None|[\[\]{}(),:]|\s+){1,4000}+"""
)
"""The tokens of a Python literal, as `repr` writes them. Each may open a level for the parser, so their number is bounded."""
_MAX_LITERAL = 200_000
_NOT_LITERAL = (*UNWRITABLE, SyntaxError, MemoryError)


def read_calls(value: Json, path: str, unknowns: Unknowns) -> tuple[ToolCall, ...]:
    """Read a list of tool calls, or of the names of tools."""
    entries = list_at(decode_container(value), path)  # a column of a table holds JSON text
    given = (decode_container(entry) if isinstance(entry, str) else entry for entry in entries)
    calls = ({"name": entry, "arguments": None} if isinstance(entry, str) else entry for entry in given)
    return tuple(read_call(entry, f"{path}[{index}]", unknowns) for index, entry in enumerate(calls))


def read_call(value: Json, path: str, unknowns: Unknowns | None = None) -> ToolCall:
    """Read one tool call in any of the known spellings."""
    entry = read_object(value, path)
    unknowns = Unknowns() if unknowns is None else unknowns
    # Nearly every call has each field once, under a usual name.
    ordinary = entry
    if not _OURS.issuperset(entry):
        ordinary = {_SPELLINGS.get(key, key): value for key, value in entry.items()} if _ORDINARY.issuperset(entry) else {}
    if len(ordinary) == len(entry) and isinstance(ordinary.get("name"), str) and ordinary.get("arguments") is not None:
        return _read_ordinary(ordinary, path, unknowns)
    entry = open_payload(entry)
    if "Name" in entry or "Tool" in entry:  # Go and C# capitalise field names
        entry = {key[:1].lower() + key[1:]: value for key, value in entry.items()}
    function = dict_or_empty(entry.get("function") or entry.get("tool"))
    merged: dict[str, Any] = {**entry, "function": function.get("name", entry.get("function"))}
    merged |= {f"function.{key}": value for key, value in function.items() if key not in ("name", "description", "parameters")}
    check_object(entry, _FIELDS, path, unknowns)
    check_object(function, _FUNCTION, f"{path}.function", unknowns)
    name, result = _read_name(merged, path, unknowns), take_agreeing(merged, RESULTS, "tool_results", path, unknowns)
    error, kind = _read_error(entry, result, path, unknowns)
    arguments = _find_arguments(merged, path, unknowns)
    mark_call(name, arguments, result, path, unknowns)
    mark_call_flags(entry, list_unrecognised(entry, _FIELDS), path, unknowns)
    if error is None and result is None:
        flags = any(read_flag(entry.get(key)) is (not failed) for key, failed in _FLAGS.items())
        error = False if flags or entry.get("error") in (False, "") or _read_status(entry.get("status")) == "ok" else None
    return ToolCall(
        name=name,
        arguments=arguments,
        result=result,
        error=error,
        error_kind=_read_text(entry.get("error_kind"), path, "error_kind") or kind,
        duration_ms=_read_duration(entry.get("duration_ms", entry.get("durationMs")), path),
        node=_read_text(entry.get("node"), path, "node"),
        server=_read_text(entry.get("server", entry.get("serverId")), path, "server"),
        id=_read_text(next((entry[key] for key in IDS if entry.get(key) is not None), None), path, "id"),
        aliases=() if entry.get("aliases") is None else list_texts(entry["aliases"], f"{path}.aliases"),
    )


def open_payload(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a call or a result of Mastra with the fields of its payload; any other entry unchanged."""
    if not isinstance(entry.get("payload"), dict) or any(key in entry for key in _NAMES):
        return entry
    return {key: value for key, value in entry.items() if key != "payload"} | entry["payload"]


def _read_ordinary(entry: dict[str, Any], path: str, unknowns: Unknowns) -> ToolCall:
    """Read a call that has each field once and under our names, as nearly all do."""
    arguments, result, error, kind = entry["arguments"], entry.get("result"), entry.get("error"), None
    if not is_error(error):
        error = find_result_error(result)
        kind = CONTENT_ERROR if error is not None else None
    arguments = arguments if isinstance(arguments, dict) else read_arguments(arguments)
    mark_call(entry["name"], arguments, result, path, unknowns)
    return ToolCall(
        name=entry["name"],
        arguments=None if is_redacted(arguments) else arguments,
        result=result,
        error=False if not is_error(error) and result is None and entry.get("error") is not None else error,
        error_kind=kind,
        duration_ms=_read_duration(entry.get("duration_ms"), path),
        id=_read_text(entry.get("id"), path, "id"),
    )


def _read_text(value: Json, path: str, key: str) -> str | None:
    # The path is formatted only for an error, because that takes time.
    return value if value is None or isinstance(value, str) else read_text(value, f"{path}.{key}")


def _read_duration(value: Json, path: str) -> float | None:
    return value if value is None else number_at(value, f"{path}.duration_ms")


def _read_name(entry: dict[str, Any], path: str, unknowns: Unknowns) -> str:
    names = {key: entry[key] for key in _NAMES if isinstance(entry.get(key), str)}
    if not names and isinstance(entry.get("action"), str):
        return entry["action"]
    if not names:
        key = next((key for key in _NAMES if entry.get(key) is not None), "name")
        raise wrong_kind_error(f"{path}.{key}", "text", entry.get(key))
    return take_agreeing(names, _NAMES, "tool_calls", path, unknowns)


def _find_arguments(entry: dict[str, Any], path: str, unknowns: Unknowns) -> Json:
    """Return the arguments of a call; {} if it has none, None if they are unknown."""
    keys = (*ARGUMENTS, "function.arguments")
    given = take_agreeing(entry, keys, "tool_arguments", path, unknowns)
    if given is not None:
        return read_known_arguments(given, path, unknowns)
    if any(key in entry for key in keys):
        unknowns.mark("tool_arguments", f"the arguments of {path} are null, which is not recorded")
        return None
    for key in list_unrecognised(entry, _FIELDS):
        if entry[key] and isinstance(decode_container(entry[key]), dict):
            why = f"the call at {path} has no arguments; {show(shorten(key, 60))} may hold them: map it, or rename it to arguments"
            unknowns.mark_unrecognised(("tool_arguments",), why)
            return None
    return {}


def read_known_arguments(value: Json, path: str, unknowns: Unknowns) -> Json:
    """Return arguments as an object if they are one, or None if they were redacted."""
    arguments = read_arguments(value)
    mark_call(None, arguments, None, path, unknowns)
    return None if is_redacted(arguments) else arguments


def read_arguments(value: Json) -> Json:
    """Return arguments as an object if they are one, also when they are written as JSON text."""
    if value is None or value == "":
        return {}
    return decode_container(value)


def read_written_arguments(value: Json) -> Json:
    """Return the arguments of a tool that ran, which some frameworks write as `str(arguments)` in Python."""
    arguments = read_arguments(value)
    if not isinstance(arguments, str) or arguments[:1] != "{" or len(arguments) > _MAX_LITERAL or not _LITERAL.fullmatch(arguments):
        return arguments
    import ast  # few traces need it

    try:
        # A tuple becomes a list, as in JSON.
        return msgspec.json.decode(msgspec.json.encode(ast.literal_eval(arguments)))
    except _NOT_LITERAL:
        return arguments


def _read_status(status: Json) -> Status | None:
    if isinstance(status, int) and not isinstance(status, bool) and status >= 100:
        return "failed" if status >= 400 else "ok"  # HTTP
    return read_status(status)


def _read_error(entry: dict[str, Any], result: Json, path: str, unknowns: Unknowns) -> tuple[Json, str | None]:
    """Return the error of a call and its kind; an unreadable field for the outcome makes the results unknown."""
    if is_error(entry.get("error")):
        return entry["error"], None
    for key, value in entry.items():
        if key not in CARRYING and value is not None and reports_failure(to_snake_case(key), value, status=False):
            message = as_text(result) or ("the tool reported an error" if isinstance(value, (bool, int)) else as_text(value))
            return message, CONTENT_ERROR if key in _FLAGS else None
    reported = {key: entry[key] for key in STATUS_FIELDS if entry.get(key) is not None}
    ended = {key: _read_status(value) for key, value in reported.items()}
    if "failed" in ended.values():
        return as_text(result) or "the call ended in an error", None
    message = find_result_error(result)
    if message is not None:
        return message, CONTENT_ERROR
    if "status" in ended and ended["status"] != "ok":
        unknowns.mark("tool_results", f"the status {show(entry['status'], SHOWN)} at {path} does not report success or error")
    for key in _FLAGS:
        if entry.get(key) is not None and read_flag(entry[key]) is None:
            unknowns.mark("tool_results", f"{key} at {path}: expected true or false, found {kind_of(entry[key])}")
    return None, None
