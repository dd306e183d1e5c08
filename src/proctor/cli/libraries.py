"""Starts and ends the process of a command without work that hardly any command needs, such as importing large libraries."""

from __future__ import annotations

import atexit
import importlib
import os
import sys
from types import ModuleType


def import_libraries() -> None:
    """Import libraries without those that they hardly use, and that take longer to load."""
    # `pathlib` quotes the path of a URL with `urllib.parse`, and `uuid`, which msgspec imports, finds out the system with `platform`.
    if sys.version_info < (3, 13):
        _import_with("pathlib", {"urllib.parse": _make_stand_in("urllib.parse", "quote_from_bytes")})
    if hasattr(os, "uname"):
        system = ModuleType("platform")
        system.system = lambda: os.uname().sysname  # type: ignore[attr-defined]
        _import_with("uuid", {"platform": system})
    # msgspec prefers the functions of typing_extensions to the same ones of `typing`. It offers schemas, which few commands need.
    schemas = _make_stand_in("msgspec._json_schema", "schema", "schema_components")
    _import_with("msgspec", {"typing_extensions": None, "msgspec._json_schema": schemas})


def _make_stand_in(module: str, *names: str) -> ModuleType:
    """Return a module with functions that import the real ones when they are called."""
    stand_in = ModuleType(module)
    for name in names:

        def call(*given: object, name: str = name, **options: object) -> object:
            return getattr(importlib.import_module(module), name)(*given, **options)

        setattr(stand_in, name, call)
    return stand_in


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


def end_quickly(code: int) -> None:
    """End the process at once if nothing waits for its end; taking every module apart takes as long as deciding a small suite."""
    # Threads are joined, and the handlers of libraries are called, only when a process ends by itself.
    if "threading" in sys.modules or atexit._ncallbacks():  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # closed: Python handles it at its end
        return
    os._exit(code)
