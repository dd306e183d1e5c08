"""`proctor view [RUN | PATH]`"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import NamedTuple

from proctor.actions.workspace.run_history import find_home
from proctor.cli.exit_codes import Exit
from proctor.cli.parser import add_flags, make_parser
from proctor.cli.show.output import explain_missing
from proctor.cli.stored import RUN_HELP, choose_run
from proctor.errors import InputError, StoreError

_RUNS = "runs"
_HOME = ".proctor"


class Shown(NamedTuple):
    """The folder of runs to show, the run to open, and how to update them."""

    home: Path
    run: str | None = None
    path: Path | None = None
    refresh: Callable[[], bool] | None = None


def run(arguments: list[str]) -> int:
    """Show the runs of this folder as pages until Ctrl-C; returns the exit code."""
    parser = make_parser(
        "view",
        "The web pages over the runs of this folder, or over recorded evidence: on this machine only, no login, no service to set up.",
        ["proctor view", "proctor view latest", "proctor view traces/ --suite suite.yaml", "proctor view --port 8800 --no-open"],
    )
    parser.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        help=f"open the pages at this run; {RUN_HELP}; or a folder of runs, or a file or folder of evidence",
    )
    parser.add_argument("--suite", metavar="SUITE", help="with evidence: decide every record by this suite; no agent or judge is called")
    add_flags(parser, "--home")
    parser.add_argument("--port", metavar="PORT", default="0", help="the port (default: a free one)")
    parser.add_argument("--no-open", action="store_true", help="only print the address; open no browser")
    options = parser.parse_args(arguments)
    text = options.port
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise InputError(f"--port: expected a whole number from 0 to 65535, got {text!r}")
    port = int(text)
    try:
        from proctor.rest.view import view  # slow, and an extra
    except ModuleNotFoundError as error:
        raise explain_missing(error, "`proctor view`", "serve") from error
    show = (lambda address: None) if options.no_open else _open_browser
    with _find_shown(options) as shown:
        asyncio.run(view(shown.home, shown.run, port, lambda line: print(line, flush=True), show, shown=shown.path, refresh=shown.refresh))
    return Exit.PASSED


@contextlib.contextmanager
def _find_shown(options: argparse.Namespace) -> Generator[Shown]:
    """Find what to show: a run, runs of a folder, or evidence, which gets a temporary folder."""
    home = find_home(options.home)
    word: str | None = options.run
    path = None if word is None else Path(word)
    for place in () if path is None else (path, path / _HOME):
        if (place / _RUNS).is_dir() and options.suite is None:
            yield Shown(place)
            return
    try:
        chosen = None if word is None or options.suite is not None else choose_run(home, word)
    except StoreError:
        # Not a run; the path may be evidence.
        if path is None or not path.exists():
            raise
        chosen = None
    if chosen is not None and Path(chosen).is_absolute():
        # A run folder elsewhere: its neighbours are shown too.
        yield Shown(Path(chosen).parent.parent, Path(chosen).name)
    elif chosen is not None or path is None:
        if options.suite is not None:
            raise InputError("--suite decides recorded evidence: name a file or folder of it")
        yield Shown(home, chosen)
    else:
        with tempfile.TemporaryDirectory(prefix="proctor-view-") as place:
            yield _put_evidence(path, options.suite, Path(place))


def _put_evidence(path: Path, suite: str | None, place: Path) -> Shown:
    from proctor.actions.checking.view_evidence import RUN_ID, EvidenceRun
    from proctor.actions.workspace.suites import load_suite  # rarely needed

    if not path.exists():
        raise InputError(f"no evidence at {str(path)!r}: no such file or folder")
    name = path.resolve().name or "evidence"
    evidence = EvidenceRun(path.resolve(), place / name / _HOME, None if suite is None else load_suite(suite))
    evidence.refresh()
    return Shown(evidence.home, RUN_ID, path, evidence.refresh)


def _open_browser(address: str) -> None:
    import webbrowser  # only here

    # In a thread: some browsers block their caller, and the page must be served meanwhile.
    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
