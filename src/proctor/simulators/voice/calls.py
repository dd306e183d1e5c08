"""Calls and their turns, shared by all APIs of a phone line, and the menus (IVR) that a call passes through.

    start:
      say: Welcome. For benefits press 1 or say benefits.
      options: [{press: '1', hear: benefits, go: member}]      # keys and words that lead on; the first that fits is taken
    member:
      say: Please enter the member id.
      ask: member_id                                           # digits or words are stored under this name
      accepts: ['12345']                                       # left out: everything
      go: result
    result: {say: The coverage is active. Goodbye., hang_up: true}
    person: {say: Member services., answers: [...]}            # from here on a person answers from a script

A line with one menu may be that menu alone, and one that only speaks a text. Unmatched input is answered with `otherwise` of the menu and
the menu again.
"""

from __future__ import annotations

import re

import msgspec

from proctor.codecs.addresses import fold_address
from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.show import nearest, show
from proctor.model.typed import convert_to
from proctor.simulators.persona import Script, find_answer, fold_words
from proctor.simulators.ports import Desk
from proctor.simulators.rows import Draft
from proctor.simulators.seeds import Words, join_place, read_as, read_members

START = "start"
_KEYS = re.compile(r"[0-9*#]{1,64}")
_WORDS = re.compile(r"\w+")


def is_keys(text: str) -> bool:
    """Return whether a text consists of phone keys."""
    return bool(_KEYS.fullmatch(text))


class Option(msgspec.Struct, frozen=True):
    """The target of a key or of some words."""

    go: str
    press: str = ""
    hear: Words = ()

    def __post_init__(self) -> None:
        if self.press and not is_keys(self.press):
            raise SpecError(f"expected keys of a phone, found {show(self.press)}", field="press")
        if not self.press and not self.hear:
            raise SpecError("expected press or hear")


class Menu(msgspec.Struct, frozen=True, kw_only=True):
    """One menu of a line."""

    say: str = ""
    options: tuple[Option, ...] = ()
    ask: str = ""
    accepts: tuple[str, ...] = ()
    go: str = ""
    answers: Script = ()
    hang_up: bool = False
    otherwise: str = "Sorry, I did not get that."

    def __post_init__(self) -> None:
        if self.ask and not self.go:
            raise SpecError("ask needs go: where the call goes on")


Menus = dict[str, Menu]


class Progress(msgspec.Struct, frozen=True):
    """The progress of a call."""

    at: str = START
    said: int = 0
    """The number of used plain lines of a script."""
    collected: dict[str, str] = {}
    is_over: bool = False


def read_menus(value: Json, at: str) -> Menus:
    """Return the menus of a line. Raises `SpecError` for invalid ones, or those with an unknown target."""
    if isinstance(value, str):
        value = {"say": value}
    if isinstance(value, dict) and START not in value and value and all(name in Menu.__struct_fields__ for name in value):
        value = {START: value}
    members = read_members(value, value if isinstance(value, dict) else (), at, required=(START,))
    menus = {name: read_as(Menu, item, join_place(at, name)) for name, item in members.items()}
    for name, menu in menus.items():
        for go in (*(option.go for option in menu.options), *((menu.go,) if menu.go else ())):
            if go not in menus:
                raise SpecError(f"there is no menu {show(go)}", field=join_place(at, name), nearest=nearest(go, menus))
    return menus


def enter_menu(menus: Menus, progress: Progress, name: str) -> tuple[Progress, list[str]]:
    """Return the progress of a call that enters a menu, and the menu's text."""
    menu = menus[name]
    moved = msgspec.structs.replace(progress, at=name, said=0, is_over=menu.hang_up)
    return moved, [menu.say] if menu.say else []


def take_turn(menus: Menus, progress: Progress, text: str, *, is_pressed: bool) -> tuple[Progress, list[str]]:
    """Return the progress of a call after speech or keys, and the reply."""
    menu = menus[progress.at]
    for option in menu.options:
        if option.press == text if is_pressed else any(fold_words(phrase) in fold_words(text) for phrase in option.hear):
            return enter_menu(menus, progress, option.go)
    if menu.ask:
        value = text.rstrip("#") if is_pressed else text.strip()
        if not menu.accepts or _squeeze(value) in map(_squeeze, menu.accepts):
            moved = msgspec.structs.replace(progress, collected={**progress.collected, menu.ask: value})
            return enter_menu(menus, moved, menu.go)
    if menu.answers and not is_pressed:
        answer, lines_used = find_answer(menu.answers, text, progress.said)
        return msgspec.structs.replace(progress, said=lines_used), [] if answer is None else [answer]
    return progress, [part for part in (menu.otherwise, menu.say) if part]


def _squeeze(text: str) -> str:
    """Return a text without separators between digits and letters."""
    return "".join(_WORDS.findall(text.casefold()))


CALLS, LINES = "calls", "_lines"
OVER = ("completed", "no-answer", "failed", "canceled")
MOST_TEXT = 10_000
"""Characters of one turn."""
MOST_TURNS = 1_000
"""Turns of one call."""
_CONFIG, _PROGRESS = "_config", "_progress"
_PHONE = "phone"
OWN_PHONE = "+15550100"
"""The agent's default number."""


def set_own_number(number: str, rows: Draft) -> None:
    """Store the phone number of the agent."""
    rows.put(_CONFIG, _PHONE, number)


def find_own_number(rows: Draft) -> str:
    """Return the phone number of the agent."""
    return rows.get(_CONFIG, _PHONE) or OWN_PHONE


def add_line(key: str, menus: Menus, rows: Draft) -> None:
    """Store how a line answers: under its number, or under the id of an incoming call."""
    rows.put(LINES, key, msgspec.to_builtins(menus))


def make_call(direction: str, to: str, sender: str, status: str, desk: Desk, *, key: str = "") -> dict[str, Json]:
    """Return a new call."""
    call: dict[str, Json] = {"id": key or f"CA{desk.around.new_id()}", "direction": direction, "to": to, "from": sender, "status": status}
    return {**call, "at": desk.around.now(), "collected": {}, "turns": []}


def keep_call(call: dict[str, Json], desk: Desk, progress: Progress | None = None) -> dict[str, Json]:
    """Store a call and its progress."""
    desk.rows.put(CALLS, call["id"], call)
    if progress is not None:
        desk.rows.put(_PROGRESS, call["id"], msgspec.to_builtins(progress))
    return call


def has_line(call: dict[str, Json], rows: Draft) -> bool:
    """Return whether the other end is connected."""
    return rows.get(LINES, _name_line(call)) is not None


def begin_talk(call: dict[str, Json], desk: Desk) -> dict[str, Json]:
    """Connect the call and let the other end speak first; return the stored call."""
    progress, texts = enter_menu(_load_menus(call, desk.rows), Progress(), START)
    return keep_call(_add_turns({**call, "status": "in-progress"}, texts, progress), desk, progress)


def take_part(call: dict[str, Json], text: str, desk: Desk, *, is_pressed: bool) -> dict[str, Json]:
    """Add the agent's speech or keys and the answer of the other end; return the stored call."""
    progress_before = desk.rows.load(_PROGRESS, call["id"], Progress) or Progress()
    progress, texts = take_turn(_load_menus(call, desk.rows), progress_before, text, is_pressed=is_pressed)
    agent_turn: dict[str, Json] = {"speaker": "agent", "text": text, **({"digits": text} if is_pressed else {})}
    after = _add_turns({**call, "turns": [*call["turns"], agent_turn], "collected": progress.collected}, texts, progress)
    return keep_call(after, desk, progress)


def _name_line(call: dict[str, Json]) -> str:
    return call["id"] if call["direction"] == "inbound" else fold_address(call["to"])


def _load_menus(call: dict[str, Json], rows: Draft) -> Menus:
    return convert_to(rows.get(LINES, _name_line(call)), Menus)


def _add_turns(call: dict[str, Json], texts: list[str], progress: Progress) -> dict[str, Json]:
    turns = [*call["turns"], *({"speaker": "caller", "text": text} for text in texts)]
    return {**call, "turns": turns, "status": "completed" if progress.is_over else call["status"]}
