"""The options of a command.

Usage errors end with exit code 4 and name the nearest valid word. `argparse` is used instead of a larger library because every command
pays for the import of the parser before it does any work; a plain command line does not need even `argparse`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, cast

from proctor.cli.commands import load_command

if TYPE_CHECKING:
    import argparse

    from proctor.cli.full_parser import KindParser

_Settings = Mapping[str, Any]
_PLAIN_SETTINGS = frozenset(("action", "choices", "default", "help", "metavar", "nargs", "type"))


class CommandParser:
    """The options of one command: `argparse.ArgumentParser`, made only if a command line needs it.

    Importing and filling it takes as long as deciding a small suite. So the calls are remembered, and a plain line is parsed here; help,
    errors and anything else is left to the parser, which is made from the remembered calls.
    """

    def __init__(self, name: str, summary: str, examples: Iterable[str]) -> None:
        self._head = (name, summary, tuple(examples))
        self._groups: list[tuple[Any, ...]] = []
        self.added: list[tuple[int | None, tuple[str, ...], _Settings]] = []
        """The group of an option, if any, its names and its settings."""
        self._full: KindParser | None = None

    def add_argument(self, *names: str, **settings: Any) -> None:
        """Add an option or a positional argument."""
        self._add(None, names, settings)

    def add_argument_group(self, *given: Any) -> SimpleNamespace:
        """Add a group of options, for the help."""
        self._groups.append(given)
        number = len(self._groups) - 1
        return SimpleNamespace(add_argument=lambda *names, **settings: self._add(number, names, settings))

    def _add(self, group: int | None, names: tuple[str, ...], settings: _Settings) -> None:
        assert self._full is None, "an option was added after the parser was made"
        self.added.append((group, names, settings))

    def parse_args(self, arguments: Sequence[str]) -> SimpleNamespace | argparse.Namespace:
        """Return the options of a command line. Raises `ParserDone` after help or an error."""
        plain = None if self._full is not None else parse_plain([(names, settings) for _, names, settings in self.added], arguments)
        return self._make_full().parse_args(arguments) if plain is None else plain

    def _make_full(self) -> KindParser:
        if self._full is None:
            from proctor.cli.full_parser import make_full_parser  # slow to import

            self._full = make_full_parser(*self._head)
            groups = [self._full.add_argument_group(*given) for given in self._groups]
            for group, names, settings in self.added:
                (self._full if group is None else groups[group]).add_argument(*names, **settings)
        return self._full

    def __getattr__(self, name: str) -> Any:
        return getattr(self._make_full(), name)


def parse_plain(added: Sequence[tuple[tuple[str, ...], _Settings]], arguments: Sequence[str]) -> SimpleNamespace | None:
    """Return the options of a plain command line; None if `argparse` must parse it, for example to report an error.

    Plain are flags and options written out, each with its value as the next word, and positional arguments in one row.
    """
    values: dict[str, Any] = {}
    options: dict[str, tuple[str, _Settings]] = {}
    positions: list[tuple[str, _Settings]] = []
    for names, settings in added:
        if not _PLAIN_SETTINGS.issuperset(settings):
            return None
        if not names[0].startswith("-"):
            positions.append((names[0], settings))
            continue
        name = next((name for name in names if name.startswith("--")), names[0]).lstrip("-").replace("-", "_")
        options.update(dict.fromkeys(names, (name, settings)))
        is_flag = settings.get("action") == "store_true"
        values[name] = settings.get("default", False if is_flag else None)
        if isinstance(values[name], str) and "type" in settings:
            return None
    rest = list(arguments)
    row: list[str] = []
    has_ended = False
    while rest:
        word = rest.pop(0)
        if word == "-" or not word.startswith("-"):
            if has_ended:
                return None
            row.append(word)
            continue
        has_ended = bool(row)
        name, settings = options.get(word, ("", {}))
        action = settings.get("action", "store")
        if action == "store_true":
            values[name] = True
        elif not name or action != "store" or "nargs" in settings or not rest or rest[0].startswith("-"):
            return None
        else:
            found = _read_plain(rest.pop(0), settings)
            if found is None:
                return None
            values[name] = found
    return SimpleNamespace(**values) if _add_row(values, positions, row) else None


def _add_row(values: dict[str, Any], positions: Sequence[tuple[str, _Settings]], row: list[str]) -> bool:
    """Add the positional arguments; return whether they are as expected: one each, or several for the last one."""
    if len(row) < len(positions) or (len(row) > len(positions) and (not positions or positions[-1][1].get("nargs") != "+")):
        return False
    for number, (name, settings) in enumerate(positions):
        several = settings.get("nargs")
        if several not in (None, "+") or (several == "+" and number < len(positions) - 1):
            return False
        words = row[number:] if several == "+" else row[number : number + 1]
        found = [_read_plain(word, settings) for word in words]
        if None in found:
            return False
        values[name] = found if several == "+" else found[0]
    return True


def _read_plain(word: str, settings: _Settings) -> Any:
    """Return the value of an option, or None if it is invalid."""
    try:
        value = settings["type"](word) if "type" in settings else word
    except Exception:  # `argparse` reports it
        return None
    return value if value in settings.get("choices", (value,)) else None


def make_parser(name: str, summary: str, examples: Iterable[str]) -> KindParser:
    """Return a parser for one command, with examples under its help."""
    return cast("KindParser", CommandParser(name, summary, examples))


def collect_parser(command: str) -> KindParser:
    """Return the parser of a command. Raises `MissingExtra` if its extra is not installed."""
    from proctor.cli.full_parser import Reached, collected, collecting  # slow to import

    module = load_command(command)
    collecting.append(True)
    try:
        # Every command prints its help without doing anything.
        module.run(["--help"])
    except Reached:
        return collected.pop()
    finally:
        collecting.pop()
    raise AssertionError(f"{command} has no parser")


def add_output_flags(parser: argparse.ArgumentParser, formats: tuple[str, ...]) -> None:
    """Add the flags of every command that shows results."""
    parser.add_argument("--format", choices=formats, default="terminal", metavar="FORMAT", help=f"{', '.join(formats)} (default: terminal)")
    add_flags(parser, "--output")
    parser.add_argument("--quiet", action="store_true", help="no progress and no warnings on standard error")
    add_flags(parser, "--no-color")


class HoldsArguments(Protocol):
    """A parser, or a group of its options."""

    def add_argument(self, *names: str, **options: Any) -> object:
        """Add an option."""
        ...


_SHARED: dict[str, dict[str, Any]] = {
    "--capture": {"choices": ("otel",), "help": "for a Python function as the target: also read its spans"},
    "--complete": {
        "metavar": "PARTS",
        "default": "",
        "help": "parts that you declare complete in recordings: tool_calls,answer (default: `evidence: {complete: ...}`)",
    },
    "--dialect": {
        "metavar": "NAME",
        "help": "native, mcplab, mibo, verial, mcpjam, pydantic-evals or deepeval (default: auto-detect)",
    },
    "--evidence-format": {"metavar": "NAME", "help": "how to read the evidence (default: auto-detect)"},
    "--format": {"choices": ("terminal", "json"), "default": "terminal", "help": "terminal or json (default: terminal)"},
    "--home": {"metavar": "DIR", "help": "the workspace (default: the nearest folder with proctor.yaml)"},
    "--no-color": {"action": "store_true", "help": "no colours, also on a terminal"},
    "--no-judge": {"action": "store_true", "help": "call no judge: judged checks become errors"},
    "--now": {"metavar": "ISO", "help": "the current time for expressions (default: that of the evidence)"},
    "--organization": {"metavar": "NAME", "help": "the organization, by id or name (default: the first)"},
    "--output": {"metavar": "FILE", "help": "write the result to this file instead of standard output"},
    "--prices": {"metavar": "FILE", "help": "model prices, instead of `prices:` in proctor.yaml"},
    "--strict": {"action": "store_true", "help": "exit 4 if a case has no evidence, or a record has no case or another input"},
}


def add_flags(parser: HoldsArguments, *names: str) -> None:
    """Add options that several commands have."""
    for name in names:
        parser.add_argument(name, **_SHARED[name])


def add_trust_flag(parser: argparse.ArgumentParser, doing: str) -> None:
    """Add the flag of commands that may run what a suite names."""
    parser.add_argument("--trust", action="store_true", default=None, help=f"trust the suite: {doing} (also PROCTOR_TRUST=1)")


def _refuse(message: str) -> NoReturn:
    from argparse import ArgumentTypeError  # slow to import

    raise ArgumentTypeError(message)


def parse_share(text: str) -> float:
    """Return a number from 0 to 1."""
    value = float(text)
    if not 0 <= value <= 1:
        _refuse(f"expected a number from 0 to 1, found {text}")
    return value


def parse_whole(text: str, least: int | None = None) -> int:
    """Return a whole number of plain digits; Python would also accept `1_0` and other scripts."""
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        _refuse(f"expected a whole number, found {text!r}")
    value = int(text)
    if least is not None and value < least:
        _refuse(f"expected at least {least}, found {value}")
    return value


def parse_positive(text: str) -> int:
    """Return a whole number of at least 1."""
    return parse_whole(text, 1)


def parse_natural(text: str) -> int:
    """Return a whole number of at least 0."""
    return parse_whole(text, 0)
