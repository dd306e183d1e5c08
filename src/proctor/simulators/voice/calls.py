"""Calls and their turns: the rows that all APIs of a phone line share."""

from __future__ import annotations

import msgspec

from proctor.codecs.addresses import fold_address
from proctor.model.evidence import Json
from proctor.model.typed import make_json_decoder
from proctor.simulators.ports import Desk
from proctor.simulators.rows import Draft
from proctor.simulators.voice.menus import START, Menus, Progress, enter_menu, take_turn

CALLS, LINES = "calls", "_lines"
OVER = ("completed", "no-answer", "failed", "canceled")
MOST_TEXT = 10_000
"""Characters of one turn."""
MOST_TURNS = 1_000
"""Turns of one call."""
_CONFIG, _PROGRESS = "_config", "_progress"
_PHONE = "phone"
OWN_PHONE = "+15550100"
"""The agent's own, where the seed names none."""
_READ_MENUS = make_json_decoder(Menus)
_READ_PROGRESS = make_json_decoder(Progress)


def set_own_number(number: str, rows: Draft) -> None:
    """Keep the phone number of the agent."""
    rows.put(_CONFIG, _PHONE, number)


def find_own_number(rows: Draft) -> str:
    """Return the phone number of the agent."""
    return rows.get(_CONFIG, _PHONE) or OWN_PHONE


def add_line(key: str, menus: Menus, rows: Draft) -> None:
    """Keep how a line answers: under its number, or under the id of a call that arrives."""
    rows.put(LINES, key, msgspec.to_builtins(menus))


def make_call(direction: str, to: str, sender: str, status: str, desk: Desk, *, key: str = "") -> dict[str, Json]:
    """Return a new call."""
    made: dict[str, Json] = {"id": key or f"CA{desk.around.new_id()}", "direction": direction, "to": to, "from": sender, "status": status}
    return {**made, "at": desk.around.now(), "collected": {}, "turns": []}


def keep_call(call: dict[str, Json], desk: Desk, progress: Progress | None = None) -> dict[str, Json]:
    """Keep a call, and how far it has come."""
    desk.rows.put(CALLS, call["id"], call)
    if progress is not None:
        desk.rows.put(_PROGRESS, call["id"], msgspec.to_builtins(progress))
    return call


def has_line(call: dict[str, Json], rows: Draft) -> bool:
    """Return whether the other end is connected."""
    return _find_line(call, rows) is not None


def begin_talk(call: dict[str, Json], desk: Desk) -> dict[str, Json]:
    """Let the other end pick up and speak first; returns the stored call."""
    progress, texts = enter_menu(_decode_menus(_find_line(call, desk.rows)), Progress(), START)
    return keep_call(_add_turns({**call, "status": "in-progress"}, texts, progress), desk, progress)


def take_part(call: dict[str, Json], text: str, desk: Desk, *, is_pressed: bool) -> dict[str, Json]:
    """Add the agent's speech or keys and the answer of the other end; returns the stored call."""
    before = _READ_PROGRESS.decode(msgspec.json.encode(desk.rows.get(_PROGRESS, call["id"])))
    progress, texts = take_turn(_decode_menus(_find_line(call, desk.rows)), before, text, is_pressed=is_pressed)
    own: dict[str, Json] = {"speaker": "agent", "text": text, **({"digits": text} if is_pressed else {})}
    after = _add_turns({**call, "turns": [*call["turns"], own], "collected": progress.collected}, texts, progress)
    return keep_call(after, desk, progress)


def _find_line(call: dict[str, Json], rows: Draft) -> Json:
    return rows.get(LINES, call["id"] if call["direction"] == "inbound" else fold_address(call["to"]))


def _decode_menus(line: Json) -> Menus:
    return _READ_MENUS.decode(msgspec.json.encode(line))


def _add_turns(call: dict[str, Json], texts: list[str], progress: Progress) -> dict[str, Json]:
    turns = [*call["turns"], *({"speaker": "caller", "text": text} for text in texts)]
    return {**call, "turns": turns, "status": "completed" if progress.is_over else call["status"]}
