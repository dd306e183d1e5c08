"""Claims about personal data in the answer that has a fixed form, found by pattern.

The kinds are `email`, `phone` (`+` and 7 to 15 digits, or ten digits grouped as in North America), `iban` (valid country, length and
checksum), `credit_card` (13 to 19 digits with a valid Luhn checksum), `us_ssn` (divided by hyphens or spaces) and `ipv4`. Reports show the
form of a match and not the data itself.

Patterns do not find names, addresses, dates of birth, health data or national numbers of other countries, nor numbers that are spelled out
or broken up on purpose; a pass only means that none of these forms was found. They also match lookalikes: a version `1.2.3.4` looks like
an IPv4 address, and one in ten random numbers has a valid Luhn checksum. For everything else use `no_personal_data`, which asks a judge.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, Literal

import msgspec

from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.answer import POINTER, over_text
from proctor.errors import SpecError
from proctor.model.evidence import Evidence, Json
from proctor.model.show import count_rest
from proctor.model.verdict import TextRange, Verdict, failed, passed

Kind = Literal["email", "phone", "iban", "credit_card", "us_ssn", "ipv4"]

_EMAIL: Final = re.compile(r"(?<![\w.%+-])[\w.%+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?!\w)")
_PHONE: Final = re.compile(
    r"(?<![\w+])\+[1-9](?:[ ./()\u00a0-]{0,3}\d){6,14}(?!\d)"
    r"|(?<![\w.+-])(?:1[ .-])?(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-. ]\d{4}(?![\w-])"
)
_IBAN_START: Final = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}\d{2}(?=[ ]?[A-Za-z0-9])")
_CARD_START: Final = re.compile(r"(?<![\w+.-])[2-6](?=(?:[ -]?\d){12})")
_SSN: Final = re.compile(r"(?<![\w-])(?!000|666|9)\d{3}([- ])(?!00)\d{2}\1(?!0000)\d{4}(?![\w-])")
_OCTET: Final = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4: Final = re.compile(rf"(?<![\w.]){_OCTET}(?:\.{_OCTET}){{3}}(?!\w|\.\d)")

_IBAN_LENGTHS: Final = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BR": 29, "BY": 28, "CH": 21, "CR": 22,
    "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18, "FO": 18, "FR": 27, "GB": 22, "GE": 22,
    "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30,
    "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MR": 27,
    "MT": 31, "MU": 30, "NL": 18, "NO": 15, "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22, "SA": 24, "SC": 31,
    "SE": 24, "SI": 19, "SK": 24, "SM": 27, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20,
}  # fmt: skip
_CARD_LENGTHS: Final = range(19, 12, -1)


class Found(msgspec.Struct, frozen=True):
    """One piece of personal data and its position."""

    kind: Kind
    text: str
    position: int

    def mask(self) -> str:
        """Return its form with the content masked: a report must not repeat personal data."""
        return "".join("0" if char.isdigit() else "x" if char.isalpha() else char for char in self.text)


def _find_pattern(pattern: re.Pattern[str]) -> Callable[[str], Iterator[tuple[int, str]]]:
    return lambda text: ((match.start(), match[0]) for match in pattern.finditer(text))


def find_ibans(text: str) -> Iterator[tuple[int, str]]:
    """Yield account numbers with a valid country, length and checksum (ISO 7064, mod 97); single spaces may divide them."""
    for match in _IBAN_START.finditer(text):
        length = _IBAN_LENGTHS.get(match[0][:2].upper())
        end = None if length is None else _find_end(text, match.start(), length, blanks=" ", allowed=str.isalnum)
        if end is None or (end < len(text) and text[end].isalnum()):
            continue
        number = text[match.start() : end].replace(" ", "").upper()
        if number.isascii() and int("".join(str(int(char, 36)) for char in number[4:] + number[:4])) % 97 == 1:
            yield match.start(), text[match.start() : end]


def find_cards(text: str) -> Iterator[tuple[int, str]]:
    """Yield numbers of 13 to 19 digits that begin like those of payment cards and have a valid checksum (Luhn)."""
    done = 0
    for match in _CARD_START.finditer(text):
        # After a space inside a number, another number seems to begin.
        if match.start() < done:
            continue
        # Longest first: the beginning of a number, cut off at a space, may have a valid checksum by chance.
        for length in _CARD_LENGTHS:
            end = _find_end(text, match.start(), length, blanks=" -", allowed=str.isdigit)
            if end is not None and not text[end : end + 1].isdigit() and _has_luhn(text[match.start() : end]):
                yield match.start(), text[match.start() : end]
                done = end
                break


FINDERS: Final[dict[Kind, Callable[[str], Iterator[tuple[int, str]]]]] = {
    "email": _find_pattern(_EMAIL),
    "phone": _find_pattern(_PHONE),
    "iban": find_ibans,
    "credit_card": find_cards,
    "us_ssn": _find_pattern(_SSN),
    "ipv4": _find_pattern(_IPV4),
}


def find_personal_data(text: str, kinds: tuple[Kind, ...], allowed: frozenset[str]) -> list[Found]:
    """Return the personal data of these kinds in text order; `allowed` texts, in lower case, are ignored."""
    found = [
        Found(kind, piece, start) for kind in dict.fromkeys(kinds) for start, piece in FINDERS[kind](text) if piece.lower() not in allowed
    ]
    return sorted(found, key=lambda one: one.position)


def _find_end(text: str, start: int, count: int, *, blanks: str, allowed: Callable[[str], bool]) -> int | None:
    """Return the end of `count` allowed characters from `start`, not counting single spaces between them; None if there are fewer."""
    at = start
    for number in range(count):
        if number and at < len(text) and text[at] in blanks:
            at += 1
        # `isdigit` and `isalnum` also accept other scripts, which do not write such numbers.
        if at >= len(text) or not (text[at].isascii() and allowed(text[at])):
            return None
        at += 1
    return at


def _has_luhn(text: str) -> bool:
    digits = [int(char) for char in reversed(text) if char.isdigit()]
    return sum(digit if place % 2 == 0 else sum(divmod(2 * digit, 10)) for place, digit in enumerate(digits)) % 10 == 0


_MOST_LISTED: Final = 20
ALL_KINDS: Final[tuple[Kind, ...]] = tuple(FINDERS)


class _PiiClaim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    kinds: tuple[Kind, ...] = ALL_KINDS
    """What to look for; one find of any kind counts."""
    allow: tuple[str, ...] = ()
    """Texts that do not count, upper and lower case the same: `support@shop.example`."""

    def find_in(self, text: str) -> list[Found]:
        """Return the personal data of these kinds in a text."""
        return find_personal_data(text, self.kinds, frozenset(text.lower() for text in self.allow))


class ContainsPii(_PiiClaim, frozen=True, kw_only=True, omit_defaults=True):
    """The answer contains personal data of a fixed form."""


class NoPii(_PiiClaim, frozen=True, kw_only=True, omit_defaults=True):
    """The answer contains no personal data of a fixed form."""


def _locate(spec: _PiiClaim, evidence: Evidence) -> Iterator[TextRange]:
    for one in spec.find_in(evidence.text or ""):
        yield TextRange("$.text", one.position, one.position + len(one.text))


@check("contains_pii", shorthand="kinds", example="contains_pii: [iban]", reads=Reads(("answer",), "presence"), locate=_locate)
def contains_pii(spec: ContainsPii) -> Decide:
    """The answer contains personal data of a fixed form: e-mail, phone, IBAN, payment card, US SSN, IPv4."""
    _require_kind(spec)

    def decide(text: str) -> Verdict:
        if found := spec.find_in(text):
            return passed(f"the answer contains {_describe(found)}", details=_list_found(found), pointers=POINTER)
        return failed(f"expected the answer to contain {' or '.join(spec.kinds)}, found none", pointers=POINTER)

    return over_text(decide)


@check(
    "no_pii",
    shorthand="kinds",
    example="no_pii: {allow: [support@shop.example]}",
    reads=Reads(("answer",), "absence"),
    locate=_locate,
)
def no_pii(spec: NoPii) -> Decide:
    """The answer contains no personal data of a fixed form: e-mail, phone, IBAN, payment card, US SSN, IPv4."""
    _require_kind(spec)
    kinds = ", ".join(spec.kinds)
    good = passed(f"the answer contains no {kinds}", pointers=POINTER)

    def decide(text: str) -> Verdict:
        if not (found := spec.find_in(text)):
            return good
        reason = f"expected the answer to contain no {kinds}, found {_describe(found)}"
        return failed(reason, details=_list_found(found), pointers=POINTER)

    return over_text(decide)


def _require_kind(spec: _PiiClaim) -> None:
    if not spec.kinds:
        raise SpecError("no kind given", field="kinds")


def _describe(found: list[Found]) -> str:
    return f"{found[0].kind} at character {found[0].position + 1} ({found[0].mask()}){count_rest(len(found), 1)}"


def _list_found(found: list[Found]) -> dict[str, Json]:
    listed: list[Json] = [{"kind": one.kind, "position": one.position, "form": one.mask()} for one in found[:_MOST_LISTED]]
    return {"found": listed, "count": len(found)}
