"""`make pages-lean` reports what it could not try, and is never green without having tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import foreign, lean_pages


def test_without_an_installer_every_page_counts_as_failed_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(foreign, "UV", "/nowhere/uv")
    assert lean_pages.main(["README"]) > 0
    assert "no page can be tried, since proctor cannot be installed: " in capsys.readouterr().out


def test_pages_whose_packages_cannot_be_had_count_as_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def lack(*_: Any) -> Path:
        pytest.skip("cannot be installed: no route to the registry")

    monkeypatch.setattr(lean_pages, "build_wheel", lambda *_: tmp_path)
    monkeypatch.setattr(lean_pages, "install", lack)
    failed = lean_pages.main(["how-to/test-a-command"])
    printed = capsys.readouterr().out
    assert failed == 1 and "(cannot be installed: no route to the registry)" in printed and "FAIL  " in printed and "1 failed" in printed


def test_a_word_that_no_page_has_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert lean_pages.main(["no-such-page"]) == 1
    assert "no page that is executed has no-such-page in its path" in capsys.readouterr().out
