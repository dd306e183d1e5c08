"""Tables of cases kept in files: one row, one test, the row's id in the output.

A row has `id`, what the test needs (`given`, `expect`, ...) and, if it comes from a product's documentation, `source` and
`original` (what the original system answers). If `expect` differs from `original`, `why` explains it, and the row appears on
the fidelity page.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

HERE = Path(__file__).parent


class _Loader(yaml.CSafeLoader):
    """YAML as our tables are written: `yes`, `no`, `on`, `off` and dates are text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp")]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))


def load_document(path: str) -> Any:
    """Return the content of `tests/<path>`."""
    with (HERE / path).open("rb") as file:
        return yaml.load(file, Loader=_Loader)


def load(path: str) -> list[dict[str, Any]]:
    """The rows of `tests/<path>`."""
    rows = load_document(path)
    ids = [row["id"] for row in rows]
    assert len(ids) == len(set(ids)), f"duplicate row ids in {path}: {sorted({i for i in ids if ids.count(i) > 1})}"
    return rows


def rows(path: str) -> pytest.MarkDecorator:
    """`@rows("matchers/cases/exact.yaml")` runs the test once per row, passing it as `row`."""
    return pytest.mark.parametrize("row", [pytest.param(row, id=str(row["id"])) for row in load(path)])
