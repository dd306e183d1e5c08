"""The pictures of the docs are made by their script, and those that pages link are among them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.browser.chromium import CHROMIUM

pytest.importorskip("playwright.sync_api", reason="the pictures need the package playwright")
ROOT = Path(__file__).parents[3]


if "PROCTOR_SCREENSHOTS" in os.environ:  # `make screenshots`, which has just made them, sees to it

    @pytest.mark.live
    @pytest.mark.timeout(180)
    @pytest.mark.xdist_group("pages browser")
    @pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")
    def test_the_script_makes_every_picture_that_a_page_shows(tmp_path: Path) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "docs.screenshots", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=170
        )
        assert done.returncode == 0, done.stdout + done.stderr
        pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        linked = {
            name for page in pages for name in re.findall(r"\]\((?:docs/|\.\./)pictures/([\w-]+\.png)\)", page.read_text(encoding="utf-8"))
        }
        made = {file.name for file in tmp_path.iterdir()}
        assert len(linked) > 10 and made == linked == {file.name for file in (ROOT / "docs" / "pictures").iterdir()}
        assert all(file.read_bytes().startswith(b"\x89PNG") and file.stat().st_size <= 150_000 for file in tmp_path.iterdir())
