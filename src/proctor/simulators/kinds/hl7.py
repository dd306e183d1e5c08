r"""A receiver of HL7 v2 messages, such as an interface engine, over HTTP, and over MLLP in local runs.

    POST /outbound        send a message: `{"payload": "MSH|..."}`, or the message itself as the body; answered with its ACK
    GET  /outbound        the messages that were accepted
    GET  /inbox           the messages that have arrived; `?type=ORU` those of a type
    GET  /inbox/ID        one of them, as it is

Every message gets an acknowledgement: AA, AE or AR, with the reason in MSA.3 and ERR, and the status 200. A message sent as the body
is answered with the ACK alone, one in JSON with `{"code", "accepted", "ack", "control_id", "reason"}`. The state consists of the accepted
messages; rejected ones are only in the requests. The first error of a message decides, in this order (codes of table 0357):

    AR 100  no message, several at once, or a line that is not a segment
    AR 101  no message type (MSH.9) or no control id (MSH.10)
    AR 200  a type that is not among `accepts`; AR 201 the type is, its event is not
    AE, AR  as in the first rule whose `when` holds: paths with the value they have, null for one that is empty
    AA      everything else
"""

from __future__ import annotations

import functools
import re
from typing import Annotated, Literal

import msgspec

from proctor.codecs.segments import Hl7Message, compile_segment_path, read_messages
from proctor.errors import EvidenceError, SpecError
from proctor.model.evidence import Hl7State, Json, State
from proctor.model.show import show
from proctor.simulators.exchange import Request, Response, answer_json, read_payload, refuse, require_method, split_path
from proctor.simulators.ports import Desk, Simulator, Tool
from proctor.simulators.seeds import ReadBy, join_place, read_as, read_flag, read_items, read_members, read_word
from proctor.simulators.tools import make_tool

MOST_BYTES = 10_000_000
"""Bytes of one message."""
HL7_TYPE = "application/hl7-v2; charset=utf-8"
_CONFIG = "_config"
_IN, _OUT = "inbox", "outbound"


class Hl7Simulator(Simulator):
    """A receiver of HL7 v2 messages."""

    kind = "hl7"
    summary = "An HL7 v2 feed: messages out with a proper acknowledgement, an inbox, and MLLP in local runs."
    steps = ("message_arrives",)
    config_names = ("inbox", "accepts", "rules", "mllp")
    access = {"hl7_url": "{url}", "inbox_url": "{url}/inbox", "outbound_url": "{url}/outbound"}  # noqa: RUF012 - never changed
    endpoints = {"hl7_inbox": "/inbox", "hl7_outbound": "/outbound"}  # noqa: RUF012 - never changed

    def seed(self, seed: Json, desk: Desk) -> None:
        """Read `inbox` (messages), `accepts` (types), `rules` and `mllp`; a list is the inbox alone."""
        members = {"inbox": seed} if isinstance(seed, list) else read_members(seed, self.config_names)
        read_flag(members.get("mllp"), "mllp")
        given = {name: members[name] for name in Rules.__struct_fields__ if name in members}
        # A dataset with only messages does not change the rules of the config.
        if given:
            desk.rows.put(_CONFIG, "rules", msgspec.to_builtins(read_as(Rules, given)))
        for at, item in read_items(members.get("inbox"), "inbox"):
            self._arrive(item, at, desk)

    def perform(self, step: str, content: Json, desk: Desk) -> None:
        """Let a message arrive in the inbox: its text, or its segments as a list."""
        self._arrive(content, "", desk)

    def _arrive(self, value: Json, at: str, desk: Desk) -> None:
        parts = [read_word(item, place) for place, item in read_items(value, at)] if isinstance(value, list) else [read_word(value, at)]
        text = _normalize("\r".join(parts))
        try:
            messages = read_messages(text)
        except EvidenceError as error:
            raise SpecError(str(error), field=at or None) from None
        if len(messages) > 1:
            raise SpecError(f"expected one message, found {len(messages)}", field=at or None)
        # Numbered, not random: an author can refer to an inbox message by its position.
        key = str(len(desk.rows.list(_IN)) + 1)
        desk.rows.put(_IN, key, _make_row(key, text, Answer("", message=messages[0]), desk))

    def answer(self, request: Request, desk: Desk) -> Response:
        """Answer a request. Raises `Refused`."""
        parts = split_path(request)
        if parts == ["outbound"] and request.method == "POST":
            if len(request.body) > MOST_BYTES:
                raise refuse(413, "too_large", f"a message has at most {MOST_BYTES} bytes")
            text, is_json = read_payload(request)
            answer = judge_message(text, desk.rows.load(_CONFIG, "rules", Rules) or Rules())
            ack = write_ack(answer, desk.around.now(), desk.around.new_id())
            if answer.ack == "AA":
                key = str(len(desk.rows.list(_OUT)) + 1)
                desk.rows.put(_OUT, key, _make_row(key, _normalize(text), answer, desk))
            if not is_json:
                return Response(status=200, body=ack.encode(), headers={"content-type": HL7_TYPE})
            body: dict[str, Json] = {"code": answer.ack, "accepted": answer.ack == "AA", "ack": ack, "control_id": answer.control_id}
            return answer_json(200, {**body, "reason": answer.reason} if answer.reason else body)
        if len(parts) not in (1, 2) or parts[0] not in (_IN, _OUT):
            raise refuse(404, "not_found", "messages are at /inbox and /outbound")
        require_method(request, "GET", "HEAD", *(("POST",) if parts == ["outbound"] else ()))
        if len(parts) == 1:
            chosen = dict(request.query).get("type", "")
            rows = [row for row in desk.rows.list(parts[0]).values() if not chosen or f"{row['type']}^".startswith(f"{chosen}^")]
            return answer_json(200, {"messages": rows})
        if (row := desk.rows.get(parts[0], parts[1])) is None:
            raise refuse(404, "not_found", f"there is no message {show(parts[1])} in {parts[0]}")
        return Response(status=200, body=row["payload"].encode(), headers={"content-type": HL7_TYPE})

    def read_state(self, desk: Desk) -> State:
        """Return the accepted messages."""
        return State(hl7=Hl7State(outbound=tuple(row["payload"] for row in desk.rows.list(_OUT).values())))

    def list_tools(self) -> tuple[Tool, ...]:
        """Return the tools for the feed."""
        message: dict[str, Json] = {"type": "string", "description": "The message: segments that begin with MSH, one per line."}
        kind: dict[str, Json] = {"type": "string", "description": "Only messages of this type, such as ORU or ADT^A01."}
        return (
            make_tool("hl7_inbox", "List the HL7 messages that have arrived.", {"type": kind}, request="GET /inbox"),
            make_tool(
                "hl7_send",
                "Send an HL7 v2 message; the answer is its acknowledgement.",
                {"payload": message},
                ("payload",),
                request="POST /outbound",
            ),
        )


def _normalize(text: str) -> str:
    """Return a message as stored: segments separated by CR, without framing."""
    lines = (line.strip("\x0b\x1c\ufeff") for line in text.replace("\r\n", "\r").replace("\n", "\r").split("\r"))
    return "".join(f"{line}\r" for line in lines if line.strip())


def _make_row(key: str, text: str, answer: Answer, desk: Desk) -> dict[str, Json]:
    return {"id": key, "type": answer.kind, "control_id": answer.control_id, "payload": text, "at": desk.around.now()}


SIMULATOR = Hl7Simulator()


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


def _read_type(value: Json, at: str) -> str:
    word = read_word(value, at)
    if not _MESSAGE_TYPE.fullmatch(word):
        # It would never match, and every message would be rejected.
        raise SpecError(f"expected a type such as ADT or ADT^A01, found {show(word)}", field=at)
    return word


def _read_when(value: Json, at: str) -> tuple[tuple[str, str | None], ...]:
    when: list[tuple[str, str | None]] = []
    for path, expected in read_members(value, value if isinstance(value, dict) else (), at).items():
        try:
            compile_segment_path(path)
        except SpecError as error:
            raise error.move_to(join_place(at, path)) from None
        when.append((path, None if expected is None else read_word(expected, join_place(at, path))))
    return tuple(when)


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages are rejected, and how."""

    when: Annotated[tuple[tuple[str, str | None], ...], ReadBy(_read_when)]
    """Paths with their expected values; None for an empty value."""
    ack: Literal["AE", "AR"] = "AE"
    reason: str
    code: Annotated[str, ReadBy(functools.partial(read_word, among=_TEXTS))] = "204"


class Rules(msgspec.Struct, frozen=True):
    """The messages that a receiver accepts."""

    accepts: tuple[Annotated[str, ReadBy(_read_type)], ...] = ()
    """Types such as `ADT` or `ADT^A01`; empty means all."""
    rules: tuple[Rule, ...] = ()


class Answer(msgspec.Struct, frozen=True):
    """The outcome of a message."""

    ack: str
    """`AA`, `AE` or `AR`."""
    reason: str = ""
    code: str = ""
    message: Hl7Message | None = None
    """The parsed message, as far as possible."""

    @property
    def control_id(self) -> str:
        """The control id of the answered message."""
        return (self.message.value(_CONTROL) or "") if self.message is not None else ""

    @property
    def kind(self) -> str:
        """Type and event of the answered message: `ADT^A01`."""
        if self.message is None:
            return ""
        return "^".join(part for part in (self.message.value(_TYPE), self.message.value(_EVENT)) if part)


def judge_message(text: str, rules: Rules) -> Answer:
    """Return the outcome of a message."""
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
        known = any(accepted.partition("^")[0] == kind for accepted in rules.accepts)
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
    # Sender and receiver are swapped.
    header = [*(_escape(name) for name in (*names[2:], *names[:2])), moment, "", kind, control_id, _escape(processing), _escape(version)]
    segments = ["MSH|^~\\&|" + "|".join(header), f"MSA|{answer.ack}|{_escape(answer.control_id)}|{_escape(answer.reason)}".rstrip("|")]
    if answer.ack != "AA":
        code = f"{answer.code}^{_TEXTS.get(answer.code, '')}^HL70357"
        segments.append(f"ERR|||{code}|E||||{_escape(answer.reason)}")
    return "\r".join(segments) + "\r"


def _escape(text: str) -> str:
    # The answer repeats the sender's text: a line end in it would start a segment of the sender's choice.
    marks = {"\\": "\\E\\", "|": "\\F\\", "^": "\\S\\", "&": "\\T\\", "~": "\\R\\"}
    return "".join(marks.get(char, char if char.isprintable() else " ") for char in text)
