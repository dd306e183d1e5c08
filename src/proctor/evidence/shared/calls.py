"""Tool calls as people and platforms spell them.

    name        name, toolName, tool_name, tool, function.name
    arguments   arguments, args, input, toolInput, function.arguments; JSON text of an object or list is parsed, other text is
                kept as text; absent and empty text are {}, null is not recorded
    result      result, output, toolOutput
    error       error; else is_error, isError or failed true; else success false; else status "error" or "failed"; else an MCP result that
                says `isError: true`. A call that only says that it did not fail (`success: true`) has the error `false`

A failed MCP result is a `content-error`: the tool answered, and its answer is that it failed.

A call with a member that is not understood keeps what was: without arguments beside it they are unknown, and without both a
result and a word on its success neither is how it ended.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.members import describe_unknown_member, list_unknown_members, split_words
from proctor.evidence.values.access import SHOWN, dict_or_empty, find_first, list_at, number_at, read_object, read_text, wrong_kind_error
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text
from proctor.model.account import Part
from proctor.model.evidence import Json, ToolCall, mcp_error
from proctor.model.show import kind_of, show

CONTENT_ERROR = "content-error"
PROTOCOL_ERROR = "protocol-error"


_NAMES = ("name", "toolName", "tool_name", "tool")
_ARGUMENTS = ("arguments", "args", "input", "toolInput")
_ARGUMENT_KEYS = frozenset(_ARGUMENTS)
_RESULTS = ("result", "output", "toolOutput")
_FLAGS = {"is_error": True, "isError": True, "failed": True, "success": False}
"""Members that say in a word whether a call failed, and the word for it."""
_ENDINGS = ("error", "status", *_FLAGS)
_SAID = frozenset(("status", *_FLAGS))
_IDS = ("id", "toolCallId", "tool_call_id", "call_id")
KNOWN = frozenset(("name", "toolName", "tool_name", "tool", "function", "type", *_ARGUMENTS, *_RESULTS, *_ENDINGS, *_IDS)) | split_words(
    "error_kind duration_ms durationMs node server serverId aliases"
)
"""Every member of a tool call that means something to us."""
_SPELLINGS = {
    **dict.fromkeys(("toolName", "tool_name", "tool"), "name"),
    **dict.fromkeys(_ARGUMENTS, "arguments"),
    **dict.fromkeys(_RESULTS, "result"),
    **dict.fromkeys(_IDS, "id"),
    "durationMs": "duration_ms",
}
_OURS = split_words("name arguments result error duration_ms id")
_ORDINARY = _OURS | _SPELLINGS.keys()
_FUNCTION = frozenset(("name", "arguments", "description", "parameters"))
_FAILED = frozenset(("error", "failed", "failure", "errored"))
_SUCCEEDED = frozenset(("success", "succeeded", "ok", "completed", "complete", "done", "finished"))


def read_calls(value: Json, path: str, unknowns: Unknowns | None = None) -> tuple[ToolCall, ...]:
    """Read a list of tool calls; what is not understood is noted in `unknowns`."""
    return tuple(read_call(entry, f"{path}[{index}]", unknowns) for index, entry in enumerate(list_at(value, path)))


def read_call(value: Json, path: str, unknowns: Unknowns | None = None) -> ToolCall:
    """Read one tool call in any of the known spellings; what is not understood is noted in `unknowns`."""
    entry = read_object(value, path)
    # Nearly every call takes this short road. Only a call with other members, or without arguments, has anything to doubt.
    ordinary = entry if _OURS.issuperset(entry) else _spell_our_way(entry)
    if ordinary is not None and isinstance(ordinary.get("name"), str) and ordinary.get("arguments") is not None:
        return _read_ordinary(ordinary, path)
    function = dict_or_empty(entry.get("function"))
    name, result = _name(entry, function, path), find_first(entry, *_RESULTS)
    given = find_first(entry, *_ARGUMENTS)
    given = function.get("arguments") if given is None else given
    error, kind = _read_error(entry, result)
    strange = _describe_strange_member(entry, function, path)
    # A call that says nothing of arguments was made without any. Null, or a member that may be the arguments misnamed, leaves them open.
    known = given is not None or not (strange or not _ARGUMENT_KEYS.isdisjoint(entry) or "arguments" in function)
    if unknowns is not None:
        if not known:
            unknowns.mark("tool_arguments", strange or f"the arguments of {path} are null, which is not recorded")
        _mark_ending(entry, error, strange, path, unknowns)
        _mark_names_told_twice(entry, function, path, unknowns)
        if strange is not None:
            _mark_names(entry, strange, unknowns)
    duration = find_first(entry, "duration_ms", "durationMs")
    return ToolCall(
        name=name,
        arguments=read_arguments(given) if known else None,
        result=result,
        error=False if error is None and result is None and _says_success(entry) else error,
        error_kind=_read_text(entry.get("error_kind"), path, "error_kind") or kind,
        duration_ms=duration if duration is None else number_at(duration, f"{path}.duration_ms"),
        node=_read_text(entry.get("node"), path, "node"),
        server=_read_text(find_first(entry, "server", "serverId"), path, "server"),
        id=_read_text(find_first(entry, *_IDS), path, "id"),
        aliases=() if entry.get("aliases") is None else _read_aliases(entry["aliases"], f"{path}.aliases"),
    )


def _spell_our_way(entry: dict[str, Any]) -> dict[str, Any] | None:
    """Return a call under our own names, or None if it has other members or tells a thing under two names."""
    if not _ORDINARY.issuperset(entry):
        return None
    ours = {_SPELLINGS.get(key, key): member for key, member in entry.items()}
    # Fewer keys than before: two spellings fell together, and whether they agree is for the careful way to say.
    return ours if len(ours) == len(entry) else None


def _read_ordinary(entry: dict[str, Any], path: str) -> ToolCall:
    """Read a call that tells each thing once and under our names, as nearly all do; there is nothing to doubt."""
    result, duration, error, kind = entry.get("result"), entry.get("duration_ms"), entry.get("error"), None
    if not says_error(error):
        error = mcp_error(result)
        kind = CONTENT_ERROR if error is not None else None
    return ToolCall(
        name=entry["name"],
        arguments=read_arguments(entry["arguments"]),
        result=result,
        error=False if error is None and result is None and entry.get("error") in (False, "") else error,
        error_kind=kind,
        duration_ms=duration if duration is None else number_at(duration, f"{path}.duration_ms"),
        id=_read_text(entry.get("id"), path, "id"),
    )


def _read_text(value: Json, path: str, key: str) -> str | None:
    """Return a text, or None if it is null; the path is written only for an error, as it costs time."""
    return value if value is None or isinstance(value, str) else read_text(value, f"{path}.{key}")


def _describe_strange_member(entry: dict[str, Any], function: dict[str, Any], path: str) -> str | None:
    """Describe the first member of a call that is not understood, or return None."""
    for key in list_unknown_members(entry, KNOWN):
        return describe_unknown_member(path, key, KNOWN)
    if "function" in entry:
        for key in list_unknown_members(function, _FUNCTION):
            return describe_unknown_member(f"{path}.function", key, _FUNCTION)
        if entry["function"] is not None and not isinstance(entry["function"], dict):
            return describe_unknown_member(path, "function", ())
    return None


def _mark_ending(entry: dict[str, Any], error: Json, strange: str | None, path: str, unknowns: Unknowns) -> None:
    """Doubt how a call ended if a member leaves that open; a call that failed is known to have failed."""
    if error is not None or (strange is None and _SAID.isdisjoint(entry)):
        return
    status = entry.get("status")
    if status is not None and not (isinstance(status, str) and status.lower() in _SUCCEEDED):
        unknowns.mark("tool_results", f"the status {show(status, SHOWN)} at {path} is not understood; expected success or error")
    for key in _FLAGS:
        if entry.get(key) is not None and not isinstance(entry[key], bool):
            unknowns.mark("tool_results", f"{key} at {path} is {kind_of(entry[key])} instead of true or false")
    told = any(key in entry for key in _ENDINGS) and any(entry.get(key) is not None for key in _RESULTS)
    if strange is not None and not told:
        unknowns.mark("tool_results", strange)


def _mark_names_told_twice(entry: dict[str, Any], function: dict[str, Any], path: str, unknowns: Unknowns) -> None:
    """Doubt a call that tells a thing under two names and differently: nobody knows which tool or argument it was."""
    inner = {f"function.{key}": function.get(key) for key in ("name", "arguments")}
    told: tuple[tuple[Part, tuple[str, ...]], ...] = (
        ("tool_calls", (*_NAMES, "function.name")),
        ("tool_arguments", (*_ARGUMENTS, "function.arguments")),
        ("tool_results", _RESULTS),
    )
    for part, keys in told:
        given = [(key, decode_container(value)) for key in keys if (value := entry.get(key, inner.get(key))) not in (None, "")]
        for key, value in given[1:]:
            # A value that is no text is no name at all, so it contradicts none.
            if value != given[0][1] and not (part == "tool_calls" and not isinstance(value, str)):
                unknowns.mark(part, f"{given[0][0]!r} and {key!r} at {path} tell different things")


def _mark_names(entry: dict[str, Any], strange: str, unknowns: Unknowns) -> None:
    """Doubt a call with a member that may be another name of the tool, or the node it belongs to."""
    if entry.get("node") is None:
        unknowns.mark("nodes", strange)
    if entry.get("aliases") is None and any(isinstance(entry[key], list) for key in list_unknown_members(entry, KNOWN)):
        unknowns.mark("tool_calls", strange)


def read_arguments(value: Json) -> Json:
    """Return arguments as an object if they are one, also when they are written as JSON text."""
    if value is None or value == "":
        return {}
    return decode_container(value)


def says_error(value: Json) -> bool:
    """Return whether an `error` member means that something failed; null, false and blank text do not."""
    return value is not None and value is not False and not (isinstance(value, str) and not value.strip())


def _name(entry: dict[str, Any], function: dict[str, Any], path: str) -> str:
    for key in _NAMES:
        value = entry.get(key)
        if value is not None:
            return _read_text(value, path, key) or ""
    if function.get("name") is not None:
        return read_text(function["name"], f"{path}.function.name") or ""
    raise wrong_kind_error(f"{path}.name", "text", None)


def _read_error(entry: dict[str, Any], result: Json) -> tuple[Json, str | None]:
    error = entry.get("error")
    if says_error(error):
        return error, None
    # By identity, as 1 equals true: a flag that is no boolean is doubted (`_mark_ending`) and not read.
    if not _SAID.isdisjoint(entry) and any(entry.get(key) is failed for key, failed in _FLAGS.items()):
        return as_text(result) or "the tool reported an error", CONTENT_ERROR
    status = entry.get("status")
    if isinstance(status, str) and status.lower() in _FAILED:
        return as_text(result) or "the call ended in an error", None
    told = mcp_error(result)
    return (told, CONTENT_ERROR) if told is not None else (None, None)


def _says_success(entry: dict[str, Any]) -> bool:
    """Return whether a call says in so many words that it did not fail."""
    status = entry.get("status")
    succeeded = isinstance(status, str) and status.lower() in _SUCCEEDED
    return succeeded or entry.get("error") in (False, "") or any(entry.get(key) is (not failed) for key, failed in _FLAGS.items())


def _read_aliases(value: Json, path: str) -> tuple[str, ...]:
    return tuple(read_text(alias, f"{path}[{index}]") or "" for index, alias in enumerate(list_at(value, path)))
