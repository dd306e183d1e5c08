"""Claims about what was said on a call.

Every phrase, required or forbidden, counts as one field. A phrase is looked for in each turn of the speaker, then over turns that
follow each other: a recogniser may cut one sentence into several. `codecs/speech.py` says when words are the same.
`exact` compares the text as written. A judge may find a paraphrase where one is given; without one `auto` is `normalized`,
and `semantic` cannot be decided. No transcript at all decides nothing, not even that a phrase was not said; a transcript without turns is
a call in which nobody spoke.

`to`, `from` and `call` choose calls; nothing said on another call counts, and no phrase goes over two calls. Where no call is the one that
is meant, nothing was said on it: what must be said fails, what must not be said holds.

The judge is asked about each phrase by itself, required or forbidden: was it said, in these words or in others?
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.fields import choose_scope_builder
from proctor.checks.shared.missing_evidence import Reads
from proctor.checks.shared.ranges import locate_text
from proctor.checks.systems._entries import Entry, EntryClaim, describe_choice, prepare_choice
from proctor.codecs.speech import Speech, normalize
from proctor.errors import SpecError
from proctor.expressions.scope import Scope
from proctor.model.evidence import Evidence, Json, VoiceTurn
from proctor.model.judgement import Material, Opinion, Question, make_pending
from proctor.model.show import shorten, show, tell_more
from proctor.model.verdict import TextRange, Verdict, errored, failed, missing, passed
from proctor.work import spend


class VoiceSaid(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Phrases were said, or were not, by one side of a call; the score is the share of phrases that hold."""

    speaker: str | None = None
    """Whose turns are searched: `agent`, `caller`; left out: everyone's."""
    to: Json = None
    """The number that was called, or a matcher; left out: any call."""
    sender: Json = msgspec.field(default=None, name="from")
    """The number that called, or a matcher; left out: any call."""
    call: Json = None
    """The id of the call, or a matcher; left out: any call."""
    contains: tuple[str, ...] = ()
    """Phrases that must be said."""
    not_contains: tuple[str, ...] = ()
    """Phrases that must not be said."""
    match: Literal["auto", "exact", "normalized", "semantic"] = "auto"
    """`normalized` folds case, punctuation and spoken digits; `auto` is that and asks the judge, where there is one,
    about a phrase not found; `semantic` always asks."""

    def needs_judge(self) -> bool:
        """Return whether nothing can be decided without a judge."""
        return self.match == "semantic"


_LONGEST = 2_000
"""Characters of a phrase."""
_CHARS_PER_STEP = 64
"""How much text is searched in the time of one step."""
_NAMES = ("to", "from", "call")
"""By what calls are chosen."""

Spoken = list[tuple[int, str]]
"""Turns of one speaker that follow each other: their numbers and texts."""


def _locate(spec: VoiceSaid, evidence: Evidence) -> Iterator[TextRange]:
    """Find the phrases as they are written; one that was recognised in other words has no characters of its own."""
    voice = evidence.state.voice if evidence.state is not None else None
    turns = () if voice is None else _choose_turns(_prepare_calls(spec), voice.turns, Scope.read_from(evidence))
    for number, text in (spoken for run in _list_runs(turns, spec.speaker) for spoken in run):
        for phrase in (*spec.contains, *spec.not_contains):
            spend(len(text) // _CHARS_PER_STEP + 1)
            yield from locate_text(f"$.state.voice.turns[{number}].text", text, phrase, ignore_case=spec.match != "exact")


def _declare_reads(spec: VoiceSaid) -> Reads:
    """Say what the claim reads: where everything is forbidden, more that was said could only break it."""
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
    """Phrases were said, or were not, by one side of a call; the score is the share of phrases that hold."""
    _verify(spec)
    exact = spec.match == "exact"
    calls = _prepare_calls(spec)
    on = f" on the {calls.what}" if calls.chosen_by else ""
    scope_of = choose_scope_builder(calls.list_comparisons())
    phrases = [(phrase, False, _Phrase(phrase, exact)) for phrase in spec.contains]
    phrases += [(phrase, True, _Phrase(phrase, exact)) for phrase in spec.not_contains]

    def decide(evidence: Evidence) -> Verdict:
        voice = evidence.state.voice if evidence.state is not None else None
        if voice is None:
            return missing("call transcript")
        scope = scope_of(evidence)
        turns = _choose_turns(calls, voice.turns, scope)
        if not any(turns) and voice.turns:
            return _decide_without_call(spec, calls, voice.turns, scope)
        runs = _list_runs(turns, spec.speaker)
        if spec.match == "semantic":
            unknown = [Said(phrase, forbidden) for phrase, forbidden, _ in phrases]
            return _ask(unknown, runs, spec.speaker, voice.turns, None, on)
        heard = _Heard(runs, exact)
        found = [_record_said(phrase, forbidden, heard.find(wanted)) for phrase, forbidden, wanted in phrases]
        if calls.chosen_by and not all(said.found or said.forbidden for said in found):
            other = _Heard(_list_runs(voice.turns, spec.speaker), exact)
            found = [_name_other_call(said, other, exact, voice.turns) for said in found]
        # A forbidden phrase of the speaker decides, whoever said it besides.
        if not any(said.forbidden and said.found for said in found):
            nameless = [None if turn is None or turn.speaker.strip() else turn for turn in turns] if spec.speaker is not None else []
            others = zip(voice.turns, turns, _list_calls(voice.turns), strict=True) if calls.chosen_by else ()
            unclear = [turn if chosen is None and calls.find_unclear([entry], scope) else None for turn, chosen, entry in others]
            for left, speaker, what in ((nameless, None, "who spoke"), (unclear, spec.speaker, "the call")):
                if place := _find_forbidden(spec, exact, left, speaker):
                    return missing(f"{what} in turn {place[0]}, {show(place[1], 80)},")
        known = _decide_verdict(found, runs, spec.speaker, voice.turns, on)
        # What was found by its words is certain, wanted or forbidden; a judge is asked about the rest alone.
        if spec.match != "auto" or not runs or all(said.found for said in found):
            return known
        return _ask(found, runs, spec.speaker, voice.turns, known, on)

    return decide


def _find_forbidden(spec: VoiceSaid, exact: bool, turns: Sequence[VoiceTurn | None], speaker: str | None) -> tuple[int, str] | None:
    """Return where a forbidden phrase was said in turns that may be meant."""
    if not spec.not_contains or not any(turns):
        return None
    heard = _Heard(_list_runs(turns, speaker), exact)
    return next(filter(None, (heard.find(_Phrase(phrase, exact)) for phrase in spec.not_contains)), None)


def _prepare_calls(spec: VoiceSaid) -> EntryClaim:
    """Return which calls are meant."""
    chosen_by = prepare_choice(to=spec.to, sender=spec.sender, call=spec.call)
    what = describe_choice("call", chosen_by)
    return EntryClaim(what=what, base="$.state.voice.turns", chosen_by=chosen_by, fields=(), needed=_NAMES, folded=_NAMES)


def _list_calls(turns: Sequence[VoiceTurn]) -> list[Entry]:
    """Return the call of each turn, as far as it was recorded."""
    named = (zip(_NAMES, (turn.to, turn.sender, turn.call), strict=True) for turn in turns)
    return [{name: value for name, value in names if value} for names in named]


def _choose_turns(calls: EntryClaim, turns: Sequence[VoiceTurn], scope: Scope) -> list[VoiceTurn | None]:
    """Return the turns of the calls that are meant, None in place of any other."""
    if not calls.chosen_by:
        return list(turns)
    chosen = set(calls.choose(_list_calls(turns), scope))
    return [turn if index in chosen else None for index, turn in enumerate(turns)]


def _decide_without_call(spec: VoiceSaid, calls: EntryClaim, turns: Sequence[VoiceTurn], scope: Scope) -> Verdict:
    """Decide where no call is the one that is meant."""
    entries = list({tuple(entry.items()): entry for entry in _list_calls(turns)}.values())
    if calls.find_unclear(entries, scope):
        return missing(f"of every call {' and '.join(name for name, _ in calls.chosen_by)}")
    told = calls.fail_without_entry(entries, scope).reason
    phrases = [Said(phrase, False) for phrase in spec.contains] + [Said(phrase, True) for phrase in spec.not_contains]
    details: dict[str, Json] = {"phrase_results": [_write_record(said) for said in phrases], "total": len(phrases)}
    return failed(told, code="no_match", details={**details, "held": 0}) if spec.contains else passed(told, details=details)


class Said(msgspec.Struct, frozen=True):
    """What is known of one phrase: whether it was said, and where, or who said so."""

    phrase: str
    forbidden: bool
    found: bool = False
    place: tuple[int, str] | None = None
    opinion: Opinion | None = None
    elsewhere: str = ""
    """The other call on which a phrase was said that is not there."""


def _record_said(phrase: str, forbidden: bool, place: tuple[int, str] | None) -> Said:
    return Said(phrase, forbidden, place is not None, place)


def _name_other_call(said: Said, other: _Heard, exact: bool, turns: Sequence[VoiceTurn]) -> Said:
    place = other.find(_Phrase(said.phrase, exact)) if not said.found and not said.forbidden else None
    if place is None:
        return said
    turn = turns[place[0]]
    return msgspec.structs.replace(said, elsewhere=f", but on the call from {show(turn.sender)} to {show(turn.to)}")


def _ask(
    phrases: list[Said], runs: list[Spoken], speaker: str | None, turns: Sequence[VoiceTurn], otherwise: Verdict | None, on: str
) -> Verdict:
    """Ask a judge about every phrase that was not found."""
    if not runs:
        # Nothing was said, so nobody need be asked in which words.
        return otherwise or _decide_verdict(phrases, runs, speaker, turns, on)
    spoken = [{"speaker": turns[number].speaker, "text": text} for run in runs for number, text in run]
    material = Material(subject=spoken, name="transcript")
    by = f"by {show(speaker)} " if speaker is not None else ""
    questions = [
        Question(
            criterion=f"This was said {by}on the call, in these words or in others that mean the same: {show(said.phrase, _LONGEST)}",
            material=material,
            label=said.phrase,
        )
        for said in phrases
        if not said.found
    ]

    def settle(opinions: Sequence[Opinion]) -> Verdict:
        left = iter(opinions)
        known = [said if said.found else _record_heard(said, next(left)) for said in phrases]
        # One phrase that nobody could judge leaves the share of phrases unknown, and with it the verdict.
        broken = next((said for said in known if said.opinion is not None and said.opinion.outcome == "error"), None)
        if broken is not None and broken.opinion is not None:
            return errored(
                broken.opinion.code or "judge_failed", f"{show(broken.phrase)}: {broken.opinion.reason}", details=broken.opinion.details
            )
        return _decide_verdict(known, runs, speaker, turns, on)

    return make_pending(questions, settle, otherwise=otherwise)


def _record_heard(said: Said, opinion: Opinion) -> Said:
    return msgspec.structs.replace(said, found=opinion.outcome == "pass", opinion=opinion)


def _verify(spec: VoiceSaid) -> None:
    if not spec.contains and not spec.not_contains:
        raise SpecError("voice_said needs a phrase in contains or not_contains", field="contains")
    for name, phrases in (("contains", spec.contains), ("not_contains", spec.not_contains)):
        for index, phrase in enumerate(phrases):
            if len(phrase) > _LONGEST:
                raise SpecError(f"a phrase of more than {_LONGEST} characters", field=f"{name}.{index}")
            if not phrase.strip() or (spec.match != "exact" and not normalize(phrase).begins):
                raise SpecError(f"a phrase without words: {show(phrase)}", field=f"{name}.{index}")


class _Phrase:
    """What is looked for, in the form in which it is compared."""

    def __init__(self, phrase: str, exact: bool) -> None:
        self.text = phrase
        self.speech = None if exact else normalize(phrase)


class _Heard:
    """What was said, brought once to the form in which it is compared, however many phrases are looked for."""

    def __init__(self, runs: list[Spoken], exact: bool) -> None:
        self._turns = [(number, text, self._find_form(text, exact)) for run in runs for number, text in run]
        # After the single turns, so that a phrase inside one turn is told with that turn and not with the whole run.
        together = [(run[0][0], " ".join(text for _, text in run)) for run in runs if len(run) > 1]
        self._turns += [(number, text, self._find_form(text, exact)) for number, text in together]

    @staticmethod
    def _find_form(text: str, exact: bool) -> Speech | None:
        spend(len(text) // _CHARS_PER_STEP + 1 if exact else len(text) + 1)
        return None if exact else normalize(text)

    def find(self, phrase: _Phrase) -> tuple[int, str] | None:
        """Return number and text of the first turn with the phrase; for a phrase over several turns the first number and all text."""
        for number, text, speech in self._turns:
            spend(len(text) // _CHARS_PER_STEP + 1)
            if phrase.text in text if speech is None or phrase.speech is None else speech.contains(phrase.speech, spend):
                return number, text
        return None


def _list_runs(turns: Sequence[VoiceTurn | None], speaker: str | None) -> list[Spoken]:
    """Return the turns of a speaker in runs that no other speaker or call interrupts; names are compared without case."""
    wanted = speaker.strip().casefold() if speaker is not None else None
    runs: list[Spoken] = []
    previous: tuple[str, str] | None = None
    for number, turn in enumerate(turns):
        # A turn that is None is of a call that is not meant.
        name = None if turn is None else (turn.call, turn.speaker.strip().casefold())
        if turn is not None and name is not None and wanted in (None, name[1]):
            if name != previous or not runs:
                runs.append([])
            runs[-1].append((number, turn.text))
        # Also for speakers who are not wanted: their turn ends a run.
        previous = name
    return runs


def _decide_verdict(found: list[Said], runs: list[Spoken], speaker: str | None, turns: Sequence[VoiceTurn], on: str) -> Verdict:
    records: list[dict[str, Json]] = []
    wrong: list[str] = []
    pointers: list[str] = []
    by = f"{f' by {speaker}' if speaker is not None else ''}{on}"
    for said in found:
        records.append(_write_record(said))
        if said.place is not None:
            pointers.append(f"$.state.voice.turns[{said.place[0]}]")
        if said.forbidden and said.found:
            wrong.append(f"{show(said.phrase)} was said{by}{_describe_place(said)}")
        elif not said.forbidden and not said.found:
            wrong.append(f"{show(said.phrase)} was not said{by}{said.elsewhere}{_describe_place(said)}")
    held = len(found) - len(wrong)
    details: dict[str, Json] = {"phrase_results": records, "held": held, "total": len(found)}
    told = f"{held} of {len(found)} phrases hold"
    if not turns:
        told += " (nobody spoke)"
    elif not runs:
        there = sorted({turn.speaker for turn in turns})[:5]
        told += f" (no turn of {show(speaker)}; speakers: {', '.join(map(show, there))})"
    if not wrong and turns and not runs:
        # Where the speaker is not heard at all, nobody knows what they said.
        return missing(f"a turn of {show(speaker)}")
    if not wrong:
        return passed(told, details=details, pointers=tuple(dict.fromkeys(pointers)))
    more = tell_more(len(wrong), 3, "; and")
    return failed(
        f"{told}: {'; '.join(wrong[:3])}{more}", details=details, pointers=tuple(dict.fromkeys(pointers)), score=held / len(found)
    )


def _write_record(said: Said) -> dict[str, Json]:
    record: dict[str, Json] = {"phrase": said.phrase, "found": said.found, "turn": shorten(said.place[1], 500) if said.place else None}
    if said.forbidden:
        record["forbidden"] = True
    if said.opinion is not None:
        record["judged"] = {"reason": said.opinion.reason, **said.opinion.details}
    return record


def _describe_place(said: Said) -> str:
    if said.place is not None:
        return f" in turn {said.place[0]}: {show(said.place[1])}"
    return f", in the opinion of the judge: {said.opinion.reason}" if said.opinion is not None else ""
