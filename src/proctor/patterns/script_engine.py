"""Runs regular expressions in an ECMAScript engine, under hard limits.

A QuickJS context can be stopped during a match, so a runaway pattern costs at most a quarter of a second of CPU. Each thread has its own
context (a context must not change threads); one that reached a limit is discarded. Pattern and text are passed as arguments of one fixed
function: no script is ever built from them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from proctor.errors import CheckFault
from proctor.model.show import show
from proctor.patterns.faults import Mistake, PatternError, has_surrogates, locate_mistake
from proctor.work import spend

SECONDS: Final = 0.25
"""CPU seconds for one search."""
_MOST_SHARES: Final = 8
"""The maximum number of concurrent searches by which the time limit is multiplied, so that no search takes seconds."""
_MEMORY: Final = 64_000_000
"""The memory limit of one engine in bytes."""
_STACK: Final = 200_000
"""The stack limit of one engine in bytes."""
_MOST_COMPILED: Final = 400
"""The maximum number of patterns in one engine, which never frees a pattern."""
_GIVEN_UP: Final = 500_000
"""The cost in steps of an abandoned search."""

# `d` requests the positions of the groups. JSON carries lone surrogates, which cannot be passed as text.
_PROGRAM: Final = """
(function (pattern, flags, encoded) {
  const regexp = new RegExp(encoded ? JSON.parse(pattern) : pattern, flags + "d");
  return function (text, encoded) {
    const found = regexp.exec(encoded ? JSON.parse(text) : text);
    if (found === null) return null;
    const named = {};
    for (const name in found.indices.groups) named[name] = found.indices.groups[name] ?? null;
    return JSON.stringify([found.indices, named]);
  };
})
"""


class Found(NamedTuple):
    """Spans in UTF-16 units: the whole match and its groups, and the named groups."""

    spans: list[list[int] | None]
    named: dict[str, list[int] | None]


class _Engine:
    """One context and the patterns compiled in it."""

    def __init__(self) -> None:
        # The C module of `quickjs`: importing the package around it starts a thread that we do not need.
        import _quickjs  # loaded when the first pattern needs it

        self.error: type[Exception] = _quickjs.JSException
        self.context = _quickjs.Context()
        self.context.set_memory_limit(_MEMORY)
        self.context.set_max_stack_size(_STACK)
        self.make: Callable[..., Any] = self.context.eval(_PROGRAM)
        self.compiled: dict[tuple[str, str], Callable[..., str | None]] = {}

    def get_matcher(self, source: str, flags: str) -> Callable[..., str | None]:
        known = self.compiled.get((source, flags))
        if known is None:
            pattern, encoded = _make_passable(source)
            known = self.compiled[(source, flags)] = self.make(pattern, flags, encoded)
        return known


class _PerThread(threading.local):
    engine: _Engine | None = None


_local = _PerThread()


class Engine(Protocol):
    """The process that runs patterns."""

    def validate(self, source: str, flags: str) -> None:
        """Raise `PatternError` unless ECMAScript accepts the pattern."""
        ...

    def search(self, source: str, flags: str, text: str) -> Found | None:
        """Return the leftmost match. Raises `CheckFault` if it takes too much time or memory."""
        ...


_elsewhere: Engine | None = None


def use_engine(engine: Engine | None) -> Engine | None:
    """Use another engine for all patterns, or the one in this process if None, and return the previous one."""
    global _elsewhere
    previous, _elsewhere = _elsewhere, engine
    return previous


def validate(source: str, flags: str) -> None:
    """Raise `PatternError` unless ECMAScript accepts the pattern."""
    if _elsewhere is not None:
        return _elsewhere.validate(source, flags)
    engine = _get_engine()
    try:
        engine.context.set_time_limit(SECONDS)
        engine.get_matcher(source, flags)
    except engine.error as error:
        _local.engine = None
        mistake = locate_mistake(source) or Mistake(None, _shorten_message(error))
        message = f"invalid regular expression {show(source)}: {mistake.message}"
        raise PatternError(message, offset=mistake.offset, hint=mistake.hint) from None


def search(source: str, flags: str, text: str) -> Found | None:
    """Return the leftmost match. Raises `CheckFault` if it takes too much time or memory."""
    if _elsewhere is not None:
        return _elsewhere.search(source, flags, text)
    engine = _get_engine()
    with _share as seconds:
        try:
            engine.context.set_time_limit(seconds)
            answer = engine.get_matcher(source, flags)(*_make_passable(text))
        except engine.error as error:
            _local.engine = None
            # Counted, so that trying it on many texts soon exceeds the budget.
            spend(_GIVEN_UP)
            raise _given_up_fault(source, text, _shorten_message(error)) from None
        except MemoryError:
            _local.engine = None
            raise _given_up_fault(source, text, "out of memory") from None
    return None if answer is None else Found(*json.loads(answer))


class _Share:
    """The time limit of a search, given the other concurrent searches.

    The engine counts the CPU time of the whole process. Searches in other threads run at the same time, and so may one thread of Python
    code; each gets a share, so that a search is not cut short by others.
    """

    def __init__(self) -> None:
        # Counted under a lock: `+=` on an attribute is not atomic, and a lost update would shorten the limit for good.
        self.lock = threading.Lock()
        self.searching = 0

    def __enter__(self) -> float:
        with self.lock:
            self.searching += 1
            # One additional share for Python code that may run next to the searches.
            is_only_thread = threading.active_count() == 1
            return SECONDS * min(_MOST_SHARES, self.searching + (0 if is_only_thread else 1))

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.searching -= 1


_share = _Share()


def _given_up_fault(source: str, text: str, message: str) -> CheckFault:
    if "interrupted" in message:
        return CheckFault("regex_timeout", f"the pattern {show(source)} took more than {SECONDS:g} s on a text of {len(text)} characters")
    return CheckFault("regex_limit", f"the pattern {show(source)} could not be searched: {message}")


def _get_engine() -> _Engine:
    engine = _local.engine
    if engine is None or len(engine.compiled) >= _MOST_COMPILED:
        # A context keeps every compiled pattern, so a full one is replaced as a whole.
        engine = _local.engine = _Engine()
    return engine


def _make_passable(text: str) -> tuple[str, bool]:
    return (json.dumps(text), True) if has_surrogates(text) else (text, False)


def _shorten_message(error: Exception) -> str:
    """Return the first line of the engine's message, without its own error class."""
    lines = str(error).splitlines()
    return (lines[0] if lines else "unknown").removeprefix("SyntaxError: ").removeprefix("InternalError: ")
