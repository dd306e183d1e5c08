"""`proctor accept [SUITE|RUN]`"""

import argparse
import itertools
import sys
from pathlib import Path

from proctor.actions.generating.accept import (
    Accepted,
    Decision,
    Pending,
    is_frozen,
    make_golden,
    open_pending,
    select_proposals,
    settle_proposals,
)
from proctor.actions.generating.pending_file import PENDING, find_pending_path
from proctor.actions.workspace.run_history import find_home
from proctor.cli.exit_codes import Exit
from proctor.cli.parser import add_flags, make_parser
from proctor.cli.stored import choose_run
from proctor.errors import InputError
from proctor.generation.proposals import Proposal
from proctor.model.show import escape_unseen
from proctor.report.words.wording import count_noun

_SUFFIXES = (".yaml", ".yml", ".json")
_MOST_UNCHANGED = 4
"""Lines between two changes that are shown."""


def run(arguments: list[str]) -> int:
    """Show or settle proposals; returns the exit code."""
    parser = _make_parser()
    options = parser.parse_args(arguments)
    pending = [_open(options, what) for what in options.what or _find_pending_files()]
    frozen = options.frozen or is_frozen()
    total = sum(len(file.proposals) for file in pending)
    if not total:
        print("nothing is pending")
        return Exit.PASSED
    decides = options.all or options.new or options.changed or options.k is not None or options.reject is not None
    if frozen or not (decides or options.review):
        for file in pending:
            diff = not frozen
            print(f"{file.suite_path}: {count_noun(len(file.proposals), 'proposal')}")
            for proposal in file.proposals:
                _print_proposal(proposal, diff=diff)
        if frozen:
            print(
                f"{count_noun(total, 'proposal')} pending, and nothing is written in CI: accept or reject them, and commit", file=sys.stderr
            )
            return Exit.USAGE
        print("accept them: proctor accept --review, --new, --changed, --all or -k EXPR")
        return Exit.PASSED
    review, settled = _Review(), False
    for file in pending:
        done = _settle(file, options, review)
        parts = [
            f"{count_noun(len(found), 'proposal')} {name}"
            for name, found in (("accepted", done.accepted), ("rejected", done.rejected), ("left", done.left))
            if found
        ]
        print(f"{file.suite_path}: {', '.join(parts) or 'nothing chosen'}")
        settled = settled or bool(done.accepted or done.rejected)
    return Exit.PASSED if settled or options.review else Exit.NOTHING


def _open(options: argparse.Namespace, what: str) -> Pending:
    path = Path(what)
    if path.suffix in _SUFFIXES:
        pending = path if path.stem.endswith(PENDING) else find_pending_path(path)
        if not path.exists() and not pending.exists():
            raise InputError(f"no such suite or file of proposals: {what!r}")
        return open_pending(pending)
    home = find_home(options.home)
    return make_golden(home, choose_run(home, what))


def _find_pending_files() -> list[str]:
    return sorted(str(path) for folder in (Path(), Path("suites")) if folder.is_dir() for path in folder.glob(f"*{PENDING}.yaml"))


class _Review:
    def __init__(self) -> None:
        self._ended = False

    def ask(self, proposal: Proposal) -> Decision:
        """Show a proposal and return the decision."""
        if self._ended:
            return "skip"
        _print_proposal(proposal, diff=True)
        answer = _ask()
        self._ended = answer == "q"
        return "accept" if answer == "a" else "reject" if answer == "r" else "skip"


def _settle(pending: Pending, options: argparse.Namespace, review: _Review) -> Accepted:
    kind = "new" if options.new and not options.changed else "changed" if options.changed and not options.new else None
    chosen = select_proposals(pending, kind=kind, expression=options.k)
    decision: Decision = "accept" if options.reject is None else "reject"

    def decide(proposal: Proposal) -> Decision:
        if proposal.case not in chosen:
            return "skip"
        return review.ask(proposal) if options.review else decision

    return settle_proposals(pending, decide, reason=options.reject or "")


def _ask() -> str:
    while True:
        print("accept, reject, skip, quit? [a/r/s/q] ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            return "q"
        answer = line.strip().lower()[:1]
        if answer in ("a", "r", "s", "q"):
            return answer


def _print_proposal(proposal: Proposal, *, diff: bool) -> None:
    changes = f"changed: {count_noun(len(proposal.added), 'claim')} added, {len(proposal.removed)} removed"
    print(f"\n{proposal.case}  {'new case' if proposal.kind == 'new' else changes}")
    if diff:
        for changed, group in itertools.groupby(proposal.diff, lambda line: line[:1] != " "):
            lines = list(group)
            shown = lines if changed or len(lines) <= _MOST_UNCHANGED else [f"  ... {len(lines)} unchanged lines"]
            print("".join(f"  {escape_unseen(line)}\n" for line in shown), end="")


def _make_parser() -> argparse.ArgumentParser:
    parser = make_parser(
        "accept",
        "Show proposed cases and claims, and accept them into their suite. Comments and order of the suite stay. "
        "With a run, its passing attempts become golden claims. With CI=true nothing is written, and pending proposals are exit code 4.",
        [
            "proctor accept",
            "proctor accept --review",
            "proctor accept suites/refunds.yaml --new",
            "proctor accept -k refund",
            "proctor accept -k lookup --reject 'covered by another case'",
            "proctor accept latest --all",
        ],
    )
    parser.add_argument(
        "what", metavar="SUITE|RUN", nargs="*", help="suites with proposals, or a passing run (default: every *.pending.yaml here)"
    )
    parser.add_argument("--review", action="store_true", help="show the difference of each and ask: accept, reject, skip, quit")
    parser.add_argument("--all", action="store_true", help="accept all")
    parser.add_argument("--new", action="store_true", help="accept new cases")
    parser.add_argument("--changed", action="store_true", help="accept changes of existing cases")
    parser.add_argument("-k", metavar="EXPR", help="only cases whose id matches, as in `proctor run`")
    parser.add_argument("--reject", metavar="REASON", nargs="?", const="", help="reject instead of accept: they are not proposed again")
    parser.add_argument("--frozen", action="store_true", help="write nothing, and exit 4 if proposals are pending (default with CI=true)")
    add_flags(parser, "--home")
    return parser
