"""Claims about faxes, messages and CDS cards after the run.

Shared by faxes, messages, cards and records: some members select entries, and other members are compared.

One selected entry that satisfies everything is enough; else the first entry with the most matches is reported. Every field and every
phrase, required or forbidden, counts as one. Phrases are compared as words: case, punctuation and line breaks do not matter
(`codecs/speech.py`). In an entry without any text no phrase holds, not even a forbidden one.

Claims about the cards that a service of CDS Hooks answered, found by hook, service, indicator and summary.

Claims about faxes after the run: sent by the agent by default, found by number, pages and words.

Claims about short messages, e-mails and chats after the run: sent by the agent by default, found by channel and recipient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.fields import (
    LAST,
    Comparison,
    FieldResult,
    PreparedRows,
    RowField,
    build_dotted_pointer,
    compare_count,
    decide_absence,
    declare_state_reads,
    describe_failures,
    describe_found,
    fail_unreadable,
    find_scope,
    prepare_rows,
    refuse_contradictions,
)
from proctor.codecs.addresses import fold_address, list_addresses
from proctor.codecs.speech import Speech, normalize
from proctor.errors import SpecError
from proctor.expressions.text_form import Scope
from proctor.matchers.mismatch import equal_after_conversion
from proctor.model.evidence import Evidence, Json, State
from proctor.model.json_values import MISSING, Missing
from proctor.model.show import nearest, show
from proctor.model.verdict import Verdict, failed, missing, passed
from proctor.paths.dotted import find_dotted
from proctor.work import spend

_PER_LOOK = 20
"""The number of steps for comparing one member of one entry."""
LONGEST_PHRASE = 2_000
"""The maximum length of a phrase in characters."""
UNREAD = "unread"
"""The member in which an entry lists the unreadable parts of its text."""
_DIRECTION = "direction"
_DIRECTIONS = ("outbound", "inbound")
_COPIES = ("cc", "bcc")
"""Members with further recipients."""
_SHOWN = 3
"""The maximum number of pointers to unwanted entries."""

Entry = Mapping[str, Json]


class EntrySpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Fields that every claim about entries may have."""

    contains: tuple[str, ...] = ()
    """Phrases that the text must have; case and punctuation do not matter."""
    not_contains: tuple[str, ...] = ()
    """Phrases that the text must not have."""
    fields: tuple[RowField, ...] = ()
    """Other values of the record to compare: `patient_id`, `status`, `source.label`."""
    count: int | None = None
    """How many such records there must be, whatever their text."""
    absent: bool = False
    """The claim is that there is no such record."""


class Phrase(msgspec.Struct, frozen=True):
    """A required or forbidden phrase, in the form in which it is compared."""

    text: str
    speech: Speech
    is_forbidden: bool

    def record(self, found: bool, unread: str = "") -> FieldResult:
        """Return the result of the phrase, shaped like that of a field; `unread` is why the text is not known."""
        forbidden = {"forbidden": True} if self.is_forbidden else {}
        if unread:
            why = f"{unread} to search for {show(self.text)}"
        else:
            why = f"{show(self.text)} {'' if self.is_forbidden else 'not '}found"
        holds = not unread and found != self.is_forbidden
        return FieldResult("text", {"phrase": self.text, "found": found, **forbidden}, None, holds, "" if holds else why)


class Looked(msgspec.Struct, frozen=True):
    """The result of examining one entry."""

    index: int
    fields: tuple[FieldResult, ...]
    phrases: tuple[FieldResult, ...]

    @property
    def held(self) -> int:
        """The number of fields and phrases that hold."""
        return sum(result.passed for result in (*self.fields, *self.phrases))


class EntryClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A prepared claim about the entries of a family."""

    what: str
    base: str
    """The path of the entries in the evidence."""
    chosen_by: PreparedRows
    fields: PreparedRows
    phrases: tuple[Phrase, ...] = ()
    searched: tuple[str, ...] = ("text",)
    """The members that are searched for phrases."""
    defaults: Mapping[str, Json] = {}
    """The defaults of absent members."""
    needed: tuple[str, ...] = ()
    """Members that every entry should have: without them it is unknown whether the entry matches."""
    folded: tuple[str, ...] = ()
    """Members that are addresses or system words, whose exact spelling does not matter."""
    count: int | None = None
    """The number of entries that must match; 0 is an absence."""
    is_absent: bool = False
    read: Callable[[State], Sequence[Entry] | None] = lambda _: None
    """Reads the entries of an end state; None if none were recorded."""
    all_of_them: str = ""
    """The plural name of the entries."""

    def find_scope(self, evidence: Evidence) -> Scope:
        """Return the scope of the comparisons."""
        return find_scope(evidence, (comparison for _, comparison in (*self.chosen_by, *self.fields)))

    def decide_on(self, evidence: Evidence) -> Verdict:
        """Return the verdict on the entries of the end state."""
        entries = None if evidence.state is None else self.read(evidence.state)
        return missing(self.all_of_them) if entries is None else self.decide(entries, self.find_scope(evidence))

    def decide(self, entries: Sequence[Entry], scope: Scope) -> Verdict:
        """Return the verdict on the entry with the most matches."""
        found = self.choose(entries, scope)
        if self.is_absent or self.count == 0:
            # A present entry decides; missing members of others matter only if none was found.
            unclear = None if found else self.find_unclear(entries, scope)
            if unclear is not None:
                return fail_unreadable(self.what, [unclear])
            pointers = tuple(f"{self.base}[{index}]" for index in found[:_SHOWN])
            return decide_absence(str(len(found)) if found else None, self.what, pointers=pointers)
        if not found:
            return self.fail_without_entry(entries, scope)
        best = self.find_best(entries, found, scope)
        if self.count is None or self.count == len(found):
            return self.report(best)
        wrong = msgspec.structs.replace(best, fields=(*best.fields, compare_count(self.count, len(found))))
        return msgspec.structs.replace(self.report(wrong), pointers=tuple(f"{self.base}[{index}]" for index in found[:_SHOWN]))

    def choose(self, entries: Sequence[Entry], scope: Scope) -> list[int]:
        """Return the positions of the matching entries."""
        spend(len(entries) * (1 + _PER_LOOK * len(self.chosen_by)))
        return [index for index, entry in enumerate(entries) if all(self._fits(entry, path, one, scope) for path, one in self.chosen_by)]

    def find_best(self, entries: Sequence[Entry], found: Sequence[int], scope: Scope) -> Looked:
        """Return the result of the first entry in which everything holds, else of the first with the most matches."""
        best: Looked | None = None
        for looked in (self.look(entries[index], index, scope) for index in found):
            best = looked if best is None or looked.held > best.held else best
            if best.held == len(self.fields) + len(self.phrases):
                break
        assert best is not None, "called with at least one entry"
        return best

    def look(self, entry: Entry, index: int, scope: Scope) -> Looked:
        """Compare the fields of an entry, and search it for the phrases."""
        spend(_PER_LOOK * (1 + len(self.fields)))
        fields = tuple(comparison.compare(path, self._find(entry, path), scope) for path, comparison in self.fields)
        return Looked(index, fields, tuple(self._look_for_phrases(entry)) if self.phrases else ())

    def report(self, looked: Looked) -> Verdict:
        """Return the verdict on one entry."""
        place = f"{self.base}[{looked.index}]"
        results = (*looked.fields, *looked.phrases)
        details = self._write_details(looked.fields, looked.phrases, matched=place)
        if not results:
            return passed(f"{self.what} found", details=details, pointers=(place,))
        reason = f"{self.what}: {looked.held} of {len(results)} {'claim holds' if len(results) == 1 else 'claims hold'}"
        if looked.held == len(results):
            return passed(reason, details=details, pointers=(place,))
        wrong = tuple(build_dotted_pointer(place, one.path) for one in looked.fields if not one.passed and one.actual is not None)
        return failed(
            f"{reason}: {describe_failures(results)}", details=details, pointers=wrong or (place,), score=looked.held / len(results)
        )

    def fail_without_entry(self, entries: Sequence[Entry], scope: Scope) -> Verdict:
        """Fail everything, because no entry matches."""
        fields = [FieldResult(path, comparison.expected, None, False) for path, comparison in self.fields]
        others = [
            [(path, self._find(one, path)) for path, sought in self.chosen_by if not self._fits(one, path, sought, scope)]
            for one in entries[-LAST:]
        ]
        found = describe_found([[(path, value) for path, value in one if value is not MISSING] for one in others])
        reason = f"no {self.what} ({len(entries)} recorded){found}" if entries else f"no {self.what} (none recorded)"
        details = self._write_details(fields, [phrase.record(False) for phrase in self.phrases])
        return failed(reason, code="no_match", details=details)

    def find_unclear(self, entries: Sequence[Entry], scope: Scope) -> str | None:
        """Return why it is unknown whether an entry matches, if none matches for certain; None if none matches."""
        for index, entry in enumerate(entries):
            differing = [(path, one) for path, one in self.chosen_by if not self._fits(entry, path, one, scope)]
            reasons = [self._report_unclear(entry, path, one) for path, one in differing]
            # An entry that certainly differs in one member is a different one.
            if reasons and all(reasons):
                return f"{self.base}[{index}] {reasons[0]}"
        return None

    def _report_unclear(self, entry: Entry, path: str, comparison: Comparison) -> str:
        """Return why a member that does not fit might still match; empty if it certainly differs."""
        actual = self._find(entry, path)
        if actual is MISSING:
            return f"has no {path!r}" if path in self.needed else ""
        several: list[Json] = actual if isinstance(actual, list) else [actual]
        if path == _DIRECTION and isinstance(comparison.expected, str) and actual not in _DIRECTIONS:
            return f"has the direction {show(actual, 80)}, which is neither outbound nor inbound"
        if path in self.folded and any(isinstance(one, (dict, list)) for one in several):
            return f"has {path!r} {show(actual, 80)}, which is not text"
        if any(equal_after_conversion(comparison.expected, one) for one in several):
            return f"has {path!r} {show(actual, 80)}, which is equal after conversion, but text never equals a number"
        return ""

    def _find(self, entry: Entry, path: str) -> Json | Missing:
        # A column may have a dot in its name; then it is not a path.
        found = entry[path] if path in entry else find_dotted(entry, path)
        if path == _DIRECTION and path in self.defaults and isinstance(found, str):
            # Providers append details: `outbound-api`.
            found = found.strip().lower().partition("-")[0]
        return self.defaults.get(path, MISSING) if found is MISSING else found

    def _fits(self, entry: Entry, path: str, comparison: Comparison, scope: Scope) -> bool:
        actual = self._find(entry, path)
        # An absent value fits nothing, not even a matcher that accepts absent values.
        if actual is MISSING:
            return comparison.expected is None
        # A message may have several recipients.
        several: list[Json] = actual if isinstance(actual, list) else []
        if path in self.folded and isinstance(comparison.expected, str):
            wanted = fold_address(comparison.expected)
            copies = [entry.get(name) for name in _COPIES] if path == "to" else []
            copies = [one for copy in copies for one in (copy if isinstance(copy, list) else [copy])]
            if any(isinstance(one, str) and wanted in list_addresses(one) for one in (actual, *several, *copies)):
                return True
        # The list itself too: the expected value may be a list or a matcher for one.
        return any(comparison.find_mismatch(one, scope, path) is None for one in (actual, *several))

    def _look_for_phrases(self, entry: Entry) -> Iterator[FieldResult]:
        texts = [text for name in self.searched if isinstance(text := entry.get(name), str) and text.strip()]
        # Once for all phrases, because splitting the texts into words walks all of them.
        spend(sum(map(len, texts)) + 1)
        speeches = [normalize(text) for text in texts]
        unread = entry.get(UNREAD)
        for phrase in self.phrases:
            spend(1 + sum(map(len, texts)) // 64)
            found = any(speech.contains(phrase.speech, spend) for speech in speeches)
            # A phrase missing from the read part may be in the rest.
            unread_reason = "there is no text" if not texts else str(unread) if unread and phrase.is_forbidden and not found else ""
            yield phrase.record(found, unread_reason)

    def _write_details(self, fields: Sequence[FieldResult], phrases: Sequence[FieldResult], **more: Json) -> dict[str, Json]:
        details: dict[str, Json] = {"field_results": [result.to_record() for result in fields]}
        if self.phrases:
            details["phrase_results"] = [result.expected for result in phrases]
        held = sum(result.passed for result in (*fields, *phrases))
        return {**details, "held": held, "total": len(fields) + len(phrases), **more}


def prepare_entries(
    spec: EntrySpec,
    what: str,
    read: Callable[[State], Sequence[Entry] | None],
    *,
    base: str,
    all_of_them: str,
    members: Mapping[str, Json],
    **settings: Any,
) -> EntryClaim:
    """Return a claim about the entries that `members` select; `settings` are further fields of `EntryClaim`."""
    phrases = prepare_phrases(spec.contains, spec.not_contains)
    # A direction of `any` selects nothing; where none is recorded, an entry was sent.
    chosen_by = prepare_choice({name: value for name, value in members.items() if (name, value) != (_DIRECTION, "any")})
    return EntryClaim(
        what=describe_choice(what, chosen_by),
        base=base,
        chosen_by=chosen_by,
        fields=prepare_claimed(spec.fields, phrases, spec.absent, spec.count),
        count=spec.count,
        phrases=phrases,
        is_absent=spec.absent,
        read=read,
        all_of_them=all_of_them,
        defaults={_DIRECTION: "outbound"} if _DIRECTION in members else {},
        **settings,
    )


def prepare_choice(members: Mapping[str, Json]) -> PreparedRows:
    """Return the members that select entries; null ones are ignored."""
    return tuple((name, Comparison(value, field=name)) for name, value in members.items() if value is not None)


def describe_choice(what: str, chosen_by: PreparedRows) -> str:
    """Return a description of the wanted entry."""
    reason = ", ".join(f"{path} {show(comparison.expected)}" for path, comparison in chosen_by)
    return f"{what} with {reason}" if reason else what


def prepare_phrases(contains: Sequence[str], not_contains: Sequence[str], *, exact: bool = False) -> tuple[Phrase, ...]:
    """Return the phrases in the form in which they are compared. Raises `SpecError` for one without words."""
    found: list[Phrase] = []
    for name, phrases, forbidden in (("contains", contains, False), ("not_contains", not_contains, True)):
        for index, text in enumerate(phrases):
            if len(text) > LONGEST_PHRASE:
                raise SpecError(f"a phrase of more than {LONGEST_PHRASE} characters", field=f"{name}.{index}")
            speech = normalize(text)
            if not text.strip() or not (exact or speech.begins):
                raise SpecError(f"a phrase without words: {show(text)}", field=f"{name}.{index}")
            found.append(Phrase(text, speech, forbidden))
    return tuple(found)


def prepare_claimed(fields: tuple[RowField, ...], phrases: tuple[Phrase, ...], absent: bool, count: int | None) -> PreparedRows:
    """Return the fields of a claim; an absence accepts neither fields nor phrases."""
    refuse_contradictions(absent, (*fields, *phrases), count)
    return prepare_rows(fields)


_INDICATORS = ("info", "warning", "critical")
"""The indicators of the specification; a card with any other indicator is invalid."""


class CdsCard(EntrySpec, frozen=True, kw_only=True, omit_defaults=True):
    """A card was answered with the given values and words; the score is the share of claims that hold."""

    hook: str | None = None
    """The hook that was called: `patient-view`."""
    service: str | None = None
    """The id of the service that answered."""
    indicator: Json = None
    """`info`, `warning`, `critical`, or a matcher."""
    summary: Json = None
    """The summary of the card, or a matcher."""


@check(
    "cds_card",
    example="cds_card: {hook: order-select, indicator: warning, contains: [interaction]}",
    reads=declare_state_reads,
    product=True,
)
def cds_card(spec: CdsCard) -> Decide:
    """A card was answered with the given values and words; the score is the share of claims that hold."""
    if isinstance(spec.indicator, str) and spec.indicator not in _INDICATORS:
        message = f"indicator: expected one of {', '.join(_INDICATORS)}, found {show(spec.indicator)}"
        raise SpecError(message, field="indicator", nearest=nearest(spec.indicator, _INDICATORS))
    return prepare_entries(
        spec,
        "card",
        lambda state: state.cds and state.cds.cards,
        base="$.state.cds.cards",
        all_of_them="CDS cards",
        members={"hook": spec.hook, "service": spec.service, "indicator": spec.indicator, "summary": spec.summary},
        searched=("summary", "detail"),
        needed=("hook", "service", "indicator", "summary"),
        folded=("hook", "indicator"),
    ).decide_on


class SentSpec(EntrySpec, frozen=True, kw_only=True, omit_defaults=True):
    """Fields of claims about what was sent or received."""

    to: Json = None
    """Whom it went to (a number, an address), or a matcher; of several recipients one is enough."""
    sender: Json = msgspec.field(default=None, name="from")
    """Whom it came from, or a matcher."""
    direction: Literal["outbound", "inbound", "any"] = "outbound"
    """`outbound`: sent by the agent; `inbound`: received."""


class FaxDocument(SentSpec, frozen=True, kw_only=True, omit_defaults=True):
    """A fax was sent with the given values and words; the score is the share of claims that hold."""

    pages: Json = None
    """How many pages it has, or a matcher."""


@check(
    "fax_document",
    example="fax_document: {to: '+15550100', contains: [referral], fields: [{path: document_type, expected: referral}]}",
    reads=declare_state_reads,
    product=True,
)
def fax_document(spec: FaxDocument) -> Decide:
    """A fax was sent with the given values and words; the score is the share of claims that hold."""
    return prepare_entries(
        spec,
        "fax",
        lambda state: state.fax and state.fax.documents,
        base="$.state.fax.documents",
        all_of_them="faxes",
        members={"direction": spec.direction, "to": spec.to, "from": spec.sender, "pages": spec.pages},
        needed=("to", "from", "pages"),
        folded=("to", "from"),
    ).decide_on


_CHANNELS = ("sms", "email", "chat")
"""Common names of channels; systems may use others, but hardly a word that is nearly one of these."""


class MessageSent(SentSpec, frozen=True, kw_only=True, omit_defaults=True):
    """A message was sent with the given values and words; the score is the share of claims that hold."""

    channel: str | None = None
    """`sms`, `email`, `chat`."""
    subject: Json = None
    """The subject of an e-mail, or a matcher."""


@check(
    "message_sent",
    example="message_sent: {channel: sms, to: '+15550100', contains: [your appointment], not_contains: [diagnosis]}",
    reads=declare_state_reads,
    product=True,
)
def message_sent(spec: MessageSent) -> Decide:
    """A message was sent with the given values and words; the score is the share of claims that hold."""
    if spec.channel is not None and spec.channel.lower() not in _CHANNELS and (near := nearest(spec.channel, _CHANNELS)):
        raise SpecError(f"channel: expected one of {', '.join(_CHANNELS)}, found {show(spec.channel)}", field="channel", nearest=near)
    return prepare_entries(
        spec,
        "message",
        lambda state: state.messages and state.messages.messages,
        base="$.state.messages.messages",
        all_of_them="messages",
        members={"channel": spec.channel, "direction": spec.direction, "to": spec.to, "from": spec.sender, "subject": spec.subject},
        needed=("channel", "to", "from"),
        folded=("channel", "to", "from"),
    ).decide_on
