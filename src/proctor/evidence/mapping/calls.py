"""Reads tool calls by a mapping, and lists the usual names of everything that a mapping need not mention."""

from __future__ import annotations

from typing import Any

from proctor.evidence.mapping.lookup import Holder, explain_missing, read_number
from proctor.evidence.shared.calls import says_error
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.endings import read_status
from proctor.evidence.values.access import split_words
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Json
from proctor.model.mapping import CallMap
from proctor.model.show import describe_value
from proctor.paths.json_path import CompiledPath, compile_path

TEXTS = split_words("text answer response output reply message content result body")
INPUTS = split_words("input question prompt query")
USUAL_CALLS = split_words("tool_calls toolCalls tools_called actions steps")
OTHERS = split_words("duration_ms http_status error case model context")
"""Fields of a record that are no parts of their own; their names are those of a mapping."""
_USUAL: dict[str, tuple[str, ...]] = {
    "name": ("name", "toolName", "tool_name", "tool"),
    "arguments": ("arguments", "args", "input", "toolInput", "parameters"),
    "result": ("result", "output", "toolOutput"),
    "error": ("error",),
    "id": ("id", "toolCallId", "tool_call_id", "call_id"),
    "duration_ms": ("duration_ms", "durationMs"),
}
"""The usual names of the fields of a call."""


class CallReader:
    """Reads calls by their paths; fields that are not mapped are read under their usual names."""

    def __init__(self, paths: CallMap) -> None:
        self.each = compile_path(paths.each)
        given = {field: getattr(paths, field) for field in _USUAL}
        self._paths: dict[str, CompiledPath] = {field: compile_path(path) for field, path in given.items() if path is not None}
        self._usual = tuple((field, names) for field, names in _USUAL.items() if field not in self._paths)

    @classmethod
    def compile(cls, paths: CallMap | str | None) -> CallReader | None:
        """Return the reader of a mapping of calls; a path alone selects calls with the usual names."""
        return None if paths is None else cls(CallMap(each=paths) if isinstance(paths, str) else paths)

    def read(self, items: list[Json], unknowns: Unknowns) -> list[dict[str, Any]]:
        """Return the calls as plain evidence; one without a name is left out, and makes the calls unknown."""
        calls: list[dict[str, Any]] = []
        for number, item in enumerate(items):
            call = self._read_call(decode_container(item), number, unknowns)
            if call is not None:
                calls.append(call)
        return calls

    def _read_call(self, item: Json, number: int, unknowns: Unknowns) -> dict[str, Any] | None:
        found = self._find_usual(item)
        holder = Holder(item)
        for field, path in self._paths.items():
            values = holder.find(path)
            if values:
                found[field] = values[-1]
        name = found.get("name")
        if not isinstance(name, str) or not name.strip():
            path = self._paths.get("name")
            why = (
                f"no name in {describe_value(item, 60)}"
                if path is None
                else explain_missing(holder, path, f"item {number + 1} of `{self.each.text}`")
            )
            unknowns.mark_unrecognised(("tool_calls",), why if name is None else f"a call has the name {describe_value(name, 60)}")
            return None
        call: dict[str, Any] = {"name": name, "arguments": found.get("arguments")}
        self._add_ending(call, found, holder, number, unknowns)
        if "arguments" in self._paths and call["arguments"] is None:
            why = explain_missing(holder, self._paths["arguments"], f"item {number + 1} of `{self.each.text}`")
            unknowns.mark_unrecognised(("tool_arguments",), why)
        elif call["arguments"] is None:
            # Neither mapped nor there under a usual name: not recorded, unless the item lists nothing else.
            unknowns.mark_unrecognised(
                ("tool_arguments",), f"`arguments` of a call are neither mapped nor under a usual name in `{self.each.text}`"
            )
        if isinstance(found.get("id"), (str, int)):
            call["id"] = str(found["id"])
        if (duration := read_number(found.get("duration_ms"))) is not None:
            call["duration_ms"] = duration
        return call

    def _add_ending(self, call: dict[str, Any], found: dict[str, Json], holder: Holder, number: int, unknowns: Unknowns) -> None:
        error = found.get("error")
        failed = says_error(error) and not (isinstance(error, str) and read_status(error) == "ok")
        if failed:
            call["error"] = error
        elif "error" in self._paths or "error" in found:
            call["error"] = False
        if found.get("result") is not None:
            call["result"] = found["result"]
        elif "result" in self._paths and not failed and not holder.has(self._paths["result"]):
            why = explain_missing(holder, self._paths["result"], f"item {number + 1} of `{self.each.text}`")
            unknowns.mark_unrecognised(("tool_results",), why)

    def _find_usual(self, item: Json) -> dict[str, Json]:
        """Return the fields of a call that are not mapped and have their usual names."""
        if not isinstance(item, dict):
            return {}
        function = item.get("function")
        places = (item, function) if isinstance(function, dict) else (item,)
        found: dict[str, Json] = {}
        for field, names in self._usual:
            value = next((place[name] for place in places for name in names if place.get(name) is not None), None)
            if value is not None:
                found[field] = value
        return found
