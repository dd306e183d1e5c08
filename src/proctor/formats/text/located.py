"""A document as a tree in which every value knows its line and column.

Both readers (`yaml12`, `json_text`) build this tree; the dialect readers walk it, and report problems through a `Reading`, which collects
all of them in one pass.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from proctor.errors import InputError, SpecError
from proctor.model.evidence import Json
from proctor.model.json_values import is_finite
from proctor.model.lazy_pattern import lazy_pattern
from proctor.model.problem import Origin, Problem
from proctor.model.show import kind_of, nearest, show

# --- lines and columns of a text, the way editors count them

LINE_END = lazy_pattern(r"\r\n|\n|\r")


class Places:
    """The lines of one text, to turn offsets into positions."""

    def __init__(self, text: str) -> None:
        self._length = len(text)
        self._starts = [0]
        self._ends: list[int] = []
        for end in LINE_END.finditer(text):
            self._ends.append(end.start())
            self._starts.append(end.end())
        self._ends.append(len(text))

    def locate(self, offset: int) -> tuple[int, int]:
        """Return the line and the column of an offset; an offset past the end counts as the end."""
        offset = min(offset, self._length)
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def measure_width(self, start: int, end: int) -> int:
        """Return how many characters from `start` to `end` are on the line of `start`; at least one."""
        line, _ = self.locate(start)
        return max(1, min(end, self._ends[line - 1]) - start)


MAX_WEIGHT = 10**9
"""Far above any sensible weight; the sum of larger ones would be infinite."""

MAX_VALUES = 500_000
"""The maximum number of values in one document, including YAML keys: the position of each costs more than the value itself."""
_NEAR = 0.8
"""The similarity from which an unknown key counts as a misspelling: `agnets` is one of `agents`, `targets` is not."""
SPLIT = "split the suite into several files of one folder"


class Located(msgspec.Struct, kw_only=True):
    """One value of a document.

    `value` is the scalar, or a list of `Located`, or a dict of `Located`. `key_at` gives the position of each key of an
    object as `(line, column)`; `width` is how many characters to underline.
    """

    value: Json
    line: int
    column: int
    path: str = "$"
    width: int = 1
    key_at: dict[str, tuple[int, int]] = {}

    @property
    def kind(self) -> str:
        """The kind of the value in the user's words."""
        return kind_of(self.value)

    @property
    def is_object(self) -> bool:
        """Whether this is an object."""
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        """Whether this is a list."""
        return isinstance(self.value, list)

    def get(self, key: str) -> "Located | None":
        """Return the member `key` of an object, or None."""
        return self.value.get(key) if isinstance(self.value, dict) else None

    def find(self, key: str) -> "Located | None":
        """Return the member `key` of an object unless it is null, or None."""
        member = self.get(key)
        return None if member is None or member.value is None else member

    def members(self) -> Iterator[tuple[str, "Located"]]:
        """Yield keys and values of an object, in order; none for other kinds."""
        return iter(self.value.items()) if isinstance(self.value, dict) else iter(())

    def items(self) -> Iterator["Located"]:
        """Yield the elements of a list; none for other kinds."""
        return iter(self.value) if isinstance(self.value, list) else iter(())

    def plain(self) -> Json:
        """Return the value without positions."""
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        return [item.plain() for item in self.value] if isinstance(self.value, list) else self.value


class Reading:
    """One document being read: its text for excerpts, and every problem found in it."""

    def __init__(self, *, file: str | None, text: str) -> None:
        self.file = file
        self.text = text
        """The text of the document."""
        self._lines: list[str] | None = None
        self.problems: list[Problem] = []
        self._ignored: set[tuple[str, str]] = set()

    def origin(self, node: Located) -> Origin:
        """Return the place of a value."""
        return Origin(file=self.file, line=node.line, column=node.column, path=node.path)

    def find_excerpt(self, line: int) -> str | None:
        """Return a source line, without its end."""
        # Split only to show a problem: most files have none.
        if self._lines is None:
            self._lines = LINE_END.split(self.text.removeprefix("\ufeff"))
        return self._lines[line - 1] if 0 < line <= len(self._lines) else None

    def error(self, node: Located, message: str, **more: Json) -> None:
        """Report that the value is invalid. `more`: `expected`, `nearest`, `hint`, `code`."""
        self._report(node, message, "error", more)

    def error_unknown(self, node: Located, message: str, word: str, known: Iterable[str], **more: Json) -> None:
        """Report an unknown word, with the nearest known one and all of them."""
        words = tuple(known)
        self.error(node, message, nearest=nearest(word, words), expected="one of " + ", ".join(words), **more)

    def warn(self, node: Located, message: str, **more: Json) -> None:
        """Report a problem that does not prevent the suite from being used."""
        self._report(node, message, "warning", more)

    def error_at_key(self, node: Located, key: str, message: str, **more: Json) -> None:
        """Report a problem with a key rather than with its value."""
        self._report(self._find_key_node(node, key), message, "error", more)

    def warn_at_key(self, node: Located, key: str, message: str, **more: Json) -> None:
        """Warn about a key rather than about its value."""
        self._report(self._find_key_node(node, key), message, "warning", more)

    def _find_key_node(self, node: Located, key: str) -> Located:
        line, column = node.key_at.get(key, (node.line, node.column))
        return Located(value=key, line=line, column=column, path=member_path(node.path, key), width=len(key))

    def _report(self, node: Located, message: str, level: Literal["error", "warning"], more: dict[str, Json]) -> None:
        self.problems.append(
            Problem(
                message=message,
                level=level,
                origin=self.origin(node),
                excerpt=self.find_excerpt(node.line),
                width=node.width,
                **more,
            )
        )

    def report_spec_error(self, node: Located, error: SpecError, fields: Mapping[str, Located] | None = None) -> None:
        """Report an invalid spec at the field it names.

        `fields` maps spec fields to the values they came from, if the dialect spells them differently; otherwise the dotted field is
        looked up below `node`.
        """
        self.error(self._place_of(node, error, fields), error.message, nearest=error.nearest, hint=error.hint)

    def report_spec_warning(self, node: Located, error: SpecError, fields: Mapping[str, Located] | None = None, **more: Json) -> None:
        """Report the same as a warning, for a dialect in which such a spec is a failed check rather than an invalid suite."""
        self.warn(self._place_of(node, error, fields), error.message, nearest=error.nearest, **{"hint": error.hint, **more})

    def _place_of(self, node: Located, error: SpecError, fields: Mapping[str, Located] | None) -> Located:
        at = node
        if error.field:
            first, _, rest = error.field.partition(".")
            known = fields or {}
            if error.field in known:
                at = known[error.field]
            elif first in known:
                at = self._descend(known[first], rest)
            else:
                at = self._descend(node, error.field)
        if error.offset is not None and isinstance(at.value, str) and at.width > 1:
            # In a quoted scalar the text starts one column later. Escapes before the error shift it; close enough for a caret, and the
            # message contains the exact offset.
            quoted = at.width > len(at.value)
            column = at.column + error.offset + (1 if quoted else 0)
            at = Located(value=at.value, line=at.line, column=column, path=at.path, width=1)
        return at

    @staticmethod
    def _descend(node: Located, field: str) -> Located:
        for part in field.split("."):
            inner = node.get(part)
            if inner is None and node.is_list and part.isascii() and part.isdigit() and len(part) < 10 and int(part) < len(node.value):
                inner = node.value[int(part)]
            if inner is None:
                return node
            node = inner
        return node

    def finish(self) -> tuple[Problem, ...]:
        """Return the warnings, or raise `InputError` with all problems in file order if there is an error."""
        # Problems in library files come after those of the document that refers to them.
        ordered = sorted(
            self.problems, key=lambda p: (p.origin.file != self.file, p.origin.file or "", p.origin.line or 0, p.origin.column or 0)
        )
        count = sum(problem.level == "error" for problem in ordered)
        if count:
            raise InputError(f"{count} problem{'s' if count > 1 else ''} in {self.file or 'the document'}", ordered)
        return tuple(ordered)

    def check_keys(self, node: Located, allowed: tuple[str, ...], what: str, hints: Mapping[str, str] | None = None) -> None:
        """Report every unknown key, with the nearest known one and all of them; `hints` are next steps by key."""
        for key, _ in node.members():
            if key not in allowed:
                self._report_unknown_key(node, key, allowed, what, hints, nearest(key, allowed))

    def _report_unknown_key(
        self, node: Located, key: str, allowed: tuple[str, ...], what: str, hints: Mapping[str, str] | None, near: tuple[str, ...]
    ) -> None:
        expected, hint = "one of " + ", ".join(sorted(allowed)), (hints or {}).get(key)
        self.error_at_key(node, key, f"unknown key {key!r} in {what}", nearest=near, expected=expected, hint=hint, code="unknown_key")

    def check_record_keys(self, node: Located, allowed: tuple[str, ...], what: str, hints: Mapping[str, str] | None = None) -> None:
        """Warn once about all unknown keys; a key similar to a known one, or with a hint, is an error.

        Keys that begin with `x-` are free.
        """
        unread = [key for key, _ in node.members() if key not in allowed and not key.startswith("x-") and (what, key) not in self._ignored]
        if not unread:
            return
        from difflib import get_close_matches  # costs a regex compile; only an unknown key needs it

        for key in unread:
            near = tuple(get_close_matches(key.lower()[:200], allowed, n=1, cutoff=_NEAR))
            if near or key in (hints or {}):
                self._report_unknown_key(node, key, allowed, what, hints, near)
                continue
            self._ignored.add((what, key))
            message = f"the key {key!r} of {what} is unknown, and nothing under it is read"
            self.warn_at_key(node, key, message, hint="keys that begin with 'x-' are free", code="ignored_key")

    def require_object(self, node: Located | None, what: str) -> Located | None:
        """Return `node` if it is an object; otherwise report a problem and return None."""
        return self._require_kind(node, dict, "an object", what)

    def require_list(self, node: Located | None, what: str) -> Located | None:
        """Return `node` if it is a list; otherwise report a problem and return None."""
        return self._require_kind(node, list, "a list", what)

    def list_items(self, node: Located | None, what: str) -> list[Located]:
        """Return the elements of a list; none if it is absent, or no list, which is reported."""
        list_node = self.require_list(node, what)
        return list(list_node.items()) if list_node is not None else []

    def list_texts(self, node: Located | None, what: str, each: str) -> list[str]:
        """Return the texts of a list; everything else in it is reported."""
        texts = [self.require_text(item, each) for item in self.list_items(node, what)]
        return [text for text in texts if text is not None]

    def need_text(self, node: Located, key: str, what: str, what_named: str | None = None) -> str | None:
        """Return the text that `what` must have under `key`; otherwise report a problem and return None."""
        return self.require_text(self.require_member(node, key, what), what_named or f"{key!r}")

    def has_errors_since(self, problem_count: int) -> bool:
        """Return whether there is an error after the first `problem_count` problems."""
        return any(problem.level == "error" for problem in self.problems[problem_count:])

    def require_text(self, node: Located | None, what: str) -> str | None:
        """Return the text of `node`; otherwise report a problem and return None."""
        text_node = self._require_kind(node, str, "text", what)
        return text_node.value if text_node is not None else None

    def require_choice(
        self, node: Located, key: str, known: Collection[str], what: str, unknown: Callable[[str], str], *, named: str = "", **more: Json
    ) -> str | None:
        """Return the text of `what` under `key`, one of the known words; otherwise report a problem and return None."""
        member = self.require_member(node, key, what)
        word = self.require_text(member, named or f"the {key} of {what}")
        if word is None or member is None or word in known:
            return word
        self.error_unknown(member, unknown(word), word, known, **more)
        return None

    def require_boolean(self, node: Located | None, what: str) -> bool | None:
        """Return the true or false of `node`; otherwise report a problem and return None."""
        boolean_node = self._require_kind(node, bool, "true or false", what)
        return boolean_node.value if boolean_node is not None else None

    def number(self, node: Located | None, what: str) -> float | int | None:
        """Return the number in `node`; otherwise report a problem and return None."""
        number_node = self._require_kind(node, (int, float), "a number", what)
        if number_node is None:
            return None
        if not is_finite(number_node.value):
            self.error(
                number_node, f"{what}: expected a number of less than 309 digits, found {show(number_node.value)}", code="wrong_value"
            )
            return None
        return number_node.value

    def require_weight(self, node: Located | None) -> float | None:
        """Return a weight above 0 that is small enough for the sum of many to be finite; otherwise report a problem and return None."""
        value = self.number(node, "weight")
        if value is None or node is None:
            return None
        if not 0 < value <= MAX_WEIGHT:
            expected = "a number above 0" if not value > 0 else f"at most {MAX_WEIGHT:,}"
            self.error(node, f"weight: expected {expected}, found {show(value)}", code="bad_weight")
            return None
        return float(value)

    def require_integer(self, node: Located | None, what: str, *, at_least: int | None = None, at_most: int | None = None) -> int | None:
        """Return the whole number in `node` within `at_least` and `at_most`; otherwise report a problem and return None."""
        number_node = self._require_kind(node, (int, float), "a whole number", what)
        if number_node is None:
            return None
        value = number_node.value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or (at_least is not None and value < at_least) or (at_most is not None and value > at_most):
            bound = f" of at least {at_least}" if at_least is not None else ""
            bound += f"{' and' if bound else ' of'} at most {at_most:,}" if at_most is not None else ""
            self.error(number_node, f"{what}: expected a whole number{bound}, found {show(number_node.value)}")
            return None
        return value

    def _require_kind(self, node: Located | None, kinds: type | tuple[type, ...], expected: str, what: str) -> Located | None:
        if node is None:
            return None
        # In Python `bool` is a subclass of `int`, but in a suite `true` is not a number.
        is_bool = isinstance(node.value, bool)
        if isinstance(node.value, kinds) and (not is_bool or kinds is bool):
            return node
        actual = node.kind if node.value is None or isinstance(node.value, (dict, list)) else f"{node.kind} {show(node.value, 60)}"
        self.error(node, f"{what}: expected {expected}, found {actual}", code="wrong_type")
        return None

    def require_member(self, node: Located, key: str, what: str) -> Located | None:
        """Return the member `key`; if it is missing, report a problem and return None."""
        member = node.get(key)
        if member is None and key not in (node.value if node.is_object else {}):
            self.error(node, f"{what} needs {key!r}", code="missing_key")
        return member


def member_path(path: str, key: str) -> str:
    """Return the path of a member: `$.a.b`, with brackets where the key is not a plain word."""
    return _join_bounded(path, f".{key}" if key.isidentifier() and len(key) <= 80 else f"[{show(key, 80)}]")


def item_path(path: str, index: int) -> str:
    """Return the path of an element of a list: `$.a[0]`."""
    return _join_bounded(path, f"[{index}]")


# Every value carries its path, so a hostile document with long paths and many values would cost their product.
_LONGEST_PATH = 500


def _join_bounded(path: str, step: str) -> str:
    if len(path) <= _LONGEST_PATH:
        return path + step
    return path if path.endswith("…") else path + "…"


def replace_value(node: Located, value: Json) -> Located:
    """Return a node at the same position with another value."""
    return Located(value=value, line=node.line, column=node.column, path=node.path, width=node.width, key_at=node.key_at)


_NOWHERE = Located(value=None, line=0, column=0)


def locate_value(value: Json, place: Located = _NOWHERE, path: str | None = None) -> Located:
    """Return plain data as a tree in which everything has the position `place`; without it, the lines are unknown."""
    path = place.path if path is None else path
    inner: Json = value
    if isinstance(value, Mapping):
        inner = {str(key): locate_value(member, place, member_path(path, str(key))) for key, member in value.items()}
    elif isinstance(value, (list, tuple)):
        inner = [locate_value(item, place, item_path(path, index)) for index, item in enumerate(value)]
    return Located(value=inner, line=place.line, column=place.column, path=path, width=place.width)
