"""`proctor list`"""

from proctor.actions.history import KeptRun, find_home, list_runs
from proctor.cli.choosing import RUN_HELP
from proctor.cli.exits import Exit
from proctor.cli.language import add_language_flag, read_words
from proctor.cli.output import Output
from proctor.cli.parser import make_parser
from proctor.model.json_values import write_document
from proctor.report.catalogue import Catalogue
from proctor.report.neutral import to_one_line

_MOST_TAGS = 8


def run(arguments: list[str]) -> int:
    """List kept runs; returns the exit code."""
    parser = make_parser(
        "list", "The runs that are kept, newest first.", ["proctor list", "proctor list @nightly", "proctor list --format json"]
    )
    parser.add_argument("run", metavar="RUN", nargs="?", help=f"only what this means, of a name or @TAG every run; {RUN_HELP}")
    parser.add_argument("--home", metavar="DIR", help="the workspace (default: the nearest folder with proctor.yaml)")
    parser.add_argument("--format", choices=("terminal", "json"), default="terminal", help="terminal or json (default: terminal)")
    add_language_flag(parser)
    options = parser.parse_args(arguments)
    home = find_home(options.home)
    runs = list(list_runs(home, options.run))
    with Output(None) as output:
        if options.format == "json":
            output.write(write_document(runs))
            return Exit.PASSED
        words = read_words(options.language)
        if not runs:
            output.write_text(words.say("list.none", home=home) + "\n")
            return Exit.NOTHING
        for kept in runs:
            output.write_text(describe_run(kept, words) + "\n")
    return Exit.PASSED


def describe_run(kept: KeptRun, words: Catalogue) -> str:
    """Return one run in one line; of a broken one, what is wrong with it."""
    if kept.header is None:
        return f"{kept.run_id}  {_describe_fault(kept.problem or words.say('list.unreadable'), words)}"
    counted = [f"{number} {words.say_known('list', outcome)}" for outcome, number in sorted(kept.counts.items())]
    counts = ", ".join(counted) or words.say("list.nothing_finished")
    ending = words.say_known("list", kept.ended or "not_ended").replace("_", " ")
    told = [to_one_line(kept.header.suite_name, 40), to_one_line(kept.header.target, 30), counts]
    if kept.planned is not None and kept.finished < kept.planned:
        told.append(f"[{words.say('list.incomplete', finished=str(kept.finished), planned=str(kept.planned), ending=ending)}]")
    elif kept.ended != "completed":
        told.append(f"[{ending}]")
    told += _describe_labels(kept, words)
    if kept.problem is not None:
        told.append(_describe_fault(kept.problem, words))
    return "  ".join([kept.run_id, *told])


def _describe_fault(problem: str, words: Catalogue) -> str:
    return words.say("list.broken", why=to_one_line(problem, 200))


def _describe_labels(kept: KeptRun, words: Catalogue) -> list[str]:
    """Return what somebody called the run: its name, its tags, its note, and whether it is a baseline."""
    header = kept.header
    assert header is not None
    told = [f"({words.say('list.baseline')})"] if kept.is_baseline else []
    if header.name:
        told.append(words.say("list.name", name=to_one_line(header.name, 60)))
    if header.tags:
        told.append(" ".join(f"@{to_one_line(tag, 40)}" for tag in header.tags[:_MOST_TAGS]))
    if header.note:
        told.append(words.say("list.note", note=to_one_line(header.note, 80)))
    return told
