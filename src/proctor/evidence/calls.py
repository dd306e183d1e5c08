"""Tool calls as people and platforms spell them.

    name        name, toolName, tool_name, tool, function.name
    arguments   arguments, args, input, toolInput, function.arguments; JSON text of an object or list is parsed, other text is
                kept as text; absent and empty text are {}, null is not recorded
    result      result, output, toolOutput
    error       error; else is_error, isError or failed true; else success false; else status "error" or "failed"; else an MCP result that
                says `isError: true`. A call that only says that it did not fail (`success: true`) has the error `false`

A failed MCP result is a `content-error`: the tool answered, and its answer is that it failed.

A call with a member that is not understood keeps what was: without arguments beside it they are not known, and without both a
result and a word on its success neither is how it ended.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.account import Doubts
from proctor.evidence.json_bytes import container_in
from proctor.evidence.members import not_understood, unknown_members, words
from proctor.evidence.shape import SHOWN, dict_of, first_of, list_at, number_at, object_at, text_at, wrong
from proctor.evidence.text import as_text
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
KNOWN = frozenset(("name", "toolName", "tool_name", "tool", "function", "type", *_ARGUMENTS, *_RESULTS, *_ENDINGS, *_IDS)) | words(
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
_OURS = words("name arguments result error duration_ms id")
_ORDINARY = _OURS | _SPELLINGS.keys()
_FUNCTION = frozenset(("name", "arguments", "description", "parameters"))
_FAILED = frozenset(("error", "failed", "failure", "errored"))
_SUCCEEDED = frozenset(("success", "succeeded", "ok", "completed", "complete", "done", "finished"))


def read_calls(value: Json, path: str, doubts: Doubts | None = None) -> tuple[ToolCall, ...]:
    """Read a list of tool calls; what is not understood is noted in `doubts`."""
    return tuple(read_call(entry, f"{path}[{index}]", doubts) for index, entry in enumerate(list_at(value, path)))


def read_call(value: Json, path: str, doubts: Doubts | None = None) -> ToolCall:
    """Read one tool call in any of the known spellings; what is not understood is noted in `doubts`."""
    entry = object_at(value, path)
    ordinary = entry if _OURS.issuperset(entry) else _in_our_words(entry)
    if ordinary is not None and isinstance(ordinary.get("name"), str) and ordinary.get("arguments") is not None:
        return _read_ordinary(ordinary, path)
    function = dict_of(entry.get("function"))
    name, result = _name(entry, function, path), first_of(entry, *_RESULTS)
    given = first_of(entry, *_ARGUMENTS)
    given = function.get("arguments") if given is None else given
    error, kind = _error(entry, result)
    strange = _strange(entry, function, path)
    known = given is not None or not (strange or not _ARGUMENT_KEYS.isdisjoint(entry) or "arguments" in function)
    if doubts is not None:
        if not known:
            doubts.doubt("tool_arguments", strange or f"the arguments of {path} are null, which is not recorded")
        _doubt_ending(entry, error, strange, path, doubts)
        _doubt_names_told_twice(entry, function, path, doubts)
        if strange is not None:
            _doubt_names(entry, strange, doubts)
    duration = first_of(entry, "duration_ms", "durationMs")
    return ToolCall(
        name=name,
        arguments=read_arguments(given) if known else None,
        result=result,
        error=False if error is None and result is None and _says_success(entry) else error,
        error_kind=_text(entry.get("error_kind"), path, "error_kind") or kind,
        duration_ms=duration if duration is None else number_at(duration, f"{path}.duration_ms"),
        node=_text(entry.get("node"), path, "node"),
        server=_text(first_of(entry, "server", "serverId"), path, "server"),
        id=_text(first_of(entry, *_IDS), path, "id"),
        aliases=() if entry.get("aliases") is None else _aliases(entry["aliases"], f"{path}.aliases"),
    )


def _in_our_words(entry: dict[str, Any]) -> dict[str, Any] | None:
    """Return a call under our own names; nothing where it has other members, or tells a thing under two names."""
    if not _ORDINARY.issuperset(entry):
        return None
    ours = {_SPELLINGS.get(key, key): member for key, member in entry.items()}
    return ours if len(ours) == len(entry) else None


def _read_ordinary(entry: dict[str, Any], path: str) -> ToolCall:
    """Read a call that tells each thing once and under our names, as nearly all do: there is nothing to look for and nothing to doubt."""
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
        id=_text(entry.get("id"), path, "id"),
    )


def _text(value: Json, path: str, key: str) -> str | None:
    """Return a text, or nothing where it is null; the place is put into words only where it is wrong."""
    return value if value is None or isinstance(value, str) else text_at(value, f"{path}.{key}")


def _strange(entry: dict[str, Any], function: dict[str, Any], path: str) -> str | None:
    """Return what is said of the first member of a call that is not understood."""
    for key in unknown_members(entry, KNOWN):
        return not_understood(path, key, KNOWN)
    if "function" in entry:
        for key in unknown_members(function, _FUNCTION):
            return not_understood(f"{path}.function", key, _FUNCTION)
        if entry["function"] is not None and not isinstance(entry["function"], dict):
            return not_understood(path, "function", ())
    return None


def _doubt_ending(entry: dict[str, Any], error: Json, strange: str | None, path: str, doubts: Doubts) -> None:
    """Note what keeps us from knowing how a call ended; one that failed is known to have failed."""
    if error is not None or (strange is None and _SAID.isdisjoint(entry)):
        return
    status = entry.get("status")
    if status is not None and not (isinstance(status, str) and status.lower() in _SUCCEEDED):
        doubts.doubt("tool_results", f"the status {show(status, SHOWN)} at {path} is not understood; expected success or error")
    for key in _FLAGS:
        if entry.get(key) is not None and not isinstance(entry[key], bool):
            doubts.doubt("tool_results", f"{key} at {path} is {kind_of(entry[key])} instead of true or false")
    told = any(key in entry for key in _ENDINGS) and any(entry.get(key) is not None for key in _RESULTS)
    if strange is not None and not told:
        doubts.doubt("tool_results", strange)


def _doubt_names_told_twice(entry: dict[str, Any], function: dict[str, Any], path: str, doubts: Doubts) -> None:
    """Note what a call tells under two names, and differently: of two tools, arguments or results nobody knows which it was."""
    inner = {f"function.{key}": function.get(key) for key in ("name", "arguments")}
    told: tuple[tuple[Part, tuple[str, ...]], ...] = (
        ("tool_calls", (*_NAMES, "function.name")),
        ("tool_arguments", (*_ARGUMENTS, "function.arguments")),
        ("tool_results", _RESULTS),
    )
    for part, keys in told:
        given = [(key, container_in(value)) for key in keys if (value := entry.get(key, inner.get(key))) not in (None, "")]
        for key, value in given[1:]:
            if value != given[0][1] and not (part == "tool_calls" and not isinstance(value, str)):
                doubts.doubt(part, f"{given[0][0]!r} and {key!r} at {path} tell different things")


def _doubt_names(entry: dict[str, Any], strange: str, doubts: Doubts) -> None:
    """Note that a member nobody understands may be another name of the tool, or the node the call belongs to."""
    if entry.get("node") is None:
        doubts.doubt("nodes", strange)
    if entry.get("aliases") is None and any(isinstance(entry[key], list) for key in unknown_members(entry, KNOWN)):
        doubts.doubt("tool_calls", strange)


def read_arguments(value: Json) -> Json:
    """Arguments as an object wherever they are one, also when written as JSON text."""
    if value is None or value == "":
        return {}
    return container_in(value)


def says_error(value: Json) -> bool:
    """Whether an `error` member means that something failed; null, false and blank text do not."""
    return value is not None and value is not False and not (isinstance(value, str) and not value.strip())


def _name(entry: dict[str, Any], function: dict[str, Any], path: str) -> str:
    for key in _NAMES:
        value = entry.get(key)
        if value is not None:
            return _text(value, path, key) or ""
    if function.get("name") is not None:
        return text_at(function["name"], f"{path}.function.name") or ""
    raise wrong(f"{path}.name", "text", None)


def _error(entry: dict[str, Any], result: Json) -> tuple[Json, str | None]:
    error = entry.get("error")
    if says_error(error):
        return error, None
    if not _SAID.isdisjoint(entry) and any(entry.get(key) is failed for key, failed in _FLAGS.items()):
        return as_text(result) or "the tool reported an error", CONTENT_ERROR
    status = entry.get("status")
    if isinstance(status, str) and status.lower() in _FAILED:
        return as_text(result) or "the call ended in an error", None
    told = mcp_error(result)
    return (told, CONTENT_ERROR) if told is not None else (None, None)


def _says_success(entry: dict[str, Any]) -> bool:
    """Whether a call says in so many words that it did not fail."""
    status = entry.get("status")
    succeeded = isinstance(status, str) and status.lower() in _SUCCEEDED
    return succeeded or entry.get("error") in (False, "") or any(entry.get(key) is (not failed) for key, failed in _FLAGS.items())


def _aliases(value: Json, path: str) -> tuple[str, ...]:
    return tuple(text_at(alias, f"{path}[{index}]") or "" for index, alias in enumerate(list_at(value, path)))
