"""People on the phone, by mail or in a chat: their addresses, and the scripts from which they answer.

A script is a list of lines and rules. After each message the first rule whose words are all in it is used, as often as it fits:
`{when: [tuesday, ten], say: "Yes, that is fine."}`. If none fits, the next unused line follows: a plain text, or `{say: ...}` without
`when`. Case, punctuation and line breaks do not matter. A person without further lines is silent.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Container
from typing import Annotated

import msgspec

from proctor.codecs.addresses import PHONE, fold_address
from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.show import show
from proctor.simulators.seeds import ReadBy, Words, read_as, read_word, refuse_doubles

_WORDS = re.compile(r"\w+")


class Line(msgspec.Struct, frozen=True):
    """A line of a person, and its condition."""

    say: str
    when: Words = ()


def _read_line(value: Json, at: str) -> Line:
    return Line(read_word(value, at)) if isinstance(value, str) else read_as(Line, value, at)


Script = tuple[Annotated[Line, ReadBy(_read_line)], ...]


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


def _read_address(channel: str, value: Json, at: str) -> str:
    address = read_word(value, at, default="")
    if address and not is_address(channel, address):
        raise SpecError(f"expected {'a phone number' if channel == 'sms' else 'an e-mail address'}, found {show(address)}", field=at)
    return address


_Phone = Annotated[str, ReadBy(functools.partial(_read_address, "sms"))]
_Email = Annotated[str, ReadBy(functools.partial(_read_address, "email"))]


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """A person who can be reached."""

    id: str
    phone: _Phone = ""
    email: _Email = ""
    answers: Script = ()

    def find_address(self, channel: str) -> str:
        """Return the person's address for a channel; chats use the id."""
        return {"sms": self.phone, "email": self.email, "chat": self.id}[channel]


class Book(msgspec.Struct, frozen=True, kw_only=True):
    """The address book of a message system."""

    phone: _Phone = "+15550100"
    email: _Email = "agent@example.com"
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


def join_books(before: Book, more: Book, given: Container[str]) -> Book:
    """Return an address book with the entries of another one, of which the suite gave some fields. Raises `SpecError` for doubles."""
    for name in ("id", "phone", "email"):
        entries = ((f"people.{index}.{name}", getattr(person, name)) for index, person in enumerate(more.people))
        refuse_doubles(((at, fold_address(address)) for at, address in entries if address), f"the {name}")
    return Book(
        phone=more.phone if "phone" in given else before.phone,
        email=more.email if "email" in given else before.email,
        people=before.people + more.people,
        answers=before.answers + more.answers,
    )
