"""Who sends and who answers: the people whom a suite knows, with their addresses and their scripts."""

from __future__ import annotations

import re

import msgspec

from proctor.codecs.addresses import PHONE, fold_address
from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.show import show
from proctor.model.typed import make_json_decoder
from proctor.simulators.persona import Script, read_script
from proctor.simulators.seeds import join_place, read_items, read_members, read_word, refuse_doubles

CHANNELS = ("sms", "email", "chat")
_EMAIL = re.compile(r"[^@\s,;<>]{1,64}@[^@\s,;<>]{1,255}")


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """A person who can be reached."""

    id: str
    phone: str = ""
    email: str = ""
    answers: Script = ()

    def find_address(self, channel: str) -> str:
        """Return where a channel reaches this person; chats know people by their id."""
        return {"sms": self.phone, "email": self.email, "chat": self.id}[channel]


class Book(msgspec.Struct, frozen=True, kw_only=True):
    """All that a system of messages knows."""

    phone: str = "+15550100"
    email: str = "agent@example.com"
    people: tuple[Person, ...] = ()
    answers: Script = ()
    """The script of people without one of their own."""

    def find_sender(self, channel: str) -> str:
        """Return where the agent is reached itself."""
        return {"sms": self.phone, "email": self.email, "chat": "agent"}[channel]

    def find_person(self, id: str) -> Person | None:
        """Return a person by id."""
        return next((person for person in self.people if person.id == id), None)

    def find_reached(self, channel: str, to: str) -> Person | None:
        """Return whom an address reaches."""
        return next((one for one in self.people if fold_address(one.find_address(channel)) == fold_address(to)), None)


READ_BOOK = make_json_decoder(Book)


def is_address(channel: str, address: str) -> bool:
    """Return whether a channel can reach an address of this form."""
    if channel == "chat":
        return bool(address.strip())
    return bool((PHONE if channel == "sms" else _EMAIL).fullmatch(address.strip()))


def read_number(value: Json, at: str, what: str, default: str | None = None) -> str:
    """Return the number of a phone or a fax, as a suite writes it. Raises `SpecError` for what is none."""
    number = read_word(value, at, default=default)
    if not is_address("sms", number):
        raise SpecError(f"expected a {what} number, found {show(number)}", field=at)
    return number


def read_book(given: dict[str, Json], before: Book) -> Book:
    """Return who is who, as a suite writes it, added to who was known before. Raises `SpecError` for what cannot be used."""
    more = [(at, _read_person(item, at)) for at, item in read_items(given.get("people"), "people")]
    for name in ("id", "phone", "email"):
        found = ((f"{at}.{name}", fold_address(getattr(person, name))) for at, person in more if getattr(person, name))
        refuse_doubles(found, f"the {name}")
    people = before.people + tuple(person for _, person in more)
    return Book(
        phone=_read_address(given.get("phone"), "phone", "sms", before.phone),
        email=_read_address(given.get("email"), "email", "email", before.email),
        people=people,
        answers=before.answers + read_script(given.get("answers"), "answers"),
    )


def _read_person(value: Json, at: str) -> Person:
    given = read_members(value, Person.__struct_fields__, at, required=("id",))
    return Person(
        id=read_word(given["id"], join_place(at, "id")),
        phone=_read_address(given.get("phone"), join_place(at, "phone"), "sms", ""),
        email=_read_address(given.get("email"), join_place(at, "email"), "email", ""),
        answers=read_script(given.get("answers"), join_place(at, "answers")),
    )


def _read_address(value: Json, at: str, channel: str, default: str) -> str:
    address = read_word(value, at, default=default)
    if address and not is_address(channel, address):
        raise SpecError(f"expected {'a phone number' if channel == 'sms' else 'an e-mail address'}, found {show(address)}", field=at)
    return address
