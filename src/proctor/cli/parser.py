"""The option parser: `argparse`, made kind.

Usage errors end with exit code 4 and name the nearest right word. `argparse` rather than a larger library because every
command pays for the parser's import before it does any work.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from typing import NoReturn

from proctor.cli.exits import Exit
from proctor.model.show import nearest


class KindParser(argparse.ArgumentParser):
    """A parser whose errors say what was meant."""

    def error(self, message: str) -> NoReturn:
        """Print the message, the nearest option and where to read on; end with code 4."""
        lines = [f"{self.prog}: {message}"]
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
        raise SystemExit(Exit.USAGE)


def make_parser(name: str, summary: str, examples: Iterable[str]) -> KindParser:
    """Return a parser for one command, with examples under its help."""
    text = "examples:\n" + "\n".join(f"  {example}" for example in examples)
    return KindParser(
        prog=f"proctor {name}",
        description=summary,
        epilog=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_output_flags(parser: argparse.ArgumentParser, formats: tuple[str, ...]) -> None:
    """Add the flags of every command that shows results."""
    parser.add_argument("--format", choices=formats, default="terminal", metavar="FORMAT", help=f"{', '.join(formats)} (default: terminal)")
    parser.add_argument("--output", metavar="FILE", help="write the result there instead of to standard output")
    parser.add_argument("--quiet", action="store_true", help="no progress and no warnings on standard error")
    parser.add_argument("--no-color", action="store_true", help="no colours, also on a terminal")


def add_suite_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every command that reads suites."""
    parser.add_argument("--dialect", metavar="NAME", help="native, mcplab, mibo, verial or mcpjam (default: recognised by shape)")
    parser.add_argument("--home", metavar="DIR", help="the workspace (default: the nearest folder with proctor.yaml)")


def add_trust_flag(parser: argparse.ArgumentParser, doing: str) -> None:
    """Add the flag of every command that may do what a suite names."""
    parser.add_argument("--trust", action="store_true", default=None, help=f"take the suite at its word: {doing} (also PROCTOR_TRUST=1)")


def add_strict_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag of every command that brings cases and evidence together."""
    parser.add_argument("--strict", action="store_true", help="exit 4 when a case has no evidence, or a record answers no case")
