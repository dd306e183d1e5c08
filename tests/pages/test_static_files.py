"""Static files: named after their content, cached by browsers for ever, small, and all that pages load."""

from __future__ import annotations

import gzip
import re
from importlib.resources import files

import pytest
from starlette.datastructures import Headers

from proctor.pages.static_files import accepts_gzip, load_static_files
from tests.pages.world import World

MOST_SCRIPT, MOST_EDITING = 10_000, 6_000


def test_a_file_is_cached_for_ever_under_the_name_of_its_content(seen: World) -> None:
    for file in load_static_files().values():
        plain = seen.get(file.address, headers={"accept-encoding": "identity"})
        assert plain.status_code == 200 and plain.headers["content-type"].startswith(file.kind)
        assert plain.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert plain.content == file.body == gzip.decompress(file.compressed)
        small = seen.get(file.address, headers={"accept-encoding": "br, gzip"})
        assert small.headers["content-encoding"] == "gzip" and int(small.headers["content-length"]) == len(file.compressed)
        other = re.sub(r"-[0-9a-f]{12}", "-0123456789ab", file.address)
        assert seen.get(other).status_code == 404
    assert seen.get("/static/..%2f..%2fpyproject.toml").status_code == 404


@pytest.mark.parametrize(
    ("accepted", "is_compressed"),
    [
        ("gzip", True), ("br, GZIP", True), ("gzip;q=0.5", True), ("gzip ; q = 1.0", True), ("deflate, gzip;q=0.001", True),
        ("", False), ("identity", False), ("br", False),
    ],
)  # fmt: skip
def test_only_who_wants_it_gets_compressed_answers(accepted: str, is_compressed: bool) -> None:
    assert accepts_gzip(Headers({"accept-encoding": accepted})) == is_compressed


def test_pages_load_nothing_else(seen: World) -> None:
    known = {file.address for file in load_static_files().values()}
    for path in ("/ui/", "/ui/p/proj_home/runs/run_after", "/ui/p/proj_home/runs/run_after/r/att_after_0"):
        loaded = set(re.findall(r'<(?:script|link)[^>]+(?:src|href)="([^"]+)"', seen.get(path, "organization").text))
        assert loaded and loaded <= known


def test_the_scripts_are_small_and_write_no_markup() -> None:
    files = load_static_files()
    scripts = [file for name, file in files.items() if name.endswith(".js")]
    editing = files["editing.js"]
    # The scripts of a run page, a trace page and the editor.
    for names in (("pages", "live", "window"), ("pages", "live", "spans"), ("pages", "editor")):
        assert sum(len(files[f"{name}.js"].compressed) for name in names) <= MOST_SCRIPT
    assert len(editing.compressed) <= MOST_EDITING
    for file in scripts:
        assert not re.search(rb"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", file.body)
    assert b"@import" not in files["pages.css"].body and b"url(" not in files["pages.css"].body


COLOURS = re.compile(
    r"(?<![\w-])(?:(?:color|background[\w-]*|opacity|fill|stroke|filter|[\w-]*shadow|[\w-]*blend-mode|[\w-]+-color|--[\w-]+)\s*:[^;}]*"
    r"|(?:border|outline)[\w-]*\s*:[^;}]*(?:var\(|#|rgb)[^;}]*)"
)


def list_colours_by_width(style: str) -> set[str]:
    """The colours that a style sheet gives for some widths of the window alone."""
    found: set[str] = set()
    for head in re.finditer(r"@media[^{]*width[^{]*\{", style):
        depth, end = 1, head.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(style[end], 0)
            end += 1
        found |= {rule.strip() for rule in COLOURS.findall(style[head.end() : end])}
    return found


def test_no_colour_depends_on_the_width_of_the_window() -> None:
    # So colours that pass at one width pass at every other: tests/live/browser/accessibility.py examines one width in the dark scheme.
    style = "".join(file.body.decode() for name, file in load_static_files().items() if name.endswith(".css"))
    # Column names before each value, for screens too narrow for a table, and the lines between: as elsewhere.
    assert list_colours_by_width(style) == {"color: var(--muted)", "border-top: 1px solid var(--line)"}
    assert list_colours_by_width("a{color:red} @media (width<1px){b{border:1px solid #fff}} @media print{b{color:red}}") == {
        "border:1px solid #fff"
    }


def test_every_cell_of_a_list_is_named_where_its_heading_is_hidden() -> None:
    """On a phone a row is a box without the headings of its columns."""
    for template in (files("proctor.pages") / "templates").iterdir():
        text = template.read_text(encoding="utf-8") if template.name.endswith(".html") else ""
        for table in re.findall(r'<table class="rows.*?</table>', text, re.DOTALL):
            for cell in re.findall(r"<td(?![^>]*data-label).*?</td>", table, re.DOTALL):
                # A box to tick or a button names itself.
                assert "aria-label=" in cell or 'class="button"' in cell, (template.name, cell)
