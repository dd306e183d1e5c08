r"""I-Regexp (RFC 9485), the pattern language of JSONPath's `match` and `search`, by translation to ECMAScript.

I-Regexp has no capturing groups, no escapes such as `\d` and no look-around. Its dot excludes only `\n` and `\r`; that of
ECMAScript also excludes U+2028 and U+2029. Its grammar has no anchors either, but the RFC's own mapping to ECMAScript (section 5.3)
leaves `^` and `$` as they are, and the compliance suite of RFC 9535 requires that, so they work here too. A pattern outside the
grammar has no matches, as in RFC 9535.
"""

from __future__ import annotations

import functools
import re
from typing import Final

from proctor.patterns.engine import LONGEST_PATTERN, Pattern, PatternError, compile_pattern

_DEEPEST: Final = 200
"""The maximum nesting of groups; they are translated recursively."""
# Each alternative begins differently, so these cannot backtrack into each other.
_ESCAPED: Final = r"\\(?:[()*+\-.?\[\\\]^nrt{|}]|[pP]\{(?:L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|Z[lps]?|S[ckmo]?|C[cfno]?)\})"
_ATOM: Final = re.compile(rf"(?P<escape>{_ESCAPED})|(?P<class>\[)|[^()*+?\[\\\]{{|}}\ud800-\udfff]")
_MEMBER: Final = re.compile(rf"{_ESCAPED}|[^\-\[\]\\\ud800-\udfff]")
_QUANTIFIER: Final = re.compile(r"[*+?]|\{[0-9]{1,9}(?:,[0-9]{0,9})?\}")


class _Invalid(Exception):
    """Outside the grammar of RFC 9485."""


@functools.lru_cache(maxsize=512)
def compile_iregexp(source: str, *, whole: bool) -> Pattern | None:
    """Return the pattern for a full match or a search, or `None` if `source` is not an I-Regexp."""
    # Leaves space for the anchors. A longer translation is rejected by `compile_pattern`, and has no matches either.
    if len(source) > LONGEST_PATTERN - 10:
        return None
    try:
        body = _translate(source)
        return compile_pattern(f"^(?:{body})$" if whole else body, "u")
    except (_Invalid, PatternError):
        return None


def _translate(source: str) -> str:
    parts: list[str] = []
    depth = 0
    repeatable = False
    at = 0
    while at < len(source):
        character = source[at]
        if character == "(":
            depth += 1
            if depth > _DEEPEST:
                raise _Invalid
            # I-Regexp captures nothing, and capturing groups cost more.
            parts.append("(?:")
            at, repeatable = at + 1, False
        elif character == ")":
            depth -= 1
            if depth < 0:
                raise _Invalid
            parts.append(")")
            at, repeatable = at + 1, True
        elif character == "|":
            parts.append("|")
            at, repeatable = at + 1, False
        elif (quantifier := _QUANTIFIER.match(source, at)) is not None:
            if not repeatable:
                raise _Invalid
            parts.append(quantifier[0])
            at, repeatable = quantifier.end(), False
        else:
            atom, at = _translate_atom(source, at)
            parts.append(atom)
            repeatable = True
    if depth:
        raise _Invalid
    return "".join(parts)


def _translate_atom(source: str, at: int) -> tuple[str, int]:
    # RFC 9485 excludes surrogates everywhere.
    if (atom := _ATOM.match(source, at)) is None:
        raise _Invalid
    if atom["class"]:
        return _translate_class(source, at)
    # ECMAScript's dot excludes U+2028 and U+2029 too; outside a class, ECMAScript with `u` rejects `\-`.
    return {".": "[^\\n\\r]", "\\-": "-"}.get(atom[0], atom[0]), atom.end()


def _translate_class(source: str, at: int) -> tuple[str, int]:
    parts = ["["]
    at += 1
    if source.startswith("^", at):
        parts.append("^")
        at += 1
    first = True
    while not source.startswith("]", at):
        if source.startswith("-", at):
            # RFC 9485 accepts a bare hyphen only as the first or the last member of a class.
            if not first and not source.startswith("-]", at):
                raise _Invalid
            parts.append("\\-")
            at += 1
        else:
            item, at, single = _translate_class_item(source, at)
            parts.append(item)
            if single and source.startswith("-", at) and not source.startswith("-]", at):
                item, at, single = _translate_class_item(source, at + 1)
                if not single:
                    raise _Invalid
                parts.append("-" + item)
        first = False
    if first:
        raise _Invalid
    parts.append("]")
    return "".join(parts), at + 1


def _translate_class_item(source: str, at: int) -> tuple[str, int, bool]:
    """Return one member of a class in ECMAScript syntax, its end, and whether it is a single character."""
    if (member := _MEMBER.match(source, at)) is None:
        raise _Invalid
    return "\\^" if member[0] == "^" else member[0], member.end(), member[0][:2] not in ("\\p", "\\P")
