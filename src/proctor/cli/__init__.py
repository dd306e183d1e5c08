"""The command line. This module stays light: `proctor --version` must cost next to nothing."""

import sys


def main() -> int:
    """Run the `proctor` command and return its exit code."""
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        from proctor import __version__  # nothing else is loaded on this road

        print(f"proctor {__version__}")
        return 0
    from proctor.cli.main import run  # the rest of the command line, only when there is something to do

    return run(arguments)
