"""Trust the suites of these tests, which are in temporary folders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from proctor.model.case import System
from tests.live.clients.simulated_sites import Site


@pytest.fixture(autouse=True)
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_TRUST", "1")


@pytest.fixture
def sites() -> Iterator[Any]:
    made: list[Site] = []

    def make(*systems: System) -> Site:
        made.append(Site(*systems))
        return made[-1]

    yield make
    for site in made:
        site.server.close()
