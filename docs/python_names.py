"""The public names of the package: the stub that type checkers read, and the tables of the reference page."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

import proctor

_WRITTEN = "# Written by `python -m docs.generate` from PUBLIC_NAMES in `__init__.py`; do not edit."


def stub_text() -> str:
    """Return `proctor/__init__.pyi`: every public name imported from its home, so that type checkers see what is loaded late."""
    homes: dict[str, list[str]] = {}
    for modules in proctor.PUBLIC_NAMES.values():
        for module, names in modules.items():
            homes.setdefault(module, []).extend(names)
    lines = [_WRITTEN, ""]
    for module, names in sorted(homes.items()):
        lines.append(f"from {module} import (")
        lines += [f"    {name} as {name}," for name in sorted(names)]
        lines.append(")")
    lines += ["", "__version__: str", "__all__: list[str]", "PUBLIC_NAMES: dict[str, dict[str, tuple[str, ...]]]", ""]
    return "\n".join(lines)


def group_tables() -> dict[str, Callable[[], str]]:
    """Return what writes each group of names into the reference page, by the name of its block."""
    return {group.lower(): lambda group=group: "\n".join(_group_rows(group)) for group in proctor.PUBLIC_NAMES}


def _group_rows(group: str) -> Iterator[str]:
    yield "| name | what it does |"
    yield "|---|---|"
    for names in proctor.PUBLIC_NAMES[group].values():
        for name in names:
            yield f"| `{name}{_parameters(getattr(proctor, name))}` | {_first_sentence(getattr(proctor, name))} |"


def _parameters(value: object) -> str:
    """Return the names of a function's parameters; a class is shown by its name alone."""
    if inspect.isclass(value) or not callable(value):
        return ""
    shown: list[str] = []
    named_only = False
    for parameter in inspect.signature(value).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            shown.append(f"*{parameter.name}")
            named_only = True
        elif parameter.kind is parameter.VAR_KEYWORD:
            shown.append(f"**{parameter.name}")
        else:
            if parameter.kind is parameter.KEYWORD_ONLY and not named_only:
                shown.append("*")
                named_only = True
            shown.append(parameter.name + ("=" if parameter.default is not parameter.empty else ""))
    return f"({', '.join(shown)})"


def _first_sentence(value: object) -> str:
    text = inspect.getdoc(value) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")
