"""`proctor serve`"""

import argparse
import asyncio
import gc
import os
from typing import TYPE_CHECKING

from proctor.actions.workspace.run_history import find_database_home
from proctor.cli.exit_codes import Exit
from proctor.cli.parser import make_parser
from proctor.cli.show.output import explain_missing

if TYPE_CHECKING:
    from proctor.rest.settings import Setting


def run(arguments: list[str]) -> int:
    """Serve until a signal comes; returns the exit code."""
    # Loaded modules stay: garbage collection during the start would take a sixth of it.
    gc.disable()
    try:
        return _serve(arguments)
    finally:
        gc.enable()


def _serve(arguments: list[str]) -> int:
    try:
        from proctor.rest.settings import SETTINGS, read_settings  # slow, and an extra
    except ModuleNotFoundError as error:
        missing = explain_missing(error, "`proctor serve`", "serve")
        if {"-h", "--help"} & set(arguments):
            # Help is shown even if the extra is missing.
            _start_parser(f"\n\n{missing}; its options are shown then.").parse_args(["--help"])
        raise missing from error
    options = vars(_make_parser(SETTINGS).parse_args(arguments))
    settings = read_settings(options, os.environ, find_database_home)
    try:
        from proctor.rest.process import serve  # slow, and an extra
    except ModuleNotFoundError as error:
        raise explain_missing(error, "`proctor serve`", "serve") from error
    asyncio.run(serve(settings, lambda line: print(line, flush=True)))
    return Exit.PASSED


def _start_parser(remark: str = "") -> argparse.ArgumentParser:
    return make_parser(
        "serve",
        "Receive traces, evaluate them, run suites and keep everything: REST, MCP and OTLP on one port." + remark,
        [
            "proctor serve",
            "proctor serve --port 9000 --home /var/lib/proctor",
            "proctor serve --host 0.0.0.0 --allowed-host proctor.example.com --database postgresql://proctor@db/proctor",
        ],
    )


def _make_parser(settings: "tuple[Setting, ...]") -> argparse.ArgumentParser:
    parser = _start_parser()
    from proctor.rest.settings import show_default  # slow, and an extra

    for setting in settings:
        if setting.option is None:
            continue
        text = f"{setting.text} (default: {show_default(setting)}; {setting.variable})".replace("`", "").replace("%", "%%")
        if setting.many:
            parser.add_argument(
                setting.option, dest=setting.name, action="append", metavar=setting.metavar, help=text + "; may be repeated"
            )
        else:
            parser.add_argument(setting.option, dest=setting.name, metavar=setting.metavar, help=text)
    return parser
