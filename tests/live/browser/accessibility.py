"""The rules of axe over a page of the service, at the width of a desk and of a phone, in the light and in the dark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

WIDTHS = (1280, 390)
_DARK = "{runOnly: ['color-contrast', 'link-in-text-block']}"
_PHONE = "{rules: {'color-contrast': {enabled: false}, 'link-in-text-block': {enabled: false}}}"
_LOOKS = ((1280, "light", "{}"), (1280, "dark", _DARK), (390, "light", _PHONE))
"""Widths, schemes and the rules that are tried there: in the dark nothing but the colours is different, and no colour depends on the
width (tests/pages/test_static_files.py). The rules about colours take longer than all others together."""
_SHOTS = os.environ.get("PROCTOR_TEST_SHOTS")
"""A folder for screenshots of the checked pages."""


def open_details(page: Any) -> None:
    """Open what a reader can open."""
    page.evaluate("for (const details of document.querySelectorAll('details')) details.open = true")


def find_flaws(page: Any, axe: str, name: str) -> list[str]:
    """Return the rules that a page breaks and the widths at which it sticks out.

    It is loaded once: what differs by width and scheme is a matter of its style sheet alone.
    """
    flaws: list[str] = []
    page.evaluate(axe)
    for width, scheme, rules in _LOOKS:
        page.set_viewport_size({"width": width, "height": 844})
        page.emulate_media(color_scheme=scheme)
        if _SHOTS:
            file = f"{name.strip('/').replace('/', '_').replace('?', '_')[:60]}-{width}-{scheme}.png"
            page.screenshot(path=Path(_SHOTS) / file, full_page=True)
        found = page.evaluate(f"axe.run(document, {{...{rules}, resultTypes: ['violations']}})")
        flaws += [f"{name}, {width} px, {scheme}: {rule['id']}: {rule['nodes'][0]['html'][:200]}" for rule in found["violations"]]
        if page.evaluate("document.documentElement.scrollWidth") > width:
            flaws.append(f"{name}: wider than {width} px")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": WIDTHS[0], "height": 844})
    return flaws
