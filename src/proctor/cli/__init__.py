"""The command line. This module stays small, so that `proctor --version` is fast."""

import gc
import sys


def main() -> int:
    """Run the `proctor` command and return its exit code."""
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        from proctor import __version__  # nothing else is loaded for `--version`

        print(f"proctor {__version__}")
        return 0
    # Modules are not garbage; `Command.run` enables the collector again.
    gc.disable()
    from proctor.cli.libraries import end_quickly, import_libraries

    import_libraries()
    from proctor.cli.main import run  # the rest of the command line, only when there is something to do

    code = run(arguments)
    gc.enable()
    end_quickly(code)
    return code
