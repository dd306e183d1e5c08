"""The parser of `argparse` for one command, with better errors."""

from __future__ import annotations

import argparse
import functools
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from proctor.cli.exit_codes import Exit, ParserDone
from proctor.model.show import nearest


class Reached(Exception):
    """Raised to hand over the parser of a command."""


collected: list[KindParser] = []
collecting: list[bool] = []


class KindParser(argparse.ArgumentParser):
    """A parser whose errors suggest the nearest option."""

    def print_help(self, file: Any = None) -> None:
        """Print the help, or hand the parser over to `collect_parser`."""
        if collecting:
            collected.append(self)
            raise Reached
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


def make_full_parser(name: str, summary: str, examples: Sequence[str]) -> KindParser:
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
