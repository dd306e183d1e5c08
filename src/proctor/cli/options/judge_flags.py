"""The flags that tell a command about its judge."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from proctor.cli.parser import parse_natural, parse_positive

if TYPE_CHECKING:
    from pathlib import Path

    from proctor.actions.judging.judge_settings import JudgeOptions
    from proctor.actions.judging.judges import OpenedJudge
    from proctor.model.case import Suite


def add_judge_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that `run`, `check` and `recheck` share."""
    judge = parser.add_argument_group("the judge")
    judge.add_argument("--judge-model", metavar="NAME", help="the model that judges: one of `models`, or provider/name")
    judge.add_argument("--judge-samples", type=parse_positive, metavar="N", help="how often each claim is judged (default: 1)")
    judge.add_argument("--max-judge-calls", type=parse_natural, metavar="N", help="the most requests to the judge")
    judge.add_argument("--no-cache", action="store_true", help="ask the judge again, whatever is remembered, and remember nothing")
    judge.add_argument("--share-judgements", action="store_true", help="let repeats of a case be judged by one remembered reply")
    judge.add_argument("--fail-fast", action="store_true", help="do not judge a case whose verdict is final")


def read_judge_options(options: argparse.Namespace) -> JudgeOptions:
    """Return what the flags say."""
    from proctor.actions.judging.judge_settings import JudgeOptions  # most commands have nothing to judge

    return JudgeOptions(
        model=options.judge_model,
        samples=options.judge_samples,
        cache=not options.no_cache,
        share_over_repeats=True if options.share_judgements else None,
        max_calls=options.max_judge_calls,
    )


def open_judge(suite: Suite, home: Path, options: argparse.Namespace, wanted: JudgeOptions) -> OpenedJudge | None:
    """Open the judge of a suite whose evidence is there already; None where the suite has nothing to judge."""
    from proctor.actions.judging.judges import open_suite_judge  # most suites have nothing to judge
    from proctor.actions.trust.trust import read_variables, trust_for

    trust = trust_for("reading", granted=options.trust, home=home)
    variables = read_variables(os.environ, home, trust, lambda text: None if options.quiet else print(text, file=sys.stderr))
    opened = open_suite_judge(suite, home, variables, wanted, trust)
    if opened is not None and opened.warning is not None and not options.quiet:
        print(f"warning: {opened.warning}", file=sys.stderr)
    return opened
