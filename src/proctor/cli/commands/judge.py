"""`proctor judge calibrate LABELS...`, `proctor judge starter`, `proctor judge labels RUN` and `proctor judge improve LABELS...`"""

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from proctor.actions.calibration.calibrate import (
    CONCURRENCY,
    IS_EXAMPLE,
    MIN_DECIDED,
    RUBRICS,
    WITHOUT_SET,
    calibrate,
    explain_undecided,
    judge_to_calibrate,
    leave_out_examples,
    rubric_labels,
    starter_labels,
    store_calibration,
)
from proctor.actions.calibration.teach import Improvement, improve, list_run_labels, make_sharpen
from proctor.actions.checking.check_stream import wall_clock
from proctor.actions.judging.judge_settings import JudgeOptions, show_example
from proctor.actions.judging.judges import OpenedJudge
from proctor.actions.workspace.run_history import find_home
from proctor.actions.workspace.status_line import StatusLine
from proctor.cli.exit_codes import Exit
from proctor.cli.parser import add_flags, add_output_flags, make_parser, parse_positive, parse_share
from proctor.cli.show.output import Output
from proctor.cli.show.renderers import write_report
from proctor.cli.stored import choose_run
from proctor.errors import InputError, StoreError
from proctor.judge.gated_model import JudgeSpending
from proctor.llm.ports import ChatReply, ChatRequest
from proctor.model.judgement import JudgedAnswer, LabelledAnswer
from proctor.model.show import show
from proctor.report.words.wording import count_noun
from proctor.scoring.calibration import Calibration
from proctor.sources.labels import Labels, read_labels, write_labels
from proctor.store.files.run_references import LATEST

FORMATS = ("terminal", "json", "html")


def run(arguments: list[str]) -> int:
    """Calibrate or improve a judge, or print answers to label; returns the exit code."""
    parser = _make_parser()
    # Files may come before, between and after the flags.
    options = parser.parse_intermixed_args(arguments)
    if options.action == "starter":
        if options.labels:
            parser.error("starter: it prints the labelled set and takes no files")
        _require_set(parser, options)
        with Output(options.output) as output:
            output.write((starter_labels() if options.rubric is None else rubric_labels(options.rubric)).read_bytes())
        return Exit.PASSED
    if options.action == "labels":
        return _print_run_labels(parser, options)
    if options.action == "improve" and options.rubric is not None:
        parser.error("improve: --rubric is for calibrate; improve finds examples and criteria for labels with `criterion`")
    labels = _read_chosen_labels(parser, options)
    if not options.quiet:
        for warning in labels.warnings:
            print(warning.render(), file=sys.stderr)
    if options.action == "improve":
        _require_examples_file(parser, options)
        return asyncio.run(_improve(labels.items, options))
    calibration = asyncio.run(_calibrate(labels, options))
    _show_calibration(calibration, options)
    if not calibration.decided:
        print(f"the judge decided nothing: {explain_undecided(calibration.items)}", file=sys.stderr)
        return Exit.FAILED
    share, required = calibration.decided / len(calibration.items), MIN_DECIDED if options.min_decided is None else options.min_decided
    if share < required - 1e-9:
        decided = f"{calibration.decided} of {len(calibration.items)} answers ({share * 100:.1f} %)"
        print(f"the judge decided {decided}; --min-decided demands {required * 100:g} %", file=sys.stderr)
        return Exit.FAILED
    kappa = calibration.figures["kappa"]
    # The lower bound: with few labels, kappa may be high by chance.
    if options.min_kappa is not None and (kappa.interval is None or kappa.interval.low < options.min_kappa - 1e-9):
        reached = "cannot be computed from labels that are all the same"
        if kappa.value is not None and kappa.interval is not None:
            reached = f"{kappa.value:.3f}, at least {kappa.interval.low:.3f} with {calibration.confidence * 100:g} % confidence"
        print(f"kappa: {reached}; --min-kappa demands a lower bound of {options.min_kappa:g}", file=sys.stderr)
        return Exit.FAILED
    return Exit.PASSED


def _read_chosen_labels(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Labels:
    if options.rubric is not None:
        if options.starter:
            parser.error("calibrate: --starter is a set of its own; leave it out, and --rubric takes the set of that rubric")
        if options.threshold is not None and options.rubric == "summary_covers":
            parser.error("calibrate: summary_covers asks for yes or no about each point and has no threshold")
        if not options.labels:
            _require_set(parser, options)
        return read_labels([Path(path) for path in options.labels] or [rubric_labels(options.rubric)], options.rubric)
    paths = [*([starter_labels()] if options.starter else []), *map(Path, options.labels)]
    if not paths:
        sets = "" if options.action == "improve" else ", or take a set that comes with proctor: --starter, or --rubric NAME"
        parser.error(f"{options.action}: name a file of labels (`proctor judge labels RUN` writes one){sets}")
    return read_labels(paths, in_one_form=options.threshold is not None)


def _require_set(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.rubric in WITHOUT_SET:
        hint = "`proctor judge labels RUN --output FILE` writes claims of your own runs to label"
        parser.error(f"{options.action}: {options.rubric} comes without a labelled set; {hint}, then name FILE")


def _print_run_labels(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if len(options.labels) > 1:
        parser.error("labels: name one run")
    if options.output is not None:
        _require_no_labels(parser, options.output)
    home = find_home(options.home)
    labels = list_run_labels(home, choose_run(home, options.labels[0] if options.labels else LATEST, quiet=options.quiet))
    with Output(options.output) as output:
        output.write(b"".join(msgspec.json.encode(line) + b"\n" for line in labels.lines))
    if not options.quiet:
        instruction = "write true (the claim holds) or false as the `label` of each line"
        print(f"{count_noun(len(labels.lines), 'answer')} to label: {instruction}", file=sys.stderr)
        if labels.left_out:
            print(f"left out: {labels.describe_left_out()}", file=sys.stderr)
    return Exit.PASSED


def _require_no_labels(parser: argparse.ArgumentParser, path: str) -> None:
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError:
        return
    if any(b'"label"' in line and b'"label":null' not in line.replace(b" ", b"") for line in lines):
        parser.error(f"labels: {path} already has labels, which would be lost; name another file")


def _require_examples_file(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Reject a file for examples that is one of the label files, or has something else in it."""
    path = Path(options.examples)
    if not path.exists():
        return
    if path.resolve() in {Path(name).resolve() for name in options.labels}:
        parser.error(f"improve: --examples {options.examples} is a file of labels, which would be lost; name another file")
    try:
        read_labels([path])
    except InputError:
        parser.error(f"improve: --examples {options.examples} exists and has no examples in it; name another file")


def _drop_examples(items: tuple[LabelledAnswer, ...], judge: OpenedJudge, options: argparse.Namespace) -> list[LabelledAnswer]:
    """Return the labels that are not shown to the judge as examples, with a warning about the others."""
    remaining = leave_out_examples(items, judge)
    if len(remaining) < len(items) and not options.quiet:
        share = f"{len(items) - len(remaining)} of {len(items)} labels are also examples of the judge"
        print(f"warning: {IS_EXAMPLE}: {share}; they are left out, as they would raise kappa", file=sys.stderr)
    return remaining


async def _improve(items: tuple[LabelledAnswer, ...], options: argparse.Namespace) -> int:
    home, choice, spent = find_home(options.home), _read_judge_options(options), JudgeSpending()
    others = Counter(item.check for item in items if item.check is not None)
    if others:
        omissions = ", ".join(f"{count} of {check}" for check, count in others.items())
        notice = f"labels with `check` are left out: {omissions}; improve finds examples and criteria for labels with `criterion`"
        items = tuple(item for item in items if item.check is None)
        if not items:
            raise InputError(notice)
        if not options.quiet:
            print(notice, file=sys.stderr)
    judge = judge_to_calibrate(home, choice, spent)

    async def measure(labels: Sequence[LabelledAnswer], examples: Sequence[LabelledAnswer]) -> Sequence[JudgedAnswer]:
        with_examples = msgspec.structs.replace(choice, decisions=tuple(map(show_example, examples)))
        opened = judge_to_calibrate(home, with_examples, spent) if examples else judge
        try:
            return (await calibrate(labels, opened.judge, threshold=options.threshold, concurrency=opened.settings.concurrency)).items
        finally:
            if opened is not judge:
                await opened.judge.close()

    async def ask(request: ChatRequest) -> ChatReply:
        assert judge.ask is not None
        return await judge.ask(request)

    try:
        improvement = await improve(_drop_examples(items, judge, options), measure, sharpen=make_sharpen(ask))
    finally:
        await judge.judge.close()
    if improvement.accepted and improvement.way == "examples":
        Path(options.examples).write_bytes(write_labels(improvement.examples))
    with Output(options.output) as output:
        output.write_text(_describe_improvement(improvement, spent, options))
    return Exit.PASSED if improvement.accepted else Exit.FAILED


def _describe_improvement(improvement: Improvement, spent: JudgeSpending, options: argparse.Namespace) -> str:
    figures = {name: getattr(spent, name) for name in ("calls", "cached", "input_tokens", "output_tokens", "cost")}
    if options.format == "json":
        document = {"schema": "proctor.improvement/1", **msgspec.to_builtins(improvement), "spent": figures}
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    before, after = ("unknown" if kappa is None else f"{kappa:.3f}" for kappa in (improvement.gain.before, improvement.gain.after))
    undecided = f" ({improvement.undecided[0]} and {improvement.undecided[1]} undecided)" if any(improvement.undecided) else ""
    p_value = improvement.gain.p_value
    kind = "examples" if improvement.way == "examples" else "a sharper criterion"
    head = f"kappa on {improvement.items} held-out labels: {before} without {kind}, {after} with{undecided}, p = {p_value:.3g}\n"
    cost = f", cost {spent.cost:.6g}" if spent.cost else ""
    head += f"{count_noun(spent.calls, 'request')}, {spent.cached} cached, {spent.input_tokens + spent.output_tokens:,} tokens{cost}\n"
    if improvement.cause:
        head += f"answers without a decision count as decided wrongly; most of them: {improvement.cause}\n"
    if not improvement.accepted:
        return head + "not accepted: kappa on held-out labels did not rise beyond chance, so nothing was written\n"
    if improvement.way == "criterion":
        lines = [f"  - {show(before)}\n  + {show(after)}\n" for before, after in improvement.criteria.items()]
        return head + "accepted: replace the criterion in the suite\n" + "".join(lines)
    count = count_noun(len(improvement.examples), "example")
    return head + f"accepted: {count} written to {options.examples}; use them with `judge: {{examples: {options.examples}}}`\n"


def _read_judge_options(options: argparse.Namespace) -> JudgeOptions:
    return JudgeOptions(
        model=options.judge_model,
        samples=options.samples,
        cache=not options.no_cache,
        max_calls=options.max_judge_calls,
        concurrency=options.concurrency,
    )


async def _calibrate(labels_read: Labels, options: argparse.Namespace) -> Calibration:
    home = find_home(options.home)
    opened = judge_to_calibrate(home, _read_judge_options(options))
    try:
        labels = _drop_examples(labels_read.items, opened, options)
        progress = _Progress(len(labels), quiet=options.quiet)
        # The number of requests is unknown in advance if labels share one (a batch), or need several (other checks).
        has_fixed_cost = all(label.check is None and not label.batch and not label.negative_constraints for label in labels)
        progress.begin(opened.models, opened.settings.samples if has_fixed_cost else None)
        try:
            calibration = await calibrate(
                labels,
                opened.judge,
                threshold=options.threshold,
                concurrency=opened.settings.concurrency,
                prices=opened.spent.prices if opened.spent is not None else None,
                on_item=progress,
            )
        finally:
            progress.finish()
    finally:
        await opened.judge.close()
    try:
        not_stored = store_calibration(home, opened, calibration, today=wall_clock()[:10])
        if not_stored and not options.quiet:
            print(f"not stored: {not_stored}", file=sys.stderr)
    except StoreError as error:
        print(f"warning: {error}", file=sys.stderr)
    left_out = {IS_EXAMPLE: len(labels_read.items) - len(labels), "repeated_label": labels_read.repeated}
    return msgspec.structs.replace(calibration, left_out={code: count for code, count in left_out.items() if count})


class _Progress:
    def __init__(self, total: int, *, quiet: bool) -> None:
        self._total = total
        self._quiet = quiet
        self._line = StatusLine(enabled=not quiet and sys.stderr.isatty())
        self._done = self._undecided = 0
        self.finish = self._line.finish

    def begin(self, models: tuple[str, ...], samples: int | None) -> None:
        """Print the number of answers, and of requests unless `samples` is None."""
        if not self._quiet:
            amount = count_noun(self._total, "answer")
            if samples is not None:
                amount += f", {count_noun(self._total * len(models) * samples, 'request')} minus cached ones"
            print(f"judging with {', '.join(models)}: {amount}", file=sys.stderr)

    def __call__(self, answer: JudgedAnswer) -> None:
        self._done += 1
        self._undecided += not answer.decided
        undecided = f", {self._undecided:,} undecided" if self._undecided else ""
        self._line.show(lambda _: f"{self._done:,}/{self._total:,} judged{undecided}", is_last=self._done == self._total)


def _show_calibration(calibration: Calibration, options: argparse.Namespace) -> None:
    with Output(options.output) as output:
        if options.format == "json":
            from proctor.report.data.calibration_json import render_calibration_json  # one format at a time

            output.write(render_calibration_json(calibration))
        else:
            from proctor.report.builders.calibration import build_calibration

            write_report(output, options.format, lambda kind: build_calibration(calibration, kind), no_color=options.no_color)


def _make_parser() -> argparse.ArgumentParser:
    parser = make_parser(
        "judge",
        "Measure how far a judge agrees with human labels, and improve it.",
        [
            "proctor judge calibrate --starter --judge-model openai/gpt-4o-mini",
            "proctor judge calibrate labels.jsonl --format html --output calibration.html",
            "proctor judge calibrate labels.jsonl --min-kappa 0.7",
            "proctor judge calibrate --rubric faithful_to_context",
            "proctor judge starter > labels.jsonl",
            "proctor judge labels latest --output labels.jsonl",
            "proctor judge improve labels.jsonl --examples judge-examples.jsonl",
        ],
    )
    parser.add_argument(
        "action",
        choices=("calibrate", "starter", "labels", "improve"),
        help="calibrate a judge, print the built-in labelled set, print answers of a run to label, or find examples that help",
    )
    parser.add_argument(
        "labels",
        metavar="LABELS",
        nargs="*",
        help="files of lines {answer, criterion, label: true|false, threshold?, context?, kind?, reference?, rubric?,"
        " negative_constraints?, batch?} or {check, with, evidence, label}; for `labels` a run (default: latest)",
    )
    parser.add_argument("--starter", action="store_true", help="use the built-in labelled set")
    parser.add_argument(
        "--rubric",
        choices=(*RUBRICS, *WITHOUT_SET),
        metavar="NAME",
        help="measure the judge on a rubric, with its labelled set or files of lines {with, evidence, label}: "
        f"{', '.join(RUBRICS)}; with files only: {', '.join(WITHOUT_SET)}",
    )
    parser.add_argument("--judge-model", metavar="NAME", help="one of `models` in proctor.yaml, or provider/name (default: as configured)")
    parser.add_argument(
        "--threshold",
        type=parse_share,
        metavar="T",
        help="score the answers; the lowest passing score (default: `threshold` of each label, or yes or no without one)",
    )
    parser.add_argument("--samples", type=parse_positive, metavar="N", help="samples per model and answer (default: as configured)")
    parser.add_argument(
        "-j",
        "--concurrency",
        type=parse_positive,
        metavar="N",
        help=f"concurrent requests (default: as configured, else {CONCURRENCY})",
    )
    parser.add_argument("--no-cache", action="store_true", help="do not use the cache")
    parser.add_argument("--max-judge-calls", type=parse_positive, metavar="N", help="request limit; further answers stay undecided")
    parser.add_argument(
        "--min-kappa", type=parse_share, metavar="K", help="exit 1 if the lower bound of kappa is below K, or cannot be computed"
    )
    parser.add_argument(
        "--min-decided",
        type=parse_share,
        metavar="SHARE",
        help=f"exit 1 if the judge decides fewer of the answers (default: {MIN_DECIDED})",
    )
    parser.add_argument(
        "--examples", metavar="FILE", default="judge-examples.jsonl", help="where `improve` writes accepted examples (default: %(default)s)"
    )
    add_flags(parser, "--home")
    add_output_flags(parser, FORMATS)
    return parser
