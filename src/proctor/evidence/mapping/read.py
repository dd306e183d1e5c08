"""Reads a record by a mapping: the paths select the parts, and the result is read as plain evidence."""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from typing import Any, NamedTuple, cast

import msgspec

from proctor.errors import CheckFault, EvidenceError, SpecError
from proctor.evidence.plain.record import ANSWERS, CALLS, INPUTS, read_plain
from proctor.evidence.shared.calls import ARGUMENTS, CARRYING, IDS, RESULTS
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.markers import find_marker
from proctor.evidence.unknowns.statuses import STATUS_FIELDS, find_failure, is_error, read_status, to_snake_case
from proctor.evidence.unknowns.unrecognised import HARMLESS, is_call
from proctor.evidence.values.access import dict_or_empty, read_number, split_words
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text
from proctor.model.account import Account, Part
from proctor.model.evidence import Evidence, Json, Usage
from proctor.model.mapping import CallMap, EvidenceMap, TurnMap, UsageMap, list_paths
from proctor.model.show import describe_value, nearest, shorten, show
from proctor.paths.json_path import CompiledPath, Node, Walk, compile_path, list_keys
from proctor.paths.parser import Name, Query, Segment, Step

# --- follows the paths of a mapping through a record, also into JSON text, and explains a path without a match

_KEYS_SHOWN = 6
_DEPTH = 12


class Holder:
    """A value that paths are applied to; JSON text in it is parsed if a path has no match without parsing."""

    def __init__(self, value: Json) -> None:
        self.value = value

    @functools.cached_property
    def parsed(self) -> Json:
        """The value with JSON text parsed."""
        return _parse_texts(self.value, _DEPTH)

    def find(self, path: CompiledPath) -> list[Json]:
        """Return the values that a path selects, without null. Raises `EvidenceError` if it visits too much."""
        return [value for value in self.find_any(path) if value is not None]

    def find_any(self, path: CompiledPath) -> list[Json]:
        """Return the values that a path selects, with null."""
        return _follow(path.steps, self.value) if path.steps is not None else [node[0] for node in self.find_nodes(path)[0]]

    def find_nodes(self, path: CompiledPath) -> tuple[list[Node], Json]:
        """Return the nodes that a path selects, and the document that they are in."""
        try:
            found = path.find_nodes(self.value)
            return (found, self.value) if found else (path.find_nodes(self.parsed), self.parsed)
        except CheckFault as fault:
            raise EvidenceError(f"{path.text}: {fault.message}", code=fault.code) from None

    def find_end(self, path: CompiledPath | None) -> Position | None:
        """Return the position of the last value that a path selects, in the outermost list that contains it; None if no list does."""
        if path is None or path.steps is not None:
            return None
        nodes, document = self.find_nodes(path)
        last = next((node for node in reversed(nodes) if node[0] is not None), None)
        keys = () if last is None else list_keys(last, document) or ()
        return next(((keys[:index], key) for index, key in enumerate(keys) if isinstance(key, int)), None)


Position = tuple[tuple[str | int, ...], int]
"""The keys that lead to a list, and an index in it."""


def _follow(steps: tuple[str | int, ...], value: Json) -> list[Json]:
    for step in steps:
        if isinstance(value, str):
            value = decode_container(value)
        if not isinstance(value, list if isinstance(step, int) else dict):
            return []
        try:
            value = cast(Any, value)[step]
        except LookupError:
            return []
    return [value]


def _list_around(path: CompiledPath, value: Json) -> list[dict[str, Json]]:
    """Return the objects that a path goes through, the innermost last, each without the member that the path continues with."""
    found: list[dict[str, Json]] = []
    for step in path.steps or ():
        value = decode_container(value)
        if isinstance(value, dict):
            found.append({key: member for key, member in value.items() if key != step})
        value = next(iter(_follow((step,), value)), None)
    return found


def _parse_texts(value: Json, depth: int) -> Json:
    value = decode_container(value)
    if isinstance(value, list) and depth > 0:
        return [_parse_texts(item, depth - 1) for item in value]
    if isinstance(value, dict) and depth > 0:
        return {key: _parse_texts(item, depth - 1) for key, item in value.items()}
    return value


class Missing(NamedTuple):
    """Why a list is missing, or some of it."""

    why: str
    is_lost: bool = False
    """Whether the place has another value, which no declaration of completeness overrides."""

    def mark(self, parts: tuple[Part, ...], unknowns: Unknowns, where: str = "") -> None:
        """Mark the parts that the list would contain."""
        (unknowns.mark_parts if self.is_lost else unknowns.mark_unrecognised)(parts, where + self.why)


def find_list(holder: Holder, path: CompiledPath) -> tuple[list[Json], Missing | None]:
    """Return the items that a path selects, and why the list is missing if it is.

    No items in a list that is there means that there were none. A list that is not there, or is null, is missing.
    """
    if path.steps is not None:
        found = next((decode_container(value) for value in holder.find(path)), None)
        if isinstance(found, str):
            return [], _explain_other(path, found)
        if found is None:
            return [], Missing(explain_missing(holder, path))
        return found if isinstance(found, list) else [found], None
    plurals = _list_plurals(path)
    # Some of several lists may be written as text.
    items = [node[0] for node in (Holder(holder.parsed) if len(plurals) > 1 else holder).find_nodes(path)[0]]
    if items and len(plurals) == 1:
        return items, None
    walk = Walk(holder.parsed)
    lists = [node[0] for node in walk.select_query(Query(True, path.query.segments[: plurals[-1]]), walk.root)]
    other = next((value for value in lists if value not in (None, "") and not isinstance(value, (list, dict))), None)
    if other is not None:
        return items, _explain_other(path, other)
    is_there = items or any(isinstance(value, (list, dict)) for value in lists)
    return items, None if is_there else Missing(explain_missing(holder, path))


def split_entries(holder: Holder, path: CompiledPath) -> tuple[list[Json], list[tuple[Json, Json]]]:
    """Return the list entries that a path goes through, and those passed over with the value at the rest of the path or themselves."""
    segments, selected, others = path.query.segments, list[Json](), list[tuple[Json, Json]]()
    plurals = [*_list_plurals(path), len(segments)]
    walk = Walk(holder.parsed if len(plurals) > 2 else holder.find_nodes(path)[1])
    for index, end in itertools.pairwise(plurals):
        rest, nodes = Query(False, segments[index + 1 : end]), walk.select_query(Query(True, segments[: index + 1]), walk.root)
        parents = [*(node[2] for node in nodes), *walk.select_query(Query(True, segments[:index]), walk.root)]
        taken = {(id(node[2][0]), node[1]) for node in nodes if node[2] is not None and walk.select_query(rest, node)}
        for entries in {id(one[0]): one[0] for one in parents if one is not None and isinstance(one[0], list)}.values():
            for key, entry in enumerate(entries):
                if (id(entries), key) in taken:
                    selected.append(entry)
                else:
                    inner = walk.select_query(rest, (decode_container(entry), None, None))
                    others.append((entry, inner[0][0] if inner else entry))
    return selected, others


def _explain_other(path: CompiledPath, value: Json) -> Missing:
    return Missing(f"`{path.text}` found {describe_value(value, 60)} instead of a list", is_lost=True)


def find_summands(holder: Holder, path: CompiledPath) -> list[Json]:
    """Return the values that a path selects, with None for each list entry in which the rest of the path has no match."""
    if not (plurals := _list_plurals(path)):
        return holder.find(path)
    head, rest = Query(True, path.query.segments[: plurals[-1] + 1]), Query(False, path.query.segments[plurals[-1] + 1 :])
    walk = Walk(holder.parsed)
    return [next((node[0] for node in walk.select_query(rest, entry)), None) for entry in walk.select_query(head, walk.root)]


def _list_plurals(path: CompiledPath) -> list[int]:
    """Return the indexes of the segments that may select several values."""
    return [index for index, part in enumerate(path.query.segments) if _is_plural(part)] if path.steps is None else []


def _is_plural(part: Segment | Step) -> bool:
    return not Query(True, (part,)).is_singular()


def find_root_key(path: CompiledPath) -> str | None:
    """Return the member of the record in which a path begins: `request` for `$.request.text`; an empty text for a list: `$[*].text`."""
    first = path.query.segments[0] if path.query.segments else None
    if not isinstance(first, Segment) or first.descendant:
        return None
    return first.selectors[0].name if isinstance(first.selectors[0], Name) else ""


def explain_missing(holder: Holder, path: CompiledPath, what: str = "the record") -> str:
    """Return why a path has no match: the last step that exists, and the nearest key."""
    value, at = holder.value, "$"
    for part in path.query.segments:
        value = decode_container(value)
        if _is_plural(part):
            break
        selector = part.selectors[0] if isinstance(part, Segment) else None
        step = getattr(selector, "name", None) or getattr(selector, "position", 0)
        found = _follow((step,), value)
        if not found:
            location = what if at == "$" else f"`{shorten(at, 60)}`"
            if isinstance(value, dict) and isinstance(step, str):
                return _explain_keys(path.text, location, step, tuple(value))
            description = f"a list of {len(value)}" if isinstance(value, list) else describe_value(value, 60)
            return f"`{path.text}` found nothing; {location} is {description}"
        value, at = found[0], f"{at}.{step}" if isinstance(step, str) else f"{at}[{step}]"
    if isinstance(value, (dict, list)):
        return f"`{path.text}` found nothing in the {len(value)} entries of `{shorten(at, 60)}`"
    nothing = "" if at == path.text else f"nothing; `{at}` is "
    return f"`{path.text}` found {nothing}{describe_value(value, 60)}"


# Cached: the records of a log share a few sets of keys, and comparing words is slow.
@functools.lru_cache(maxsize=512)
def _explain_keys(path: str, where: str, missing: str, keys: tuple[str, ...]) -> str:
    close = nearest(missing, keys, most=1)
    ordered = (*close, *(key for key in keys if key not in close))
    key_names = ", ".join(f"`{shorten(key, 40)}`" for key in ordered[:_KEYS_SHOWN])
    omitted = f" and {len(keys) - _KEYS_SHOWN} more" if len(keys) > _KEYS_SHOWN else ""
    return f"`{path}` found nothing; {where} has {key_names or 'no keys'}{omitted}"


# --- the kinds of entries: a tool call, its start or end, something else, or unrecognised

KINDS = split_words("event event_type eventType type kind run_type span_type log_type message_type msg stage category role")
_WORDS = "(^|_)({})(_|$)"
_TOOL_KIND = re.compile(_WORDS.format("tools?|toolcall|functions?|mcp|commands?|computer|code"))
_CALL_KIND = re.compile(_WORDS.format("calls?|actions?|invo(ke|ked|cation)|used"))
_START_KIND = re.compile(_WORDS.format("start(ed|ing)?|beg[aiu]n|request(ed)?|pending"))
_ENDED = "end(ed)?|finish(ed)?|completed?|done|errors?|fail(ed|ure)|results?|outputs?|response|return(ed)?|observation|progress|delta|chunk"
_END_KIND = re.compile(_WORDS.format(_ENDED))
# An action of the user and a call of the model are no tool calls.
_NEVER_KIND = re.compile(_WORDS.format("user|human|customer|llm|chat|model|generation|completion|embedding"))
_SPOKEN = "assistant|agent|bot|ai|message|answer|reply|final|question|prompt|thought|think(ing)?|reason(ing)?|plan|planner"
_AROUND = "chain|run|session|conversation|workflow|graph|trace|root|parser|score|eval(uation|uator)?|guardrail"
_OTHER_KIND = re.compile(_WORDS.format(f"{_SPOKEN}|{_AROUND}"))


@functools.lru_cache(maxsize=1024)
def _classify_kind(word: str) -> str | None:
    """Return `call`, `start`, `end` or `other` for a kind such as `tool_call`, or None for an unrecognised one."""
    plain = re.sub("[^a-z0-9]+", "_", to_snake_case(word))
    if _TOOL_KIND.search(plain) or (_CALL_KIND.search(plain) and not _NEVER_KIND.search(plain)):
        return "end" if _END_KIND.search(plain) else "start" if _START_KIND.search(plain) else "call"
    is_other = _NEVER_KIND.search(plain) or _OTHER_KIND.search(plain)
    return "other" if is_other else "end" if _END_KIND.search(plain) else None


def find_kind(entry: dict[str, Json]) -> tuple[str | None, str]:
    """Return the meaning of the kind of an entry, and its words; a kind that mentions tools wins."""
    words = (value for key, value in entry.items() if key in KINDS and isinstance(value, str) and len(value) <= 40)
    kinds = {_classify_kind(word): word for word in words}
    return next(((kind, kinds[kind]) for kind in ("call", "start", "end", "other") if kind in kinds), (None, ""))


# --- reads the tool calls and the turns of a record by a mapping; fields that are not mapped are read under their usual names

USERS = split_words("user human customer client caller visitor guest requester end_user patient employee member contact lead")
AGENTS = split_words("assistant agent bot ai model chatbot ai_agent")
_TOOLS = split_words("tool function tool_result tool_call")
_SILENT = split_words("system developer platform context memory")
SPEAKERS = USERS | AGENTS | _TOOLS | _SILENT


_SINGLE = re.compile(r"[._](tool|function|command|action|call)(_(call|use))?$")
"""Fields with one call; if it is null, none was made."""
_REPORTED = frozenset((*RESULTS, "content", "text"))
_NAMING = frozenset(("tool", "toolName", "tool_name", "function"))
_CALL_NAMES: dict[str, tuple[str, ...]] = {
    "name": ("name", "toolName", "tool_name", "tool"),
    "arguments": ARGUMENTS,
    "result": RESULTS,
    "error": ("error",),
    "id": IDS,
    "duration_ms": ("duration_ms", "durationMs"),
}


class CallReader:
    """Reads calls; if only a path is mapped, it selects calls with the usual names."""

    def __init__(self, paths: CallMap | str) -> None:
        mapped = CallMap(each=paths) if isinstance(paths, str) else paths
        self.each = compile_path(mapped.each)
        given = {field: getattr(mapped, field) for field in _CALL_NAMES}
        self._paths: dict[str, CompiledPath] = {field: compile_path(path) for field, path in given.items() if path is not None}
        self._takes_all = self.each.steps is not None or re.fullmatch(r"\$[\w.]*\[\*\]", self.each.text) is not None

    def find(self, holder: Holder, unknowns: Unknowns, where: str = "") -> tuple[list[Any] | None, Missing | None]:
        """Return the calls as plain evidence, None if their list is missing; a call that the path passes over makes the calls unknown."""
        items, missing = find_list(holder, self.each)
        if missing is not None and _SINGLE.search(to_snake_case(self.each.text)) and holder.find_any(self.each) == [None]:
            missing = None
        given = [(number, Holder(decode_container(item))) for number, item in enumerate(items, 1) if item is not None]
        calls = [call for number, item in given if (call := self._read_call(item, number, unknowns)) is not None]
        passed = None if self._takes_all else self._find_passed_over(holder, Counter(call["name"] for call in calls))
        if passed is not None:
            why = f"{where}`{self.each.text}` passes over {show(passed, 120)}, which looks like a tool call"
            unknowns.mark_unrecognised(("tool_calls",), why)
        return calls if items or missing is None else None, missing

    def _find_passed_over(self, holder: Holder, names: Counter[str]) -> Json:
        """Return an entry that looks like a call and is not selected; `names` counts the selected calls."""
        selected, others = split_entries(holder, self.each)
        # The start or the end of a selected call is no other call, nor is a call whose end is selected.
        kinds = {find_kind(entry)[0] for entry in map(decode_container, selected) if isinstance(entry, dict)}
        phases = {"start", "end"} | ({"call"} if "call" not in kinds and kinds & {"start", "end"} else set())
        seen: Counter[tuple[str, str]] = Counter()
        for entry, item in ((decode_container(entry), decode_container(item)) for entry, item in others):
            if not isinstance(entry, dict) or not isinstance(item, dict):
                continue
            kind, word = find_kind(entry)
            if kind == "other" and _NAMING.isdisjoint(item):
                continue
            found = self._find_fields(Holder(item))
            name = str(found.get("name"))
            seen[word, name] += 1
            if kind in phases and seen[word, name] <= names[name]:
                continue
            is_shaped = is_call(item) or (bool(self._paths) and "name" in found and "arguments" in found)
            if is_shaped or (kind == "call" and name not in names and _REPORTED.isdisjoint(item)):
                return entry
        return None

    def _find_fields(self, item: Holder) -> dict[str, Json]:
        value = item.value
        found: dict[str, Json] = {"name": value} if isinstance(value, str) else {}
        places = (value, dict_or_empty(value.get("function"))) if isinstance(value, dict) else ()
        for field, names in _CALL_NAMES.items():
            if (path := self._paths.get(field)) is not None:
                given = item.find(path)[-1:]
            else:
                given = [place[name] for place in places for name in names if place.get(name) is not None][:1]
            if given:
                found[field] = given[0]
        return found

    def _read_call(self, item: Holder, number: int, unknowns: Unknowns) -> dict[str, Any] | None:
        """Return a call as plain evidence; a call without a name is left out and makes the calls unknown."""
        found = self._find_fields(item)
        name, arguments, error = found.get("name"), found.get("arguments"), found.get("error")
        if not isinstance(name, str) or not name.strip():
            # No call is null or empty: `{"thought": "x", "tool_call": null}`.
            has_more = arguments or ("result" in self._paths and found.get("result"))
            steps = (path.steps or ()) if (path := self._paths.get("name")) is not None and not has_more else ()
            if any(_follow(steps[:end], item.value) in ([None], [""]) for end in range(1, len(steps) + 1)):
                return None
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


class TurnReader:
    """Reads turns with an input and an answer, or messages with roles."""

    def __init__(self, paths: TurnMap) -> None:
        self.each = compile_path(paths.each)
        self.calls = CallReader(paths.tool_calls) if paths.tool_calls is not None else None
        self._role, self._input, self._text = (compile_path(path) if path else None for path in (paths.role, paths.input, paths.text))
        self._speakers = {write_role(word): "user" for word in paths.user} | {write_role(word): "agent" for word in paths.agent}
        mapped = (self._role, self._input, self._text, self.calls.each if self.calls is not None else None)
        self._taken = frozenset(find_root_key(path) for path in mapped if path is not None)

    def read(self, holder: Holder, unknowns: Unknowns) -> list[dict[str, Any]] | None:
        """Return turns as plain evidence, or None if their list is missing."""
        items, missing = find_list(holder, self.each)
        if missing is not None:
            missing.mark(("turns", "answer", "input"), unknowns)
            return None
        if self._role is not None:
            return self._read_messages(items, self._role, unknowns)
        turns: list[dict[str, Any]] = []
        for number, item in enumerate(map(Holder, items), 1):
            turn: dict[str, Any] = {}
            parts: tuple[tuple[str, Part, CompiledPath | None], ...] = (("input", "input", self._input), ("text", "answer", self._text))
            for field, part, path in parts:
                if path is not None and (found := item.find(path)):
                    turn[field] = as_text(found[-1 if field == "text" else 0])
                elif path is not None:
                    unknowns.mark_unrecognised((part,), explain_missing(item, path, f"turn {number}"))
            self._add_calls(item, turn, unknowns, f"turn {number}: ", is_turn=True)
            turns.append(turn | self._list_reports(item.value))
        if turns and turns[-1].get("text") is None and self._text is not None:
            unknowns.mark_parts(("answer", "tool_calls"), "the record ends before the agent answered the last turn")
        return turns

    def _list_reports(self, item: Json) -> dict[str, Json]:
        """Return the fields of a turn or message that report failure or loss, which are read under their usual names."""
        unmapped = {key: value for key, value in dict_or_empty(item).items() if key not in self._taken}
        return {key: value for key, value in unmapped.items() if find_failure({key: value}, own=True) or find_marker(key, value, ())}

    def _add_calls(self, item: Holder, turn: dict[str, Any], unknowns: Unknowns, where: str, *, is_turn: bool) -> None:
        """Add the calls of an item to a turn; a message need not have a list of them."""
        if self.calls is None:
            return
        calls, missing = self.calls.find(item, unknowns, where)
        if calls is not None:
            turn["tool_calls"] = [*turn.get("tool_calls", ()), *calls]
        if missing is not None and (is_turn or missing.is_lost):
            missing.mark(("tool_calls",), unknowns, where)

    def _read_messages(self, items: list[Json], role: CompiledPath, unknowns: Unknowns) -> list[dict[str, Any]]:
        turns: list[dict[str, Any]] = []
        last = ""
        for number, holder in enumerate(map(Holder, items), 1):
            texts, roles = holder.find(self._text) if self._text is not None else [], holder.find(role)
            text = as_text(texts[-1]) if texts else None
            word = write_role(roles[-1]) if roles else ""
            is_tool = word.startswith(("tool", "function"))
            known = "user" if word in USERS else "agent" if word in AGENTS else "tool" if is_tool else "" if word in _SILENT else None
            speaker = self._speakers.get(word, known)
            if speaker is None and text:
                found = describe_value(roles[-1], 40) if roles else ""
                why = f"`{role.text}` found {found}" if roles else explain_missing(holder, role, f"message {number}")
                hint = "list the words for the agent and the user under `agent` and `user`"
                unknowns.mark_unrecognised(("answer", "input", "turns"), f"{why}; {hint}")
            if speaker == "user" and (last != "user" or not turns):
                turns.append({"input": text})
            elif speaker == "agent" or speaker == "user":
                turns = turns or [{}]
                field = "input" if speaker == "user" else "text"
                turns[-1][field] = "\n".join(filter(None, (turns[-1].get(field), text))) if last == speaker else text
            if turns:
                self._add_calls(holder, turns[-1], unknowns, f"message {number}: ", is_turn=False)
                turns[-1] |= self._list_reports(holder.value) if speaker == "agent" else {}
            last = speaker or last
        if last != "agent":
            unknowns.mark_parts(("answer", "tool_calls"), "the record ends before the agent answered the last message")
        return turns


def write_role(word: Json) -> str:
    """Return the word for a speaker in one spelling."""
    return (as_text(word) or "").strip().lower().replace(" ", "_").replace("-", "_")


READER = "mapping"
_OTHERS = frozenset(("duration_ms", "http_status", "error", "case", "model", "context"))
"""Fields of a record that are not parts of the evidence, under the names that a mapping uses."""
_ANSWERS, _CALLS = (*ANSWERS, "body"), (*CALLS, "actions", "steps")
_USUAL = frozenset((*_ANSWERS, *INPUTS, *_CALLS, *_OTHERS, "usage", "turns", "state", "available_tools", "now")) - {"case"}
_HTTP = frozenset(("http_status", "httpStatus", "status_code", "statusCode", "status"))
_SCALARS = (str, int, float, bool)


class Mapping:
    """A mapping whose paths are compiled."""

    def __init__(self, paths: EvidenceMap) -> None:
        """Raises `SpecError` with the field and the offset for a path that cannot be parsed."""
        compiled: dict[str, CompiledPath] = {}
        for field, text in list_paths(paths):
            try:
                compiled[field] = compile_path(text)
            except SpecError as error:
                raise error.move_to(f"map.{field}") from None
        self.group, self._record = compiled.pop("group", None), compiled.pop("record", None)
        self._paths = compiled
        self._calls = CallReader(paths.tool_calls) if paths.tool_calls is not None else None
        self._turns = TurnReader(paths.turns) if paths.turns is not None else None
        rooted = [path for field, path in compiled.items() if "." not in field or field.endswith(".each") or field.startswith("usage.")]
        self.over_list = self.group is None and any(find_root_key(path) == "" for path in rooted)
        """Whether the paths select from a list, which is then one run."""
        has_answer = not {"text", "body"}.isdisjoint(compiled) or self._turns is not None
        self.has_run = has_answer or self._calls is not None
        """Whether the mapping contains the agent's answer or calls; otherwise it adds to a record of a known format."""
        maps_calls = self._calls is not None or (self._turns is not None and self._turns.calls is not None)
        maps_input = self._turns is not None or "input" in compiled
        mapped = ((has_answer, _ANSWERS), (maps_input, INPUTS), (maps_calls, _CALLS), (paths.usage is not None, ("usage",)))
        usual = (name for is_mapped, names in mapped if is_mapped for name in names)
        self._taken = frozenset((*map(find_root_key, rooted), *usual))

    def read_all(self, document: Json) -> list[Evidence]:
        """Return the runs of a document: a list is one run if the paths select from it, else each entry is a record or a line."""
        if not isinstance(document, list):
            return [self.read([document] if self.group is not None else document)]
        if self.group is None:
            return [self.read(document)] if self.over_list else [self.read(entry) for entry in document]
        return [self.read(lines) for lines in self.split_runs(document)]

    def split_runs(self, document: list[Json]) -> list[list[Json]]:
        """Return the lines of each run. Raises `EvidenceError` for a line without the id of a run."""
        runs: dict[str, list[Json]] = {}
        for number, line in enumerate(document, 1):
            if (name := self.find_group(line)) is None:
                raise EvidenceError(self.explain_no_group(line, f"line {number}"))
            runs.setdefault(name, []).append(line)
        return list(runs.values())

    def open_records(self, document: Json) -> list[tuple[Json, str | None]] | None:
        """Return the documents that `record` selects and how an envelope of only one reports failure, or None if it is not mapped.

        Raises `EvidenceError` if it finds none.
        """
        if self._record is None:
            return None
        entries = document if isinstance(document, list) and find_root_key(self._record) != "" else [document]
        found: list[tuple[Json, str | None]] = []
        for entry in entries:
            items, missing = find_list(Holder(entry), self._record)
            if missing is not None:
                raise EvidenceError(f"record: {missing.why}")
            # A list of messages is one document.
            items = Holder(entry).find(self._record) if self._record.steps is not None else items
            failure = next(filter(None, (find_failure(around, own=True) for around in _list_around(self._record, entry))), None)
            found += [(decode_container(item), failure) for item in items]
        return found

    def find_group(self, line: Json) -> str | None:
        """Return the run that a line belongs to, or None if it belongs to no run."""
        found = Holder(line).find(self.group) if self.group is not None else []
        return as_text(found[0]) if found else None

    def explain_no_group(self, line: Json, what: str = "the line") -> str:
        """Return why a line belongs to no run."""
        assert self.group is not None
        return f"{what} has no value of `group`: {explain_missing(Holder(line), self.group, what)}"

    def read(self, document: Json) -> Evidence:
        """Return one run. Raises `EvidenceError` if a path visits too much."""
        holder, unknowns = Holder(document), Unknowns()
        plain: dict[str, Any] = {}
        calls_end: Position | None = None
        if self._calls is not None:
            calls, missing = self._calls.find(holder, unknowns)
            calls_end = holder.find_end(self._calls.each)
            if calls is not None:
                plain["tool_calls"] = calls
            if missing is not None:
                missing.mark(("tool_calls",), unknowns)
        self._read_input(holder, plain, unknowns)
        # Lines of a log may be in any order.
        ends = (calls_end, holder.find_end(self._paths.get("input"))) if self.group is None else ()
        self._read_answer(holder, plain, unknowns, [end for end in ends if end is not None])
        if self._turns is not None:
            plain["turns"] = self._turns.read(holder, unknowns)
        matched = self._read_values(holder, plain, unknowns)
        # The object that reports how the run ended: the record, or the last of several lines unless it is a call.
        ending = document
        if isinstance(document, list):
            ending = document[-1] if document and calls_end != ((), len(document) - 1) else None
        entry = ending if isinstance(ending, dict) else {}
        untaken = {key: value for key, value in entry.items() if key not in self._taken}
        others = {key: value for key, value in untaken.items() if key not in _USUAL}
        listed = {key: value for key, value in others.items() if key not in HARMLESS}
        failed_call = any(is_error(call.get("error")) for call in plain.get("tool_calls", ()))
        usual = [key for key in untaken if key in _USUAL and key not in matched] if entry is document else ()
        plain = {**{key: entry[key] for key in usual if entry[key] is not None}, **plain}
        # The mapped fields decide.
        decided = untaken if "error" in matched else _HTTP if "http_status" in matched else ()
        reporting = {key: value for key, value in untaken.items() if key not in decided}
        paths = [self._paths[field] for field in ("text", "body") if field in self._paths and matched.isdisjoint(("error", "http_status"))]
        # The objects between the record and its answer report as well; their status may be that of a ticket.
        around = [_without_status(fields) for path in paths for fields in _list_around(path, document)[isinstance(document, dict) :]]
        failures = (find_failure(fields, own=True, failed_call=failed_call) for fields in (reporting, *around))
        if not plain.get("error") and (failure := next(filter(None, failures), None)) is not None:
            plain["error"] = failure
        evidence = read_plain(plain)
        for key, value in (item for fields in (_without_status(listed), *around) for item in fields.items()):
            marker = find_marker(key, value, evidence.tool_calls or ()) if isinstance(value, _SCALARS) else None
            if marker is not None and key != "has_more":  # the mapping states where the data is
                unknowns.mark_parts(marker.parts, f"`{shorten(key, 60)}`: {marker.why}")
        for key in listed:
            unknowns.ignore(key)
        if evidence.account is not None:
            _add_plain(evidence.account, unknowns)
        return msgspec.structs.replace(evidence, account=unknowns.close_account(READER), metadata={**others, **evidence.metadata})

    def add_to(self, evidence: Evidence, document: Json) -> Evidence:
        """Return evidence of a known format with the parts that the mapping adds."""
        holder, unknowns, found = Holder(document), Unknowns(), dict[str, Any]()
        self._read_input(holder, found, unknowns)
        self._read_values(holder, found, unknowns)
        if "usage" in found:
            found["usage"] = Usage(**found["usage"])
        if "error" in found:
            found["error"] = as_text(found["error"]) if is_error(found["error"]) else None
        account = evidence.account or Account("plain")
        unknown = {**{part: why for part, why in account.unknown.items() if part not in found}, **unknowns.unknown}
        notes = tuple(dict.fromkeys((*account.notes, *unknowns.notes)))
        return msgspec.structs.replace(evidence, account=msgspec.structs.replace(account, unknown=unknown, notes=notes), **found)

    def _read_input(self, holder: Holder, plain: dict[str, Any], unknowns: Unknowns) -> None:
        if (path := self._paths.get("input")) is None:
            return
        if values := holder.find(path):
            plain["input"] = values[0]
        else:
            unknowns.mark_unrecognised(("input",), explain_missing(holder, path))

    def _read_answer(self, holder: Holder, plain: dict[str, Any], unknowns: Unknowns, ends: list[Position]) -> None:
        """Add the answer; `ends` are the positions of the last call and the last input."""
        for field, path in ((field, self._paths[field]) for field in ("text", "body") if field in self._paths):
            if not (values := holder.find(path)):
                # Without any answer the agent had not finished, and more calls may have followed.
                unknowns.mark_parts(("answer", "tool_calls"), f"no answer is recorded: {explain_missing(holder, path)}")
            elif field == "body" or isinstance(values[-1], _SCALARS):
                plain[field] = decode_container(values[-1]) if field == "body" else as_text(values[-1])
            else:
                why = f"`{path.text}` found {describe_value(values[-1], 60)}, expected text; map it as `body` if the answer is JSON"
                unknowns.mark_unrecognised(("answer",), why)
            last = holder.find_end(path) if ends else None
            if last is not None and any(end[0] == last[0] and end[1] > last[1] for end in ends):
                unknowns.mark_parts(("answer", "tool_calls"), "the record ends before the agent finished: more follows its last answer")

    def _read_values(self, holder: Holder, plain: dict[str, Any], unknowns: Unknowns) -> set[str]:
        """Add the tokens and the fields that are not parts (duration, status, case), and return the fields with a match."""
        matched: set[str] = set()
        for field in (field for field in _CONVERT if field in self._paths):
            path, is_count = self._paths[field], field.startswith("usage.")
            is_sum = is_count or field == "duration_ms"
            given = find_summands(holder, path) if is_sum else holder.find_any(path)
            values = given if is_sum else [value for value in given if value is not None]
            if given:
                matched.add(field)
            value = _CONVERT[field](values) if values else None
            if value is not None:
                (plain.setdefault("usage", {}) if is_count else plain)[field.removeprefix("usage.")] = value
            elif field != "error":
                unusable = f"`{path.text}` found {describe_value(values[-1], 60)}, which cannot be used here" if values else None
                why = unusable or explain_missing(holder, path)
                if is_count:
                    unknowns.mark_unrecognised(("usage",), why)
                else:
                    unknowns.note(f"{field}: {why}")
        return matched


def _add_numbers(values: list[Json]) -> float | None:
    numbers = [number for number in map(read_number, values) if number is not None]
    return sum(numbers) if len(numbers) == len(values) and min(numbers) >= 0 else None


def _add_counts(values: list[Json]) -> int | None:
    is_whole = all(number is None or number == int(number) for number in map(read_number, values))
    total = _add_numbers(values) if is_whole else None
    return None if total is None else int(total)


_CONVERT: dict[str, Any] = {
    "duration_ms": _add_numbers,
    "http_status": lambda values: _add_counts(values[-1:]),
    **dict.fromkeys((f"usage.{field}" for field in UsageMap.__struct_fields__), _add_counts),
    **dict.fromkeys(("case", "model"), lambda values: as_text(values[-1]) if isinstance(values[-1], _SCALARS) else None),
    "error": lambda values: values[-1],
    "context": lambda values: found if isinstance(found := decode_container(values[-1]), dict) else None,
}


def _without_status(fields: dict[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in fields.items() if not (isinstance(value, str) and to_snake_case(key) in STATUS_FIELDS)}


def _add_plain(account: Account, unknowns: Unknowns) -> None:
    """Add what the plain reader marked unknown in a record read by paths."""
    mine = frozenset(unknowns.unknown)
    for part, why in account.unknown.items():
        if part in account.overridable:
            unknowns.mark_unrecognised((part,), why)
        # A call without arguments is null in plain evidence; the reason that names the path is more useful.
        elif part not in mine or part not in ("tool_arguments", "tool_results"):
            unknowns.mark(part, why)
    for note in account.notes:
        unknowns.note(note)


@functools.lru_cache(maxsize=64)
def compile_mapping(paths: EvidenceMap) -> Mapping:
    """Return a mapping ready to read records, compiled once. Raises `SpecError` for a path that cannot be parsed."""
    return Mapping(paths)
