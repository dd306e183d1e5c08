"""The command line. This module stays small, so that `proctor --version` is fast."""

import importlib
import sys


def main() -> int:
    """Run the `proctor` command and return its exit code."""
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        from proctor import __version__  # nothing else is loaded for `--version`

        print(f"proctor {__version__}")
        return 0
    _import_msgspec()
    from proctor.cli.main import run  # the rest of the command line, only when there is something to do

    return run(arguments)


def _import_msgspec() -> None:
    # msgspec prefers the functions of typing_extensions to the same ones of `typing`; loading them takes as long as loading msgspec.
    if "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # pyright: ignore[reportArgumentType] - its import fails
    try:
        importlib.import_module("msgspec")
    finally:
        del sys.modules["typing_extensions"]
