"""Choosing cases with `-k EXPR`.

    expression = term { "or" term } ;
    term       = factor { "and" factor } ;
    factor     = "not" factor | "(" expression ")" | word ;
    word       = any run of characters without white space or parentheses, or a quoted text, or key="quoted text"

A word selects a case if the id, the name or a tag contains it, ignoring case. `id=c3` and `name="Slow refund"` must match the whole id or
name; `key=value` must match the whole value of a tag, or one value of a tag that is a list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable

import msgspec

from proctor.errors import InputError
from proctor.model.case import Case, Suite
from proctor.model.evidence import Json
from proctor.model.lazy_cases import join_cases, pick_cases
from proctor.model.problem import Origin, Problem

Chooses = Callable[[Case], bool]
_TOKEN = re.compile(r"\s*(?:([()])|([^\s()\"'=]+=)?(?:\"([^\"]*)\"|'([^']*)')|([^\s()\"']+))")
_EXACT = ("id", "name")
_MAX_TOKENS = 500
"""The maximum number of words in a `-k` expression, which is parsed recursively."""


def select(suite: Suite, expression: str | None) -> Suite:
    """Return the suite with only the chosen cases."""
    if not expression:
        return suite
    return _keep(suite, compile_selection(expression))


def select_cases(suite: Suite, cases: Iterable[Case]) -> Suite:
    """Return the suite with only these cases; the others are stored as left out."""
    return select_ids(suite, {case.id for case in cases})


def select_ids(suite: Suite, ids: Container[str]) -> Suite:
    """Return the suite with only the cases that have one of these ids; the others are stored as left out."""
    return _keep(suite, lambda case: case.id in ids)


def _keep(suite: Suite, chooses: Chooses) -> Suite:
    chosen, left_out = pick_cases(suite.cases, chooses)
    # A record of an unselected case must not match a selected one.
    return msgspec.structs.replace(suite, cases=chosen, unselected=join_cases([suite.unselected, left_out]))


def compile_selection(expression: str) -> Chooses:
    """Return a predicate over cases. Raises `InputError` with a column."""
    return _Parser(expression).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._scan(text)
        self._at = 0

    def _scan(self, text: str) -> list[tuple[str, str, int]]:
        tokens: list[tuple[str, str, int]] = []
        position = 0
        stripped = text.rstrip()
        while position < len(stripped):
            match = _TOKEN.match(stripped, position)
            if match is None:
                raise self._make_error("a quoted text that is not closed", position)
            punctuation, key, double, single, word = match.groups()
            start = match.end() - len(match.group().lstrip())
            if punctuation:
                tokens.append((punctuation, punctuation, start))
            elif word is not None and word in ("and", "or", "not"):
                tokens.append((word, word, start))
            else:
                value = next(text for text in (double, single, word) if text is not None)
                tokens.append(("word", (key or "") + value, start))
            position = match.end()
        if len(tokens) > _MAX_TOKENS:
            raise self._make_error(f"longer than {_MAX_TOKENS} words", 0)
        return [*tokens, ("end", "", len(stripped))]

    def _make_error(self, message: str, position: int) -> InputError:
        problem = Problem(
            message=f"-k: {message}",
            origin=Origin(file="-k", line=1, column=position + 1),
            excerpt=self._text,
            hint="for example: -k 'refund and not slow'",
        )
        return InputError(problem.message, [problem])

    def parse(self) -> Chooses:
        chooses = self._read_expression(0)
        kind, text, position = self._tokens[self._at]
        if kind != "end":
            raise self._make_error(f"expected 'and', 'or' or the end, found {text!r}", position)
        return chooses

    def _take(self, kind: str) -> bool:
        if self._tokens[self._at][0] == kind:
            self._at += 1
            return True
        return False

    def _read_expression(self, depth: int) -> Chooses:
        parts = [self._read_term(depth)]
        while self._take("or"):
            parts.append(self._read_term(depth))
        return parts[0] if len(parts) == 1 else lambda case: any(part(case) for part in parts)

    def _read_term(self, depth: int) -> Chooses:
        parts = [self._read_factor(depth)]
        while self._take("and"):
            parts.append(self._read_factor(depth))
        return parts[0] if len(parts) == 1 else lambda case: all(part(case) for part in parts)

    def _read_factor(self, depth: int) -> Chooses:
        kind, text, position = self._tokens[self._at]
        # Parsing and matching both recurse; exceeding Python's limit would be a crash instead of an error with a column.
        if depth > 50:
            raise self._make_error("nested too deeply", position)
        self._at += 1
        if kind == "not":
            inner = self._read_factor(depth + 1)
            return lambda case: not inner(case)
        if kind == "(":
            inner = self._read_expression(depth + 1)
            if not self._take(")"):
                raise self._make_error("expected ')'", self._tokens[self._at][2])
            return inner
        if kind == "word":
            return _read_word(text)
        raise self._make_error(f"expected a word, found {text!r}" if text else "expected a word", position)


def _read_word(text: str) -> Chooses:
    key, equals, value = text.partition("=")
    needle = text.lower()

    expected = value.lower()

    def chooses(case: Case) -> bool:
        # Tags before ids and names: a suite may have a tag named `id` or `name`.
        if equals and key in case.tags and any(str(each).lower() == expected for each in _list_values(case.tags[key])):
            return True
        if equals and key in _EXACT:
            return expected == case.name.lower() if key == "name" else expected in (case.id.lower(), (case.own_id or case.id).lower())
        words = [case.id, case.name, *(f"{tag} {actual}" for tag, actual in case.tags.items())]
        return any(needle in word.lower() for word in words)

    return chooses


def _list_values(value: Json) -> tuple[Json, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)
