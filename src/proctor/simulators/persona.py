"""People on the phone, by mail or in a chat: their addresses, and the scripts from which they answer.

A script is a list of lines and rules. After each message the first rule whose words are all in it is used, as often as it fits:
`{when: [tuesday, ten], say: "Yes, that is fine."}`. If none fits, the next unused line follows: a plain text, or `{say: ...}` without
`when`. Case, punctuation and line breaks do not matter. A person without further lines is silent.
"""

from __future__ import annotations

import re

import msgspec

from proctor.codecs.addresses import PHONE, fold_address
from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.show import show
from proctor.model.typed import make_json_decoder
from proctor.simulators.seeds import join_place, read_items, read_members, read_word, refuse_doubles

_WORDS = re.compile(r"\w+")


class Line(msgspec.Struct, frozen=True):
    """A line of a person, and its condition."""

    say: str
    when: tuple[str, ...] = ()


Script = tuple[Line, ...]


def read_script(value: Json, at: str) -> Script:
    """Read the script of a suite. Raises `SpecError` for an invalid one."""
    return tuple(_read_line(item, place) for place, item in read_items(value, at))


def _read_line(value: Json, at: str) -> Line:
    if isinstance(value, str):
        return Line(read_word(value, at))
    members = read_members(value, ("when", "say"), at, required=("say",))
    place = join_place(at, "when")
    words = [members["when"]] if isinstance(members.get("when"), str) else members.get("when")
    when = tuple(read_word(item, where) for where, item in read_items(words, place))
    return Line(read_word(members["say"], join_place(at, "say")), when)


def find_answer(script: Script, heard: str, answered: int) -> tuple[str | None, int]:
    """Return a person's answer, or None, and how many plain lines are used then; `answered` is how many were used before."""
    words = fold_words(heard)
    for line in script:
        if line.when and all(fold_words(phrase) in words for phrase in line.when):
            return line.say, answered
    plain = [line.say for line in script if not line.when]
    return (plain[answered], answered + 1) if answered < len(plain) else (None, answered)


def fold_words(text: str) -> str:
    """Return the words of a text, each surrounded by blanks."""
    return f" {' '.join(_WORDS.findall(text.casefold()))} "


CHANNELS = ("sms", "email", "chat")
_EMAIL = re.compile(r"[^@\s,;<>]{1,64}@[^@\s,;<>]{1,255}")


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """A person who can be reached."""

    id: str
    phone: str = ""
    email: str = ""
    answers: Script = ()

    def find_address(self, channel: str) -> str:
        """Return the person's address for a channel; chats use the id."""
        return {"sms": self.phone, "email": self.email, "chat": self.id}[channel]


class Book(msgspec.Struct, frozen=True, kw_only=True):
    """The address book of a message system."""

    phone: str = "+15550100"
    email: str = "agent@example.com"
    people: tuple[Person, ...] = ()
    answers: Script = ()
    """The default script of people."""

    def find_sender(self, channel: str) -> str:
        """Return the agent's own address."""
        return {"sms": self.phone, "email": self.email, "chat": "agent"}[channel]

    def find_person(self, id: str) -> Person | None:
        """Return a person by id."""
        return next((person for person in self.people if person.id == id), None)

    def find_reached(self, channel: str, to: str) -> Person | None:
        """Return the person with an address."""
        return next((person for person in self.people if fold_address(person.find_address(channel)) == fold_address(to)), None)


READ_BOOK = make_json_decoder(Book)


def is_address(channel: str, address: str) -> bool:
    """Return whether an address is valid for a channel."""
    if channel == "chat":
        return bool(address.strip())
    return bool((PHONE if channel == "sms" else _EMAIL).fullmatch(address.strip()))


def read_number(value: Json, at: str, what: str, default: str | None = None) -> str:
    """Return a phone or fax number from a suite. Raises `SpecError` for an invalid one."""
    number = read_word(value, at, default=default)
    if not is_address("sms", number):
        raise SpecError(f"expected a {what} number, found {show(number)}", field=at)
    return number


def read_book(members: dict[str, Json], before: Book) -> Book:
    """Return the address book of a suite, merged with the earlier one, `before`. Raises `SpecError` for invalid entries."""
    more = [(at, _read_person(item, at)) for at, item in read_items(members.get("people"), "people")]
    for name in ("id", "phone", "email"):
        addresses = ((f"{at}.{name}", fold_address(getattr(person, name))) for at, person in more if getattr(person, name))
        refuse_doubles(addresses, f"the {name}")
    people = before.people + tuple(person for _, person in more)
    return Book(
        phone=_read_address(members.get("phone"), "phone", "sms", before.phone),
        email=_read_address(members.get("email"), "email", "email", before.email),
        people=people,
        answers=before.answers + read_script(members.get("answers"), "answers"),
    )


def _read_person(value: Json, at: str) -> Person:
    members = read_members(value, Person.__struct_fields__, at, required=("id",))
    return Person(
        id=read_word(members["id"], join_place(at, "id")),
        phone=_read_address(members.get("phone"), join_place(at, "phone"), "sms", ""),
        email=_read_address(members.get("email"), join_place(at, "email"), "email", ""),
        answers=read_script(members.get("answers"), join_place(at, "answers")),
    )


def _read_address(value: Json, at: str, channel: str, default: str) -> str:
    address = read_word(value, at, default=default)
    if address and not is_address(channel, address):
        raise SpecError(f"expected {'a phone number' if channel == 'sms' else 'an e-mail address'}, found {show(address)}", field=at)
    return address
