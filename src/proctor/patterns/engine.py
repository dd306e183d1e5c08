"""Regular expressions for every dialect: ECMAScript, searched anywhere, always within limits.

Two engines give one meaning. Patterns that `plain_syntax` understands and `cost` proves cheap run on `regress`, which is fast but cannot be
stopped; all others, and texts longer than the proof covers, run on QuickJS, which can. Where the two are known to differ (case
folding beyond ASCII, characters outside the basic plane without the `u` flag), QuickJS answers.

A pattern of more than 10 000 characters is refused, and so is a text of more than 1 000 000.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

import msgspec

from proctor.errors import CheckFault
from proctor.model.show import show
from proctor.patterns import script_engine
from proctor.patterns.cost import find_longest_text
from proctor.patterns.faults import PatternError
from proctor.patterns.offsets import from_utf8, from_utf16, has_surrogates, is_within_basic_plane
from proctor.patterns.plain_syntax import Plain, read_plain
from proctor.work import spend

if TYPE_CHECKING:
    from regress import Match, Regex

__all__ = ["FLAGS", "LONGEST_PATTERN", "LONGEST_TEXT", "Pattern", "PatternError", "PatternMatch", "compile_pattern"]

FLAGS: Final = "imsu"
LONGEST_PATTERN: Final = 10_000
"""Characters of a pattern: reading and compiling one takes time too."""
LONGEST_TEXT: Final = 1_000_000
"""Characters of a text that the slow engine is given."""
SLOW_SEARCH: Final = 1_000
"""What a search by the slow engine counts, in steps: it is bounded by itself, and so is how many of them one assertion may make."""

_FLAG_REASONS: Final = {
    "g": "a search stops at the first match, so `g` means nothing here",
    "y": "a search may begin anywhere, so `y` cannot be used",
    "d": "positions are always kept, so `d` means nothing here",
    "v": "`v` is not supported; `u` is",
    "x": "ECMAScript has no extended mode",
}


class PatternMatch(msgspec.Struct, frozen=True):
    """Where a pattern was found. Positions are Python indices; a group that took no part is `None`."""

    start: int
    end: int
    text: str
    groups: tuple[str | None, ...]
    named: dict[str, str | None]


class Pattern:
    """A compiled pattern; safe to share between threads."""

    __slots__ = ("_fast", "_fast_limit", "_fold", "_plain", "_unicode", "flags", "source")

    def __init__(self, source: str, flags: str, plain: Plain | None, fast_limit: int) -> None:
        self.source = source
        self.flags = flags
        self._plain = plain
        self._fast_limit = fast_limit
        self._fold = "i" in flags
        self._unicode = "u" in flags
        self._fast: Regex | None = None

    def __repr__(self) -> str:
        return f"Pattern(/{self.source}/{self.flags})"

    @property
    def fast_limit(self) -> int:
        """The longest text the fast engine may be given; 0: none."""
        return self._fast_limit

    def search(self, text: str) -> PatternMatch | None:
        """Return the leftmost match, or nothing. Raises `CheckFault` when a limit is hit."""
        # A limit of 0 means that nothing was proven; then even an empty text goes to the engine that can be stopped.
        if 0 < self._fast_limit >= len(text) and self._is_same_in_both(text):
            return self._search_fast(text)
        if len(text) > LONGEST_TEXT:
            raise CheckFault(
                "regex_limit",
                f"the text has {len(text)} characters; the pattern {show(self.source)} is searched in at most {LONGEST_TEXT}",
            )
        return self._search_script(text)

    def _is_same_in_both(self, text: str) -> bool:
        # The two engines fold case differently beyond ASCII, and count characters outside the basic plane differently without `u`.
        # Asked first, because it is free: CPython keeps the answer with the text.
        if text.isascii():
            return True
        if self._fold:
            return False
        return not has_surrogates(text) if self._unicode else is_within_basic_plane(text)

    def _search_fast(self, text: str) -> PatternMatch | None:
        regex = self._fast
        if regex is None:
            from regress import Regex  # loaded when the first pattern needs it

            # Two threads may compile at the same time; both results are the same and one of them wins.
            regex = self._fast = Regex(self.source, self.flags or None)
        match = regex.find(text)
        return None if match is None else self._from_fast(match, text)

    def _from_fast(self, match: Match, text: str) -> PatternMatch:
        plain = self._plain
        assert plain is not None
        span = from_utf8(text)

        def part(piece: slice | None) -> str | None:
            if piece is None:
                return None
            start, end = span(piece.start, piece.stop)
            return text[start:end]

        whole = match.range()
        start, end = span(whole.start, whole.stop)
        groups = tuple(part(match.group(number)) for number in range(1, plain.groups + 1))
        return PatternMatch(start, end, text[start:end], groups, {name: groups[number - 1] for name, number in plain.names})

    def _search_script(self, text: str) -> PatternMatch | None:
        # A loop over thousands of calls must not multiply the time limit of one search.
        spend(SLOW_SEARCH)
        found = script_engine.search(self.source, self.flags, text)
        if found is None:
            return None
        span = from_utf16(text)

        def part(pair: list[int] | None) -> str | None:
            if pair is None:
                return None
            start, end = span(pair[0], pair[1])
            return text[start:end]

        whole = found.spans[0]
        assert whole is not None
        start, end = span(whole[0], whole[1])
        named = {name: part(pair) for name, pair in found.named.items()}
        return PatternMatch(start, end, text[start:end], tuple(part(pair) for pair in found.spans[1:]), named)


@functools.lru_cache(maxsize=2048)
def compile_pattern(source: str, flags: str = "") -> Pattern:
    """Read a pattern. Raises `PatternError` when it is not ECMAScript, too long, or has unknown flags."""
    # Pattern and flags alone decide what comes out, so one cache serves every suite of the process. Refusals are not kept by it.
    _refuse_flags(flags)
    if len(source) > LONGEST_PATTERN:
        raise PatternError(f"the pattern has {len(source)} characters; at most {LONGEST_PATTERN} are allowed")
    plain = read_plain(source, flags)
    limit = 0 if plain is None else find_longest_text(plain.node)
    # Whatever the fast engine will run was understood by `read_plain`; only the others are still to be proven valid.
    if limit == 0:
        script_engine.validate(source, flags)
    return Pattern(source, flags, plain, limit)


def _refuse_flags(flags: str) -> None:
    for position, flag in enumerate(flags):
        if flag not in FLAGS:
            reason = _FLAG_REASONS.get(flag, f"the flags are {', '.join(FLAGS)}")
            raise PatternError(f"unknown regular expression flag {show(flag)}: {reason}")
        if flag in flags[:position]:
            raise PatternError(f"the regular expression flag {show(flag)} is given twice")
