"""Short messages, e-mails and chats, with people who answer from a script.

    POST /messages        `{"channel": "sms", "to": "+15550101", "body": "..."}`; `patient_id` instead of `to`, `subject` for an e-mail
    GET  /messages        all of them, filtered by `patient_id`, `channel`, `direction`, `to` and `from`
    GET  /messages/ID     one of them

`/` does the same as `/messages`. The SDKs of Twilio (`simulators/twilio.py`) and Telnyx work with another base address; their key is
the token of the sandbox:

    POST /v2/messages     of Telnyx: `{"from": "+1555...", "to": "+1555...", "text": "..."}`
    GET  /v2/messages/ID  one of them

A recipient answers at once if the script has a line (`persona.py`); the answer is a message with the direction `inbound`. The state
consists of all messages, sent and received.
"""

from __future__ import annotations

import msgspec

from proctor.codecs.addresses import fold_address
from proctor.codecs.http import encode_percent
from proctor.errors import SpecError
from proctor.model.evidence import Json, MessagesState, State
from proctor.model.show import show
from proctor.simulators import exchange
from proctor.simulators.persona import CHANNELS, Book, find_answer, is_address, join_books
from proctor.simulators.ports import Desk, Simulator, Tool
from proctor.simulators.rows import Draft
from proctor.simulators.seeds import NotHeld, read_as, read_items, read_members, read_word
from proctor.simulators.tools import make_tool
from proctor.simulators.twilio import VERSION, make_page, refuse_twilio, show_twilio

MOST_TEXT = 100_000
"""Characters of one message."""
_CONFIG, _ANSWERED = "_config", "_said"
_MESSAGES = "messages"
_ARRIVING = ("channel", "from", "patient_id", "subject", "text")


class MessagesSimulator(Simulator):
    """Short messages, e-mails and chats."""

    kind = "messages"
    summary = "Short messages, e-mails and chats, with people who answer from a script; also in the shapes of Twilio and Telnyx."
    steps = ("message_arrives",)
    config_names = ("phone", "email", "people", "answers", "inbox")
    access = {"messages_url": "{url}"}  # noqa: RUF012 - never changed

    def seed(self, seed: Json, desk: Desk) -> None:
        """Read `phone` and `email` of the agent, `people` with their `answers`, default `answers`, and `inbox`."""
        members = read_members(seed, self.config_names)
        given = {name: members[name] for name in Book.__struct_fields__ if members.get(name) is not None}
        book = join_books(_load_book(desk.rows), read_as(Book, given), given)
        desk.rows.put(_CONFIG, "book", msgspec.to_builtins(book))
        for at, item in read_items(members.get("inbox"), "inbox"):
            self._arrive(item, at, desk)

    def perform(self, step: str, content: Json, desk: Desk) -> None:
        """Let a message arrive: `{channel, from, text}`, with `patient_id` instead of `from` for a known person."""
        self._arrive(content, "", desk)

    def _arrive(self, value: Json, at: str, desk: Desk) -> None:
        members = read_members(value, _ARRIVING, at, required=("text",))
        place = f"{at}." if at else ""
        channel = read_word(members.get("channel"), f"{place}channel", default="sms", among=CHANNELS)
        book = _load_book(desk.rows)
        try:
            address, person = _find_address({**members, "to": members.get("from")}, channel, book)
        except exchange.Refused as refused:
            why = NotHeld if exchange.is_code(refused, "unknown_patient") else SpecError
            raise why(exchange.refusal_message(refused), field=f"{place}{'patient_id' if 'patient_id' in members else 'from'}") from None
        _keep(
            desk,
            channel=channel,
            direction="inbound",
            to=book.find_sender(channel),
            sender=address,
            subject=read_word(members.get("subject"), f"{place}subject", default=""),
            text=read_word(members["text"], f"{place}text"),
            patient_id=person,
        )

    def answer(self, request: exchange.Request, desk: Desk) -> exchange.Response:
        """Answer a request. Raises `Refused`."""
        parts = exchange.split_path(request)
        if parts[:1] == [VERSION]:
            return self._handle_twilio(parts[1:], request, desk)
        if parts[:2] == [TELNYX_VERSION, _MESSAGES]:
            return self._handle_telnyx(parts[2:], request, desk)
        names = parts[1:] if parts[:1] == [_MESSAGES] else parts
        if len(names) > 1:
            raise exchange.refuse(404, "not_found", "messages are at /messages and /messages/ID")
        exchange.require_method(request, "GET", "HEAD", *(() if names else ("POST",)))
        if names:
            return exchange.answer_json(200, _show(_find_row(names[0], desk.rows)))
        if request.method != "POST":
            chosen = _choose(desk.rows, dict(request.query))
            return exchange.answer_json(200, {_MESSAGES: [_show(row) for row in chosen], "total": len(chosen)})
        row = self._send(exchange.read_object(request), desk)
        return exchange.answer_json(201, _show(row), headers={"location": f"{request.base}/messages/{encode_percent(row['id'])}"})

    def _send(self, members: dict[str, Json], desk: Desk) -> dict[str, Json]:
        """Send a message, and add the recipient's answer."""
        book = _load_book(desk.rows)
        channel = exchange.take_text(members, "channel", default="sms")
        if channel not in CHANNELS:
            raise exchange.refuse(422, "wrong_value", f"channel: expected one of {', '.join(CHANNELS)}, found {show(channel)}")
        text = exchange.take_text(members, "body", default="") or exchange.take_text(members, "text", default="")
        if not text.strip() or len(text) > MOST_TEXT:
            raise exchange.refuse(422, "wrong_value", f"body: expected text of up to {MOST_TEXT} characters")
        to, patient_id = _find_address(members, channel, book)
        sender = exchange.take_text(members, "from", default="") or book.find_sender(channel)
        if not is_address(channel, sender):
            raise exchange.refuse(422, "wrong_value", f"from: no address for {channel}: {show(sender)}")
        subject = exchange.take_text(members, "subject", default="")
        row = _keep(desk, channel=channel, direction="outbound", to=to, sender=sender, subject=subject, text=text, patient_id=patient_id)
        person = book.find_reached(row["channel"], row["to"])
        script = person.answers if person is not None and person.answers else book.answers
        # Each person has their own position in the script.
        key = fold_address(row["to"])
        before = desk.rows.get(_ANSWERED, key) or 0
        answer, answered = find_answer(script, f"{row['subject']} {row['text']}", before)
        if answered != before:
            desk.rows.put(_ANSWERED, key, answered)
        if answer is not None:
            _keep(
                desk,
                channel=row["channel"],
                direction="inbound",
                to=row["from"],
                sender=row["to"],
                subject=f"Re: {row['subject']}" if row["subject"] else "",
                text=answer,
                patient_id=row["patient_id"],
                by_other=True,
            )
        return row

    def _handle_twilio(self, parts: list[str], request: exchange.Request, desk: Desk) -> exchange.Response:
        # Accounts/SID/Messages.json or Accounts/SID/Messages/ID.json
        if len(parts) not in (3, 4) or parts[0] != "Accounts" or not parts[2].startswith("Messages") or not parts[-1].endswith(".json"):
            raise refuse_twilio(404, 20404, f"The requested resource {request.path} was not found")
        account = parts[1]
        if len(parts) == 4:
            row = desk.rows.get(_MESSAGES, parts[3].removesuffix(".json"))
            if row is None or row["channel"] != "sms":
                raise refuse_twilio(404, 20404, f"The requested resource {request.path} was not found")
            if request.method not in ("GET", "HEAD"):
                raise refuse_twilio(405, 20004, "Method not allowed")
            return exchange.answer_json(200, show_twilio(row, account))
        if request.method in ("GET", "HEAD"):
            filters = {name.lower(): value for name, value in request.query if name in ("To", "From")}
            chosen = _choose(desk.rows, {**filters, "channel": "sms"})
            return exchange.answer_json(200, make_page("Messages", [show_twilio(row, account) for row in chosen], account))
        if request.method != "POST":
            raise refuse_twilio(405, 20004, "Method not allowed")
        form = exchange.read_form(request)
        if not is_address("sms", form.get("To", "")):
            raise refuse_twilio(400, 21211, f"Invalid 'To' Phone Number: {form.get('To', '')[:40]}")
        if form.get("From") and not is_address("sms", form["From"]):
            raise refuse_twilio(400, 21212, f"Invalid From Number: {form['From'][:40]}")
        if not form.get("Body", "").strip():
            raise refuse_twilio(400, 21602, "Message body is required.")
        if len(form["Body"]) > 1_600:
            raise refuse_twilio(400, 21617, "The concatenated message body exceeds the 1600 character limit.")
        row = self._send({"channel": "sms", "to": form["To"], "from": form.get("From", ""), "body": form["Body"]}, desk)
        return exchange.answer_json(201, show_twilio(row, account, status="queued"))

    def _handle_telnyx(self, names: list[str], request: exchange.Request, desk: Desk) -> exchange.Response:
        try:
            if len(names) == 1:
                exchange.require_method(request, "GET", "HEAD")
                return exchange.answer_json(200, show_telnyx(_find_row(names[0], desk.rows)))
            if names:
                raise exchange.refuse(404, "not_found", "messages are at /v2/messages and /v2/messages/ID")
            exchange.require_method(request, "POST")
            body = exchange.read_object(request)
            to = body.get("to")
            first = to[0] if isinstance(to, list) and len(to) == 1 else to
            row = self._send({"channel": "sms", "to": first, "from": body.get("from", ""), "body": body.get("text", "")}, desk)
            return exchange.answer_json(200, show_telnyx(row, status="queued"))
        except exchange.Refused as refused:
            code, title = _CODES.get(refused.response.status, _OTHER_CODE)
            return exchange.answer_json(
                refused.response.status, {"errors": [{"code": code, "title": title, "detail": exchange.refusal_message(refused)}]}
            )

    def read_state(self, desk: Desk) -> State:
        """Return all messages, sent and received."""
        return State(messages=MessagesState(messages=tuple(desk.rows.list(_MESSAGES).values())))

    def list_tools(self) -> tuple[Tool, ...]:
        """Return the tools for messages."""
        channel: dict[str, Json] = {"enum": list(CHANNELS)}
        words: dict[str, Json] = {"type": "string"}
        to: dict[str, Json] = {"type": "string", "description": "The phone number, the e-mail address, or the name in the chat."}
        properties = {"channel": channel, "to": to, "patient_id": words, "subject": words, "body": words}
        chosen: dict[str, Json] = {"channel": channel, "patient_id": words, "direction": {"enum": ["inbound", "outbound"]}}
        return (
            make_tool(
                "messages_send",
                "Send a short message, an e-mail or a chat message.",
                properties,
                ("channel", "body"),
                request="POST /messages",
            ),
            make_tool("messages_list", "List messages that were sent and received.", chosen, request="GET /messages"),
        )


def _find_address(members: dict[str, Json], channel: str, book: Book) -> tuple[str, str]:
    """Return the address of a message, and the id of the recipient, if known."""
    patient_id = exchange.take_text(members, "patient_id", default="")
    to = exchange.take_text(members, "to", default="")
    if not to:
        if not patient_id:
            raise exchange.refuse(422, "wrong_value", "expected to or patient_id")
        person = book.find_person(patient_id)
        if person is None or not person.find_address(channel):
            why = "there is no person" if person is None else f"{channel} does not reach"
            raise exchange.refuse(422, "unknown_patient", f"{why} {show(patient_id)}")
        return person.find_address(channel), person.id
    if not is_address(channel, to):
        raise exchange.refuse(422, "wrong_value", f"no address for {channel}: {show(to)}")
    reached = book.find_reached(channel, to)
    return to.strip(), patient_id or (reached.id if reached is not None else "")


def _keep(desk: Desk, *, sender: str, by_other: bool = False, **fields: str) -> dict[str, Json]:
    now = desk.around.now()
    stamps = {"status": "delivered", "sent_at": now, "delivered_at": now}
    row: dict[str, Json] = {"id": f"SM{desk.around.new_id()}", **fields, "from": sender, **stamps}
    desk.rows.put(_MESSAGES, row["id"], row, by_other=by_other)
    return row


def _show(row: dict[str, Json]) -> dict[str, Json]:
    return {**row, "body": row["text"], "patient_id": row["patient_id"] or None}


def _find_row(id: str, rows: Draft) -> dict[str, Json]:
    if (row := rows.get(_MESSAGES, id)) is None:
        raise exchange.refuse(404, "not_found", f"there is no message {show(id)}")
    return row


def _choose(rows: Draft, filters: dict[str, str]) -> list[dict[str, Json]]:
    chosen = {name: filters[name] for name in ("patient_id", "channel", "direction", "to", "from") if name in filters}
    return [
        row
        for row in rows.list(_MESSAGES).values()
        if all(fold_address(row[name]) == fold_address(value) for name, value in chosen.items())
    ]


def _load_book(rows: Draft) -> Book:
    return rows.load(_CONFIG, "book", Book) or Book()


SIMULATOR = MessagesSimulator()


TELNYX_VERSION = "v2"
_CODES = {400: ("10015", "Bad Request"), 404: ("10005", "Resource not found"), 405: ("10007", "Method not allowed")}
_OTHER_CODE = ("10015", "Bad Request")


def show_telnyx(row: dict[str, Json], *, status: str = "delivered") -> dict[str, Json]:
    """Return a message as Telnyx shows it."""
    inbound = row["direction"] == "inbound"
    return {
        "data": {
            "record_type": "message",
            "id": row["id"],
            "direction": row["direction"],
            "type": "SMS",
            "from": {"phone_number": row["from"], "carrier": "", "line_type": ""},
            "to": [{"phone_number": row["to"], "status": "delivered" if inbound else status, "carrier": "", "line_type": ""}],
            "text": row["text"],
            "media": [],
            "tags": [],
            "encoding": "GSM-7",
            "parts": max(1, -(-len(row["text"]) // 153)),
            "received_at": row["sent_at"],
            "sent_at": row["sent_at"],
            "errors": [],
        }
    }
