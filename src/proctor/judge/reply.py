"""Parses the reply of a judge. Pure: no text makes it raise or wait.

The JSON is the whole reply; else the first fenced block; else the first balanced `{...}`. Thoughts before it (`<think>`), commas before a
closing bracket, line breaks in texts and halves of surrogate pairs are forgiven. A judge may quote what the agent wrote, and the agent may
have written a verdict: if a reply has two different answers, a decision outside of its entries, an entry with an unknown id next to
one with a known id, or a key twice in an object, nothing in it counts. A quote that is not in the material makes its answer unfounded.

What is wrong with one answer stays with it, except that one entry of the wrong shape spoils the reply: its other entries may
belong elsewhere too.
"""

from __future__ import annotations

import html
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, Missing, is_number
from proctor.model.judgement import Question
from proctor.model.show import shorten, show

MAX_REPLY = 1_000_000
"""Characters of a reply that are looked at; a longer one is no answer."""
MAX_REASON = 4_000
"""Characters of a reason that are stored."""
MAX_QUOTE = 1_000
"""Characters of a quote that are stored."""
MOST_QUOTES = 20
"""Quotes of one answer that are stored and looked up."""

_ANSWER = re.compile(r'"(?:results|pass|score)"')
"""What only an answer has, and what is left of one that was ended from within."""
# Quantifiers that never give back: whatever the text is, each character is looked at once.
_TOKENS = re.compile(r'"(?:[^"\\]++|\\.)*+"?+|[{}]', re.DOTALL)
_LOOSE_COMMA = re.compile(r'("(?:[^"\\]++|\\.)*+"?+)|,(?=\s*+[}\]])', re.DOTALL)
_FENCE = re.compile(r"```(?:json)?", re.IGNORECASE)
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_THOUGHTS = re.compile(r"\s*+<(think|thinking|reasoning|thought)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_OPEN_THOUGHTS = re.compile(r"\s*+<(?:think|thinking|reasoning|thought)>", re.IGNORECASE)
_RETRACTION = re.compile(r"\b(?:not met|wrong|mistake\w*|correction|reconsider\w*|reflection|instead|actually)\b", re.IGNORECASE)
"""Words after an answer that take it back."""
_FAILURE = re.compile(r"\bfail\w*\b", re.IGNORECASE)
_LEAST_QUOTE = 4
"""Letters and digits of a quote that founds an answer; a shorter one is in nearly every material."""
_OMISSION = re.compile(r"\[?(?:\.\.\.+|…)\]?")
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ENTITY = re.compile(r"&(?:[A-Za-z]{2,8}|#[0-9]{1,6}|#[xX][0-9a-fA-F]{1,6});")
_LIST_NUMBER = re.compile(r"^[ \t>]*\(?(?:[0-9]{1,3}|[A-Za-z])[.)][ \t]+", re.MULTILINE)
_LABEL = re.compile(
    r"""[\s"'`*{\[]*(?:context\.|(?:statement|passage) )?([\w ]{1,40}?)["'`*\]]*(?:[:.)\]])["'`*]*\s*(\S.*)""", re.DOTALL | re.IGNORECASE
)
"""The name of a member of the data, or its number, before a quote."""
_AROUND = " \t\r\n.:;,!\"'`*_()[]"
"""What models write around the name of a choice."""
_NOT_WORD = re.compile(r"[\W_]+")


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The judge's answer to one question."""

    passed: bool
    reason: str
    score: float | None = None
    """Set if the question requires a score."""
    choice: str | None = None
    """Where one of several answers was to be chosen."""
    quotes: tuple[str, ...] = ()
    """The passages of the material that decided it."""


class Fault(msgspec.Struct, frozen=True):
    """Why there is no answer."""

    code: str
    text: str
    repair: str = ""
    """The text that the repair request has about it; it may quote the reply, so it is shown as data."""


class ReadReply(msgspec.Struct, frozen=True, kw_only=True):
    """One reply: per question an answer or why there is none, in the order of the questions."""

    items: tuple[Item | Fault, ...]
    fault: Fault | None = None
    """What is wrong with the reply as a whole; every item has it too."""

    @property
    def fault_code(self) -> str | None:
        """The code of what is wrong with the whole, if anything is."""
        return self.fault.code if self.fault is not None else None

    def list_unanswered(self) -> list[int]:
        """Return the positions without an answer."""
        return [position for position, item in enumerate(self.items) if isinstance(item, Fault)]


class _Unusable(Exception):
    def __init__(self, code: str, what: str) -> None:
        self.code = code
        self.what = what


def make_spoiled(fault: Fault, count: int) -> ReadReply:
    """Return a reply of no use to any of `count` questions."""
    return ReadReply(items=(fault,) * count, fault=fault)


def name_question(question: Question) -> str:
    """Return what a question is called in sentences."""
    return question.label or (f"must not: {question.criterion}" if question.forbidden else question.criterion)


def clean_text(text: str, limit: int) -> str:
    """Return a text of a judge for storage: bounded, and valid UTF-8."""
    if not text.isascii():
        text = _HALF_PAIR.sub("\ufffd", text)
    return shorten(text, limit)


def read_reply(
    text: str,
    questions: Sequence[Question],
    ids: Sequence[str],
    judge_name: str,
    *,
    material: str | None = None,
    takes_first_entry: bool = False,
) -> ReadReply:
    """Return the answers in `text`; `ids[i]` is what `questions[i]` was called before the judge.

    Quotes are looked up in `material`, the line that was shown, if it is given. Of two entries about one question that differ neither
    counts; with `takes_first_entry` the first does, as in MCPLab.
    """
    try:
        entries = _find_entries(text)
        chosen = bool(questions) and bool(questions[0].choices)
        scored = bool(questions) and questions[0].threshold is not None
        entries_by_id = _index_by_id(entries, decision="choice" if chosen else "score" if scored else "pass")
        if entries_by_id.keys() - set(ids) and entries_by_id.keys() & set(ids):
            # The agent may have ended the entry that quotes it, and begun another one for the decision of the judge.
            raise _Unusable("judge_bad_item", "returned an unknown result id")
        # Of a list that is counted, nothing can be left out or chosen from without a guess.
        if chosen and any(identifier not in ids or len(found) > 1 for identifier, found in entries_by_id.items()):
            raise _Unusable("judge_bad_item", "returned a result for an unknown id, or several for one id,")
    except _Unusable as error:
        # MCPLab's own wording; `wording.py` rewords it for other suites.
        fault = Fault(error.code, f'Agent check failed: judge "{judge_name}" {error.what} for batched agent checks')
        return make_spoiled(fault, len(questions))
    pairs = zip(questions, ids, strict=True)
    items = [
        _read_entries(entries_by_id.get(identifier, [])[: 1 if takes_first_entry else None], question, judge_name)
        for question, identifier in pairs
    ]
    if material is not None and any(isinstance(item, Item) and (item.quotes or item.choice) for item in items):
        data = msgspec.json.decode(material)
        # What was wrong with an earlier reply is no part of what is judged, and may repeat what that reply made up.
        data.pop("fault_of_previous_reply", None)
        shown = _write_forms(data)
        items = [_check_quotes(item, question, shown, data, judge_name) for item, question in zip(items, questions, strict=True)]
    return ReadReply(items=tuple(items))


def _check_quotes(item: Item | Fault, question: Question, shown: str, data: dict[str, Json], judge_name: str) -> Item | Fault:
    """Return the answer, or the fault that it quotes what is not in the material, or nothing from where it must be founded."""
    if isinstance(item, Fault):
        return item
    quotes: list[str] = []
    for quote in item.quotes:
        found = quote if _is_quoted(quote, shown) else _find_labelled(quote, data)
        if found is None:
            what = f'quoted {show(quote, 80)} for "{name_question(question)}", which is not in the data'
            return Fault("judge_unfounded", f'Agent check failed: judge "{judge_name}" {what}')
        quotes.append(found)
    if question.founded_in is not None and item.passed and item.choice in question.accepted[:1]:
        source = _write_forms(data.get("context", {}).get(question.founded_in))
        if not any(_is_quoted(quote, source) for quote in quotes if is_distinctive(quote)):
            what = f'chose {show(item.choice)} for "{name_question(question)}" without a quote from context.{question.founded_in}'
            return Fault("judge_unfounded", f'Agent check failed: judge "{judge_name}" {what}')
    return msgspec.structs.replace(item, quotes=tuple(quotes))


def _is_quoted(quote: str, forms: str) -> bool:
    return any(all(_fold(part) in forms for part in _OMISSION.split(form)) for form in (quote, _unescape(quote)))


def _find_labelled(quote: str, data: dict[str, Json]) -> str | None:
    """Return a quote without the name of the member that it is from (`final_answer: ...`, `Statement 2: ...`), if it is in that member."""
    label = _LABEL.fullmatch(quote)
    if label is None:
        return None
    subject, context = next(iter(data.values())), data.get("context", {})
    members: list[Json] = [value for key, value in (*data.items(), *context.items()) if _fold(key) == _fold(label[1])]
    if label[1].isdecimal():
        number = int(label[1])
        members = [subject[label[1]]] if isinstance(subject, dict) and label[1] in subject else []
        members += [value[number - 1] for value in context.values() if isinstance(value, list) and 0 < number <= len(value)]
    return label[2] if any(_is_quoted(label[2], _write_forms(member)) for member in members) else None


def is_distinctive(quote: str) -> bool:
    """Return whether a quote is long enough to found an answer."""
    return len(_fold(quote)) >= _LEAST_QUOTE


def _write_forms(value: Json) -> str:
    """Return the words of a value in each form in which judges copy them: as JSON, as plain text, without the numbers of list items."""
    plain = "\n".join(_list_texts(value))
    texts = dict.fromkeys((plain, _unescape(plain)))
    forms = dict.fromkeys(map(_fold, (json.dumps(value, ensure_ascii=False), *texts, *(_LIST_NUMBER.sub("", text) for text in texts))))
    # No folded text has a line break, so no quote is found across two forms.
    return "\n".join(forms)


def _list_texts(data: Json) -> Iterator[str]:
    """Yield every key, text and number of the material in order, as a reader sees it; the numbers of statements are left out."""
    waiting: list[Json] = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            for key, member in reversed(value.items()):
                waiting += [member] if key.isdecimal() else [member, key]
        elif isinstance(value, list):
            waiting += reversed(value)
        elif value is not None:
            yield json.dumps(value)


def _fold(text: str) -> str:
    """Return the words of a text alone: models change case, spaces, punctuation and entities of what they quote, but no number."""
    return _NOT_WORD.sub(" ", unicodedata.normalize("NFKC", _ENTITY.sub(_decode_entity, text)).casefold()).strip()


def _decode_entity(found: re.Match[str]) -> str:
    return html.unescape(found[0])


def _unescape(text: str) -> str:
    """Return a text with the escapes of JSON as what they stand for: a tool may give back JSON as a text, and a judge quote it decoded."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else _ESCAPED.get(found[2], found[2]), text)


def _read_entries(entries: Sequence[dict[str, Json]], question: Question, judge_name: str) -> Item | Fault:
    """Return the one answer in the entries about a question; yes and no together are no answer."""
    items = [_read_item(entry, question, judge_name) for entry in entries] or [_read_item(None, question, judge_name)]
    if len({(item.passed, item.score, item.choice) if isinstance(item, Item) else item.code for item in items}) > 1:
        label = name_question(question)
        return Fault("judge_contradiction", f'Agent check failed: judge "{judge_name}" returned different results for "{label}"')
    return items[0]


def _read_item(entry: dict[str, Json] | None, question: Question, judge_name: str) -> Item | Fault:
    label = name_question(question)
    if entry is None:
        return Fault("judge_missing_result", f'Judge did not return a result for "{label}"')
    score: float | None = None
    choice: str | None = None
    if question.choices:
        choice = _find_choice(entry["choice"], question.choices)
        if choice is None:
            chosen = show(clean_text(entry["choice"], 80), 80)
            repair = f"The choice {chosen} is not one of the names under `choices`: {', '.join(question.choices)}."
            return Fault("judge_bad_choice", f'Agent check failed: judge "{judge_name}" chose {chosen} for "{label}"', repair)
        value = question.score_choice(choice)
        score = None if question.threshold is None else value
        passed: bool = value >= (question.threshold or 1)
    elif question.threshold is None:
        passed = entry["pass"]
    else:
        found: Json = entry.get("score", MISSING)
        # To Python `true` is a number; a judge that answers yes instead of a score has given none.
        if not is_number(found) or not 0 <= found <= 1:
            given = "no score" if found is MISSING else f"the score {show(found)}, which is no number from 0 to 1,"
            return Fault("judge_bad_score", f'Agent check failed: judge "{judge_name}" returned {given} for "{label}"')
        score = float(found)
        passed = score >= question.threshold
    reason = clean_text(entry["reason"].strip(), MAX_REASON)
    quotes = tuple(clean_text(quote, MAX_QUOTE) for quote in entry.get("quotes", ())[:MOST_QUOTES])
    reason = reason or f"Agent check {'passed' if passed else 'failed'}: {label}"
    return Item(passed=passed, score=score, choice=choice, quotes=quotes, reason=reason)


def _find_choice(written: str, choices: Iterable[str]) -> str | None:
    """Return the choice that is meant: of this name, else the only one that differs in case and in the punctuation around it alone."""
    if written in choices:
        return written
    alike = [choice for choice in choices if choice.casefold().strip(_AROUND) == written.casefold().strip(_AROUND)]
    return alike[0] if len(alike) == 1 else None


def _index_by_id(entries: list[Json], *, decision: Literal["pass", "score", "choice"]) -> dict[str, list[dict[str, Json]]]:
    found: dict[str, list[dict[str, Json]]] = {}
    for entry in entries:
        if decision == "choice" and isinstance(entry, dict) and type(entry.get("choice")) is int:
            entry = {**entry, "choice": str(entry["choice"])}  # Models write the level of a scale as a number.
        well_shaped = (
            isinstance(entry, dict)
            and isinstance(entry.get("id"), str)
            and isinstance(entry.get("reason"), str)
            # What is wrong with a score is a fault of that score alone.
            and (decision == "score" or isinstance(entry.get(decision), bool if decision == "pass" else str))
            and _are_texts(entry.get("quotes", []))
        )
        if not well_shaped:
            raise _Unusable("judge_bad_item", "returned invalid result item")
        found.setdefault(entry["id"], []).append(entry)
    return found


def _are_texts(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _find_entries(text: str) -> list[Json]:
    if len(text) > MAX_REPLY:
        raise _Unusable("judge_not_json", f"returned {len(text)} characters, more than is ever looked at,")
    text = text.strip().strip("\ufeff")
    while (thoughts := _THOUGHTS.match(text)) is not None:
        text = text[thoughts.end() :]
    text = text.strip()
    if _OPEN_THOUGHTS.match(text):
        raise _Unusable("judge_not_json", "returned thoughts without an end")
    document = _decode_lenient(text)
    if document is MISSING:
        document = _pick_answer(text)
    if document is MISSING:
        raise _Unusable("judge_not_json", "returned invalid JSON")
    entries: Json = document.get("results") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise _Unusable("judge_bad_results", "returned invalid results array")
    if _has_stray_decision(document, entries):
        raise _Unusable("judge_bad_item", "returned a decision outside of its results")
    return entries


def _has_stray_decision(document: Json, entries: list[Json]) -> bool:
    """Return whether there is a decision that belongs to no entry: what is left of one that was ended from within."""
    waiting: list[Json] = [value for key, value in document.items() if key != "results"]
    if "pass" in document or "score" in document:
        return True
    for entry in entries:
        waiting += entry.values() if isinstance(entry, dict) else [entry]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if not value.keys().isdisjoint(("results", "pass", "score")):
                return True
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return False


def _pick_answer(text: str) -> Json | Missing:
    """Return the one answer among other words."""
    second_best: Json | Missing = MISSING
    for start, end in _list_candidates(text):
        document = _decode_lenient(text[start:end])
        if isinstance(document, dict) and "results" in document:
            if not (_has_no_other_answer(text[:start], document) and _has_no_other_answer(text[end:], document)):
                raise _Unusable("judge_not_json", "returned more than one answer")
            if _is_taken_back(text[end:], document):
                raise _Unusable("judge_not_json", "returned an answer and took it back")
            return document
        # An object without `results` is no answer, but lets the fault say that the list is missing and not that there is no JSON.
        if second_best is MISSING:
            second_best = document
    return second_best


def _is_taken_back(rest: str, answer: dict[str, Json]) -> bool:
    """Return whether the words after an answer take it back, or speak of a failure that it does not contain."""
    start = rest.find("{")
    words = rest if start < 0 else rest[:start] + rest[rest.rfind("}") + 1 :]  # The same answer once more is no word.
    if _RETRACTION.search(words):
        return True
    entries = answer["results"] if isinstance(answer["results"], list) else []
    return _FAILURE.search(words) is not None and all(isinstance(entry, dict) and entry.get("pass") is True for entry in entries)


def _list_candidates(text: str) -> Iterator[tuple[int, int]]:
    fence = _FENCE.search(text)
    if fence is not None:
        start = fence.end()
        while start < len(text) and text[start].isspace():
            start += 1
        end = _object_end(text, start) if text.startswith("{", start) else None
        if end is None:
            end = text.find("```", start)
        if end >= 0:
            yield start, end
    start = text.find("{")
    end = _object_end(text, start) if start >= 0 else None
    if end is not None:
        yield start, end


def _object_end(text: str, start: int) -> int | None:
    """Return where the object that begins at `start` ends; brackets inside texts do not count."""
    depth = 0
    for token in _TOKENS.finditer(text, start):
        if token[0] == "{":
            depth += 1
        elif token[0] == "}":
            depth -= 1
            if depth == 0:
                return token.end()
    return None


def _has_no_other_answer(text: str, answer: Json) -> bool:
    """Return whether a text holds no other answer than this one."""
    # Every object is stepped over once, so the time grows with the length of the text alone.
    position, mark = 0, _find_mark(text, 0)
    while mark >= 0:
        start = text.find("{", position)
        # The key is outside of every object, so it may belong to another answer.
        if not 0 <= start < mark:
            return False
        end = _object_end(text, start)
        if end is None:
            return False
        if mark < end:
            if not _is_same(_decode_lenient(text[start:end]), answer):
                return False
            mark = _find_mark(text, end)
        position = end
    return True


def _find_mark(text: str, start: int) -> int:
    found = _ANSWER.search(text, start)
    return found.start() if found is not None else -1


def _is_same(one: Json | Missing, other: Json) -> bool:
    try:
        return bool(one == other)
    except RecursionError:
        return False


def _decode_lenient(text: str) -> Json | Missing:
    for candidate in (text, _LOOSE_COMMA.sub(r"\1", text)):
        try:
            # Also reads NaN and numbers beyond all bounds: a wrong score is then a fault of that score alone.
            return json.loads(candidate, strict=False, object_pairs_hook=_make_object)
        except (RecursionError, ValueError):
            continue
    return MISSING


def _make_object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    made = dict(pairs)
    if len(made) < len(pairs):
        # A judge that quotes the agent without escapes writes the agent's keys as its own.
        raise _Unusable("judge_repeated_key", "returned an object with the same key twice")
    return made
