"""Proposes a mapping for records of an unknown format, by the names of their fields and the shapes of their values."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.mapping.kinds import KINDS, classify_kind, find_kind
from proctor.evidence.mapping.read import AGENTS, SPEAKERS, USERS, CallReader, Holder, compile_mapping, write_role
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.statuses import to_snake_case
from proctor.evidence.values.access import list_of
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
_STRONG = re.compile(r"(tool|tool_name|function|function_name|fn|werkzeug|tool_input|action_input|tool_args|kwargs)$")
"""Names that only calls have."""
_ACTS = re.compile(r"tool|call|function|mcp", re.IGNORECASE)
"""Kinds of calls that may have no arguments; an action of a dialogue is often none."""
_EXPECTED = re.compile(r"expect|reference|ground_truth|golden|available|offered|allowed")
_FIELDS_OF_CALL = ("name", "arguments", "result", "error")
_NESTED = 3
"""Levels of lists in lists that are searched for calls."""
_CERTAIN = 2.5
"""The score from which a place has calls without doubt."""
_ROLE = re.compile(r"(role|speaker|who|sender|author|from|author_type|participant)$")
_GROUP = re.compile(
    r"(session|conversation|run|trace|thread|chat|request|req|dialog|dialogue|ticket|call|correlation|interaction|task|invocation)"
    r"(_?(id|no|key|uuid|sid))?$"
)
_PARENT = re.compile(r"parent(_\w+)?$")
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
        return to_snake_case(str(self.path[-1])) if self.path else ""

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
    turns = next(filter(None, (_propose_turns(field) for field in fields)), None) or _propose_scattered(fields)
    calls = _propose_calls(fields, list[Json](entries))
    used_path = calls.path if calls is not None else ()
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
        tool_calls=calls.calls if calls is not None else None,
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
    is_left_out = calls is not None and calls.calls is None and any(evidence.tool_calls is not None for evidence in sample)
    if any(map(_has_content, sample)) and record != EvidenceMap() and not is_left_out:
        return record  # a mapping would hide the calls that the usual fields do not have
    return _propose_records_inside(entries)


def _propose_documents(entries: list[dict[str, Json]], read: Callable[..., list[Evidence]]) -> EvidenceMap | None:
    """Return the path at which each entry has a list of runs, or one document of a known format."""
    for key, value in entries[0].items():
        is_list = isinstance(value, list) and _RUNS.match(to_snake_case(key)) is not None
        if not is_list and not isinstance(value, (dict, list)):
            continue
        if _CALLS.search(to_snake_case(key)):
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


def _find_speakers(entries: list[dict[str, Json]], fields: list[Field]) -> dict[Path, set[str]]:
    """Return who wrote the texts of each object, in any of the entries: `user`, `agent`, or an empty text for a name."""
    speakers: dict[Path, set[str]] = {}
    for field in fields:
        *_, parent, word = ["", *field.words]
        is_inner = _ROLE.match(parent) is not None and word in ("type", "role", "kind")
        if isinstance(field.value, str) and (is_inner or _ROLE.match(word)):
            words = {write_role(_get(entry, field.path)) for entry in entries} - {""}
            sides = {"user" if word in USERS else "agent" if word in AGENTS else "" for word in words}
            speakers.setdefault(field.path[: -2 if is_inner else -1], set()).update(sides)
    return speakers


def _find_best(
    fields: list[Field],
    wanted: re.Pattern[str],
    other: re.Pattern[str],
    speakers: dict[Path, set[str]] | None = None,
    *,
    least: float = 0,
) -> Path | None:
    """Return the path of the text that most likely is `wanted`; a path near the root is preferred."""
    best: tuple[float, Path] | None = None
    side = "agent" if wanted is _ANSWER else "user"
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
            wrote = next((found for end in range(len(parents), -1, -1) if (found := (speakers or {}).get(field.path[:end]))), None)
            if wrote is not None and wrote != {side}:
                continue  # somebody else may have written it
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


class FoundCalls(NamedTuple):
    """Where calls are, or why they are left out of a proposal; `path` is the field that contains them."""

    path: Path
    calls: CallMap | None
    why: str = ""
    score: float = 0


def _propose_calls(fields: list[Field], samples: list[Json]) -> FoundCalls | None:
    """Return where the samples have calls; a place of some of their calls only is no proposal."""
    best: dict[Path, FoundCalls] = {}
    for found in _list_candidates(fields, "$", samples, _NESTED):
        old = best.get(found.path)
        if found.score > 1 and (old is None or (found.calls is not None, found.score) > (old.calls is not None, old.score)):
            best[found.path] = found
    ranked = sorted(best.values(), key=lambda found: (found.calls is None, -found.score))
    if not ranked or (chosen := ranked[0]).calls is None:
        return ranked[0] if ranked else None
    for other in ranked[1:]:
        # A second list may repeat the first, or have calls of its own.
        if other.calls is None or other.score < _CERTAIN or not _read_names(other.calls, samples) - _read_names(chosen.calls, samples):
            continue
        paths = [(*found.path[:-1], "") for found in (chosen, other)]
        keys = [f"{_write(found.path)}[*]" for found in (chosen, other)]
        other_each = msgspec.structs.replace(other.calls, each=chosen.calls.each)
        if paths[0] != paths[1] or other_each != chosen.calls or [chosen.calls.each, other.calls.each] != keys:
            return FoundCalls(chosen.path, None, f"`{chosen.calls.each}` and `{other.calls.each}` have different calls", chosen.score)
        names = ",".join(_quote(str(found.path[-1])) for found in (chosen, other))
        return chosen._replace(calls=msgspec.structs.replace(chosen.calls, each=f"{_write(chosen.path[:-1])}[{names}][*]"))
    return chosen


def _read_names(calls: CallMap, samples: list[Json]) -> Counter[str]:
    return sum((Counter(call["name"] for call in read) for read, _ in _read_calls(calls, samples)), Counter())


def _read_calls(calls: CallMap, samples: list[Json]) -> list[tuple[list[dict[str, Any]], str]]:
    """Return the calls of each sample that has their list, and why they are unknown."""
    reader, found = CallReader(calls), list[tuple[list[dict[str, Any]], str]]()
    for sample in samples:
        unknowns = Unknowns()
        try:
            read, _, _ = reader.find(Holder(sample), unknowns)
        except EvidenceError:
            continue
        if read is not None:
            found.append((read, unknowns.unknown.get("tool_calls", "")))
    return found


def _list_candidates(fields: list[Field], at: str, samples: list[Json], depth: int) -> Iterator[FoundCalls]:
    """Return the places that look like calls: objects with a name and arguments, one by one, in lists, in pairs and in lists of lists."""
    for field in fields:
        if _EXPECTED.match(field.word):
            continue
        where = f"{at}{_write(field.path)[1:]}"
        listed = 2 if _CALLS.search(field.word) else 1 if _STEPS.search(field.word) else 0
        pairs = [{"0": one[0]} for one in field.value if isinstance(one, list) and one] if isinstance(field.value, list) else []
        if field.items:
            yield from _check(field.path, _map_entries(field.items, where), listed, samples)
            inner = _list_candidates(_list_fields(field.items), f"{where}[*]", samples, depth - 1) if depth else ()
            yield from (found._replace(path=field.path) for found in inner)
        elif pairs and (mapped := _map_call([one["0"] for one in pairs if isinstance(one["0"], dict)], f"{where}[*]")) is not None:
            moved = {key: f"$[0]{path[1:]}" for key in ("name", "arguments") if (path := getattr(mapped, key)) is not None}
            yield from _check(field.path, [CallMap(each=mapped.each, result="$[1]", **moved)], listed, samples)
        elif field.value == [] and field.word == "intermediate_steps":
            pair = CallMap(each=f"{where}[*]", name="$[0].tool", arguments="$[0].tool_input", result="$[1]")
            yield FoundCalls(field.path, pair, score=_CERTAIN)
        elif isinstance(field.value, dict) and (mapped := _map_call([field.value], where)) is not None and mapped.arguments is not None:
            is_direct = mapped.name in ("$.function.name", *(_write((key,)) for key in field.value))
            yield from _check(field.path, [mapped] if is_direct else [], listed, samples)


def _check(path: Path, mapped: list[CallMap | str], listed: int, samples: list[Json]) -> Iterator[FoundCalls]:
    """Return the first of some mappings that reads most samples, with its score, or why none does."""
    why, best = "", 0.0
    for calls in mapped:
        if isinstance(calls, str):
            yield FoundCalls(path, None, calls, _CERTAIN)
            return
        read = _read_calls(calls, samples)
        unclear = [reason for _, reason in read if reason]
        words = [to_snake_case(key) for key in re.findall(r"\w+", f"{calls.name} {calls.arguments}")]
        is_strong = "==" in calls.each or any(_STRONG.match(word) for word in words)
        score = listed + bool(calls.arguments) + 2 * is_strong - 0.1 * calls.each.count("[")
        if any(one and not reason for one, reason in read) and len(unclear) <= len(read) // 2:
            yield FoundCalls(path, calls, score=score)
            return
        why, best = why or next(iter(unclear), ""), max(best, score)
    if why and best > 1:
        yield FoundCalls(path, None, why, best)


def _map_entries(items: list[dict[str, Json]], at: str) -> list[CallMap | str]:
    """Return mappings of the entries of a list that are calls, by their kind or their name, or why none is right."""
    mapped = [_map_call(items, f"{at}[*]")]
    keys = [
        key
        for key in dict.fromkeys(key for item in items for key in item)
        if to_snake_case(key) in KINDS or _EVENT.match(to_snake_case(key))
    ]
    kinds = [_map_kinds(items, key, at) for key in sorted(keys, key=lambda key: key not in KINDS)]
    if mapped[0] is not None and mapped[0].name is not None:
        # Half of a list may have the fields of a call: `{"thought": "x", "tool_call": {...}}`.
        *parents, _ = name = compile_path(mapped[0].name).steps or ("",)
        calls = mapped[0]
        mapped.append(msgspec.structs.replace(calls, each=f"{at}[?@{_write((name[0],))[1:]}]"))
        prefix = _write(tuple(parents))
        others = [path for path in (calls.arguments, calls.result, calls.error) if path is not None]
        if parents and parents != ["function"] and all(path.startswith(prefix) for path in others):
            moved = {key: f"${path[len(prefix) :]}" for key in _FIELDS_OF_CALL if (path := getattr(calls, key)) is not None}
            mapped.insert(0, CallMap(each=f"{at}[*]{prefix[1:]}", **moved))
    has_kinds = any(find_kind(item)[0] is not None for item in items)
    found = [*kinds, *mapped] if has_kinds else [*mapped, *kinds]
    return [calls for calls in found if calls is not None]


def _map_kinds(items: list[dict[str, Json]], key: str, at: str) -> CallMap | str | None:
    """Return a mapping of the entries of some kinds (`$.steps[?@.kind == 'tool' || @.kind == 'mcp']`), or why none is right."""
    by_kind: dict[str, list[dict[str, Json]]] = {}
    for item in items:
        if isinstance(word := item.get(key), str):
            by_kind.setdefault(word, []).append({name: value for name, value in item.items() if name != key})
    shaped = {word: mapped for word, of_kind in by_kind.items() if (mapped := _map_call(of_kind, at)) is not None}
    meanings = {word: classify_kind(word) for word in shaped}
    # An end without arguments is the result of a call; an unrecognised kind needs arguments.
    shaped = {word: one for word, one in shaped.items() if one.arguments is not None or (meanings[word] == "call" and _ACTS.search(word))}
    words = [word for word in shaped if meanings[word] == "call"]
    words = words or [word for word in shaped if meanings[word] == "start"] or [word for word in shaped if meanings[word] == "end"]
    words += [word for word in shaped if meanings[word] is None]
    if not words or (len(by_kind) < 2 and meanings[words[0]] is None):
        return None
    paths = {
        field: list(dict.fromkeys(path for word in words if (path := getattr(shaped[word], field)) is not None))
        for field in _FIELDS_OF_CALL
    }
    given = {
        field: path
        for field, found in paths.items()
        if (path := _unite(found, [line for word in words for line in by_kind[word]])) is not None
    }
    if "name" not in given or (paths["arguments"] and "arguments" not in given):
        return f"calls of the kinds {' and '.join(map(show, words))} have different fields"
    reader = CallReader(CallMap(each="$[*]", **given))
    read = {word: reader.find(Holder(by_kind[word]), Unknowns())[0] or [] for word in words}
    if all(call["name"] == word for word, calls in read.items() for call in calls):
        return None  # the name of a tool is no kind
    made = {word: Counter(_ENCODE([call["name"], call["arguments"]]) for call in calls) for word, calls in read.items()}
    for one, other in itertools.combinations(words, 2):
        if not made[one] - made[other] or not made[other] - made[one]:
            return f"calls of the kinds {show(one)} and {show(other)} may be the same"
    test = " || ".join(f"@{_write((key,))[1:]} == {_quote(word)}" for word in words)
    return CallMap(each=f"{at}[?{test}]", **given)


def _unite(paths: list[str], lines: list[dict[str, Json]]) -> str | None:
    """Return one path for the same field under several names, `$['name','tool']`, or None if it cannot be expressed."""
    if len(paths) < 2:
        return paths[0] if paths else None
    keys = [steps[0] for path in paths if len(steps := compile_path(path).steps or ()) == 1]
    if len(keys) < len(paths) or any(sum(line.get(str(key)) is not None for key in keys) > 1 for line in lines):
        return None
    return f"$[{','.join(_quote(str(key)) for key in keys)}]"


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
    inner = next((f.path for f in fields if arguments is not None and f.path == (*arguments, "kwargs") and isinstance(f.value, dict)), None)
    arguments = inner or (arguments if isinstance(decode_container(given), dict) else None)
    result, error = find(_RESULT, str, dict, list, int, float, bool), find(_ERROR, str, dict, bool)
    passed = _write_found(arguments)
    # Dify: `{"tool": "look_up", "tool_input": {"look_up": {"id": 17}}}`
    names = {value for item in items if isinstance(value := _get(item, name), str)}
    if (
        arguments is not None
        and names
        and all(isinstance(one, dict) and len(one) == 1 and names.issuperset(one) for one in _list_given(items, arguments))
    ):
        passed = f"{passed}[*]"
    return CallMap(each=each, name=_write(name), arguments=passed, result=_write_found(result), error=_write_found(error))


def _list_given(items: list[dict[str, Json]], path: Path) -> list[Json]:
    return [value for item in items if (value := decode_container(_get(item, path))) not in (None, "")]


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
        if any(item.get(str(role[0])) is None for item in items) and each.endswith("[*]"):
            each = f"{each[:-3]}[?@{_write(role[:1])[1:]}]"
        return TurnMap(each=each, role=_write(role), text=_write(text), **words) if text is not None else None
    question, answer = _find_best(fields, _INPUT, _ANSWER), _find_best(fields, _ANSWER, _INPUT)
    if question is None or answer is None or len(question) > 1 or question == answer:
        return None
    calls = _propose_calls(fields, list[Json](items))
    return TurnMap(each=each, input=_write(question), text=_write(answer), tool_calls=calls.calls if calls is not None else None)


def _propose_scattered(fields: list[Field]) -> TurnMap | None:
    """Return a mapping of messages of which the first is outside of the list of the others, as in tickets."""
    for field in fields:
        for first in (other.value for other in fields if field.items and isinstance(other.value, dict) and other.path != field.path[:-1]):
            turns = _propose_turns(Field((), [first, *field.items], 1)) if isinstance(first, dict) else None
            if turns is not None and turns.role is not None and turns.text is not None and Holder(first).find(compile_path(turns.text)):
                role = compile_path(turns.role).steps or ("",)
                return msgspec.structs.replace(turns, each=f"$..[?@{_write(role[:1])[1:]}]")
    return None


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
    found = _find_line_calls(entries, group)
    calls = found.calls if found is not None else None
    if turns is not None and turns.role is not None:
        return EvidenceMap(group=_write_found(group), turns=turns, tool_calls=calls)
    if group is None:
        return None
    event = _find_event_key(entries)
    if event is None:
        question, answer = (f"$[*]{path[1:]}" if path is not None else None for path in (record.input, record.text))
        if question is None:
            return None  # the text of each line may be the user's
        return EvidenceMap(group=_write(group), input=question, text=answer, tool_calls=calls) if answer is not None else None
    question: str | None = None
    answer: str | None = None
    for word in dict.fromkeys(entry[event] for entry in entries if isinstance(entry.get(event), str)):
        lines = [entry for entry in entries if entry.get(event) == word]
        each, kind = f"$[?@{_write((event,))[1:]} == {_quote(word)}]", to_snake_case(word)
        if _ACTS.search(kind) and classify_kind(word) != "other":
            continue
        fields = [f for f in _list_fields(lines) if f.path not in ((event,), group) and isinstance(f.value, str)]
        # The name of a field decides, unless the user wrote it: the start of an agent has the user's text.
        is_user, is_answer = _ASKS.search(kind) is not None, _ANSWERS.search(kind) is not None and not _THINKS.search(kind)
        fields = [field for field in fields if not _is_name(field)]
        asked, given = (_find_best(fields, *words, least=1) for words in ((_INPUT, _ANSWER), (_ANSWER, _INPUT)))
        text = next((f.path for f in fields if _TEXT.match(f.word)), None)
        if is_user:
            asked, given = asked or given or text, None
        elif is_answer and asked is None:
            given = given or text
        if asked is not None:
            question = question or f"{each}{_write(asked)[1:]}"
        if given is not None:
            answer = f"{each}{_write(given)[1:]}"
    return EvidenceMap(group=_write(group), input=question, text=answer, tool_calls=calls) if answer or calls else None


def _is_name(field: Field) -> bool:
    """Return whether a field such as `user` or `agent` has an id or a name instead of a text."""
    return " " not in str(field.value).strip() and _SPEAKERS.match(field.word) is not None


def _find_line_calls(entries: list[dict[str, Json]], group: Path | None) -> FoundCalls | None:
    """Return where the lines of runs have calls."""
    runs: dict[str, list[Json]] = {}
    for entry in entries:
        runs.setdefault(str(_get(entry, group or ())), []).append(entry)
    own = [{key: value for key, value in entry.items() if (key,) != group} for entry in entries]
    return _propose_calls([Field((), own, len(own))], list[Json](runs.values()))


def _find_group(entries: list[dict[str, Json]]) -> Path | None:
    """Return the id that several lines share, if no single line is a complete run."""
    if len(entries) < 2:
        return None
    parents = {
        str(value)
        for entry in entries
        for key, given in entry.items()
        if _PARENT.match(to_snake_case(key))
        for value in list_of(given) or [given]
    }
    for field in _list_fields(entries):
        is_id = _GROUP.match(field.word) and not isinstance(field.value, (dict, list))
        if is_id and field.records >= 0.8 * len(entries):
            if parents.intersection(str(_get(entry, field.path)) for entry in entries):
                continue  # the id of an event, which is the parent of others
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

    if (why := _explain_no_calls(paths, records)) is not None:
        lines.append(f"    # no tool_calls: {escape_unseen(why)}")
    add(paths, "    ", records if paths.group is None else list(compile_mapping(paths).group_lines(records).values()))
    return "".join(f"{indent}{line}\n" for line in lines)


def _explain_no_calls(paths: EvidenceMap, records: list[Json]) -> str | None:
    """Return why a proposal leaves out the calls of the records, if some seem to have calls."""
    entries = [parsed for record in records if isinstance(parsed := Holder(record).parsed, dict)]
    if paths.tool_calls is not None or paths.record is not None or (paths.turns is not None and paths.turns.tool_calls is not None):
        return None
    is_log = paths.group is not None
    found = _find_line_calls(entries, _find_group(entries)) if is_log else _propose_calls(_list_fields(entries), list[Json](entries))
    return found.why if found is not None and found.calls is None else None
