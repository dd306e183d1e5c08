"""Every REST operation is available on a page: the table of routes and screens is complete."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from proctor.pages.nouns import OPERATIONS
from proctor.pages.routes import NOUN_SCREENS, SCREENS, SERVICE_SCREENS
from tests.rest.openapi_document import DOCUMENT

TABLE: dict[str, Any] = yaml.load((Path(__file__).parent / "cases" / "rest_and_pages.yaml").read_bytes(), Loader=yaml.CSafeLoader)
ROUTES = {f"{method.upper()} {path}" for path, methods in DOCUMENT["paths"].items() for method in methods}
MADE = {f"{operation.method} {operation.path}" for operation in OPERATIONS}


def test_every_route_has_a_screen_or_a_reason_and_no_other_is_named() -> None:
    named = Counter([*TABLE["screens"], *TABLE["programs"], *MADE])
    assert not sorted(ROUTES - named.keys()), "not in tests/pages/cases/rest_and_pages.yaml"
    assert not sorted(named.keys() - ROUTES), "in the table, but there is no such route"
    assert not [route for route, times in named.items() if times > 1], "named twice"


def test_every_screen_that_is_named_is_there() -> None:
    screens = {f"{method} {path}" for method, path, _ in (*SCREENS, *SERVICE_SCREENS, *NOUN_SCREENS)}
    assert not sorted(set(TABLE["screens"].values()) - screens)


def test_every_reason_has_a_text() -> None:
    assert all(len(reason.split()) > 2 for reason in TABLE["programs"].values())
