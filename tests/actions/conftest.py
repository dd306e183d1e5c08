"""Trust the suites of these tests, which are in temporary folders."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_TRUST", "1")
