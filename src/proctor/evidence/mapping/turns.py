"""Reads the turns of a conversation by a mapping: turns with an input and an answer, or messages with roles."""

from __future__ import annotations

from typing import Any

from proctor.evidence.mapping.calls import CallReader
from proctor.evidence.mapping.lookup import Holder, explain_missing, find_list
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import split_words
from proctor.evidence.values.text import as_text
from proctor.model.account import Part
from proctor.model.evidence import Json
from proctor.model.mapping import TurnMap
from proctor.model.show import describe_value
from proctor.paths.json_path import CompiledPath, compile_path

USERS = split_words("user human customer client caller visitor guest requester end_user patient employee member contact lead")
AGENTS = split_words("assistant agent bot ai model chatbot ai_agent")
_SILENT = split_words("system developer tool function platform context memory")


class TurnReader:
    """Reads the turns of a conversation, or its messages."""

    def __init__(self, paths: TurnMap) -> None:
        self.each = compile_path(paths.each)
        self.calls = CallReader.compile(paths.tool_calls)
        self._role, self._input, self._text = (compile_path(path) if path else None for path in (paths.role, paths.input, paths.text))

    def read(self, holder: Holder, unknowns: Unknowns) -> list[dict[str, Any]] | None:
        """Return turns as plain evidence, or None if their list is missing."""
        items, _, missing = find_list(holder, self.each)
        if missing is not None:
            unknowns.mark_unrecognised(("turns", "answer", "input"), missing)
            return None
        if self._role is not None:
            return self._read_messages(items, self._role, unknowns)
        turns = [self._read_turn(Holder(item), number, unknowns) for number, item in enumerate(items)]
        if turns and turns[-1].get("text") is None and self._text is not None:
            unknowns.mark_parts(("answer", "tool_calls"), "the record ends before the agent answered the last turn")
        return turns

    def _read_turn(self, item: Holder, number: int, unknowns: Unknowns) -> dict[str, Any]:
        turn: dict[str, Any] = {}
        parts: tuple[tuple[str, Part, CompiledPath | None], ...] = (("input", "input", self._input), ("text", "answer", self._text))
        for field, part, path in parts:
            found = item.find(path) if path is not None else []
            if found:
                turn[field] = as_text(found[-1 if field == "text" else 0])
            elif path is not None:
                unknowns.mark_unrecognised((part,), explain_missing(item, path, f"turn {number + 1}"))
        self._add_calls(item, turn, unknowns, number)
        return turn

    def _add_calls(self, item: Holder, turn: dict[str, Any], unknowns: Unknowns, number: int) -> None:
        if self.calls is None:
            return
        calls, _, missing = find_list(item, self.calls.each)
        if missing is None:
            turn["tool_calls"] = [*turn.get("tool_calls", ()), *self.calls.read(calls, unknowns)]
        elif self._role is None:
            unknowns.mark_unrecognised(("tool_calls",), f"turn {number + 1}: {missing}")

    def _read_messages(self, items: list[Json], role: CompiledPath, unknowns: Unknowns) -> list[dict[str, Any]]:
        turns: list[dict[str, Any]] = []
        last = ""
        for number, item in enumerate(items):
            holder = Holder(item)
            texts = holder.find(self._text) if self._text is not None else []
            text = as_text(texts[-1]) if texts else None
            speaker = _find_speaker(holder.find(role))
            if speaker is None and text:
                found = holder.find(role)
                why = (
                    f"`{role.text}` found {describe_value(found[-1], 40)}"
                    if found
                    else explain_missing(holder, role, f"message {number + 1}")
                )
                unknowns.mark_unrecognised(("answer", "input", "turns"), f"{why}; expected a word such as user or assistant")
            if speaker == "user":
                if last == "user" and turns:
                    turns[-1]["input"] = "\n".join(filter(None, (turns[-1].get("input"), text)))
                else:
                    turns.append({"input": text})
            elif speaker == "agent":
                turns = turns or [{}]
                turns[-1]["text"] = "\n".join(filter(None, (turns[-1].get("text"), text))) if last == "agent" else text
            if turns:
                self._add_calls(holder, turns[-1], unknowns, number)
            last = speaker or last
        if last != "agent":
            unknowns.mark_parts(("answer", "tool_calls"), "the record ends before the agent answered the last message")
        return turns


def _find_speaker(found: list[Json]) -> str | None:
    """Return `user`, `agent`, an empty text for a message of neither, or None for an unrecognised role."""
    word = found[-1].strip().lower().replace(" ", "_").replace("-", "_") if found and isinstance(found[-1], str) else ""
    return "user" if word in USERS else "agent" if word in AGENTS else "" if word in _SILENT else None
