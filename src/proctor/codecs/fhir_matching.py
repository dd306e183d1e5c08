"""How one value of a FHIR search parameter is compared with one element, kind by kind (FHIR R4, section 3.1.1.4).

- token: `code`, `system|code`, `|code` (no system), `system|`; compared as written, also its case, except in e-mail addresses
- reference: `Type/id`, a bare `id` (any type), or an address; versions (`/_history/2`) are dropped on both sides
- string: begins with, ignoring case and accents; `:exact` as written; `:contains` anywhere. Names and addresses: any part
- date: ranges, see `fhir_dates`; number, quantity: the stated precision is the tolerance (`100` is 99.5 up to 100.5)
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation

from proctor.codecs.fhir_dates import COMPARISONS, PREFIXES, iterate_ranges, read_date
from proctor.codecs.fhir_parameters import Kind
from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.show import show

Test = Callable[[Json], bool]
"""Whether one element fits."""

_ESCAPE = re.compile(r"\\([\\,|$])")
_NAME_PARTS = ("text", "family", "given", "prefix", "suffix", "line", "city", "district", "state", "postalCode", "country")


def compile_value(kind: Kind, modifier: str | None, value: str, *, field: str) -> Test:
    """Return the test for one value (one of those between commas). A value of the wrong form raises `SpecError`."""
    match kind:
        case "token":
            return _make_description_test(value) if modifier == "text" else _make_token_test(value)
        case "reference":
            return _make_identifier_test(value) if modifier == "identifier" else _make_reference_test(unescape(value), modifier)
        case "date":
            return _make_date_test(value, field)
        case "string":
            return _make_string_test(unescape(value), modifier)
        case "uri":
            address = unescape(value)
            return lambda element: element == address
        case "number":
            return _number(value, field)
        case "quantity":
            return _make_quantity_test(value, field)


MODIFIERS: dict[Kind, tuple[str, ...]] = {
    "token": ("not", "text"),
    "reference": ("identifier",),
    "date": (),
    "string": ("exact", "contains"),
    "uri": (),
    "number": (),
    "quantity": (),
}
"""Modifiers other than `:missing`; a reference also takes a resource type (`subject:Patient`)."""


EMAIL = "email"
"""The system of a ContactPoint whose values are compared without regard to case."""


def iterate_tokens(element: Json) -> Iterator[tuple[str | None, str]]:
    """Yield system and code of an element: a code, a Coding, a CodeableConcept, an Identifier, a ContactPoint."""
    if isinstance(element, bool):
        yield None, "true" if element else "false"
    elif isinstance(element, str):
        yield None, element
    elif isinstance(element, (int, float)):
        yield None, str(element)
    elif isinstance(element, dict):
        codings = element.get("coding")
        for coding in codings if isinstance(codings, list) else ():
            if isinstance(coding, dict):
                yield from _iterate_system_and_code(coding, "code")
        yield from _iterate_system_and_code(element, "code")
        yield from _iterate_system_and_code(element, "value")


def _iterate_system_and_code(element: dict[str, Json], key: str) -> Iterator[tuple[str | None, str]]:
    code = element.get(key)
    if isinstance(code, str):
        system = element.get("system")
        yield system if isinstance(system, str) and system else None, code
        # Mail servers ignore case in practice; R4 leaves the case of tokens to the server.
        if system == EMAIL and code != code.lower():
            yield EMAIL, code.lower()


def _make_token_test(value: str) -> Test:
    stated, *rest = split_unescaped(value, "|")
    if not rest:
        code = unescape(stated)
        return lambda element: any(_is_code(code, where, found) for where, found in iterate_tokens(element))
    system, code = unescape(stated), unescape("|".join(rest))
    if not code:
        return lambda element: any(where == system for where, _ in iterate_tokens(element))
    wanted = system or None
    # A bare code element carries no system of its own: only its definition does, so any stated system may be it.
    return lambda element: any(
        _is_code(code, where, found) and (where == wanted or (wanted is not None and isinstance(element, str)))
        for where, found in iterate_tokens(element)
    )


def _is_code(wanted: str, system: str | None, found: str) -> bool:
    return found == wanted or (system == EMAIL and found == wanted.lower())


def _make_description_test(value: str) -> Test:
    wanted = fold(value)

    def fits(element: Json) -> bool:
        if not isinstance(element, dict):
            return False
        codings = element.get("coding")
        named = [element, *(codings if isinstance(codings, list) else ())]
        words = (entry.get(key) for entry in named if isinstance(entry, dict) for key in ("text", "display"))
        return any(isinstance(word, str) and fold(word).startswith(wanted) for word in words)

    return fits


def find_reference_text(element: Json) -> str | None:
    """Return what a Reference (or canonical) points at, its version dropped."""
    text = element.get("reference") if isinstance(element, dict) else element
    return strip_version(text) if isinstance(text, str) else None


def find_reference_type(element: Json) -> str | None:
    """Return the resource type a Reference names, where it names one."""
    text = find_reference_text(element)
    parts = text.split("/") if text else []
    if len(parts) >= 2:
        return parts[-2]
    stated = element.get("type") if isinstance(element, dict) else None
    return stated if isinstance(stated, str) else None


def strip_version(text: str) -> str:
    """Return a reference without the version it names."""
    # A canonical has its version after a bar, a reference after `_history`.
    return text.partition("/_history/")[0].partition("|")[0]


def _make_reference_test(value: str, of_type: str | None) -> Test:
    wanted = strip_version(value)
    bare = "/" not in wanted and ":" not in wanted
    if bare and of_type is not None:
        wanted, bare = f"{of_type}/{wanted}", False

    def fits(element: Json) -> bool:
        found = find_reference_text(element)
        if found is None:
            return False
        if bare:
            # An id may end a relative reference, an address, or a `urn:uuid:`.
            return found == wanted or found.endswith((f"/{wanted}", f":{wanted}"))
        # One side may be an address and the other relative to it.
        return found == wanted or found.endswith(f"/{wanted}") or ("://" in wanted and "/" in found and wanted.endswith(f"/{found}"))

    return fits


def _make_identifier_test(value: str) -> Test:
    fits_token = _make_token_test(value)
    return lambda element: isinstance(element, dict) and isinstance(element.get("identifier"), dict) and fits_token(element["identifier"])


def fold(text: str) -> str:
    """Return text without case and accents."""
    if text.isascii():
        return text.lower()
    return "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char)).casefold()


def iterate_strings(element: Json) -> Iterator[str]:
    """Yield the texts of an element: itself, or every part of a name or address."""
    if isinstance(element, str):
        yield element
    elif isinstance(element, dict):
        for key in _NAME_PARTS:
            part = element.get(key)
            for text in part if isinstance(part, list) else (part,):
                if isinstance(text, str):
                    yield text


def _make_string_test(value: str, modifier: str | None) -> Test:
    if modifier == "exact":
        return lambda element: value in iterate_strings(element)
    wanted = fold(value)
    if modifier == "contains":
        return lambda element: any(wanted in fold(text) for text in iterate_strings(element))
    return lambda element: any(fold(text).startswith(wanted) for text in iterate_strings(element))


def _split_prefix(value: str) -> tuple[str, str]:
    return (value[:2], value[2:]) if value[:2] in PREFIXES else ("eq", value)


def _make_date_test(value: str, field: str) -> Test:
    prefix, text = _split_prefix(value)
    stated = read_date(text)
    if stated is None:
        raise SpecError(
            f"not a FHIR date: {show(text)}",
            field=field,
            hint="write 2026, 2026-11, 2026-11-15 or 2026-11-15T09:00:00Z",
        )
    compare = COMPARISONS[prefix]
    return lambda element: any(compare(stated, found) for found in iterate_ranges(element))


def _parse_decimal(value: Json) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        # Through its text: the binary value of 0.1 has further digits.
        number = Decimal(str(value))
    except (InvalidOperation, ValueError):
        return None
    # Exponents beyond any measurement would make the comparison below huge.
    return number if number.is_finite() and -400 < number.adjusted() < 400 else None


def _number(value: str, field: str) -> Test:
    prefix, text = _split_prefix(value)
    stated = _parse_decimal(text)
    if stated is None:
        raise SpecError(f"not a number: {show(text)}", field=field)
    # Half of the last place that was written: `100` is 99.5 up to 100.5, `100.0` is 99.95 up to 100.05.
    half = Decimal((0, (5,), int(stated.as_tuple().exponent) - 1))
    low, high = stated - half, stated + half
    # FHIR recommends a tenth of the stated value for `ap`.
    tolerance = abs(stated) / 10
    compare: dict[str, Callable[[Decimal], bool]] = {
        "eq": lambda found: low <= found < high,
        "ne": lambda found: not low <= found < high,
        "gt": lambda found: found > stated,
        "lt": lambda found: found < stated,
        "ge": lambda found: found >= stated,
        "le": lambda found: found <= stated,
        "sa": lambda found: found >= high,
        "eb": lambda found: found < low,
        "ap": lambda found: abs(found - stated) <= tolerance,
    }
    holds = compare[prefix]

    def fits(element: Json) -> bool:
        found = _parse_decimal(element)
        return found is not None and holds(found)

    return fits


def _make_quantity_test(value: str, field: str) -> Test:
    amount, _, unit = value.partition("|")
    system, _, code = unit.partition("|")
    fits_amount = _number(amount, field)

    def fits(element: Json) -> bool:
        if not isinstance(element, dict) or not fits_amount(element.get("value")):
            return False
        if system and element.get("system") != system:
            return False
        return not code or code in (element.get("code"), element.get("unit"))

    return fits


def split_unescaped(text: str, separator: str) -> list[str]:
    """Return the pieces between separators that no backslash escapes; escapes stay as they are."""
    pieces: list[str] = []
    start = position = 0
    while position < len(text):
        if text[position] == "\\":
            position += 2
            continue
        if text[position] == separator:
            pieces.append(text[start:position])
            start = position + 1
        position += 1
    pieces.append(text[start:])
    return pieces


def unescape(text: str) -> str:
    r"""Return text without its search escapes: `\,`, `\|`, `\$` and `\\`."""
    return _ESCAPE.sub(r"\1", text) if "\\" in text else text
