"""`proctor init [DIR]`"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from proctor.actions.help.init import find_starter, write_starter
from proctor.actions.running.named_target import WAYS, parse_target
from proctor.actions.start.candidates import KINDS, RECORDED, Candidate, find_candidates, find_gaps
from proctor.actions.start.starters import use_pyproject_table
from proctor.cli.exit_codes import Exit
from proctor.cli.parser import make_parser
from proctor.errors import InputError
from proctor.model.show import escape_unseen


def run(arguments: list[str]) -> int:
    """Find an agent and write the starting files; returns the exit code."""
    parser = make_parser(
        "init",
        "Find an agent in a folder and write a suite, target and first case for it; else write a small suite with recorded evidence.",
        [
            "proctor init",
            "proctor init --for pydantic-ai",
            "proctor init --target http://127.0.0.1:9000/chat",
            "proctor init --evidence logs/agent.jsonl",
        ],
    )
    parser.add_argument("folder", metavar="DIR", nargs="?", default=".", help="the folder (default: the current one)")
    parser.add_argument("--for", dest="wanted", metavar="NAME", help=f"what to start from (default: auto-detect): {', '.join(KINDS)}")
    parser.add_argument("--evidence", metavar="FILE", help="write a suite for this log, with a mapping if its format is unknown")
    parser.add_argument("--target", metavar="TARGET", help=f"write for this agent: {WAYS}")
    options = parser.parse_args(arguments)
    if options.target is not None and options.wanted is not None:
        raise InputError("--target and --for exclude each other")
    if options.evidence is not None and (options.target is not None or options.wanted is not None):
        raise InputError("--evidence cannot be combined with --target or --for")
    target = parse_target(options.target) if options.target is not None else None
    if options.target is not None and target is None:
        raise InputError(f"--target {options.target!r}: expected {WAYS}")
    kind, candidate, others, gaps = RECORDED, None, list[Candidate](), list[str]()
    if target is None and options.evidence is None:
        candidates = find_candidates(options.folder)
        kind, candidate = _choose(candidates, options.wanted)
        others = [other for other in candidates if other is not candidate and options.wanted is None]
        gaps = find_gaps(options.folder, is_found=bool(candidates)) if options.wanted is None else []
    if options.evidence is not None:
        from proctor.actions.checking.describe_evidence import start_with_log  # rarely needed

        kind, starter = "", start_with_log(options.evidence, Path(options.folder))
    else:
        starter = use_pyproject_table(Path(options.folder), find_starter(kind, candidate, target=target))
    paths = write_starter(options.folder, starter)
    if candidate is not None:
        print(f"found {_show(candidate)}")
    for path in paths:
        print(f"wrote {path}")
    if "suite.yaml" in starter.files and Path(options.folder, "suite.yaml") not in paths:
        print(f"unchanged: {Path(options.folder, 'suite.yaml')}")
    if gaps and not candidate:
        gaps.append(f"write for your own agent with --target: {WAYS}")
    for remark in (*starter.remarks, *gaps):
        print(f"note: {escape_unseen(remark, keep=chr(10))}")
    if others:
        print("also found (use --for):")
        for other in others:
            print(f"  {other.kind:<16} {escape_unseen(other.why)}")
    print(f"\nnext: {_describe_next(starter.next, options.folder, kind, paths)}")
    return Exit.PASSED


def _choose(candidates: Sequence[Candidate], wanted: str | None) -> tuple[str, Candidate | None]:
    if wanted is not None:
        return wanted, next((candidate for candidate in candidates if candidate.kind == wanted), None)
    if not candidates:
        return RECORDED, None
    chosen = candidates[0]
    if sys.stdin.isatty() and sys.stderr.isatty():
        chosen = _ask(candidates)
    return (chosen.kind, chosen) if chosen is not None else (RECORDED, None)


def _ask(candidates: Sequence[Candidate]) -> Candidate | None:
    print("Which agent is the suite for?", file=sys.stderr)
    for number, one in enumerate(candidates, 1):
        print(f"  {number}  {_show(one)}", file=sys.stderr)
    print(f"  {len(candidates) + 1}  none of them: a suite with recorded evidence to try", file=sys.stderr)
    while True:
        print("number [1]: ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        # End of standard input.
        if not line:
            raise KeyboardInterrupt
        entered = line.strip() or "1"
        if entered.isdecimal() and 1 <= int(entered) <= len(candidates) + 1:
            return candidates[int(entered) - 1] if int(entered) <= len(candidates) else None


def _show(candidate: Candidate) -> str:
    return escape_unseen(f"{candidate.kind} ({candidate.why})")


def _describe_next(command: str, folder: str, kind: str, written: Sequence[Path]) -> str:
    """Return the next command, relative to the current folder."""
    if kind == RECORDED and len(written) > 1 and written[1].suffix == ".jsonl":
        return shlex.join(["proctor", "check", str(written[0]), str(written[1])])
    return command if Path(folder).resolve() == Path.cwd() else f"cd {shlex.quote(folder)} && {command}"
