r"""A receiver of HL7 v2 messages, such as an interface engine, over HTTP, and over MLLP in local runs.

    POST /outbound        send a message: `{"payload": "MSH|..."}`, or the message itself as the body; answered with its ACK
    GET  /outbound        the messages that were accepted
    GET  /inbox           the messages that have arrived; `?type=ORU` those of a type
    GET  /inbox/ID        one of them, as it is

Every message gets an acknowledgement: AA, AE or AR, with the reason in MSA.3 and ERR, and the status 200. `simulators/hl7/receiving.py`
has the rules. A message sent as the body is answered with the ACK alone, one in JSON with `{"code", "accepted", "ack", "control_id",
"reason"}`. The state are the accepted messages; rejected ones are only in the requests.
"""

from __future__ import annotations

import msgspec

from proctor.codecs.hl7 import read_messages
from proctor.errors import EvidenceError, SpecError
from proctor.model.evidence import Hl7State, Json, State
from proctor.model.show import show
from proctor.simulators.bodies import read_payload, require_method, split_path
from proctor.simulators.exchange import Refused, Request, Response, answer_json, refuse
from proctor.simulators.hl7.receiving import READ_RULES, Answer, Rules, judge_message, read_rules, write_ack
from proctor.simulators.ports import Desk, Tool
from proctor.simulators.rows import Draft
from proctor.simulators.seeds import read_flag, read_items, read_members, read_word

MOST_BYTES = 10_000_000
"""Bytes of one message."""
HL7_TYPE = "application/hl7-v2; charset=utf-8"
_CONFIG = "_config"
_IN, _OUT = "inbox", "outbound"


class Hl7Simulator:
    """A receiver of HL7 v2 messages."""

    kind = "hl7"
    summary = "An HL7 v2 feed: messages out with a proper acknowledgement, an inbox, and MLLP in local runs."
    steps = ("message_arrives",)
    open_paths = ()
    config_names = ("inbox", "accepts", "rules", "mllp")
    access = {"hl7_url": "{url}", "inbox_url": "{url}/inbox", "outbound_url": "{url}/outbound"}  # noqa: RUF012 - never changed
    endpoints = {"hl7_inbox": "/inbox", "hl7_outbound": "/outbound"}  # noqa: RUF012 - never changed

    def seed(self, seed: Json, desk: Desk) -> None:
        """Read `inbox` (messages), `accepts` (types), `rules` and `mllp`; a list is the inbox alone."""
        given = {"inbox": seed} if isinstance(seed, list) else read_members(seed, self.config_names)
        rules = read_rules(given.get("accepts"), given.get("rules"))
        read_flag(given.get("mllp"), "mllp")
        # A dataset that brings messages alone leaves the rules of the config as they are.
        if given.keys() & {"accepts", "rules"}:
            desk.rows.put(_CONFIG, "rules", msgspec.to_builtins(rules))
        for at, item in read_items(given.get("inbox"), "inbox"):
            self._arrive(item, at, desk)

    def perform(self, step: str, given: Json, desk: Desk) -> None:
        """Let a message arrive in the inbox: its text, or its segments as a list."""
        self._arrive(given, "", desk)

    def _arrive(self, value: Json, at: str, desk: Desk) -> None:
        parts = [read_word(item, place) for place, item in read_items(value, at)] if isinstance(value, list) else [read_word(value, at)]
        text = _normalize("\r".join(parts))
        try:
            messages = read_messages(text)
        except EvidenceError as error:
            raise SpecError(str(error), field=at or None) from None
        if len(messages) > 1:
            raise SpecError(f"expected one message, found {len(messages)}", field=at or None)
        # Counted, not drawn: an author can name a message of the inbox by its place.
        key = str(len(desk.rows.list(_IN)) + 1)
        desk.rows.put(_IN, key, _make_row(key, text, Answer("", message=messages[0]), desk))

    def handle(self, request: Request, desk: Desk) -> Response:
        """Answer a request."""
        try:
            parts = split_path(request)
            if parts == ["outbound"] and request.method == "POST":
                return self._send(request, desk)
            if len(parts) not in (1, 2) or parts[0] not in (_IN, _OUT):
                raise refuse(404, "not_found", "messages are at /inbox and /outbound")
            require_method(request, "GET", "HEAD", *(("POST",) if parts == ["outbound"] else ()))
            if len(parts) == 1:
                wanted = dict(request.query).get("type", "")
                rows = [row for row in desk.rows.list(parts[0]).values() if not wanted or f"{row['type']}^".startswith(f"{wanted}^")]
                return answer_json(200, {"messages": rows})
            row = desk.rows.get(parts[0], parts[1])
            if row is None:
                raise refuse(404, "not_found", f"there is no message {show(parts[1])} in {parts[0]}")
            return Response(status=200, body=row["payload"].encode(), headers={"content-type": HL7_TYPE})
        except Refused as refused:
            return refused.response

    def _send(self, request: Request, desk: Desk) -> Response:
        if len(request.body) > MOST_BYTES:
            raise refuse(413, "too_large", f"a message has at most {MOST_BYTES} bytes")
        text, is_json = read_payload(request)
        answer = judge_message(text, self._load_rules(desk.rows))
        ack = write_ack(answer, desk.around.now(), desk.around.new_id())
        if answer.ack == "AA":
            key = str(len(desk.rows.list(_OUT)) + 1)
            desk.rows.put(_OUT, key, _make_row(key, _normalize(text), answer, desk))
        if not is_json:
            return Response(status=200, body=ack.encode(), headers={"content-type": HL7_TYPE})
        body: dict[str, Json] = {"code": answer.ack, "accepted": answer.ack == "AA", "ack": ack, "control_id": answer.control_id}
        return answer_json(200, {**body, "reason": answer.reason} if answer.reason else body)

    def _load_rules(self, rows: Draft) -> Rules:
        config = rows.get(_CONFIG, "rules")
        return Rules() if config is None else READ_RULES.decode(msgspec.json.encode(config))

    def read_state(self, desk: Desk) -> State:
        """Return the messages that were accepted."""
        return State(hl7=Hl7State(outbound=tuple(row["payload"] for row in desk.rows.list(_OUT).values())))

    def list_tools(self) -> tuple[Tool, ...]:
        """Return what a model can do with the feed."""
        message: dict[str, Json] = {"type": "string", "description": "The message: segments that begin with MSH, one per line."}
        kind: dict[str, Json] = {"type": "string", "description": "Only messages of this type, such as ORU or ADT^A01."}
        return (
            Tool(
                name="hl7_inbox",
                description="List the HL7 messages that have arrived.",
                schema={"type": "object", "properties": {"type": kind}},
                make_request=lambda given: Request(
                    method="GET", path="/inbox", query=(("type", str(given["type"])),) if given.get("type") else ()
                ),
            ),
            Tool(
                name="hl7_send",
                description="Send an HL7 v2 message; the answer is its acknowledgement.",
                schema={"type": "object", "properties": {"payload": message}, "required": ["payload"]},
                make_request=lambda given: Request(
                    method="POST",
                    path="/outbound",
                    headers={"content-type": "application/json"},
                    body=msgspec.json.encode({"payload": given.get("payload", "")}),
                ),
            ),
        )


def _normalize(text: str) -> str:
    """Return a message as stored: segments divided by CR, without framing."""
    lines = (line.strip("\x0b\x1c\ufeff") for line in text.replace("\r\n", "\r").replace("\n", "\r").split("\r"))
    return "".join(f"{line}\r" for line in lines if line.strip())


def _make_row(key: str, text: str, answer: Answer, desk: Desk) -> dict[str, Json]:
    return {"id": key, "type": answer.kind, "control_id": answer.control_id, "payload": text, "at": desk.around.now()}


SIMULATOR = Hl7Simulator()
