"""Plain command lines are parsed as `argparse` would, and every other one by `argparse`."""

from __future__ import annotations

import random
from typing import Any

import pytest

from proctor.cli.commands import check, run
from proctor.cli.exit_codes import ParserDone
from proctor.cli.parser import CommandParser, collect_parser, parse_plain

LINE = (
    "suite.yaml a.jsonl b.jsonl - -- -x -v -k name=a -3 --quiet --format jsonl yaml --output out.json --judge-samples 2 0 --fail-on all "
    "--format=json --explain --now --trust -h -xv"
)
WORDS: tuple[str, ...] = (*LINE.split(), "", "not slow")


def _parse(parser: Any, words: list[str]) -> Any:
    try:
        return vars(parser.parse_args(words))
    except ParserDone as done:
        return done.code


def _find_added(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the options of `check`, with their settings."""
    found: list[CommandParser] = []

    def parse_args(parser: CommandParser, words: list[str]) -> None:
        found.append(parser)
        raise ParserDone(0)

    with monkeypatch.context() as patch:
        patch.setattr(CommandParser, "parse_args", parse_args)
        with pytest.raises(ParserDone):
            check.run([])
    return [(names, settings) for _, names, settings in found[0].added]


@pytest.mark.parametrize("seed", range(4))
def test_plain_lines_are_parsed_alike(seed: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(seed)
    added, full = _find_added(monkeypatch), collect_parser("check")
    count = 0
    for _ in range(1500):
        words = chance.choices(WORDS, k=chance.randrange(7))
        found = parse_plain(added, words)
        if found is not None:
            count += 1
            assert vars(found) == _parse(full, words), words
    assert count > 20
    capsys.readouterr()


def test_the_usual_line_needs_no_other_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    added = _find_added(monkeypatch)
    for line in ("suite.yaml e.jsonl", "s e f --format junit --output r.xml", "--quiet s - -k a", "s e --judge-samples 3 -x --strict"):
        assert parse_plain(added, line.split()) is not None, line


@pytest.mark.parametrize("module", [check, run])
def test_help_and_errors_are_those_of_argparse(module: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ParserDone) as done:
        module.run(["--help"])
    assert done.value.code == 0 and "examples:" in capsys.readouterr().out
    with pytest.raises(ParserDone) as done:
        module.run(["suite.yaml", "other.yaml", "--formt", "json"])
    assert done.value.code == 4 and "--format" in capsys.readouterr().err
