"""Proposes a mapping for records of an unknown format, by the names of their fields and the shapes of their values."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.mapping.read import AGENTS, KINDS, SPEAKERS, USERS, CallReader, Holder, compile_mapping, find_kind, write_role
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.statuses import to_snake_case
from proctor.evidence.unknowns.unrecognised import CALL_FIELDS, DEFINING, find_answers, is_made, list_calls, name_call
from proctor.evidence.values.access import list_of
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.account import PLAIN_READERS
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import is_number
from proctor.model.mapping import CallMap, EvidenceMap, TurnMap, UsageMap, list_paths
from proctor.model.show import escape_unseen, is_seen, show
from proctor.paths.json_path import compile_path

Path = tuple[str | int, ...]
Speakers = dict[Path, set[str]]
"""Who wrote the texts of an object, in any of the records: `user`, `agent`, or an empty text for a name."""

_ENCODE = msgspec.json.Encoder().encode
_DEPTH, _ITEMS, _FIELDS, _MAX_OTHERS = 6, 100, 400, 3
_INPUT = re.compile(
    r"(user_?)?(input|question|prompt|query|query_result|request|ask|asked|q|utterance|user|human|customer|frage|eingabe|pregunta|inputs)(_(text|message))?$"
)
_ANSWER = re.compile(
    r"((agent|bot|final|assistant|model)_?)?(answer|reply|response|output|completion|a|bot|assistant|agent|antwort|ausgabe|respuesta|final|outputs)(_(text|message))?$"
)
_TEXT = re.compile(r"(text|content|message|body|says|said|value|utterance|plain_body|raw)$")
_NAME = re.compile(r"(tool|tool_name|function|function_name|fn|name|action|werkzeug|command|method|n)$")
_ARGUMENTS = re.compile(
    r"(arguments|args|args_json|arguments_json|params|parameters|input|inputs|tool_input|action_input|tool_args|kwargs|payload|with"
    r"|eingabe|a)$"
)
_RESULT = re.compile(r"(result|output|response|outcome|observation|return_value|returned|ausgabe|out|tool_output)$")
_ERROR = re.compile(r"(error|failure|exception|err|error_message|fehler)$")
_SPEAKERS = re.compile(r"(user|human|customer|agent|bot|assistant|model|client)$")
_CALLS = re.compile(r"tool|call|action|function|werkzeug")
_STEPS = re.compile(r"step|used")
_STRONG = re.compile(r"\b(tool(_?name|_?input|_?args)?|function(_?name)?|fn|werkzeug|action_?input|kwargs)\b", re.IGNORECASE)
"""Names that only calls have."""
_ACTS = re.compile(r"tool|call|function|mcp", re.IGNORECASE)
"""Kinds of calls that may have no arguments; an action of a dialogue is often none."""
_EXPECTED = re.compile(r"expect|reference|ground_truth|golden|available|offered|allowed")
_NESTED, _CERTAIN = 3, 2.5
"""Levels of lists in lists that are searched for calls, and the score from which a place certainly has calls."""
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


_ASKS = re.compile(r"user|human|question|prompt|customer|(^|_)(input|request|query|ask)")
_ANSWERS = re.compile(r"answer|agent|reply|respon|assistant|bot|output|final|completion")
_THINKS = re.compile(r"start|begin|think|thought|reason|plan|error|fail|log|(^|_)llm|model")
"""Events of an agent whose text is no answer."""
_RUNS = re.compile(r"(runs|results|items|records|data|rows|entries|samples|logs)$")
"""Fields that list runs; the entries of other lists are turns of one run."""


_TURNS = re.compile(r"(^|_)(turns|exchanges|interactions)$")
"""Fields that list turns, even if there is only one."""


class Field(NamedTuple):
    """One field of the sample: its path, its last value, and the number of records that have it."""

    path: Path
    value: Json
    records: int

    @property
    def words(self) -> list[str]:
        """The keys of the path in snake case, after an empty word for the root."""
        return ["", *(to_snake_case(str(key)) for key in self.path)]

    @property
    def word(self) -> str:
        """The last key of the path in snake case."""
        return self.words[-1]

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
    if read is not None and len(entries) > 1:
        group = _find_group(entries)
        found = _read_sample(together := EvidenceMap(group=_write_found(group)), entries, read)
        if any(one.tool_calls for one in found) and all(map(_is_known_format, found)) and (group is not None or len(found) == 1):
            return together if group is not None else None  # lines of one run without its id
    fields = _list_fields(entries)
    turns = next(filter(None, (_propose_turns(field) for field in fields)), None)
    used_path, calls, why = _propose_calls(fields, list[Json](entries))
    free = [field for field in fields if not used_path or field.path[: len(used_path)] != used_path]
    # The input never has a name for the answer, nor the answer a name for the input.
    speakers = _find_speakers(entries, fields)
    question = None if turns else _find_best(free, _INPUT, _ANSWER, speakers)
    answer = None if turns else _find_best([field for field in free if field.path != question], _ANSWER, _INPUT, speakers)
    tokens = {name: _find_number(free, words, ("token", "usage")) for name, words in _TOKENS}
    usage = {name: _write(path) for name, path in tokens.items() if path is not None}
    duration = _find_number(free, _DURATION, ()) or _find_number(free, _TOTAL, ("timing", "time", "duration", "latency"))
    record = EvidenceMap(
        input=_write_found(question),
        text=_write_found(answer),
        tool_calls=calls,
        turns=turns,
        usage=UsageMap(**usage) if usage else None,
        duration_ms=_write_found(duration),
    )
    sample = _read_sample(record, entries)
    # The question and the answer of a run may be on different lines; so may its calls, each of which has an input and an output.
    meanings = {find_kind(entry) for entry in entries}
    is_log = len(meanings) > 1 and any(meaning in ("call", "start") for meaning, _ in meanings)
    if is_log or not any(evidence.text is not None and (evidence.input is not None or evidence.turns) for evidence in sample):
        lines = _propose_lines(entries, record)
        if lines is not None and any(map(_has_content, _read_sample(lines, entries))):
            return lines
        if is_log or any(entry.get("type") == "message" for entry in entries):
            return None  # events of unknown runs, or messages without a speaker: the text may be the user's
    if why and any(evidence.tool_calls is not None for evidence in sample):
        return None  # a mapping would hide the calls that the usual fields do not have
    if len(entries) > 1 and calls is not None and all(one.text is None and one.turns is None for one in sample):
        return None  # lines with calls, and no id to join those of a run
    if any(map(_has_content, sample)) and record != EvidenceMap():
        return record
    # The records may be in a list of a document: `$.results.results[*]`.
    for field in _list_fields(entries[:1]):
        inner = propose_map(field.value) if len(field.path) < 3 and field.items and _RUNS.match(field.word) else None
        if inner is not None and inner.record is None and inner.group is None and not compile_mapping(inner).over_list:
            return msgspec.structs.replace(inner, record=f"{_write(field.path)}[*]")
    return None


def _propose_documents(entries: list[dict[str, Json]], read: Callable[..., list[Evidence]]) -> EvidenceMap | None:
    """Return the path at which each entry has a list of runs, or one document of a known format that has all calls of the entry."""
    for key, value in entries[0].items():
        if not isinstance(value, (dict, list)) or _CALLS.search(to_snake_case(key)):
            continue
        path, sample = _write((key,)), entries[:_ITEMS]
        is_list = isinstance(value, list) and _RUNS.match(to_snake_case(key)) is not None
        others = [(name, entry[name]) for entry in sample for name in entry if name != key and not _EXPECTED.match(name)]
        calls = [call for name, other in others for call in list_calls(other) if name not in DEFINING or is_made(call)]
        calls += list_calls(value, suggested=False) if isinstance(value, list) else []
        named = {one for name, other in others if name in CALL_FIELDS for one in list_of(other) if isinstance(one, str)}
        answers = {text for _, other in others if isinstance(other, dict) for text in find_answers(other).values()}
        for place in (path, f"{path}[*]") if is_list else (path,):
            found = _read_sample(proposal := EvidenceMap(record=place), sample, read)
            names = {call.name for one in found for call in one.tool_calls or ()}
            # A list is one document only if its format is known. An object without the question has only the usual names of an answer.
            if is_list and place == path:
                fits = answers <= {one.text for one in found} and len(found) == len(sample) and all(map(_is_known_format, found))
            else:
                fits = is_list or all(map(_is_whole, found))
            if found and fits and all(map(_has_content, found)) and names >= {*map(name_call, calls), *named}:
                return proposal
    return None


def _is_known_format(evidence: Evidence) -> bool:
    return evidence.account is not None and evidence.account.reader not in PLAIN_READERS


def _is_whole(evidence: Evidence) -> bool:
    is_complete = evidence.input is not None and evidence.text is not None and not (evidence.account and evidence.account.unknown)
    return is_complete or _is_known_format(evidence)


def _list_fields(entries: list[dict[str, Json]]) -> list[Field]:
    """Return every field of the entries up to a depth; a list counts as one value."""
    found: dict[Path, tuple[Json, int]] = {}

    def walk(entry: dict[str, Json], path: Path) -> None:
        for key, value in entry.items():
            key_path = (*path, key)
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

    for entry in entries:
        walk(entry, ())
    return [Field(path, value, count) for path, (value, count) in found.items()]


def _find_speakers(entries: list[dict[str, Json]], fields: list[Field]) -> Speakers:
    speakers: Speakers = {}
    for field in fields:
        *_, parent, word = field.words
        is_inner = _ROLE.match(parent) is not None and word in ("type", "role", "kind")
        if isinstance(field.value, str) and (is_inner or _ROLE.match(word)):
            words = {write_role(_get(entry, field.path)) for entry in entries} - {""}
            speakers[field.path[: -2 if is_inner else -1]] = {("user" * (word in USERS)) or ("agent" * (word in AGENTS)) for word in words}
    return speakers


def _find_best(
    fields: list[Field], wanted: re.Pattern[str], other: re.Pattern[str], speakers: Speakers | None = None, *, least: float = 0
) -> Path | None:
    """Return the path of the text that most likely is `wanted`; a path near the root is preferred."""
    best: tuple[float, Path] | None = None
    for field in fields:
        *parents, word = field.words
        if not isinstance(field.value, str) or any(map(_ERROR.match, parents)):
            continue
        # A value of one word is an id or a name, as `user` and `agent` often are.
        if " " not in field.value.strip() and (_SPEAKERS.match(word) or _TEXT.match(word)):
            continue
        in_other = any(map(other.match, parents))
        score = 3.0 if wanted.match(word) else 0.0
        if not score and _TEXT.match(word):
            wrote = (speakers or {}).get(field.path[:-1])
            if wrote and wrote != {"agent" if wanted is _ANSWER else "user"}:
                continue  # another person may have written it
            score = 2.5 if wrote or any(map(wanted.match, parents)) else 1.0 if wanted is _ANSWER and not in_other else 0.0
        score -= 0.1 * len(field.path) + 1.5 * in_other
        if score > (best[0] if best is not None else least):
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


def _propose_calls(fields: list[Field], samples: list[Json]) -> tuple[Path, CallMap | None, str]:
    """Return the field that has the calls of the samples and where they are, or why a proposal leaves them out."""
    found = [one for one in _list_candidates(fields, "$", samples, _NESTED) if one[2] > 1]
    ranked = sorted(found, key=lambda one: (isinstance(one[1], str), -one[2]))
    path, calls, _ = ranked[0] if ranked else ((), "", 0)
    if isinstance(calls, str):
        return path, None, calls
    for place, other, score in ranked:
        names, others = ({call["name"] for read, _ in _read_calls(one, samples) for call in read} for one in (calls, other))
        if place != path and score >= _CERTAIN and not others <= names:
            return path, None, f"`{calls.each}` and `{getattr(other, 'each', '')}` have different calls"
    return path, calls, ""


def _read_calls(calls: CallMap | str, samples: list[Json]) -> Iterator[tuple[list[dict[str, Any]], str]]:
    """Return the calls of each sample that has their list, and why they are unknown."""
    for sample in samples if isinstance(calls, CallMap) else ():
        unknowns = Unknowns()
        with contextlib.suppress(EvidenceError):
            read, _ = CallReader(calls).find(Holder(sample), unknowns)
            if read is not None:
                yield read, unknowns.unknown.get("tool_calls", "")


def _list_candidates(fields: list[Field], at: str, samples: list[Json], depth: int) -> Iterator[tuple[Path, CallMap | str, float]]:
    """Return the fields that may have calls with a mapping, or with the reason why none is right, and a score."""
    for path, value, word, items in ((field.path, field.value, field.word, field.items) for field in fields):
        where, why, best = f"{at}{_write(path)[1:]}", "", 0.0
        listed = 2 if _CALLS.search(word) else 1 if _STEPS.search(word) else 0
        # A list of pairs has each call with its result; if it is empty, its name decides.
        pairs: Any = [dict(enumerate(one)) for one in list_of(value) if isinstance(one, list)]
        pairs = pairs or ([{0: {"tool": "", "tool_input": {}}}] if value == [] and word == "intermediate_steps" else [])
        mapped: list[CallMap | str | None] = [_map_call(items or pairs, f"{where}[*]")] if items or pairs else []
        if isinstance(value, dict) and (single := _map_call([value], where)) is not None and single.arguments is not None:
            mapped = [single] if single.name in ("$.function.name", *(_write((key,)) for key in value)) else []
        if items:
            keys = [key for key in dict.fromkeys(key for item in items for key in item) if key in KINDS or _EVENT.match(to_snake_case(key))]
            kinds = [_map_kinds(items, key, where) for key in sorted(keys, key=lambda key: key not in KINDS)]
            # Some entries may be something else: `{"thought": "x", "tool_call": {...}}`.
            if isinstance(calls := mapped[0], CallMap) and (name := compile_path(calls.name or "$").steps):
                mapped.append(msgspec.structs.replace(calls, each=f"{where}[?@{_write(name[:1])[1:]}]"))
            mapped = [*kinds, *mapped] if any(find_kind(item)[0] for item in items) else [*mapped, *kinds]
        for calls in mapped if not _EXPECTED.match(word) else ():
            if isinstance(calls, str):
                yield path, calls, _CERTAIN
                break
            if calls is None:
                continue
            calls = msgspec.structs.replace(calls, result="$[1]") if pairs else calls
            read = list(_read_calls(calls, samples))
            unclear = [reason for _, reason in read if reason]
            is_strong = "==" in calls.each or _STRONG.search(f"{calls.name} {calls.arguments}") is not None
            score = listed + bool(calls.arguments) + 2 * is_strong - 0.1 * calls.each.count("[")
            if len(unclear) <= len(read) // 2 and (pairs or any(one for one, _ in read)):
                yield path, calls, score
                break
            why, best = why or next(iter(unclear), ""), max(best, score)
        else:
            yield path, why, best if why else 0
        inner = _list_candidates(_list_fields(items), f"{where}[*]", samples, depth - 1) if depth and items else ()
        yield from ((path, calls, score) for _, calls, score in inner)


def _map_kinds(items: list[dict[str, Json]], key: str, at: str) -> CallMap | str | None:
    """Return a mapping of the entries of some kinds (`$.steps[?@.kind == 'tool' || @.kind == 'mcp']`), or why none is right."""
    by_kind: dict[str, list[dict[str, Json]]] = {}
    for item in items:
        if isinstance(word := item.get(key), str):
            by_kind.setdefault(word, []).append({name: value for name, value in item.items() if name != key})
    kinds: dict[str | None, list[str]] = {}
    for word, lines in by_kind.items():
        mapped, kind = _map_call(lines, at), find_kind({"kind": word})[0]
        # An end without arguments is the result of a call; an unrecognised kind needs arguments.
        if mapped is not None and (mapped.arguments is not None or (kind == "call" and _ACTS.search(word))):
            kinds.setdefault(kind, []).append(word)
    words = [*(kinds.get("call") or kinds.get("start") or kinds.get("end") or ()), *kinds.get(None, ())]
    test = " || ".join(f"@{_write((key,))[1:]} == {_quote(word)}" for word in words)
    calls = _map_call([line for word in words for line in by_kind[word]], f"{at}[?{test}]")
    if calls is None or (len(by_kind) < 2 and None in kinds):
        return None
    whole = msgspec.structs.replace(calls, each="$[*]")
    made = {word: [call for read, _ in _read_calls(whole, [list[Json](by_kind[word])]) for call in read] for word in words}
    if all(call["name"] == word for word, read in made.items() for call in read):
        return None  # the name of a tool is no kind
    counts = {word: Counter(_ENCODE([call["name"], call["arguments"]]) for call in read) for word, read in made.items() if read}
    same = next((pair for pair in itertools.permutations(counts, 2) if counts[pair[0]] <= counts[pair[1]]), None)
    return calls if same is None else f"calls of the kinds {show(same[0])} and {show(same[1])} may be the same"


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
    given = decode_container(next((f.value for f in fields if f.path == arguments), None))
    if isinstance(given, dict) and ("properties" in given or given.get("type") == "object"):
        return None  # the schema of an offered tool
    # Dify has `{"tool": "look_up", "tool_input": {"look_up": {...}}}`.
    is_keyed = isinstance(given, dict) and len(given) == 1 and [*given] == [f.value for f in fields if f.path == name]
    passed = f"{_write(arguments)}{'[*]' * is_keyed}" if arguments is not None and isinstance(given, dict) else None
    result, error = find(_RESULT, str, dict, list, int, float, bool), find(_ERROR, str, dict, bool)
    return CallMap(each=each, name=_write(name), arguments=passed, result=_write_found(result), error=_write_found(error))


def _propose_turns(field: Field, each: str | None = None) -> TurnMap | None:
    """Return a mapping that reads a list as a conversation: messages with roles, or pairs of question and answer."""
    items = field.items
    if len(items) < (1 if _TURNS.search(field.word) else 2):
        return None
    fields = _list_fields(items)
    each = each or f"{_write(field.path)}[*]"
    role, words = _find_role(fields, items, any_key=bool(field.path)) or (None, {})
    if role is not None:
        text = next((f.path for f in fields if isinstance(f.value, str) and _TEXT.match(f.word)), None)
        if any(item.get(str(role[0])) is None for item in items) and each.endswith("[*]"):
            each = f"{each[:-3]}[?@{_write(role[:1])[1:]}]"
        return TurnMap(each=each, role=_write(role), text=_write(text), **words) if text is not None else None
    question, answer = _find_best(fields, _INPUT, _ANSWER), _find_best(fields, _ANSWER, _INPUT)
    if question is None or answer is None or len(question) > 1 or question == answer:
        return None
    return TurnMap(each=each, input=_write(question), text=_write(answer), tool_calls=_propose_calls(fields, list[Json](items))[1])


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
    calls, _ = _find_line_calls(entries, group)
    if turns is not None and turns.role is not None:
        return EvidenceMap(group=_write_found(group), turns=turns, tool_calls=calls)
    if group is None:
        return None
    for event in dict.fromkeys(key for entry in entries for key in entry if _EVENT.match(to_snake_case(key))):
        words = list(dict.fromkeys(value for entry in entries if isinstance(value := entry.get(event), str)))
        if 1 < len(words) <= max(8, len(entries) // 4) and all(len(word) < 40 for word in words):
            break
    else:
        question, answer = (f"$[*]{path[1:]}" if path is not None else None for path in (record.input, record.text))
        # If no line has an input, the text of each may be the user's.
        return EvidenceMap(group=_write(group), input=question, text=answer, tool_calls=calls) if question and answer else None
    question: str | None = None
    answer: str | None = None
    for word in words:
        lines = [entry for entry in entries if entry.get(event) == word]
        each, kind = f"$[?@{_write((event,))[1:]} == {_quote(word)}]", to_snake_case(word)
        if _ACTS.search(kind) and find_kind({"kind": word})[0] != "other":
            continue
        fields = [f for f in _list_fields(lines) if f.path not in ((event,), group) and isinstance(f.value, str)]
        text = next((f.path for f in fields if _TEXT.match(f.word)), None)
        # The name of a field decides, unless the user wrote it: the start of an agent has the user's text.
        sent, given = _find_best(fields, _INPUT, _ANSWER, least=1), _find_best(fields, _ANSWER, _INPUT, least=1)
        if _ASKS.search(kind):
            sent, given = sent or given or text, None
        elif _ANSWERS.search(kind) and not _THINKS.search(kind) and sent is None:
            given = given or text
        question = question or (f"{each}{_write(sent)[1:]}" if sent is not None else None)
        answer = f"{each}{_write(given)[1:]}" if given is not None else answer
    return EvidenceMap(group=_write(group), input=question, text=answer, tool_calls=calls) if answer or calls else None


def _find_line_calls(entries: list[dict[str, Json]], group: Path | None) -> tuple[CallMap | None, str]:
    """Return where the lines of runs have calls, or why a proposal leaves them out."""
    runs: dict[str, list[Json]] = {}
    for entry in entries:
        runs.setdefault(str(_get(entry, group or ())), []).append(entry)
    own = [{key: value for key, value in entry.items() if (key,) != group} for entry in entries]
    return _propose_calls([Field((), own, len(own))], list[Json](runs.values()))[1:]


def _find_group(entries: list[dict[str, Json]]) -> Path | None:
    """Return the id that several lines share, if no single line is a complete run."""
    if len(entries) < 2:
        return None
    given = [value for entry in entries for key, value in entry.items() if key.lower().startswith("parent")]
    parents = {str(one) for value in given for one in list_of(value) or [value]}
    for field in _list_fields(entries):
        is_id = _GROUP.match(field.word) and not isinstance(field.value, (dict, list))
        if is_id and field.records >= 0.8 * len(entries):
            shared = Counter(str(value) for entry in entries if (value := _get(entry, field.path)) is not None)
            # The id of an event is the parent of others.
            if len(shared) < len(entries) and max(shared.values()) > 1 and parents.isdisjoint(shared):
                return field.path
    return None


def _get(entry: Json, path: Path) -> Json:
    return next(iter(Holder(entry).find(compile_path(_write(path)))), None)


def _read_sample(
    proposal: EvidenceMap, entries: list[dict[str, Json]], read: Callable[..., list[Evidence]] | None = None
) -> list[Evidence]:
    try:
        return compile_mapping(proposal).read_all(entries) if read is None else read(list[Json](entries), mapping=proposal)
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

    entries = [parsed for record in records if isinstance(parsed := Holder(record).parsed, dict)]
    found = (*_find_line_calls(entries, _find_group(entries)), *_propose_calls(_list_fields(entries), list[Json](entries)))
    why = found[1] if paths.group is not None else found[-1]
    if why and not any(field == "record" or field.endswith("tool_calls.each") for field, _ in list_paths(paths)):
        lines.append(f"    # no tool_calls: {escape_unseen(why)}")
    add(paths, "    ", records if paths.group is None else list[Json](compile_mapping(paths).split_runs(list[Json](entries))))
    return "".join(f"{indent}{line}\n" for line in lines)
