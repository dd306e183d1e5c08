"""Parses the reply of a judge. Pure: no text makes it raise or wait.

The JSON is the whole reply; otherwise the first fenced block; otherwise the first balanced `{...}`. Thoughts before it (`<think>`),
trailing commas, line breaks in texts and lone surrogates are tolerated. A judge may quote the agent's output, which may itself contain a
verdict: if a reply has two different answers, a decision outside of its entries, an entry with an unknown id next to one with a known id,
or a duplicate key, the whole reply is rejected. A quote that is not in the material makes its answer unfounded: a quote may not omit
words, and the names of our own members do not count as quotes. What rendered text does not show may be missing (addresses of links, tags,
citations), and the name of a member may precede its text. A quote of the reference is ignored.

An entry is `quotes`, `reason`, decision, in that order, and the reason is not empty; MCPLab's suites accept any order, as the original
does. Quotes may be missing if the decision rests on something absent. A second decision in an entry, and a yes whose reason states that
the criterion is not met, are contradictions.

A fault in one answer affects only that answer, except that one entry of the wrong shape invalidates the reply: its other entries may be
misplaced too.
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
from proctor.model.json_values import MISSING, Missing, equal, is_number
from proctor.model.judgement import Question
from proctor.model.show import shorten, show

MAX_REPLY = 1_000_000
MAX_REASON = 4_000
MAX_QUOTE = 1_000
LONGEST_QUOTE = 20_000
MOST_QUOTES = 20

_ANSWER = re.compile(r'"(?:results|pass|score|choice)"', re.IGNORECASE)
"""Markers of an answer, and of the rest of an answer that quoted text ended early."""
# Possessive quantifiers: each character of the text is visited once.
_TOKENS = re.compile(r'"(?:[^"\\]++|\\.)*+"?+|[{}]', re.DOTALL)
_LOOSE_COMMA = re.compile(r'("(?:[^"\\]++|\\.)*+"?+)|,(?=\s*+[}\]])', re.DOTALL)
_FENCE = re.compile(r"```(?:json)?", re.IGNORECASE)
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_NAMES_OF_THOUGHTS = r"(?:\w{1,20}:)?(?:think(?:ing)?|thoughts?|reasoning|antthinking|scratchpad)"
_OPEN_THOUGHTS = re.compile(
    rf"<{_NAMES_OF_THOUGHTS}>|\[think\]|◁think▷|<\|begin_of_thought\|>|(?:<\|start\|>assistant)?<\|channel\|>(?:analysis|commentary)\b",
    re.IGNORECASE,
)
"""How models mark the beginning of their thoughts: with tags, or with channels."""
_END_OF_THOUGHTS = re.compile(
    rf"</{_NAMES_OF_THOUGHTS}>|\[/think\]|◁/think▷|<\|end_of_thought\|>|<\|channel\|>final[^{{]{{0,40}}?<\|message\|>"
    r"|assistantfinal(?=\s*[{`])",
    re.IGNORECASE,
)
_RETRACTION = re.compile(r"\b(?:not met|wrong|mistake\w*|correction|reconsider\w*|reflection|instead|actually)\b", re.IGNORECASE)
"""Words after an answer that retract it."""
_FAILURE = re.compile(r"\bfail\w*\b", re.IGNORECASE)
_COMPARISON = re.compile(r"(?<![-=<>])[<>](?==?\s*[-\d])|≠")
_WRITTEN_OUT = str.maketrans({"≤": "<=", "≥": ">="})
_LEAST_QUOTE = 4
"""The minimum number of letters and digits of a quote that supports an answer; shorter ones occur in nearly every material."""
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ENTITY = re.compile(r"&(?:[A-Za-z]{2,8}|#[0-9]{1,6}|#[xX][0-9a-fA-F]{1,6});")
_LIST_NUMBER = re.compile(r"^[ \t>]*\(?(?:[0-9]{1,3}|[A-Za-z])[.)][ \t]+", re.MULTILINE)
_LABEL = re.compile(r"""[\s"'`*{\[]*([\w -]{1,40}?)(?:\[\d{1,4}\])?["'`*\]]*(?:[:.)\]])["'`*]*\s*(\S.*)""", re.DOTALL)
"""The name of a member of the data, or its number, before a quote."""
_MOST_LABELS = 4
"""The maximum number of names before a quote: `context.tool_results[0].result: ...`."""
_UNSHOWN = re.compile(
    r"!?\[([^\[\]\n]{0,300})\]\([^()\s]{0,500}(?:\s+\"[^\"\n]{0,200}\")?\)|\[\^?\d{1,3}(?:[,;–-] ?\d{1,3}){0,9}\]"
    r"|[<‹]/?(?:a|b|i|u|p|em|strong|span|br|hr|div|li|ul|ol|h[1-6]|code|pre|sup|sub|t[dhr]|table|thead|tbody|small|font|img|blockquote)"
    r"(?:\s[^<>‹›]{0,500})?/?[>›]",
    re.IGNORECASE,
)
"""What is not seen in rendered text: addresses of links, citations, and tags except those that strike text out."""
_AROUND = " \t\r\n.:;,!\"'`*_()[]"
"""Characters that models write around the name of a choice."""
_MINUS = re.compile(r"(?<![\w)\]])[-\u2010-\u2015\u2212][$€£¥]?\.?(?=\d)")
_IN_NUMBER = re.compile(r"(?<=\d)[.,](?=\d)")
_NOT_WORD = re.compile(r"(?:[^\w·\u2212]|_|\u2212(?!\d)|(?<!\d)·|·(?!\d))+")
"""Anything but letters, digits, and the sign and separator of a number."""
_LETTERS = "a-zß-ɏͰ-ԯḀ-ỿ"
"""Folded letters of scripts with spaces between words."""
_LETTER = re.compile(f"[{_LETTERS}]")
_OUR_KEYS = frozenset(
    (
        *("context", "tool", "arguments", "result", "error", "step", "output", "user", "agent", "image", "statement", "passage"),
        *("characters", "items", "members", "cut", "here"),
    )
)
"""Our names for members of the shown data, besides the names of the subject and of the parts of the context."""
_CUT = re.compile(r"\[\.\.\. (?:number of )?[\d,]+ (?:character|item|member|bit)s? cut here \.\.\.\]")
_OTHER_DECISIONS = frozenset(
    ("pass", "passed", "met", "score", "rating", "choice", "verdict", "decision", "result", "outcome", "grade", "overall")
)
_PREFIX = re.compile(r"^(?:final|overall|my|is)[ _-]?")
"""What models write before the name of a second decision: `final_verdict`."""
_COPIED = frozenset(("id", "quotes", "reason", "rule", "label", "criterion", "grounded", "rubric", "reference", "choices"))
"""Members of an entry, or copied from its check, that decide nothing."""
_NEGATIVE = re.compile(r"fail|violat|wrong|incorrect|unmet|not[ _]?met|reject|broken", re.IGNORECASE)
"""Names of members in which a yes is a no."""
_YES, _NO = ("pass", "passes", "passed", "yes", "true", "met"), ("fail", "fails", "failed", "no", "false", "not met", "unmet")
_CRITERION = r"(?:the |this |that )?(?:criterion|check|requirement|claim)"
_NOT_MET_ELSEWHERE = r"(?:nicht erfüllt|no se cumple|non è soddisfatto|não é atendido|niet voldaan|n['’]est pas (?:rempli|satisfait))"
_NOT_MET = re.compile(
    r"\A(?:not (?:met|satisfied|fulfill?ed)|unmet|fails?|failed) ?[:.;,] "
    rf"|(?:^|[.!?]\s+)(?:unmet|violated|failed|false|{_NOT_MET_ELSEWHERE})[.!\s]*\Z"
    r"|(?:^|[.!?;:,]\s+)(?:(?:so|thus|hence|therefore|overall|then),?\s+)?(?:not (?:met|satisfied|fulfill?ed)|fails?"
    r"|pass(?:ed)? ?(?::|=|is|(?:should|must) be) ?(?:false|no)"
    r"|(?:the )?(?:verdict|decision|result) ?(?::|=|is|(?:should|must) be) ?(?:false|no|not met|(?:a )?fail(?:ed|ure)?)"
    r"|(?:(?:(?:the |this )?(?:answer|response|output|agent|it)|this) )?(?:clearly )?"
    rf"(?:(?:does not|doesn't|did not|fails to) (?:meet|satisfy|fulfill?)(?: it| {_CRITERION}(?: of [^.!?]*)?)?"
    rf"|(?:fails|violates|breaks)(?: it| {_CRITERION}(?: of [^.!?]*)?))"
    rf"|(?:{_CRITERION}|it) (?:(?:is|was) )?(?:(?:not|isn't|wasn't) (?:met|satisfied|fulfill?ed)|unmet|violated)"
    rf"|(?:(?:das|el|le|il|o|het) )?(?:kriterium|criterio|critère|critério|criterium) (?:(?:ist|wird|is) )?{_NOT_MET_ELSEWHERE})"
    r"(?:,? (?:because|since|as) [^.!?]*)?[.!\s]*\Z",
    re.IGNORECASE,
)
"""A reason that begins or ends by denying a yes; anywhere else such words may be about something else."""
_LONGEST_DENIAL = 1_000
"""The maximum number of characters searched, because the time grows with their square."""


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The judge's answer to one question."""

    passed: bool
    reason: str
    score: float | None = None
    """Set if the question requires a score."""
    choice: str | None = None
    """Set if the question offers choices."""
    quotes: tuple[str, ...] = ()
    """The quoted passages that decided it."""
    is_supported: bool = False
    """Whether a quote is long enough to support the answer, or a whole value of the data."""


class Fault(msgspec.Struct, frozen=True):
    """Why there is no answer."""

    code: str
    text: str
    repair: str = ""
    """The text about it in the repair request; it may quote the reply, so it is shown as data."""


class ReadReply(msgspec.Struct, frozen=True, kw_only=True):
    """One reply: per question an answer or why there is none, in the order of the questions."""

    items: tuple[Item | Fault, ...]
    fault: Fault | None = None
    """The fault of the reply as a whole; every item has it too."""

    @property
    def fault_code(self) -> str | None:
        """The code of the fault of the whole reply, if any."""
        return self.fault.code if self.fault is not None else None

    def list_unanswered(self) -> list[int]:
        """Return the positions without an answer."""
        return [position for position, item in enumerate(self.items) if isinstance(item, Fault)]


class _Unusable(Exception):
    """Why no answer can be read; `what` is MCPLab's own wording, and `plain` that for other suites, if it differs."""

    def __init__(self, code: str, what: str, plain: str = "") -> None:
        self.code, self.what, self.plain = code, what, plain or what.removesuffix(",")


def make_spoiled(fault: Fault, count: int) -> ReadReply:
    """Return a reply that is unusable for all of `count` questions."""
    return ReadReply(items=(fault,) * count, fault=fault)


def name_judge(name: str, *, plain_words: bool) -> str:
    """Return how a fault begins: authors of other suites than MCPLab's do not know agent checks."""
    return f'the judge "{name}"' if plain_words else f'Agent check failed: judge "{name}"'


def name_question(question: Question) -> str:
    """Return the name of a question in messages."""
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
    plain_words: bool = False,
) -> ReadReply:
    """Return the answers in `text`; `ids[i]` is the judge's id for `questions[i]`.

    Quotes are looked up in `material`, the line that was shown, if it is given. Two contradictory entries about one question are both
    rejected; with `takes_first_entry` the first one counts, as in MCPLab. With `plain_words`, faults are not worded as MCPLab does.
    """
    who = name_judge(judge_name, plain_words=plain_words)
    try:
        entries = _find_entries(text)
        decision = _name_decision(questions[0] if questions else None)
        entries_by_id = _index_by_id(entries, decision=decision)
        if entries_by_id.keys() - set(ids) and entries_by_id.keys() & set(ids):
            # The agent's text may have ended the entry that quotes it and started another one to forge the judge's decision.
            raise _Unusable("judge_bad_item", "returned an unknown result id")
        # In a counted list, an entry can be neither dropped nor chosen without guessing.
        if decision == "choice" and any(identifier not in ids or len(group) > 1 for identifier, group in entries_by_id.items()):
            raise _Unusable("judge_bad_item", "returned a result for an unknown id, or several for one id,")
    except _Unusable as error:
        text = f"{who} {error.plain}" if plain_words else f"{who} {error.what} for batched agent checks"
        return make_spoiled(Fault(error.code, text), len(questions))
    items: list[Item | Fault] = []
    for question, identifier in zip(questions, ids, strict=True):
        if found := entries_by_id.get(identifier):
            items.append(_read_entries(found[: 1 if takes_first_entry else None], question, who, any_order=takes_first_entry))
        else:
            text = f'{"the judge" if plain_words else "Judge"} did not return a result for "{name_question(question)}"'
            items.append(Fault("judge_missing_result", text))
    if material is not None and any(isinstance(item, Item) and (item.quotes or item.choice) for item in items):
        data = msgspec.json.decode(material)
        # The fault of an earlier reply is not part of the judged material, and may repeat what that reply invented.
        data.pop("fault_of_previous_reply", None)
        shown = _Passages(data)
        items = [_check_quotes(item, question, shown, data, who) for item, question in zip(items, questions, strict=True)]
    return ReadReply(items=tuple(items))


def _check_quotes(item: Item | Fault, question: Question, shown: _Passages, data: dict[str, Json], who: str) -> Item | Fault:
    """Return the answer, or a fault if a quote is not in the material or none comes from the required source."""
    if isinstance(item, Fault):
        return item
    quotes: list[str] = []
    reference = _fold(question.reference or "")
    for quote in item.quotes:
        quote_text: str | None = None
        if not _find_symbols(quote) - shown.symbols:
            quote_text = quote if shown.has(quote) and not _is_framing(quote, data) else _find_labelled(quote, data)
            if quote_text is not None and _is_framing(quote_text, data):
                quote_text = None
        if quote_text is None and reference and _is_quoted(quote, reference):
            continue  # The reference is shown for comparison, and is not part of the judged material.
        if quote_text is None:
            what = f'quoted {show(quote, 80)} for "{name_question(question)}", which is not in the data'
            return Fault("judge_unfounded", f"{who} {what}")
        quotes.append(quote_text)
    source = shown
    if needs_source := question.founded_in is not None and item.passed and item.choice in question.accepted[:1]:
        member = data.get("context", {}).get(question.founded_in)
        source = _Passages(_drop_tool_names(member))
        quotes += [quote_text for quote in item.quotes if (quote_text := _find_labelled(quote, member)) is not None]
    is_supported = any(map(source.supports, quotes))
    if needs_source and not is_supported:
        what = f'chose {show(item.choice)} for "{name_question(question)}" without a quote from context.{question.founded_in}'
        return Fault("judge_unfounded", f"{who} {what}")
    return msgspec.structs.replace(item, quotes=tuple(dict.fromkeys(quotes)), is_supported=is_supported)


class _Passages:
    def __init__(self, value: Json) -> None:
        self._forms = _write_forms(value)
        self._values = set(map(_fold, _list_texts(value, keys=False)))
        self.symbols = _find_symbols("".join(_list_texts(value)))

    def has(self, quote: str) -> bool:
        """Return whether the words of a quote are in it."""
        return _is_quoted(quote, self._forms)

    def supports(self, quote: str) -> bool:
        """Return whether a quote is in it and is more than a few characters, unless these are a whole value."""
        words = _fold(quote)
        # A character of Chinese or Japanese is about half a word.
        length = sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in words[:_LEAST_QUOTE])
        return bool(words) and (length >= _LEAST_QUOTE or words in self._values) and self.has(quote)


def _find_symbols(text: str) -> set[str]:
    """Return the symbols that may reverse the meaning of a passage: pictures, check marks and comparisons with a number."""
    text = html.unescape(_unescape(text)).translate(_WRITTEN_OUT)
    return {*_COMPARISON.findall(text), *(sign for sign in set(text) if unicodedata.category(sign) == "So")}


def _is_quoted(quote: str, *forms: str) -> bool:
    words = {_fold(form) for form in (quote, _unescape(quote))}
    return any(_contains(form, each) for form in forms for each in words)


def _contains(forms: str, words: str) -> bool:
    """Return whether folded text contains these words, without a part of another number or word at either end."""
    if not words or words not in forms:
        return not words
    before = r"(?<![\d·\u2212])" if words[0].isdigit() else f"(?<![{_LETTERS}])" if _LETTER.match(words) else ""
    after = r"(?![\d·])" if words[-1].isdigit() else f"(?![{_LETTERS}])" if _LETTER.match(words[-1]) else ""
    return re.search(f"{before}{re.escape(words)}{after}", forms) is not None


def _is_framing(quote: str, data: dict[str, Json]) -> bool:
    """Return whether a quote consists only of names that we gave to members of the material, or of our mark of a cut."""
    ours = {word for key in (*_OUR_KEYS, *data, *data.get("context", {})) for word in _fold(key).split()}
    words = _fold(quote).split()
    if any(word not in ours and not ("cut" in words and word[0].isdigit()) for word in words):
        return False
    return not _contains(_fold(_CUT.sub("\n", "\n".join(_list_texts(data, keys=False)))), _fold(quote))


def _drop_tool_names(source: Json) -> Json:
    """Return the outputs of tools and steps without our names around them; any other context unchanged."""
    if not isinstance(source, list):
        return source
    return [
        [value for key, value in entry.items() if key in ("result", "output", "error")] if _is_framed(entry) else entry for entry in source
    ]


def _is_framed(entry: Json) -> bool:
    """Return whether this is an object in which we show what a tool or a step gave."""
    return isinstance(entry, dict) and entry.keys() <= _OUR_KEYS and not entry.keys().isdisjoint(("tool", "step"))


def _find_labelled(quote: str, data: Json, most: int = _MOST_LABELS) -> str | None:
    """Return a quote without the names of its members (`final_answer: ...`, `Statement 2: ...`), if it is in the named member."""
    label = _LABEL.fullmatch(quote)
    if label is None or not most or not _fold(label[2]):
        return None
    names = _fold(label[1]).split()
    while len(names) > 1 and names[0] in _OUR_KEYS:
        names = names[1:]
    label_names = {_fold(label[1]), " ".join(names)}
    members = list(_list_members(data, label_names | {"agent"} if "assistant" in label_names else label_names))
    if _is_quoted(label[2], *map(_write_forms, members)):
        return label[2]
    return _find_labelled(label[2], members, most - 1)


def _list_members(data: Json, names: set[str]) -> Iterator[Json]:
    """Yield the members with one of these folded names at any depth: keys, tools, and positions in lists."""
    waiting: list[Json] = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield from (member for key, member in value.items() if _fold(key) in names)
            frame_names = {"tool", "step", *(_fold(str(value.get(key))) for key in ("tool", "step"))}
            if _is_framed(value) and not names.isdisjoint(frame_names):
                yield value
            waiting += value.values()
        elif isinstance(value, list):
            yield from (value[int(name) - 1] for name in names if name.isdecimal() and 0 < int(name) <= len(value))
            waiting += value


def _write_forms(value: Json) -> str:
    """Return the words of a value in each form in which judges copy them: as JSON, as plain text, without list numbers."""
    plain = "\n".join(_list_texts(value))
    texts = [plain, _unescape(plain)]
    texts += [_UNSHOWN.sub(r" \1 ", text) for text in texts]
    texts = dict.fromkeys((json.dumps(value, ensure_ascii=False), *texts, *(_LIST_NUMBER.sub("", text) for text in texts)))
    forms = dict.fromkeys(map(_fold, texts))
    # Folded text has no line break, so no quote matches across two forms.
    return "\n".join(forms)


def _list_texts(data: Json, *, keys: bool = True) -> Iterator[str]:
    """Yield every key, text and number of the material in reading order, without statement numbers."""
    waiting: list[Json] = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            for key, member in reversed(value.items()):
                waiting += [member, key] if keys and not key.isdecimal() else [member]
        elif isinstance(value, list):
            waiting += reversed(value)
        elif value is not None:
            yield json.dumps(value)


def _fold(text: str) -> str:
    """Return only the words of a text: models change case, spaces, punctuation and entities in quotes, but not numbers."""
    text = unicodedata.normalize("NFKC", _ENTITY.sub(lambda found: html.unescape(found[0]), text)).casefold()
    return _NOT_WORD.sub(" ", _IN_NUMBER.sub("·", _MINUS.sub("\u2212", text))).strip()


def _unescape(text: str) -> str:
    """Return a text with its JSON escapes decoded: a tool may return JSON as text, and a judge may quote it decoded."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else _ESCAPED.get(found[2], found[2]), text)


def _read_entries(entries: Sequence[dict[str, Json]], question: Question, who: str, *, any_order: bool) -> Item | Fault:
    """Return the one answer in the entries about a question; contradictory entries give no answer."""
    items = [_read_item(entry, question, who, any_order=any_order) for entry in entries]
    if len({(item.passed, item.score, item.choice) if isinstance(item, Item) else item.code for item in items}) > 1:
        label = name_question(question)
        return Fault("judge_contradiction", f'{who} returned different results for "{label}"')
    return items[0]


def _read_item(entry: dict[str, Json], question: Question, who: str, *, any_order: bool) -> Item | Fault:
    label = name_question(question)
    decision = _name_decision(question)
    if not any_order and not entry["reason"].strip():
        return Fault("judge_no_reason", f'{who} gave no reason for "{label}"')
    members = list(entry)
    if (
        not any_order
        and decision in entry
        and members.index(decision) < max(members.index(key) for key in ("quotes", "reason") if key in entry)
    ):
        return Fault("judge_wrong_order", f'{who} decided "{label}" before it gave its reason')
    score: float | None = None
    choice: str | None = None
    if question.choices:
        choice = _find_choice(entry["choice"], question.choices)
        if choice is None:
            chosen = show(clean_text(entry["choice"], 80), 80)
            repair = f"The choice {chosen} is not one of the names under `choices`: {', '.join(question.choices)}."
            return Fault("judge_bad_choice", f'{who} chose {chosen} for "{label}"', repair)
        value = question.score_choice(choice)
        score = None if question.threshold is None else value
        passed: bool = value >= (question.threshold or 1)
    elif question.threshold is None:
        passed = entry["pass"]
    else:
        raw_score: Json = entry.get("score", MISSING)
        # Python treats `true` as a number, but a yes is not a score.
        if not is_number(raw_score) or not 0 <= raw_score <= 1:
            problem = "no score" if raw_score is MISSING else f"the score {show(raw_score)}, which is no number from 0 to 1,"
            return Fault("judge_bad_score", f'{who} returned {problem} for "{label}"')
        score = float(raw_score)
        passed = score >= question.threshold
    is_yes = passed and (decision == "pass" or (score is not None and not question.choices and score > 0.5))
    denied = is_yes and not question.forbidden and _NOT_MET.search(entry["reason"].strip()[-_LONGEST_DENIAL:])
    if denied or not all(_agrees(key, value, passed, choice, question) for key, value in entry.items() if key != decision):
        what = f'{who} contradicts itself about "{label}"'
        return Fault(
            "judge_contradiction",
            what,
            f"An entry of `results` decided twice, or its reason denies its decision. Decide once, as `{decision}`.",
        )
    reason = clean_text(entry["reason"].strip(), MAX_REASON)
    quotes = tuple(clean_text(quote, LONGEST_QUOTE) for quote in entry.get("quotes", ())[:MOST_QUOTES])
    reason = reason or f"Agent check {'passed' if passed else 'failed'}: {label}"
    return Item(passed=passed, score=score, choice=choice, quotes=quotes, reason=reason)


def _name_decision(question: Question | None) -> Literal["pass", "score", "choice"]:
    if question is not None and question.choices:
        return "choice"
    return "score" if question is not None and question.threshold is not None else "pass"


def _agrees(key: str, value: Json, passed: bool, choice: str | None, question: Question) -> bool:
    """Return whether a further member of an entry agrees with its decision: one named like a decision, or any other yes or no."""
    is_decision = _PREFIX.sub("", key.casefold()) in _OTHER_DECISIONS
    if key in _COPIED and not (key == "label" and (question.choices or value != question.label)):
        return True
    if isinstance(value, str):
        word = value.strip(_AROUND).casefold()
        named_choice = _find_choice(value, question.choices) if choice is not None else None
        if named_choice is not None:
            return named_choice == choice
        if is_decision:
            return word in (_YES if passed else _NO)
        return word not in (_NO if passed else _YES)
    if isinstance(value, bool):
        return (value != bool(_NEGATIVE.search(key))) == passed
    return not is_decision or (isinstance(value, (int, float)) and (value >= (question.threshold or 0.5)) == passed)


def _find_choice(written: str, choices: Iterable[str]) -> str | None:
    """Return the choice with this name, else the only one that differs just in case and surrounding punctuation."""
    if written in choices:
        return written
    alike = [choice for choice in choices if choice.casefold().strip(_AROUND) == written.casefold().strip(_AROUND)]
    return alike[0] if len(alike) == 1 else None


def _index_by_id(entries: list[Json], *, decision: Literal["pass", "score", "choice"]) -> dict[str, list[dict[str, Json]]]:
    entries_by_id: dict[str, list[dict[str, Json]]] = {}
    for entry in entries:
        if decision == "choice" and isinstance(entry, dict) and type(entry.get("choice")) is int:
            entry = {**entry, "choice": str(entry["choice"])}  # Models write the level of a scale as a number.
        if isinstance(entry, dict) and isinstance(entry.get("quotes", ()), str | None):
            entry: Json = {**entry, "quotes": [entry["quotes"]] if entry["quotes"] else []}
        well_shaped = (
            isinstance(entry, dict)
            and isinstance(entry.get("id"), str)
            and isinstance(entry.get("reason"), str)
            # An invalid score is a fault of that answer only.
            and (decision == "score" or isinstance(entry.get(decision), bool if decision == "pass" else str))
            and isinstance(quotes := entry.get("quotes", []), list)
            and all(isinstance(quote, str) for quote in quotes)
        )
        if not well_shaped:
            plain = "returned a result without an id, a reason or a decision of the demanded type"
            raise _Unusable("judge_bad_item", "returned invalid result item", plain)
        entries_by_id.setdefault(entry["id"], []).append(entry)
    return entries_by_id


def _find_entries(text: str) -> list[Json]:
    if len(text) > MAX_REPLY:
        raise _Unusable("judge_not_json", f"returned {len(text)} characters, more than is ever looked at,")
    text = text.strip().strip("\ufeff")
    if not text.startswith("`") and not _OPEN_THOUGHTS.match(text) and (end := _END_OF_THOUGHTS.search(text)) is not None:
        # The template of some models has the opening tag, so it is not in their reply. Inside an answer, the tag is quoted.
        start = text.find("{")
        if not 0 <= start < end.start() or (_find_object_end(text, start) or 0) <= end.start():
            text = text[end.end() :].lstrip()
    while _OPEN_THOUGHTS.match(text):
        if (end := _END_OF_THOUGHTS.search(text)) is None:
            raise _Unusable("judge_not_json", "returned thoughts without an end")
        text = text[end.end() :].lstrip()
    document = _decode_lenient(text)
    if document is MISSING:
        document = _pick_answer(text)
    if document is MISSING:
        raise _Unusable("judge_not_json", "returned invalid JSON")
    entries: Json = document.get("results") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise _Unusable("judge_bad_results", "returned invalid results array", "returned no list `results`")
    if _has_stray_decision(document, entries):
        raise _Unusable("judge_bad_item", "returned a decision outside of its results")
    return entries


def _has_stray_decision(document: Json, entries: list[Json]) -> bool:
    """Return whether there is a decision outside all entries: the rest of an entry that quoted text ended early."""
    waiting: list[Json] = [value for key, value in document.items() if key != "results"]
    if not _OTHER_DECISIONS.isdisjoint(map(str.casefold, document)):
        return True
    for entry in entries:
        waiting += entry.values() if isinstance(entry, dict) else [entry]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if not {"results", "pass", "score", "choice"}.isdisjoint(map(str.casefold, value)):
                return True
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return False


def _pick_answer(text: str) -> Json | Missing:
    second_best: Json | Missing = MISSING
    for start, end in _list_candidates(text):
        document = _decode_lenient(text[start:end])
        if isinstance(document, dict) and "results" in document:
            if not (_has_no_other_answer(text[:start], document) and _has_no_other_answer(text[end:], document)):
                raise _Unusable("judge_not_json", "returned more than one answer")
            if _is_taken_back(text[end:], document):
                raise _Unusable("judge_not_json", "returned an answer and took it back")
            return document
        # An object without `results` is not an answer, but lets the fault report the missing list instead of missing JSON.
        if second_best is MISSING:
            second_best = document
    return second_best


def _is_taken_back(rest: str, answer: dict[str, Json]) -> bool:
    """Return whether the words after an answer retract it, or mention a failure that it does not contain."""
    start = rest.find("{")
    words = rest if start < 0 else rest[:start] + rest[rest.rfind("}") + 1 :]  # A repetition of the same answer does not count as words.
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
        end = _find_object_end(text, start) if text.startswith("{", start) else None
        if end is None:
            end = text.find("```", start)
        if end >= 0:
            yield start, end
    start = text.find("{")
    end = _find_object_end(text, start) if start >= 0 else None
    if end is not None:
        yield start, end


def _find_object_end(text: str, start: int) -> int | None:
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
    # Every object is skipped once, so the time is linear in the length of the text.
    position, mark = 0, _find_mark(text, 0)
    while mark >= 0:
        start = text.find("{", position)
        # The key is outside every object, so it may belong to another answer.
        if not 0 <= start < mark:
            return False
        end = _find_object_end(text, start)
        if end is None:
            return False
        if mark < end:
            if not equal(_decode_lenient(text[start:end]), answer):
                return False
            mark = _find_mark(text, end)
        position = end
    return True


def _find_mark(text: str, start: int) -> int:
    match = _ANSWER.search(text, start)
    return match.start() if match is not None else -1


def _decode_lenient(text: str) -> Json | Missing:
    for candidate in (text, _LOOSE_COMMA.sub(r"\1", text)):
        try:
            # Also accepts NaN and out-of-range numbers, so that a wrong score is a fault of that score only.
            return json.loads(candidate, strict=False, object_pairs_hook=_make_object)
        except (RecursionError, ValueError):
            continue
    return MISSING


def _make_object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    result = dict(pairs)
    if len(result) < len(pairs):
        # A judge that quotes the agent without escapes turns the agent's keys into its own.
        raise _Unusable("judge_repeated_key", "returned an object with the same key twice")
    return result
