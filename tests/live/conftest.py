"""Suites of these tests lie in folders of their own, and are the tests' own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_TRUST", "1")
