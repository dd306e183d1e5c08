"""Phone lines as text: calls in both directions, with speech and pressed keys.

    POST /calls               `{"to": "+18005550100"}`: call a line, and get its first words
    GET  /calls               all calls, also those that ring; `/calls/ID` one of them, with its turns
    POST /calls/ID/answer     answer a call that rings
    POST /calls/ID/turns      `{"say": "..."}` or `{"digits": "1"}`: answered with the reply of the other side
    POST /calls/ID/hangup     end it

`simulators/voice/calls.py` defines how a line answers. A seed with bare menus or a bare script has one line, which answers under `phone`,
the number in the credentials of a sandbox. A scenario makes a call arrive: `call_arrives: {from, answers, opening}`. The state are
the turns of all calls, call by call; the speakers are `agent` and `caller`, the other end, also a machine. Pressed keys are a turn with
these characters.

The SDKs of Twilio are answered at `/2010-04-01/Accounts/SID/Calls.json` and `.../Calls/ID.json`: a call with `Url` (or `Twiml`) is led
by the agent's webhooks. Each gets a signed form, answers TwiML (`Say`, `Gather`, `Play digits`, `Pause`, `Redirect`, `Hangup`, `Reject`),
and gets what was heard as `SpeechResult` or `Digits`; `StatusCallback` gets `initiated`, `ringing`, `answered` and `completed`. Requests
and answers are events with the method `WEBHOOK`.
"""

from __future__ import annotations

import msgspec

from proctor.codecs.addresses import fold_address
from proctor.errors import SpecError
from proctor.model.evidence import Json, State, VoiceState, VoiceTurn
from proctor.model.show import show
from proctor.simulators import exchange
from proctor.simulators.persona import Script, is_address, read_number
from proctor.simulators.ports import Desk, Simulator, Tool
from proctor.simulators.seeds import join_place, read_as, read_items, read_members, read_word, refuse_doubles
from proctor.simulators.tools import make_tool
from proctor.simulators.twilio import VERSION, handle_twilio
from proctor.simulators.voice.calls import (
    CALLS,
    MOST_TEXT,
    MOST_TURNS,
    OVER,
    OWN_PHONE,
    START,
    Menu,
    Menus,
    add_line,
    begin_talk,
    find_own_number,
    has_line,
    is_keys,
    keep_call,
    make_call,
    read_menus,
    set_own_number,
    take_part,
)
from proctor.simulators.voice.webhooks import drop_webhooks, end_call, find_talk, go_on, keep_talk

_CALLER = "+15550199"
"""The caller's number if an agent calls the number of the sandbox."""
_LINE_NAMES = ("ivr", "answers", "opening")


class VoiceSimulator(Simulator):
    """Phone lines as text."""

    kind = "voice"
    summary = (
        "Phone lines as text: calls through menus by words and keys, and callers with a script; also in the shape of Twilio, with webhooks."
    )
    steps = ("call_arrives",)
    config_names = ("phone", "lines", *_LINE_NAMES)
    access = {"voice_url": "{url}/calls", "phone_number": "{phone}"}  # noqa: RUF012 - never changed
    access_defaults = {"phone": OWN_PHONE}  # noqa: RUF012 - never changed

    def seed(self, seed: Json, desk: Desk) -> None:
        """Read `phone`, and `lines`: each a `number` with `ivr` (menus) or `answers` (a script), `opening`; bare ones belong to `phone`."""
        members = read_members(seed, self.config_names)
        if members.get("phone") is not None:
            set_own_number(read_number(members["phone"], "phone", "phone"), desk.rows)
        bare = {name: members[name] for name in _LINE_NAMES if name in members}
        if bare:
            add_line(fold_address(find_own_number(desk.rows)), _read_line(bare, ""), desk.rows)
        numbers = [("phone", fold_address(find_own_number(desk.rows)))] if bare else []
        for at, item in read_items(members.get("lines"), "lines"):
            line = read_members(item, ("number", *_LINE_NAMES), at, required=("number",))
            numbers.append((f"{at}.number", fold_address(read_number(line["number"], join_place(at, "number"), "phone"))))
            add_line(numbers[-1][1], _read_line(line, at), desk.rows)
        refuse_doubles(numbers, "the number")

    def perform(self, step: str, content: Json, desk: Desk) -> None:
        """Let a call arrive: `{from, opening, answers}`, or with `ivr` instead of the script."""
        line = read_members(content, ("from", *_LINE_NAMES), required=("from",))
        menus = _read_line(line, "")
        call = make_call("inbound", find_own_number(desk.rows), read_number(line["from"], "from", "phone"), "ringing", desk)
        add_line(call["id"], menus, desk.rows)
        keep_call(call, desk)

    def answer(self, request: exchange.Request, desk: Desk) -> exchange.Response:
        """Answer a request. Raises `Refused`."""
        parts = exchange.split_path(request)
        if request.method == exchange.GO_ON and parts[:1] == [CALLS] and len(parts) == 3:
            return go_on(parts[1], parts[2], request, desk)
        return handle_twilio(parts[1:], request, desk) if parts[:1] == [VERSION] else self._handle_plain(parts, request, desk)

    def _handle_plain(self, parts: list[str], request: exchange.Request, desk: Desk) -> exchange.Response:
        if parts[:1] != [CALLS] or len(parts) > 3 or (len(parts) == 3 and parts[2] not in ("answer", "turns", "hangup")):
            raise exchange.refuse(404, "not_found", "calls are at /calls, /calls/ID and /calls/ID/{answer,turns,hangup}")
        if len(parts) == 1:
            exchange.require_method(request, "GET", "HEAD", "POST")
            if request.method == "POST":
                return self._call(exchange.read_object(request), desk)
            return exchange.answer_json(200, {CALLS: list(desk.rows.list(CALLS).values())})
        if (call := desk.rows.get(CALLS, parts[1])) is None:
            raise exchange.refuse(404, "not_found", f"there is no call {show(parts[1])}")
        if len(parts) == 2:
            exchange.require_method(request, "GET", "HEAD")
            return exchange.answer_json(200, call)
        exchange.require_method(request, "POST")
        if call["status"] in OVER:
            raise exchange.refuse(409, "call_over", f"the call is over: {call['status']}")
        if parts[2] == "hangup":
            if (talk := find_talk(call["id"], desk.rows)) is None:
                return exchange.answer_json(200, keep_call({**call, "status": "completed"}, desk))
            over, talk = end_call(call, drop_webhooks(talk), "completed", desk)
            return msgspec.structs.replace(exchange.answer_json(200, over), then=keep_talk(over, talk, desk))
        if find_talk(call["id"], desk.rows) is not None:
            raise exchange.refuse(409, "led_by_webhooks", "webhooks lead this call: answer with TwiML, or hang up")
        return self._answer(call, desk) if parts[2] == "answer" else self._take_turn(call, exchange.read_object(request), desk)

    def _call(self, body: dict[str, Json], desk: Desk) -> exchange.Response:
        to = exchange.take_text(body, "to")
        own_number = find_own_number(desk.rows)
        # A line does not call itself.
        sender = exchange.take_text(body, "from", default="") or (_CALLER if fold_address(own_number) == fold_address(to) else own_number)
        for name, number in (("to", to), ("from", sender)):
            if not is_address("sms", number):
                raise exchange.refuse(422, "wrong_value", f"{name}: expected a phone number, found {show(number)}")
        call = make_call("outbound", to, sender, "no-answer", desk)
        # As on a real line: a call to an unknown number is placed, but not answered.
        return exchange.answer_json(201, begin_talk(call, desk) if has_line(call, desk.rows) else keep_call(call, desk))

    def _answer(self, call: dict[str, Json], desk: Desk) -> exchange.Response:
        if call["status"] != "ringing":
            raise exchange.refuse(409, "not_ringing", "the call is answered already")
        return exchange.answer_json(200, begin_talk(call, desk))

    def _take_turn(self, call: dict[str, Json], body: dict[str, Json], desk: Desk) -> exchange.Response:
        if call["status"] == "ringing":
            raise exchange.refuse(409, "not_answered", "the call rings: answer it first")
        text, digits = exchange.take_text(body, "say", default="").strip(), exchange.take_text(body, "digits", default="").strip()
        if bool(text) == bool(digits) or len(text) > MOST_TEXT or (digits and not is_keys(digits)):
            raise exchange.refuse(422, "wrong_value", f"expected say with up to {MOST_TEXT} characters, or digits with keys of a phone")
        if len(call["turns"]) >= MOST_TURNS:
            raise exchange.refuse(409, "call_over", f"a call has at most {MOST_TURNS} turns")
        answered = take_part(call, digits or text, desk, is_pressed=bool(digits))
        return exchange.answer_json(
            200, {"id": call["id"], "status": answered["status"], "turns": answered["turns"][len(call["turns"]) + 1 :]}
        )

    def read_state(self, desk: Desk) -> State:
        """Return the turns, call by call."""
        turns = tuple(
            VoiceTurn(speaker=turn["speaker"], text=turn["text"], call=call["id"], to=call["to"], sender=call["from"])
            for call in desk.rows.list(CALLS).values()
            for turn in call["turns"]
        )
        return State(voice=VoiceState(turns=turns))

    def list_tools(self) -> tuple[Tool, ...]:
        """Return the tools for the phone."""
        words: dict[str, Json] = {"type": "string"}
        call: dict[str, Json] = {"type": "string", "description": "The id of the call."}
        speech, keys = {"id": call, "say": words}, {"id": call, "digits": words}
        first = "Call a phone number; the answer is the first words of the line."
        return (
            make_tool("voice_call", first, {"to": words}, ("to",), request="POST /calls"),
            make_tool("voice_answer", "Answer a call that rings.", {"id": call}, ("id",), request="POST /calls/{id}/answer"),
            make_tool("voice_say", "Say something on a call.", speech, ("id", "say"), request="POST /calls/{id}/turns"),
            make_tool("voice_press", "Press keys on a call.", keys, ("id", "digits"), request="POST /calls/{id}/turns"),
            make_tool("voice_hang_up", "End a call.", {"id": call}, ("id",), request="POST /calls/{id}/hangup"),
            make_tool("voice_list", "List the calls, also those that ring.", {}, request="GET /calls"),
        )


def _read_line(line: dict[str, Json], at: str) -> Menus:
    if ("ivr" in line) == ("answers" in line):
        raise SpecError("expected ivr or answers, one of them", field=at or None)
    if "ivr" in line:
        return read_menus(line["ivr"], join_place(at, "ivr"))
    opening = read_word(line.get("opening"), join_place(at, "opening"), default="")
    return {START: Menu(say=opening, answers=read_as(Script, line["answers"], join_place(at, "answers")))}


SIMULATOR = VoiceSimulator()
