"""The page of a calibration in a real browser: it fits, sends no requests, and runs nothing it contains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.browser.chromium import CHROMIUM, launch_chromium
from tests.report.test_calibration import hostile, render_calibration_html
from tests.report.test_calibration import sample as sample

playwright = pytest.importorskip("playwright.sync_api", reason="the browser tests need the package playwright")

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(120),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        opened = launch_chromium(started)
        yield opened
        opened.close()


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["sample", "hostile"])
def test_the_page_fits_opens_its_items_and_loads_nothing(
    browser: Any, tmp_path: Path, request: pytest.FixtureRequest, kind: str, scheme: str, width: int
) -> None:
    found = hostile() if kind == "hostile" else request.getfixturevalue("sample")
    path = tmp_path / "page.html"
    path.write_text(render_calibration_html(found), encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page, urls, complaints = context.new_page(), [], []
    page.on("request", lambda request: urls.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("dialog", lambda dialog: (complaints.append("a dialog"), dialog.dismiss()))
    page.goto(path.as_uri())
    first = page.locator("details.row").first
    first.locator("summary").click()
    assert first.locator("dd").first.is_visible()
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out to the right"
    ink, ground = page.evaluate("[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]")
    assert (ground == "rgb(16, 20, 26)") == (scheme == "dark") and ink != ground, "the style sheet was allowed"
    assert complaints == []
    assert [url for url in urls[1:] if not url.startswith("data:")] == []
    context.close()
