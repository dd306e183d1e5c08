"""Reads a suite text of any dialect: recognised by its shape, or named by the user.

Exactly one dialect must recognise a document. If several or none do, the problem names the flag that decides.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

from proctor.checks.registry import Registry
from proctor.errors import InputError
from proctor.formats.text.documents import read_text
from proctor.formats.text.located import Located, Reading
from proctor.model.case import Suite
from proctor.model.show import suggest

if TYPE_CHECKING:
    from proctor.formats.text.row_shapes import DataSource

DIALECTS = ("native", "mcplab", "mibo", "verial", "mcpjam")
DATASETS = {"pydantic-evals": "pydantic_evals", "deepeval": "deepeval"}
"""Datasets of other libraries, by their module. They are only read, and tried after the dialects."""


def read_suite(
    text: str,
    *,
    file: str | None = None,
    dialect: str | None = None,
    name: str | None = None,
    library: Callable[[], object] | None = None,
    registry: Registry | None = None,
    source: DataSource | None = None,
) -> Suite:
    """Read one suite document; raises `InputError` with every problem in it.

    `library` returns the entries that `ref` in an MCPLab document refers to; it is called only for such a document. `registry` has the
    checks that a native suite may name; by default ours and those of plugins. `source` opens its data files; without one it may name none.
    """
    if dialect is not None and dialect not in (known := (*DIALECTS, *DATASETS)):
        raise InputError(f"unknown dialect {dialect!r}; expected one of {', '.join(known)}{suggest(dialect, known)}")
    reading = Reading(file=file, text=text)
    document = read_text(text, file=file, reading=reading)
    if document is None:
        reading.finish()
        raise InputError(f"{file or 'the suite'} is empty; `proctor init` writes one to start from")
    chosen = dialect or recognise(document, reading)
    suite = None
    if chosen is not None:
        read: Callable[..., Suite] = load_reader(chosen).read
        more: dict[str, object] = {"library": library()} if library is not None and chosen == "mcplab" else {}
        if registry is not None and chosen == "native":
            more["registry"] = registry
        if source is not None and chosen == "native":
            more["source"] = source
        suite = read(document, reading, name=name or "suite", **more)
    warnings = reading.finish()
    assert suite is not None and chosen is not None  # without a dialect `finish` has raised
    return msgspec.structs.replace(suite, dialect=chosen, path=file, warnings=(*suite.warnings, *warnings))


def load_reader(dialect: str) -> ModuleType:
    """Return the module that reads a dialect; imported on first use."""
    name = DATASETS.get(dialect, f"{dialect}.suite")
    return importlib.import_module(f"proctor.formats.{name}")


def recognise(document: Located, reading: Reading) -> str | None:
    """Return the only dialect that recognises the document, or None after a problem."""
    # A document with `proctor:` at the top is native; testing the others would only load them.
    if load_reader("native").sniff(document):
        return "native"
    claims = [dialect for dialect in DIALECTS if load_reader(dialect).sniff(document)]
    if not claims:
        claims = [dialect for dialect in DATASETS if load_reader(dialect).sniff(document)]
    if len(claims) == 1:
        return claims[0]
    message = f"this document could be {' or '.join(claims)}" if claims else "this document is not a known suite format"
    of_promptfoo = document.get("prompts") is not None and document.get("providers") is not None
    keys = ", ".join(repr(key) for key, _ in list(document.members())[:8])
    reading.error(
        document,
        message + (f": it has the keys {keys}" if keys else f": it is {document.kind}"),
        expected="`proctor: 1` at the top, or the shape of an MCPLab, Mibo, Verial or MCPJam document",
        hint="a configuration of promptfoo is not read, its tests in a CSV file are: docs/how-to/cases-from-data.md"
        if of_promptfoo
        else "name the dialect with --dialect " + "|".join(DIALECTS),
        code="unknown_dialect",
    )
    return None
