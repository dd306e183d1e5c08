"""The command line. This module stays small, so that `proctor --version` is fast."""

import importlib
import os
import sys
from types import ModuleType


def main() -> int:
    """Run the `proctor` command and return its exit code."""
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        from proctor import __version__  # nothing else is loaded for `--version`

        print(f"proctor {__version__}")
        return 0
    _import_libraries()
    from proctor.cli.main import run  # the rest of the command line, only when there is something to do

    return run(arguments)


def _import_libraries() -> None:
    """Import libraries without those that they hardly use, and that take longer to load."""
    # `pathlib` quotes the path of a URL with `urllib.parse`, and `uuid`, which msgspec imports, finds out the system with `platform`.
    quoting, system = ModuleType("urllib.parse"), ModuleType("platform")
    quoting.quote_from_bytes = _quote_from_bytes  # type: ignore[attr-defined]
    system.system = lambda: os.uname().sysname  # type: ignore[attr-defined]
    if sys.version_info < (3, 13):
        _import_with("pathlib", {"urllib.parse": quoting})
    if hasattr(os, "uname"):
        _import_with("uuid", {"platform": system})
    # msgspec prefers the functions of typing_extensions to the same ones of `typing`.
    _import_with("msgspec", {"typing_extensions": None})


def _quote_from_bytes(*given: bytes) -> str:
    from urllib.parse import quote_from_bytes  # slow to import

    return quote_from_bytes(*given)


def _import_with(name: str, stand_ins: dict[str, ModuleType | None]) -> None:
    """Import a module while others are replaced, or cannot be imported where they are None."""
    if name in sys.modules or not sys.modules.keys().isdisjoint(stand_ins):
        return
    sys.modules.update(stand_ins)  # type: ignore[arg-type] - None makes an import fail
    try:
        importlib.import_module(name)
    finally:
        for stand_in in stand_ins:
            del sys.modules[stand_in]
