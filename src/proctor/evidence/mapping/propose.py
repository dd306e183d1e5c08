"""Proposes a mapping for records of an unknown format, by the names of their fields and the shapes of their values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.mapping.read import AGENTS, SPEAKERS, USERS, Holder, compile_mapping, write_role
from proctor.evidence.unknowns.statuses import to_snake_case
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.account import PLAIN_READERS
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import is_number
from proctor.model.mapping import CallMap, EvidenceMap, TurnMap, UsageMap
from proctor.model.show import escape_unseen, is_seen, show
from proctor.paths.json_path import compile_path

Path = tuple[str | int, ...]

_ENCODE = msgspec.json.Encoder().encode
_DEPTH, _ITEMS, _FIELDS, _MAX_OTHERS = 6, 100, 400, 3
_INPUT = re.compile(
    r"(user_?)?(input|question|prompt|query|query_result|request|ask|asked|q|utterance|user|human|customer|frage|eingabe|pregunta|inputs)(_(text|message))?$"
)
_ANSWER = re.compile(
    r"((agent|bot|final|assistant|model)_?)?(answer|reply|response|output|completion|a|bot|assistant|agent|antwort|ausgabe|respuesta|final|outputs)(_(text|message))?$"
)
_TEXT = re.compile(r"(text|content|message|body|says|said|value|utterance|plain_body|raw)$")
_NAME = re.compile(r"(tool|tool_name|function|function_name|fn|name|action|werkzeug|command|method)$")
_ARGUMENTS = re.compile(
    r"(arguments|args|args_json|arguments_json|params|parameters|input|inputs|tool_input|action_input|tool_args|kwargs|payload|with"
    r"|eingabe)$"
)
_RESULT = re.compile(r"(result|output|response|outcome|observation|return_value|returned|ausgabe|out|tool_output)$")
_ERROR = re.compile(r"(error|failure|exception|err|error_message|fehler)$")
_SPEAKERS = re.compile(r"(user|human|customer|agent|bot|assistant|model|client)$")
_CALLS = re.compile(r"tool|call|action|step|function|used|werkzeug")
_ROLE = re.compile(r"(role|speaker|who|sender|author|from|author_type|participant)$")
_GROUP = re.compile(
    r"(session|conversation|run|trace|thread|chat|request|req|dialog|dialogue|ticket|call|correlation|interaction|task|invocation)"
    r"(_?(id|no|key|uuid|sid))?$"
)
_EVENT = re.compile(r"(event|event_type|type|kind|msg|action|stage|step|name|log_type|message_type)$")
_DURATION = re.compile(r"(\w*_)?(duration|latency|elapsed|took|total|dauer|delay)_?(ms|millis)$|ms$")
_TOTAL = re.compile(r"(total|total_ms|ms|overall)$")
_TOKENS = (
    ("input_tokens", re.compile(r"(input|prompt|in)(_tokens?)?$|tokens_in$")),
    ("output_tokens", re.compile(r"(output|completion|out)(_tokens?)?$|tokens_out$")),
)


_RUNS = re.compile(r"(runs|results|items|records|data|rows|entries|samples|logs)$")
"""Fields that list runs; the entries of other lists are turns of one run."""


class Field(NamedTuple):
    """One field of the sample: its path, its last value, and the number of records that have it."""

    path: Path
    value: Json
    records: int

    @property
    def words(self) -> list[str]:
        """The keys of the path in snake case."""
        return [to_snake_case(str(key)) for key in self.path]

    @property
    def word(self) -> str:
        """The last key of the path in snake case."""
        return to_snake_case(str(self.path[-1]))

    @property
    def items(self) -> list[dict[str, Json]]:
        """The objects in a list."""
        return [item for item in self.value if isinstance(item, dict)] if isinstance(self.value, list) else []


def propose_map(records: list[Json], read: Callable[..., list[Evidence]] | None = None) -> EvidenceMap | None:
    """Return a mapping that reads these records or lines, or None if none of them looks like a run; `read` reads documents."""
    entries = [parsed for record in records if isinstance(parsed := Holder(record).parsed, dict)]
    if not entries:
        return None
    if read is not None and (documents := _propose_documents(entries, read)) is not None:
        return documents
    fields = _list_fields(entries)
    turns = next(filter(None, (_propose_turns(field) for field in fields)), None)
    calls = _propose_calls(fields)
    used_path = calls[0] if calls is not None else ()
    free = [field for field in fields if not used_path or field.path[: len(used_path)] != used_path]
    # The input never has a name for the answer, nor the answer a name for the input.
    question = None if turns else _find_best(free, _INPUT, _ANSWER)
    answer = None if turns else _find_best([field for field in free if field.path != question], _ANSWER, _INPUT)
    tokens = {name: _find_number(free, words, ("token", "usage")) for name, words in _TOKENS}
    usage = {name: _write(path) for name, path in tokens.items() if path is not None}
    duration = _find_number(free, _DURATION, ()) or _find_number(free, _TOTAL, ("timing", "time", "duration", "latency"))
    record = EvidenceMap(
        input=_write_found(question),
        text=_write_found(answer),
        tool_calls=calls[1] if calls is not None else None,
        turns=turns,
        usage=UsageMap(**usage) if usage else None,
        duration_ms=_write_found(duration),
    )
    sample = _read_sample(record, entries)
    # The question and the answer of a run may be on different lines.
    if not any(evidence.text is not None and (evidence.input is not None or evidence.turns) for evidence in sample):
        lines = _propose_lines(entries, record)
        if lines is not None and any(map(_has_content, _read_sample(lines, entries))):
            return lines
        if any(entry.get("type") == "message" for entry in entries):
            return None  # messages without a speaker: the text may be the user's
    return record if any(map(_has_content, sample)) else _propose_records_inside(entries)


def _propose_documents(entries: list[dict[str, Json]], read: Callable[..., list[Evidence]]) -> EvidenceMap | None:
    """Return the path at which each entry has a list of runs, or one document of a known format."""
    for key, value in entries[0].items():
        is_list = isinstance(value, list) and _RUNS.match(to_snake_case(key)) is not None
        if not is_list and not isinstance(value, (dict, list)):
            continue
        proposal = EvidenceMap(record=f"{_write((key,))}[*]" if is_list else _write((key,)))
        try:
            found = [one for entry in entries[:_ITEMS] for one in read(entry, mapping=proposal)]
        except EvidenceError:
            continue
        # If the object has the usual names of an answer only, its question is elsewhere.
        if found and all(_has_content(one) and (is_list or _is_whole(one)) for one in found):
            return proposal
    return None


def _is_whole(evidence: Evidence) -> bool:
    if evidence.account is not None and (evidence.account.unknown or evidence.account.reader not in PLAIN_READERS):
        return evidence.account.reader not in PLAIN_READERS
    return evidence.input is not None and evidence.text is not None


def _propose_records_inside(entries: list[dict[str, Json]]) -> EvidenceMap | None:
    """Return a mapping of the records in a list of a document: `$.results.results[*]`."""
    for field in _list_fields(entries[:1]):
        inner = propose_map(field.value) if len(field.path) < 3 and field.items and _RUNS.match(field.word) else None
        if inner is not None and inner.record is None and inner.group is None and not compile_mapping(inner).over_list:
            return msgspec.structs.replace(inner, record=f"{_write(field.path)}[*]")
    return None


def _list_fields(entries: list[dict[str, Json]]) -> list[Field]:
    """Return every field of the entries up to a depth; a list counts as one value."""
    found: dict[Path, tuple[Json, int]] = {}

    def walk(entry: dict[str, Json], path: Path) -> None:
        for key, value in entry.items():
            key_path, inner = (*path, key), value
            if value is None or len(found) > _FIELDS:
                continue
            # A full list is a better sample than an empty one.
            old, count = found.get(key_path, (None, 0))
            if isinstance(value, list) and isinstance(old, list):
                value = [*old, *value][:_ITEMS]
            elif isinstance(value, str) and isinstance(old, str):
                value = max(old, value, key=len)
            found[key_path] = (value if value or old is None else old, count + 1)
            if isinstance(value, dict) and len(key_path) < _DEPTH:
                walk(value, key_path)
            elif key == "choices" and isinstance(inner, list) and inner and isinstance(inner[0], dict):
                walk(inner[0], (*key_path, 0))

    for entry in entries:
        walk(entry, ())
    return [Field(path, value, count) for path, (value, count) in found.items()]


def _find_best(fields: list[Field], wanted: re.Pattern[str], other: re.Pattern[str]) -> Path | None:
    """Return the path of the text that most likely is `wanted`; a path near the root is preferred."""
    best: tuple[float, Path] | None = None
    for field in fields:
        *parents, word = field.words
        # A value of one word is an id or a name, as `user` and `agent` often are.
        is_short = isinstance(field.value, str) and " " not in field.value.strip()
        if (
            not isinstance(field.value, str)
            or any(map(_ERROR.match, parents))
            or (is_short and (_SPEAKERS.match(word) or _TEXT.match(word)))
        ):
            continue
        in_other = any(map(other.match, parents))
        score = 3.0 if wanted.match(word) else 0.0
        if not score and _TEXT.match(word):
            score = 2.5 if any(map(wanted.match, parents)) else 1.0 if wanted is _ANSWER and not in_other else 0.0
        score -= 0.1 * len(field.path) + 1.5 * in_other
        if score > (best[0] if best is not None else 0):
            best = (score, field.path)
    return best[1] if best is not None else None


def _find_number(fields: list[Field], wanted: re.Pattern[str], around: tuple[str, ...]) -> Path | None:
    """Return the path of a number by its name; with `around`, a word of the path must contain one of these."""
    for field in fields:
        near = not around or any(word in part for part in field.words for word in around)
        is_count = is_number(field.value) or (isinstance(field.value, str) and field.value.isdigit())
        if near and is_count and wanted.match(field.word):
            return field.path
    return None


def _propose_calls(fields: list[Field]) -> tuple[Path, CallMap] | None:
    """Return the path of the list of calls: objects with a name and arguments, preferably under a key that mentions calls."""
    best: tuple[int, Path, CallMap] | None = None
    for field in fields:
        mapped = _map_call(field.items, f"{_write(field.path)}[*]") if field.items else None
        score = 0 if mapped is None else 2 * bool(_CALLS.search(field.word)) + bool(mapped.arguments)
        if mapped is not None and score > (best[0] if best is not None else 1):
            best = (score, field.path, _choose_kind(field.items, mapped, _write(field.path)))
    return best[1:] if best is not None else None


def _choose_kind(items: list[dict[str, Json]], mapped: CallMap, path: str) -> CallMap:
    """Return a mapping that selects the items of one kind if only that kind contains calls: `$.steps[?@.kind == 'tool']`."""
    named = [item for item in items if Holder(item).find(compile_path(mapped.arguments or mapped.name or "$"))]
    for key in named[0] if len(named) < len(items) else ():
        kinds = {value for item in named if isinstance(value := item.get(key), str)}
        if _EVENT.match(to_snake_case(key)) and len(kinds) == 1 and all(item.get(key) not in kinds for item in items if item not in named):
            return msgspec.structs.replace(mapped, each=f"{path}[?@{_write((key,))[1:]} == {_quote(kinds.pop())}]")
    return mapped


def _map_call(items: list[dict[str, Json]], each: str) -> CallMap | None:
    fields = _list_fields(items)

    def find(words: re.Pattern[str], *kinds: type, excluded: Path = ()) -> Path | None:
        fitting = [f for f in fields if words.match(f.word) and isinstance(f.value, kinds) and excluded[: len(f.path)] != f.path]
        # In the order of the words: `tool` is preferred to `name`. An object that contains the name is not the arguments.
        return min((len(f.path), words.pattern.find(f.word), f.path) for f in fitting)[2] if fitting else None

    name = find(_NAME, str)
    if name is None:
        return None
    arguments = find(_ARGUMENTS, dict, str, excluded=name)
    # A text is arguments only if it is JSON.
    given = next((f.value for f in fields if f.path == arguments), None)
    if isinstance(given, dict) and ("properties" in given or given.get("type") == "object"):
        return None  # the schema of an offered tool
    arguments = arguments if isinstance(decode_container(given), dict) else None
    result, error = find(_RESULT, str, dict, list, int, float, bool), find(_ERROR, str, dict, bool)
    return CallMap(each=each, name=_write(name), arguments=_write_found(arguments), result=_write_found(result), error=_write_found(error))


def _propose_turns(field: Field, each: str | None = None) -> TurnMap | None:
    """Return a mapping that reads a list as a conversation: messages with roles, or pairs of question and answer."""
    items = field.items
    if len(items) < 2:
        return None
    fields = _list_fields(items)
    each = each or f"{_write(field.path)}[*]"
    role, words = _find_role(fields, items, any_key=bool(field.path)) or (None, {})
    if role is not None:
        text = next((f.path for f in fields if isinstance(f.value, str) and _TEXT.match(f.word)), None)
        return TurnMap(each=each, role=_write(role), text=_write(text), **words) if text is not None else None
    question, answer = _find_best(fields, _INPUT, _ANSWER), _find_best(fields, _ANSWER, _INPUT)
    if question is None or answer is None or len(question) > 1 or question == answer:
        return None
    calls = _propose_calls(fields)
    return TurnMap(each=each, input=_write(question), text=_write(answer), tool_calls=calls[1] if calls is not None else None)


def _find_role(
    fields: list[Field], items: list[dict[str, Json]], *, any_key: bool
) -> tuple[Path, dict[Literal["agent", "user"], tuple[str, ...]]] | None:
    """Return the path of the speaker, and the words for the side that has no usual one: the name of a bot."""
    for field in fields:
        is_named = _ROLE.match(field.word) is not None
        if len(field.path) > 2 or not isinstance(field.value, str) or not (is_named or any_key):
            continue
        words = dict.fromkeys(value for item in items if isinstance(value := _get(item, field.path), str))
        users, agents = ([word for word in words if write_role(word) in known] for known in (USERS, AGENTS))
        if users and agents:
            return field.path, {}
        others = tuple(word for word in words if write_role(word) not in SPEAKERS)
        if is_named and (users or agents) and 0 < len(others) <= _MAX_OTHERS:
            return field.path, {"agent" if users else "user": others}
    return None


def _propose_lines(entries: list[dict[str, Json]], record: EvidenceMap) -> EvidenceMap | None:
    """Return a mapping that groups lines by a shared id: messages with roles, events, or lines that each contain a part of `record`."""
    group = _find_group(entries)
    turns = _propose_turns(Field((), entries, len(entries)), "$[*]")
    if turns is not None and turns.role is not None:
        return EvidenceMap(group=_write_found(group), turns=turns)
    if group is None:
        return None
    event = _find_event_key(entries)
    if event is None:
        question, answer = (f"$[*]{path[1:]}" if path is not None else None for path in (record.input, record.text))
        return EvidenceMap(group=_write(group), input=question, text=answer) if answer is not None else None
    question: str | None = None
    answer: str | None = None
    calls: CallMap | None = None
    for word in dict.fromkeys(entry[event] for entry in entries if isinstance(entry.get(event), str)):
        lines = [entry for entry in entries if entry.get(event) == word]
        each = f"$[?@{_write((event,))[1:]} == {_quote(word)}]"
        fields = [f for f in _list_fields(lines) if f.path not in ((event,), group)]
        texts = [f for f in fields if isinstance(f.value, str) and any(words.match(f.word) for words in (_TEXT, _INPUT, _ANSWER))]
        kind, place = to_snake_case(word), f"{each}{_write(texts[0].path)[1:]}" if texts else None
        mapped = _map_call([{key: value for key, value in line.items() if key != event} for line in lines], each)
        if mapped is not None and (mapped.arguments is not None or _CALLS.search(kind)):
            calls = calls or mapped
        elif place is not None and re.search(r"user|human|question|prompt|input|request|query|ask", kind):
            question = question or place
        elif place is not None and re.search(r"answer|agent|reply|respon|assistant|bot|output|final|completion", kind):
            answer = place if " " in str(_get(lines[-1], texts[0].path)) else answer
    return EvidenceMap(group=_write(group), input=question, text=answer, tool_calls=calls) if answer or calls else None


def _find_group(entries: list[dict[str, Json]]) -> Path | None:
    """Return the id that several lines share, if no single line is a complete run."""
    if len(entries) < 2:
        return None
    for field in _list_fields(entries):
        is_id = _GROUP.match(field.word) and not isinstance(field.value, (dict, list))
        if is_id and field.records >= 0.8 * len(entries):
            shared = Counter(str(value) for entry in entries if (value := _get(entry, field.path)) is not None)
            if len(shared) < len(entries) and max(shared.values()) > 1:
                return field.path
    return None


def _find_event_key(entries: list[dict[str, Json]]) -> str | None:
    for key in dict.fromkeys(key for entry in entries for key in entry):
        words = {value for entry in entries if isinstance(value := entry.get(key), str)}
        if _EVENT.match(to_snake_case(key)) and 1 < len(words) <= max(8, len(entries) // 4) and all(len(word) < 40 for word in words):
            return key
    return None


def _get(entry: Json, path: Path) -> Json:
    return next(iter(Holder(entry).find(compile_path(_write(path)))), None)


def _read_sample(proposal: EvidenceMap, entries: list[dict[str, Json]]) -> list[Evidence]:
    try:
        return compile_mapping(proposal).read_all(entries)
    except EvidenceError:
        return []


def _has_content(evidence: Evidence) -> bool:
    return evidence.text is not None or bool(evidence.tool_calls) or bool(evidence.turns)


def _write_found(path: Path | None) -> str | None:
    return None if path is None else _write(path)


def _write(path: Path) -> str:
    """Return keys as a path, `$.request.text`; keys that are not plain words are quoted."""
    is_plain = re.compile(r"[A-Za-z_]\w*", re.ASCII).fullmatch
    return "$" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" if is_plain(key) else f"[{_quote(key)}]" for key in path)


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + "".join(char if is_seen(char) else f"\\u{ord(char):04x}" for char in escaped) + "'"


def write_map(paths: EvidenceMap, records: list[Json], *, indent: str = "") -> str:
    """Return a mapping as YAML with a sample value after each path, ready to be written under a suite's own keys."""
    lines = ["evidence:", "  map:"]

    def add(member: msgspec.Struct, inset: str, holders: list[Json]) -> None:
        for field in member.__struct_fields__:
            value = getattr(member, field)
            if isinstance(value, msgspec.Struct):
                lines.append(f"{inset}{field}:")
                add(value, f"{inset}  ", holders)
            elif isinstance(value, tuple) and value:
                lines.append(f"{inset}{field}: {escape_unseen(_ENCODE(value).decode())}")
            elif isinstance(value, str):
                path = compile_path(value)
                found = [sample for holder in (records if field == "group" else holders) for sample in Holder(holder).find(path)]
                if field == "each":
                    holders = found
                comment = f"  # {escape_unseen(show(found[0], 60))}" if found and field != "each" else ""
                is_plain = re.fullmatch(r"\$[\w.]*", value, re.ASCII) is not None
                lines.append(f"{inset}{field}: {value if is_plain else _ENCODE(value).decode()}{comment}")

    add(paths, "    ", records if paths.group is None else list(compile_mapping(paths).group_lines(records).values()))
    return "".join(f"{indent}{line}\n" for line in lines)
