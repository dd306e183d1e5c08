"""How a simulated receiver acknowledges an HL7 v2 message, and by which rules.

A message is looked at in this order, and the first thing that is wrong decides (codes of table 0357):

    AR 100  no message, several at once, or a line that is not a segment
    AR 101  no message type (MSH.9) or no control id (MSH.10)
    AR 200  a type that is not among `accepts`; AR 201 the type is, its event is not
        AE, AR  as in the first rule whose `when` holds: paths with the value they have, null for one that is empty
    AA      everything else
"""

from __future__ import annotations

import re

import msgspec

from proctor.codecs.hl7 import Hl7Message, read_messages
from proctor.codecs.segments import compile_segment_path
from proctor.errors import EvidenceError, SpecError
from proctor.model.evidence import Json
from proctor.model.show import show
from proctor.model.typed import make_json_decoder
from proctor.simulators.seeds import join_place, read_items, read_members, read_word

_SEGMENT = re.compile(r"[A-Z][A-Z0-9]{2}")
_MESSAGE_TYPE = re.compile(r"[A-Z][A-Z0-9]{2}(\^[A-Z][A-Z0-9]{2})?")
_TYPE, _EVENT, _CONTROL = (compile_segment_path(path) for path in ("MSH.9.1", "MSH.9.2", "MSH.10"))
_SENDER = [compile_segment_path(f"MSH.{number}") for number in (3, 4, 5, 6)]
_PROCESSING, _VERSION = (compile_segment_path(path) for path in ("MSH.11", "MSH.12"))
_TEXTS = {
    "100": "Segment sequence error",
    "101": "Required field missing",
    "102": "Data type error",
    "103": "Table value not found",
    "200": "Unsupported message type",
    "201": "Unsupported event code",
    "202": "Unsupported processing id",
    "203": "Unsupported version id",
    "204": "Unknown key identifier",
    "205": "Duplicate key identifier",
    "206": "Application record locked",
    "207": "Application internal error",
}
"""Table 0357."""


class Rule(msgspec.Struct, frozen=True):
    """Which messages are rejected, and how."""

    when: tuple[tuple[str, str | None], ...]
    """Paths with the value they have; None for one that is empty."""
    ack: str
    reason: str
    code: str


class Rules(msgspec.Struct, frozen=True):
    """What a receiver takes."""

    accepts: tuple[str, ...] = ()
    """Types such as `ADT` or `ADT^A01`; none are all."""
    rules: tuple[Rule, ...] = ()


class Answer(msgspec.Struct, frozen=True):
    """How a message was taken."""

    ack: str
    """`AA`, `AE` or `AR`."""
    reason: str = ""
    code: str = ""
    message: Hl7Message | None = None
    """What was read, as far as it could be."""

    @property
    def control_id(self) -> str:
        """The control id of the message that is answered."""
        return (self.message.value(_CONTROL) or "") if self.message is not None else ""

    @property
    def kind(self) -> str:
        """Type and event of the message that is answered: `ADT^A01`."""
        if self.message is None:
            return ""
        return "^".join(part for part in (self.message.value(_TYPE), self.message.value(_EVENT)) if part)


READ_RULES = make_json_decoder(Rules)


def read_rules(accepts: Json, rules: Json) -> Rules:
    """Return the rules that a suite writes. Raises `SpecError` for one that cannot be used."""
    types = tuple(_read_type(item, at) for at, item in read_items(accepts, "accepts"))
    return Rules(types, tuple(_read_rule(item, at) for at, item in read_items(rules, "rules")))


def _read_type(value: Json, at: str) -> str:
    word = read_word(value, at)
    if not _MESSAGE_TYPE.fullmatch(word):
        # Nothing would ever fit it, and every message would be refused.
        raise SpecError(f"expected a type such as ADT or ADT^A01, found {show(word)}", field=at)
    return word


def _read_rule(value: Json, at: str) -> Rule:
    given = read_members(value, ("when", "ack", "reason", "code"), at, required=("when", "reason"))
    place = join_place(at, "when")
    when: list[tuple[str, str | None]] = []
    for path, expected in read_members(given["when"], given["when"] if isinstance(given["when"], dict) else (), place).items():
        try:
            compile_segment_path(path)
        except SpecError as error:
            raise SpecError(error.message, field=join_place(place, path), hint=error.hint) from None
        when.append((path, None if expected is None else read_word(expected, join_place(place, path))))
    return Rule(
        tuple(when),
        read_word(given.get("ack"), join_place(at, "ack"), default="AE", among=("AE", "AR")),
        read_word(given["reason"], join_place(at, "reason")),
        read_word(given.get("code"), join_place(at, "code"), default="204", among=_TEXTS),
    )


def judge_message(text: str, rules: Rules) -> Answer:
    """Return how a receiver takes a message."""
    try:
        messages = read_messages(text)
    except EvidenceError as error:
        return Answer("AR", str(error), "100")
    message = messages[0]
    if len(messages) > 1:
        return Answer("AR", f"send one message at a time, found {len(messages)}", "100", message)
    for segment in message.segments:
        if not _SEGMENT.fullmatch(segment.name):
            return Answer("AR", f"not a segment: {show(segment.text[:40])}", "100", message)
    kind, event = message.value(_TYPE), message.value(_EVENT)
    if not kind or not message.value(_CONTROL):
        return Answer("AR", f"{'MSH.10, the control id' if kind else 'MSH.9, the message type'}, is missing", "101", message)
    if rules.accepts and not {kind, f"{kind}^{event}"} & set(rules.accepts):
        name = f"{kind}^{event}" if event else kind
        known = any(one.partition("^")[0] == kind for one in rules.accepts)
        return Answer("AR", f"{name} is not taken here; {', '.join(rules.accepts)} are", "201" if known else "200", message)
    for rule in rules.rules:
        if all(message.value(compile_segment_path(path)) == expected for path, expected in rule.when):
            return Answer(rule.ack, rule.reason, rule.code, message)
    return Answer("AA", message=message)


def write_ack(answer: Answer, now: str, control_id: str) -> str:
    """Return the acknowledgement: MSH, MSA, and ERR after a rejection."""
    message = answer.message
    names = ["", "", "", ""] if message is None else [message.value(path) or "" for path in _SENDER]
    event = (message.value(_EVENT) or "") if message is not None else ""
    version = (message.value(_VERSION) or "2.5") if message is not None else "2.5"
    processing = (message.value(_PROCESSING) or "P") if message is not None else "P"
    moment = re.sub(r"[^0-9]", "", now)[:14]
    kind = f"ACK^{_escape(event)}^ACK" if event else "ACK"
    # The receiver is now the sender, and the other way round.
    header = [*(_escape(name) for name in (*names[2:], *names[:2])), moment, "", kind, control_id, _escape(processing), _escape(version)]
    segments = ["MSH|^~\\&|" + "|".join(header), f"MSA|{answer.ack}|{_escape(answer.control_id)}|{_escape(answer.reason)}".rstrip("|")]
    if answer.ack != "AA":
        code = f"{answer.code}^{_TEXTS.get(answer.code, '')}^HL70357"
        segments.append(f"ERR|||{code}|E||||{_escape(answer.reason)}")
    return "\r".join(segments) + "\r"


def _escape(text: str) -> str:
    # The answer repeats what the sender wrote: a line end in it would begin a segment of the sender's choice.
    marks = {"\\": "\\E\\", "|": "\\F\\", "^": "\\S\\", "&": "\\T\\", "~": "\\R\\"}
    return "".join(marks.get(char, char if char.isprintable() else " ") for char in text)
