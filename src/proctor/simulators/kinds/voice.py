"""Phone lines as text: calls in both directions, in which words are said and keys are pressed.

    POST /calls               `{"to": "+18005550100"}`: call a line, and hear what it says first
    GET  /calls               all calls, also those that ring; `/calls/ID` one of them, with its turns
    POST /calls/ID/answer     answer a call that rings
    POST /calls/ID/turns      `{"say": "..."}` or `{"digits": "1"}`: what the other side says to that
    POST /calls/ID/hangup     end it

`voice/menus.py` tells how a line answers. A seed with bare menus or a bare script has one line, which answers under `phone`, the number
that the credentials of a sandbox name. A scenario lets somebody call: `call_arrives: {from, answers, opening}`. The state are the turns
of all calls, call by call; `agent` is the agent, `caller` whoever is on the other end, also a machine. Keys that were pressed are a turn
with these characters.
"""

from __future__ import annotations

import msgspec

from proctor.codecs.query import encode_percent
from proctor.errors import SpecError
from proctor.model.evidence import Json, State, VoiceState, VoiceTurn
from proctor.model.show import show
from proctor.model.typed import make_json_decoder
from proctor.simulators.bodies import read_object, require_method, split_path, take_text
from proctor.simulators.exchange import Refused, Request, Response, answer_json, refuse
from proctor.simulators.messages.people import fold_address, is_address
from proctor.simulators.persona import read_script
from proctor.simulators.ports import Desk, Tool
from proctor.simulators.rows import Draft
from proctor.simulators.seeds import join_place, read_items, read_members, read_word
from proctor.simulators.voice.menus import START, Menu, Menus, Progress, enter_menu, is_keys, read_menus, take_turn

MOST_TEXT = 10_000
"""Characters of one turn."""
MOST_TURNS = 1_000
"""Turns of one call."""
_CONFIG, _LINES, _PROGRESS = "_config", "_lines", "_progress"
_CALLS = "calls"
_OVER = ("completed", "no-answer")
_PHONE = "+15550100"
"""The number of the sandbox, which is the agent's own, where the seed names none."""
_CALLER = "+15550199"
"""From where an agent calls the number of the sandbox itself."""
_LINE_NAMES = ("ivr", "answers", "opening")
_READ_MENUS = make_json_decoder(Menus)
_READ_PROGRESS = make_json_decoder(Progress)


class VoiceSimulator:
    """Phone lines as text."""

    kind = "voice"
    summary = "Phone lines as text: calls through menus by words and keys, and callers with a script."
    steps = ("call_arrives",)
    open_paths = ()
    config_names = ("phone", "lines", *_LINE_NAMES)
    access = {"voice_url": "{url}/calls", "phone_number": "{phone}"}  # noqa: RUF012 - never changed
    access_defaults = {"phone": _PHONE}  # noqa: RUF012 - never changed

    def seed(self, seed: Json, desk: Desk) -> None:
        """Read `phone`, and `lines`: a `number` each, with `ivr` (menus) or `answers` (a script), `opening`; bare ones are of `phone`."""
        given = read_members(seed, self.config_names)
        if given.get("phone") is not None:
            desk.rows.put(_CONFIG, "phone", _read_number(given["phone"], "phone"))
        bare = {name: given[name] for name in _LINE_NAMES if name in given}
        if bare:
            desk.rows.put(_LINES, fold_address(_find_own(desk.rows)), msgspec.to_builtins(_read_line(bare, "")))
        for at, item in read_items(given.get("lines"), "lines"):
            line = read_members(item, ("number", *_LINE_NAMES), at, required=("number",))
            number = _read_number(line["number"], join_place(at, "number"))
            desk.rows.put(_LINES, fold_address(number), msgspec.to_builtins(_read_line(line, at)))

    def perform(self, step: str, given: Json, desk: Desk) -> None:
        """Let somebody call: `{from, opening, answers}`, or with `ivr` in place of the script."""
        line = read_members(given, ("from", *_LINE_NAMES), required=("from",))
        menus = _read_line(line, "")
        key = f"CA{desk.around.new_id()}"
        desk.rows.put(_LINES, key, msgspec.to_builtins(menus))
        caller = _read_number(line["from"], "from")
        self._keep(_make_call(key, "inbound", _find_own(desk.rows), caller, "ringing", desk), Progress(), desk)

    def handle(self, request: Request, desk: Desk) -> Response:
        """Answer a request."""
        try:
            parts = split_path(request)
            if parts[:1] != [_CALLS] or len(parts) > 3 or (len(parts) == 3 and parts[2] not in ("answer", "turns", "hangup")):
                raise refuse(404, "not_found", "calls are at /calls, /calls/ID and /calls/ID/{answer,turns,hangup}")
            if len(parts) == 1:
                require_method(request, "GET", "HEAD", "POST")
                if request.method == "POST":
                    return self._call(read_object(request), desk)
                return answer_json(200, {_CALLS: list(desk.rows.list(_CALLS).values())})
            call = desk.rows.get(_CALLS, parts[1])
            if call is None:
                raise refuse(404, "not_found", f"there is no call {show(parts[1])}")
            if len(parts) == 2:
                require_method(request, "GET", "HEAD")
                return answer_json(200, call)
            require_method(request, "POST")
            if call["status"] in _OVER:
                raise refuse(409, "call_over", f"the call is over: {call['status']}")
            if parts[2] == "hangup":
                return answer_json(200, self._keep({**call, "status": "completed"}, None, desk))
            return self._answer(call, desk) if parts[2] == "answer" else self._take_turn(call, read_object(request), desk)
        except Refused as refused:
            return refused.response

    def _call(self, given: dict[str, Json], desk: Desk) -> Response:
        to = take_text(given, "to")
        own = _find_own(desk.rows)
        # Nobody calls from the number that is called.
        sender = take_text(given, "from", default="") or (_CALLER if fold_address(own) == fold_address(to) else own)
        for name, number in (("to", to), ("from", sender)):
            if not is_address("sms", number):
                raise refuse(422, "wrong_value", f"{name}: expected a phone number, found {show(number)}")
        key = f"CA{desk.around.new_id()}"
        line = desk.rows.get(_LINES, fold_address(to))
        if line is None:
            # As on a real line: the call is made, and nobody picks up.
            return answer_json(201, self._keep(_make_call(key, "outbound", to, sender, "no-answer", desk), None, desk))
        progress, said = enter_menu(_decode_menus(line), Progress(), START)
        call = _add_turns(_make_call(key, "outbound", to, sender, "in-progress", desk), said, progress)
        return answer_json(201, self._keep(call, progress, desk))

    def _answer(self, call: dict[str, Json], desk: Desk) -> Response:
        if call["status"] != "ringing":
            raise refuse(409, "not_ringing", "the call is answered already")
        progress, said = enter_menu(_decode_menus(_find_line(call, desk.rows)), Progress(), START)
        return answer_json(200, self._keep(_add_turns({**call, "status": "in-progress"}, said, progress), progress, desk))

    def _take_turn(self, call: dict[str, Json], given: dict[str, Json], desk: Desk) -> Response:
        if call["status"] == "ringing":
            raise refuse(409, "not_answered", "the call rings: answer it first")
        text, digits = take_text(given, "say", default="").strip(), take_text(given, "digits", default="").strip()
        if bool(text) == bool(digits) or len(text) > MOST_TEXT or (digits and not is_keys(digits)):
            raise refuse(422, "wrong_value", f"expected say with up to {MOST_TEXT} characters, or digits with keys of a phone")
        if len(call["turns"]) >= MOST_TURNS:
            raise refuse(409, "call_over", f"a call has at most {MOST_TURNS} turns")
        before = _READ_PROGRESS.decode(msgspec.json.encode(desk.rows.get(_PROGRESS, call["id"])))
        menus = _decode_menus(_find_line(call, desk.rows))
        progress, said = take_turn(menus, before, digits or text, is_pressed=bool(digits))
        own: dict[str, Json] = {"speaker": "agent", "text": digits or text, **({"digits": digits} if digits else {})}
        after = _add_turns({**call, "turns": [*call["turns"], own], "collected": progress.collected}, said, progress)
        self._keep(after, progress, desk)
        return answer_json(200, {"id": call["id"], "status": after["status"], "turns": after["turns"][len(call["turns"]) + 1 :]})

    def _keep(self, call: dict[str, Json], progress: Progress | None, desk: Desk) -> dict[str, Json]:
        desk.rows.put(_CALLS, call["id"], call)
        if progress is not None:
            desk.rows.put(_PROGRESS, call["id"], msgspec.to_builtins(progress))
        return call

    def read_state(self, desk: Desk) -> State:
        """Return what was said, call by call."""
        turns = (turn for call in desk.rows.list(_CALLS).values() for turn in call["turns"])
        return State(voice=VoiceState(turns=tuple(VoiceTurn(speaker=turn["speaker"], text=turn["text"]) for turn in turns)))

    def list_tools(self) -> tuple[Tool, ...]:
        """Return what a model can do on the phone."""
        words: dict[str, Json] = {"type": "string"}
        call: dict[str, Json] = {"type": "string", "description": "The id of the call."}
        return (
            _make_tool("voice_call", "Call a phone number; the answer is what is said first.", {"to": words}, ("to",), "/calls"),
            _make_tool("voice_answer", "Answer a call that rings.", {"id": call}, ("id",), "/calls/{id}/answer"),
            _make_tool("voice_say", "Say something on a call.", {"id": call, "say": words}, ("id", "say"), "/calls/{id}/turns"),
            _make_tool("voice_press", "Press keys on a call.", {"id": call, "digits": words}, ("id", "digits"), "/calls/{id}/turns"),
            _make_tool("voice_hang_up", "End a call.", {"id": call}, ("id",), "/calls/{id}/hangup"),
            Tool(
                name="voice_list",
                description="List the calls, also those that ring.",
                schema={"type": "object", "properties": {}},
                make_request=lambda given: Request(method="GET", path="/calls"),
            ),
        )


def _make_tool(name: str, description: str, properties: dict[str, Json], required: tuple[str, ...], path: str) -> Tool:
    def make_request(given: dict[str, Json]) -> Request:
        sent = {key: value for key, value in given.items() if key != "id"}
        return Request(method="POST", path=path.replace("{id}", encode_percent(str(given.get("id", "")))), body=msgspec.json.encode(sent))

    schema: dict[str, Json] = {"type": "object", "properties": properties, "required": list(required)}
    return Tool(name=name, description=description, schema=schema, make_request=make_request)


def _read_line(line: dict[str, Json], at: str) -> Menus:
    if ("ivr" in line) == ("answers" in line):
        raise SpecError("expected ivr or answers, one of them", field=at or None)
    if "ivr" in line:
        return read_menus(line["ivr"], join_place(at, "ivr"))
    opening = read_word(line.get("opening"), join_place(at, "opening"), default="")
    return {START: Menu(say=opening, answers=read_script(line["answers"], join_place(at, "answers")))}


def _read_number(value: Json, at: str, default: str | None = None) -> str:
    number = read_word(value, at, default=default)
    if not is_address("sms", number):
        raise SpecError(f"expected a phone number, found {show(number)}", field=at)
    return number


def _find_own(rows: Draft) -> str:
    return rows.get(_CONFIG, "phone") or _PHONE


def _find_line(call: dict[str, Json], rows: Draft) -> Json:
    return rows.get(_LINES, call["id"] if call["direction"] == "inbound" else fold_address(call["to"]))


def _decode_menus(line: Json) -> Menus:
    return _READ_MENUS.decode(msgspec.json.encode(line))


def _make_call(key: str, direction: str, to: str, sender: str, status: str, desk: Desk) -> dict[str, Json]:
    made: dict[str, Json] = {"id": key, "direction": direction, "to": to, "from": sender, "status": status}
    return {**made, "at": desk.around.now(), "collected": {}, "turns": []}


def _add_turns(call: dict[str, Json], said: list[str], progress: Progress) -> dict[str, Json]:
    turns = [*call["turns"], *({"speaker": "caller", "text": text} for text in said)]
    return {**call, "turns": turns, "status": "completed" if progress.is_over else call["status"]}


SIMULATOR = VoiceSimulator()
