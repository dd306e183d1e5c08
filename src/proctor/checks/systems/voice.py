"""Claims about phrases spoken on a call.

Every phrase, required or forbidden, counts as one field. A phrase is looked for in each turn of the speaker, then over turns that
follow each other: a recogniser may cut one sentence into several. `codecs/speech.py` decides when words are equal.
`exact` compares the text as written. A judge may find a paraphrase if there is one; without a judge `auto` is `normalized`,
and `semantic` is undecided. Without a transcript nothing is decided, not even an absence; a transcript without turns is a silent call.

`to`, `from` and `call` choose calls; other calls do not count, and no phrase spans two calls. If no call matches, required phrases fail
and forbidden ones hold.

The judge decides each phrase separately, required or forbidden, in these or other words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.places import locate_text
from proctor.checks.systems.entries import LONGEST_PHRASE, Entry, EntryClaim, Phrase, describe_choice, prepare_choice, prepare_phrases
from proctor.codecs.speech import normalize
from proctor.errors import SpecError
from proctor.expressions.text_form import Scope
from proctor.model.evidence import Evidence, Json, VoiceTurn
from proctor.model.judgement import Material, Opinion, Question, make_pending
from proctor.model.show import count_rest, shorten, show
from proctor.model.verdict import TextRange, Verdict, errored, failed, missing, passed
from proctor.work import spend


class VoiceSaid(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Phrases were spoken, or were not, by one side of a call; the score is the share of phrases that hold."""

    speaker: str | None = None
    """Whose turns are searched: `agent`, `caller`; left out: everyone's."""
    to: Json = None
    """The number that was called, or a matcher; left out: any call."""
    sender: Json = msgspec.field(default=None, name="from")
    """The number that called, or a matcher; left out: any call."""
    call: Json = None
    """The id of the call, or a matcher; left out: any call."""
    contains: tuple[str, ...] = ()
    """Required phrases."""
    not_contains: tuple[str, ...] = ()
    """Forbidden phrases."""
    match: Literal["auto", "exact", "normalized", "semantic"] = "auto"
    """`normalized` folds case, punctuation and spoken digits; `auto` is that and asks the judge, where there is one,
    about a phrase not found; `semantic` always asks."""

    def needs_judge(self) -> bool:
        """Return whether nothing can be decided without a judge."""
        return self.match == "semantic"


_CHARS_PER_STEP = 64
"""The number of characters searched in one step."""
_NAMES = ("to", "from", "call")
"""The members that select calls."""

Spoken = list[tuple[int, str]]
"""Consecutive turns of one speaker: their numbers and texts."""


def _locate(spec: VoiceSaid, evidence: Evidence) -> Iterator[TextRange]:
    """Find the phrases as written; a phrase recognised in other words has no characters of its own."""
    voice = evidence.state.voice if evidence.state is not None else None
    turns = () if voice is None else _choose_turns(_prepare_calls(spec), voice.turns, Scope.read_from(evidence))
    for number, text in (spoken for run in _list_runs(turns, spec.speaker) for spoken in run):
        for phrase in (*spec.contains, *spec.not_contains):
            spend(len(text) // _CHARS_PER_STEP + 1)
            yield from locate_text(f"$.state.voice.turns[{number}].text", text, phrase, ignore_case=spec.match != "exact")


def _declare_reads(spec: VoiceSaid) -> Reads:
    """Declare what the claim reads: if all phrases are forbidden, further speech could only break it."""
    if not spec.contains:
        return Reads(("state",), "absence")
    return Reads(("state",), "exact" if spec.not_contains else "presence", "fail")


@check(
    "voice_said",
    judged=True,
    example="voice_said: {speaker: agent, contains: [date of birth], not_contains: [credit card]}",
    reads=_declare_reads,
    product=True,
    locate=_locate,
)
def voice_said(spec: VoiceSaid) -> Decide:
    """Phrases were spoken, or were not, by one side of a call; the score is the share of phrases that hold."""
    if not spec.contains and not spec.not_contains:
        raise SpecError("voice_said needs a phrase in contains or not_contains", field="contains")
    exact = spec.match == "exact"
    calls = _prepare_calls(spec)
    on = f" on the {calls.what}" if calls.chosen_by else ""
    phrases = [PhraseResult(phrase) for phrase in prepare_phrases(spec.contains, spec.not_contains, exact=exact)]

    def decide(evidence: Evidence) -> Verdict:
        voice = evidence.state.voice if evidence.state is not None else None
        if voice is None:
            return missing("call transcript")
        scope = calls.find_scope(evidence)
        turns = _choose_turns(calls, voice.turns, scope)
        if not any(turns) and voice.turns:
            entries = list({tuple(entry.items()): entry for entry in _list_calls(voice.turns)}.values())
            if calls.find_unclear(entries, scope):
                return missing(f"of every call {' and '.join(name for name, _ in calls.chosen_by)}")
            reason = calls.fail_without_entry(entries, scope).reason
            details: dict[str, Json] = {"phrase_results": [_write_record(phrase) for phrase in phrases], "total": len(phrases)}
            return failed(reason, code="no_match", details={**details, "held": 0}) if spec.contains else passed(reason, details=details)
        runs = _list_runs(turns, spec.speaker)
        if spec.match == "semantic":
            return _ask(phrases, runs, spec.speaker, voice.turns, None, on)
        speech = _Speech(runs, exact)
        places = [speech.find(each.phrase) for each in phrases]
        found = [msgspec.structs.replace(each, found=place is not None, place=place) for each, place in zip(phrases, places, strict=True)]
        if calls.chosen_by and not all(result.found or result.phrase.is_forbidden for result in found):
            other = _Speech(_list_runs(voice.turns, spec.speaker), exact)
            found = [_name_other_call(result, other, voice.turns) for result in found]
        # A forbidden phrase of the speaker decides, even if others used it too.
        if not any(result.phrase.is_forbidden and result.found for result in found):
            unattributed = [None if turn is None or turn.speaker.strip() else turn for turn in turns] if spec.speaker is not None else []
            others = zip(voice.turns, turns, _list_calls(voice.turns), strict=True) if calls.chosen_by else ()
            unclear = [turn if chosen is None and calls.find_unclear([entry], scope) else None for turn, chosen, entry in others]
            for left, speaker, what in ((unattributed, None, "who spoke"), (unclear, spec.speaker, "the call")):
                if place := _find_forbidden(phrases, exact, left, speaker):
                    return missing(f"{what} in turn {place[0]}, {show(place[1], 80)},")
        known = _decide_verdict(found, runs, spec.speaker, voice.turns, on)
        # A literal match is certain; the judge decides only the rest.
        if spec.match != "auto" or not runs or all(result.found for result in found):
            return known
        return _ask(found, runs, spec.speaker, voice.turns, known, on)

    return decide


def _find_forbidden(
    phrases: Sequence[PhraseResult], exact: bool, turns: Sequence[VoiceTurn | None], speaker: str | None
) -> tuple[int, str] | None:
    """Return where a forbidden phrase occurs in turns that may match."""
    forbidden = [each.phrase for each in phrases if each.phrase.is_forbidden]
    speech = _Speech(_list_runs(turns, speaker) if forbidden else [], exact)
    return next(filter(None, map(speech.find, forbidden)), None)


def _prepare_calls(spec: VoiceSaid) -> EntryClaim:
    chosen_by = prepare_choice({"to": spec.to, "from": spec.sender, "call": spec.call})
    what = describe_choice("call", chosen_by)
    return EntryClaim(what=what, base="$.state.voice.turns", chosen_by=chosen_by, fields=(), needed=_NAMES, folded=_NAMES)


def _list_calls(turns: Sequence[VoiceTurn]) -> list[Entry]:
    """Return the call of each turn, if it was recorded."""
    named = (zip(_NAMES, (turn.to, turn.sender, turn.call), strict=True) for turn in turns)
    return [{name: value for name, value in names if value} for names in named]


def _choose_turns(calls: EntryClaim, turns: Sequence[VoiceTurn], scope: Scope) -> list[VoiceTurn | None]:
    """Return the turns of the selected calls, with None in place of any other."""
    if not calls.chosen_by:
        return list(turns)
    chosen = set(calls.choose(_list_calls(turns), scope))
    return [turn if index in chosen else None for index, turn in enumerate(turns)]


class PhraseResult(msgspec.Struct, frozen=True):
    """The result of one phrase: whether and where it was spoken, or the judge's opinion."""

    phrase: Phrase
    found: bool = False
    place: tuple[int, str] | None = None
    opinion: Opinion | None = None
    elsewhere: str = ""
    """The other call on which a missing phrase was spoken."""


def _name_other_call(result: PhraseResult, other: _Speech, turns: Sequence[VoiceTurn]) -> PhraseResult:
    place = other.find(result.phrase) if not result.found and not result.phrase.is_forbidden else None
    if place is None:
        return result
    turn = turns[place[0]]
    return msgspec.structs.replace(result, elsewhere=f", but on the call from {show(turn.sender)} to {show(turn.to)}")


def _ask(
    phrases: list[PhraseResult], runs: list[Spoken], speaker: str | None, turns: Sequence[VoiceTurn], otherwise: Verdict | None, on: str
) -> Verdict:
    if not runs:
        # Nothing was spoken, so there is nothing to judge.
        return otherwise or _decide_verdict(phrases, runs, speaker, turns, on)
    transcript = [{"speaker": turns[number].speaker, "text": text} for run in runs for number, text in run]
    material = Material(subject=transcript, name="transcript")
    by = f"by {show(speaker)} " if speaker is not None else ""
    said = f"This was said {by}on the call, in these words or in others that mean the same"
    questions = [
        Question(
            criterion=f"{said}: {show(result.phrase.text, LONGEST_PHRASE)}",
            material=material,
            label=result.phrase.text,
        )
        for result in phrases
        if not result.found
    ]

    def settle(opinions: Sequence[Opinion]) -> Verdict:
        left = iter(opinions)
        known = [result if result.found else _record_opinion(result, next(left)) for result in phrases]
        # One phrase without a judgement leaves the share unknown, and so the verdict.
        for result in known:
            if (opinion := result.opinion) is not None and opinion.outcome == "error":
                return errored(opinion.code or "judge_failed", f"{show(result.phrase.text)}: {opinion.reason}", details=opinion.details)
        return _decide_verdict(known, runs, speaker, turns, on)

    return make_pending(questions, settle, otherwise=otherwise)


def _record_opinion(result: PhraseResult, opinion: Opinion) -> PhraseResult:
    return msgspec.structs.replace(result, found=opinion.outcome == "pass", opinion=opinion)


class _Speech:
    """Speech, normalised once for all phrases."""

    def __init__(self, runs: list[Spoken], exact: bool) -> None:
        self._exact = exact
        self._turns = [spoken for run in runs for spoken in run]
        # After the single turns, so that a phrase inside one turn is located in that turn.
        self._turns += [(run[0][0], " ".join(text for _, text in run)) for run in runs if len(run) > 1]
        for _, text in self._turns:
            spend(len(text) // _CHARS_PER_STEP + 1 if exact else len(text) + 1)
        self._speeches = [] if exact else [normalize(text) for _, text in self._turns]

    def find(self, phrase: Phrase) -> tuple[int, str] | None:
        """Return number and text of the first turn with the phrase; for a phrase over several turns, the first number and all text."""
        for place, (number, text) in enumerate(self._turns):
            spend(len(text) // _CHARS_PER_STEP + 1)
            if phrase.text in text if self._exact else self._speeches[place].contains(phrase.speech, spend):
                return number, text
        return None


def _list_runs(turns: Sequence[VoiceTurn | None], speaker: str | None) -> list[Spoken]:
    """Return the turns of a speaker in runs that no other speaker or call interrupts; names ignore case."""
    wanted = speaker.strip().casefold() if speaker is not None else None
    runs: list[Spoken] = []
    previous: tuple[str, str] | None = None
    for number, turn in enumerate(turns):
        # A turn that is None belongs to another call.
        name = None if turn is None else (turn.call, turn.speaker.strip().casefold())
        if turn is not None and name is not None and wanted in (None, name[1]):
            if name != previous or not runs:
                runs.append([])
            runs[-1].append((number, turn.text))
        # Also for unwanted speakers: their turn ends a run.
        previous = name
    return runs


def _decide_verdict(found: list[PhraseResult], runs: list[Spoken], speaker: str | None, turns: Sequence[VoiceTurn], on: str) -> Verdict:
    wrong: list[str] = []
    pointers = tuple(dict.fromkeys(f"$.state.voice.turns[{result.place[0]}]" for result in found if result.place is not None))
    by = f"{f' by {speaker}' if speaker is not None else ''}{on}"
    for result in found:
        if result.phrase.is_forbidden and result.found:
            wrong.append(f"{show(result.phrase.text)} was said{by}{_describe_place(result)}")
        elif not result.phrase.is_forbidden and not result.found:
            wrong.append(f"{show(result.phrase.text)} was not said{by}{result.elsewhere}{_describe_place(result)}")
    held = len(found) - len(wrong)
    details: dict[str, Json] = {"phrase_results": [_write_record(result) for result in found], "held": held, "total": len(found)}
    reason = f"{held} of {len(found)} phrases hold"
    if not turns:
        reason += " (no speech)"
    elif not runs:
        speakers = sorted({turn.speaker for turn in turns})[:5]
        reason += f" (no turn of {show(speaker)}; speakers: {', '.join(map(show, speakers))})"
    if not wrong and turns and not runs:
        return missing(f"a turn of {show(speaker)}")
    if not wrong:
        return passed(reason, details=details, pointers=pointers)
    reason += f": {'; '.join(wrong[:3])}{count_rest(len(wrong), 3, '; and')}"
    return failed(reason, details=details, pointers=pointers, score=held / len(found))


def _write_record(result: PhraseResult) -> dict[str, Json]:
    record: dict[str, Json] = {
        "phrase": result.phrase.text,
        "found": result.found,
        "turn": shorten(result.place[1], 500) if result.place else None,
    }
    if result.phrase.is_forbidden:
        record["forbidden"] = True
    if result.opinion is not None:
        record["judged"] = {"reason": result.opinion.reason, **result.opinion.details}
    return record


def _describe_place(result: PhraseResult) -> str:
    if result.place is not None:
        return f" in turn {result.place[0]}: {show(result.place[1])}"
    return f", in the opinion of the judge: {result.opinion.reason}" if result.opinion is not None else ""
