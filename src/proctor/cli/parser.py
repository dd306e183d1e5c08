"""The option parser: `argparse` with better errors.

Usage errors end with exit code 4 and name the nearest valid word. `argparse` is used instead of a larger library because every command
pays for the import of the parser before it does any work.
"""

from __future__ import annotations

import argparse
import functools
import re
import sys
from collections.abc import Iterable
from typing import Any, NoReturn, Protocol

from proctor.cli.commands import load_command
from proctor.cli.exit_codes import Exit, ParserDone
from proctor.model.show import nearest


class _Reached(Exception):
    """Raised to hand over the parser of a command."""


_collected: list[KindParser] = []
_collecting: list[bool] = []


class KindParser(argparse.ArgumentParser):
    """A parser whose errors suggest the nearest option."""

    def print_help(self, file: Any = None) -> None:
        """Print the help, or hand the parser over to `Parsed`."""
        if _collecting:
            _collected.append(self)
            raise _Reached
        super().print_help(file)

    def format_help(self) -> str:
        """Return the help, in the width of the terminal."""
        self.formatter_class = argparse.RawDescriptionHelpFormatter
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Print the message, the nearest option and where to find help; exit with 4."""
        lines = [f"{self.prog}: {message}"]
        # `argparse` provides only its message.
        unknown = re.findall(r"--?[A-Za-z][\w-]*", message) if "unrecognized" in message else []
        known = [option for action in self._actions for option in action.option_strings]
        for word in unknown:
            close = nearest(word, known)
            if close:
                lines.append(f"  nearest to {word}: {', '.join(close)}")
        choice = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if choice:
            close = nearest(choice[1], re.findall(r"[\w-]+", choice[2]))
            if close:
                lines.append(f"  nearest: {', '.join(close)}")
        lines.append(f"  `{self.prog} --help` shows what there is")
        print("\n".join(lines), file=sys.stderr)
        raise ParserDone(Exit.USAGE)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End the command with this code, after the help was printed."""
        if message:
            print(message, end="", file=sys.stderr)
        raise ParserDone(status)


def make_parser(name: str, summary: str, examples: Iterable[str]) -> KindParser:
    """Return a parser for one command, with examples under its help."""
    text = "examples:\n" + "\n".join(f"  {example}" for example in examples)
    return KindParser(
        prog=f"proctor {name}",
        description=summary,
        epilog=text,
        # Every flag asks for a formatter, and one without a width imports `shutil` to measure the terminal.
        formatter_class=functools.partial(argparse.RawDescriptionHelpFormatter, width=100),
        # Abbreviations would become ambiguous with new options.
        allow_abbrev=False,
    )


def collect_parser(command: str) -> KindParser:
    """Return the parser of a command. Raises `MissingExtra` if its extra is not installed."""
    module = load_command(command)
    _collecting.append(True)
    try:
        # Every command prints its help without doing anything.
        module.run(["--help"])
    except _Reached:
        return _collected.pop()
    finally:
        _collecting.pop()
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


def parse_share(text: str) -> float:
    """Return a number from 0 to 1."""
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, found {text}")
    return value


def parse_whole(text: str, least: int | None = None) -> int:
    """Return a whole number of plain digits; Python would also accept `1_0` and other scripts."""
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise argparse.ArgumentTypeError(f"expected a whole number, found {text!r}")
    value = int(text)
    if least is not None and value < least:
        raise argparse.ArgumentTypeError(f"expected at least {least}, found {value}")
    return value


def parse_positive(text: str) -> int:
    """Return a whole number of at least 1."""
    return parse_whole(text, 1)


def parse_natural(text: str) -> int:
    """Return a whole number of at least 0."""
    return parse_whole(text, 0)


def parse_amount(text: str) -> float:
    """Return an amount of money above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text}")
    return value
