"""What the workspace of the working folder adds to a suite: prices, and how evidence is read; prices may come from another file."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from proctor.actions.workspace.custom_checks import find_workspace_file
from proctor.errors import InputError
from proctor.formats.native.declared_evidence import parse_complete
from proctor.formats.workspace_file.workspace import read_price_file, read_workspace
from proctor.model.case import Suite
from proctor.sources.texts import check_path, read_suite_text

_NAMES_SUITE_KEYS = re.compile(r"""(?:^|[{,])\s*["']?(prices|evidence)["']?\s*:""", re.MULTILINE)


def add_workspace(suite: Suite, start: Path | None = None) -> Suite:
    """Return the suite with the prices and the `evidence` of the nearest workspace file. Raises `InputError`."""
    file = find_workspace_file(start)
    text = read_suite_text(file) if file is not None else ""
    # Reading all of the file costs more than a small check, and most have neither.
    if _NAMES_SUITE_KEYS.search(text) is None:
        return suite
    workspace = read_workspace(text, file=str(file) if start is not None or file is None else os.path.relpath(file))
    return msgspec.structs.replace(suite, prices=workspace.prices, evidence_here=workspace.evidence)


def with_prices(suite: Suite, file: str | None) -> Suite:
    """Return the suite with the prices of a file, where one is named; else with those it has."""
    if file is None:
        return suite
    check_path(Path(file))
    if not Path(file).is_file():
        raise InputError(f"--prices: no such file: {file}")
    return msgspec.structs.replace(suite, prices=read_price_file(read_suite_text(Path(file)), file=file))


def with_complete(suite: Suite, parts: str) -> Suite:
    """Return the suite with the parts that `--complete` declares. Raises `InputError` for an unknown part."""
    given = parse_complete(parts, "--complete")
    return suite if given is None else msgspec.structs.replace(suite, evidence_given=given)


def require_prices(suite: Suite, models: list[str]) -> None:
    """Raise `InputError` where a bound on the cost could not be kept: without prices, or for models that have none."""
    if suite.prices is None:
        raise InputError("--max-cost needs prices: `prices:` in proctor.yaml, or --prices FILE, says what models cost")
    unpriced = [model for model in dict.fromkeys(models) if suite.prices.find(model) is None]
    if unpriced:
        known = ", ".join(suite.prices.prices)
        raise InputError(f"--max-cost: no price for the model {', '.join(map(repr, unpriced))}; prices are known for {known}")
