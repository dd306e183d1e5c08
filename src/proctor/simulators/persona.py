"""People on the other end of a phone, a mailbox or a chat, who answer from a script.

A script is a list of lines and rules. After each message the first rule whose words are all in it is used, as often as it fits:
`{when: [tuesday, ten], say: "Yes, that is fine."}`. If none fits, the next unused line follows: a plain text, or `{say: ...}` without
`when`. Case, punctuation and line breaks do not matter. A person without further lines is silent.
"""

from __future__ import annotations

import re

import msgspec

from proctor.model.evidence import Json
from proctor.simulators.seeds import join_place, read_items, read_members, read_word

_WORDS = re.compile(r"\w+")


class Line(msgspec.Struct, frozen=True):
    """A line of a person, and its condition."""

    say: str
    when: tuple[str, ...] = ()


Script = tuple[Line, ...]


def read_script(value: Json, at: str) -> Script:
    """Return the script that a suite writes. Raises `SpecError` for one that cannot be used."""
    return tuple(_read_line(item, place) for place, item in read_items(value, at))


def _read_line(value: Json, at: str) -> Line:
    if isinstance(value, str):
        return Line(read_word(value, at))
    given = read_members(value, ("when", "say"), at, required=("say",))
    place = join_place(at, "when")
    words = [given["when"]] if isinstance(given.get("when"), str) else given.get("when")
    when = tuple(read_word(item, where) for where, item in read_items(words, place))
    return Line(read_word(given["say"], join_place(at, "say")), when)


def find_answer(script: Script, heard: str, answered: int) -> tuple[str | None, int]:
    """Return a person's answer, or None, and how many plain lines are used then; `answered` is how many were used before."""
    words = fold_words(heard)
    for line in script:
        if line.when and all(fold_words(phrase) in words for phrase in line.when):
            return line.say, answered
    plain = [line.say for line in script if not line.when]
    return (plain[answered], answered + 1) if answered < len(plain) else (None, answered)


def fold_words(text: str) -> str:
    """Return the words of a text, each between blanks."""
    return f" {' '.join(_WORDS.findall(text.casefold()))} "
