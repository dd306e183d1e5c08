"""Reads the tool calls and the turns of a record by a mapping; fields that are not mapped are read under their usual names."""

from __future__ import annotations

from typing import Any

from proctor.evidence.mapping.lookup import Holder, Missing, explain_missing, find_list, find_root_key
from proctor.evidence.shared.calls import ARGUMENTS, CARRYING, IDS, RESULTS
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.endings import find_failure, is_error, read_status
from proctor.evidence.unknowns.markers import find_marker
from proctor.evidence.values.access import read_number, split_words
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text
from proctor.model.account import Part
from proctor.model.evidence import Json
from proctor.model.mapping import CallMap, TurnMap
from proctor.model.show import describe_value
from proctor.paths.json_path import CompiledPath, compile_path

USERS = split_words("user human customer client caller visitor guest requester end_user patient employee member contact lead")
AGENTS = split_words("assistant agent bot ai model chatbot ai_agent")
_TOOLS = split_words("tool function tool_result tool_call")
_SILENT = split_words("system developer platform context memory")
_USUAL: dict[str, tuple[str, ...]] = {
    "name": ("name", "toolName", "tool_name", "tool"),
    "arguments": ARGUMENTS,
    "result": RESULTS,
    "error": ("error",),
    "id": IDS,
    "duration_ms": ("duration_ms", "durationMs"),
}
"""The usual names of the fields of a call."""


class CallReader:
    """Reads calls; a path alone selects calls with the usual names."""

    def __init__(self, paths: CallMap | str) -> None:
        mapped = CallMap(each=paths) if isinstance(paths, str) else paths
        self.each = compile_path(mapped.each)
        given = {field: getattr(mapped, field) for field in _USUAL}
        self._paths: dict[str, CompiledPath] = {field: compile_path(path) for field, path in given.items() if path is not None}

    def read(self, items: list[Json], unknowns: Unknowns) -> list[dict[str, Any]]:
        """Return the calls as plain evidence; one without a name is left out, and makes the calls unknown."""
        calls = [self._read_call(Holder(decode_container(item)), number, unknowns) for number, item in enumerate(items, 1)]
        return [call for call in calls if call is not None]

    def _read_call(self, item: Holder, number: int, unknowns: Unknowns) -> dict[str, Any] | None:
        found: dict[str, Json] = {"name": item.value} if isinstance(item.value, str) else self._find_usual(item.value)
        for field, path in self._paths.items():
            if values := item.find(path):
                found[field] = values[-1]
        name, arguments, error = found.get("name"), found.get("arguments"), found.get("error")
        if not isinstance(name, str) or not name.strip():
            why = self._explain("name", item, number) if name is None else f"a call has the name {describe_value(name, 60)}"
            unknowns.mark("tool_calls", why)
            return None
        call: dict[str, Any] = {"name": name, "arguments": arguments}
        if arguments is None:
            unknowns.mark_unrecognised(("tool_arguments",), self._explain("arguments", item, number))
        if error is None and isinstance(item.value, dict):
            error = find_failure({key: value for key, value in item.value.items() if key not in CARRYING}, own=True)
        failed = is_error(error) and not (isinstance(error, str) and read_status(error) == "ok")
        if failed or "error" in self._paths or "error" in found:
            call["error"] = error if failed else False
        if found.get("result") is not None:
            call["result"] = found["result"]
        elif "result" in self._paths and not failed and not item.find_any(self._paths["result"]):
            unknowns.mark_unrecognised(("tool_results",), self._explain("result", item, number))
        if isinstance(found.get("id"), (str, int)):
            call["id"] = str(found["id"])
        if (duration := read_number(found.get("duration_ms"))) is not None:
            call["duration_ms"] = duration
        return call

    def _explain(self, field: str, item: Holder, number: int) -> str:
        if (path := self._paths.get(field)) is not None:
            return explain_missing(item, path, f"item {number} of `{self.each.text}`")
        return f"`{field}` of a call is neither mapped nor under a usual name in {describe_value(item.value, 60)} of `{self.each.text}`"

    def _find_usual(self, item: Json) -> dict[str, Json]:
        """Return the fields of a call that have their usual names."""
        if not isinstance(item, dict):
            return {}
        function = item.get("function")
        places = (item, function) if isinstance(function, dict) else (item,)
        found: dict[str, Json] = {}
        for field, names in _USUAL.items():
            if field not in self._paths:
                value = next((place[name] for place in places for name in names if place.get(name) is not None), None)
                if value is not None:
                    found[field] = value
        return found


class TurnReader:
    """Reads turns with an input and an answer, or messages with roles."""

    def __init__(self, paths: TurnMap) -> None:
        self.each = compile_path(paths.each)
        self.calls = CallReader(paths.tool_calls) if paths.tool_calls is not None else None
        self._role, self._input, self._text = (compile_path(path) if path else None for path in (paths.role, paths.input, paths.text))
        self._speakers = {_write_role(word): "user" for word in paths.user} | {_write_role(word): "agent" for word in paths.agent}
        mapped = (self._role, self._input, self._text, self.calls.each if self.calls is not None else None)
        self._taken = frozenset(find_root_key(path) for path in mapped if path is not None)

    def read(self, holder: Holder, unknowns: Unknowns) -> list[dict[str, Any]] | None:
        """Return turns as plain evidence, or None if their list is missing."""
        items, _, missing = find_list(holder, self.each)
        if missing is not None:
            missing.mark(("turns", "answer", "input"), unknowns)
            return None
        if self._role is not None:
            return self._read_messages(items, self._role, unknowns)
        turns = [self._read_turn(Holder(item), number, unknowns) for number, item in enumerate(items, 1)]
        if turns and turns[-1].get("text") is None and self._text is not None:
            unknowns.mark_parts(("answer", "tool_calls"), "the record ends before the agent answered the last turn")
        return turns

    def _read_turn(self, item: Holder, number: int, unknowns: Unknowns) -> dict[str, Any]:
        turn: dict[str, Any] = {}
        parts: tuple[tuple[str, Part, CompiledPath | None], ...] = (("input", "input", self._input), ("text", "answer", self._text))
        for field, part, path in parts:
            if path is not None and (found := item.find(path)):
                turn[field] = as_text(found[-1 if field == "text" else 0])
            elif path is not None:
                unknowns.mark_unrecognised((part,), explain_missing(item, path, f"turn {number}"))
        if (missing := self._add_calls(item, turn, unknowns)) is not None:
            missing.mark(("tool_calls",), unknowns, f"turn {number}: ")
        return turn | self._list_reports(item.value)

    def _list_reports(self, item: Json) -> dict[str, Json]:
        """Return the fields of a turn or message that report failure or loss, which are read under their usual names."""
        others = {key: value for key, value in item.items() if key not in self._taken} if isinstance(item, dict) else {}
        return {key: value for key, value in others.items() if find_failure({key: value}, own=True) or find_marker(key, value, ())}

    def _add_calls(self, item: Holder, turn: dict[str, Any], unknowns: Unknowns) -> Missing | None:
        """Add the calls of an item to a turn, or return why their list is missing."""
        if self.calls is None:
            return None
        calls, _, missing = find_list(item, self.calls.each)
        if calls or missing is None:
            turn["tool_calls"] = [*turn.get("tool_calls", ()), *self.calls.read(calls, unknowns)]
        return missing

    def _read_messages(self, items: list[Json], role: CompiledPath, unknowns: Unknowns) -> list[dict[str, Any]]:
        turns: list[dict[str, Any]] = []
        last = ""
        for number, holder in enumerate(map(Holder, items), 1):
            texts, roles = holder.find(self._text) if self._text is not None else [], holder.find(role)
            text = as_text(texts[-1]) if texts else None
            speaker = self._find_speaker(roles)
            if speaker is None and text:
                missing = (
                    f"`{role.text}` found {describe_value(roles[-1], 40)}" if roles else explain_missing(holder, role, f"message {number}")
                )
                unknowns.mark_unrecognised(
                    ("answer", "input", "turns"), f"{missing}; list the words for the agent and the user under `agent` and `user`"
                )
            if speaker == "user" and (last != "user" or not turns):
                turns.append({"input": text})
            elif speaker == "agent" or speaker == "user":
                turns = turns or [{}]
                field = "input" if speaker == "user" else "text"
                turns[-1][field] = "\n".join(filter(None, (turns[-1].get(field), text))) if last == speaker else text
            if turns:
                missing = self._add_calls(holder, turns[-1], unknowns)
                if missing is not None and missing.is_lost:
                    missing.mark(("tool_calls",), unknowns, f"message {number}: ")
                turns[-1] |= self._list_reports(holder.value) if speaker == "agent" else {}
            last = speaker or last
        if last != "agent":
            unknowns.mark_parts(("answer", "tool_calls"), "the record ends before the agent answered the last message")
        return turns

    def _find_speaker(self, found: list[Json]) -> str | None:
        """Return `user`, `agent`, `tool`, an empty text for a message of none of them, or None for an unrecognised role."""
        word = _write_role(found[-1]) if found else ""
        known = "user" if word in USERS else "agent" if word in AGENTS else "tool" if word in _TOOLS else "" if word in _SILENT else None
        return self._speakers.get(word, known)


def _write_role(word: Json) -> str:
    return (as_text(word) or "").strip().lower().replace(" ", "_").replace("-", "_")
