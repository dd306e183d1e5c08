"""Executes the pages of the documentation in environments with proctor and only the packages that each page names.

`make pages-lean` runs it. `make test` executes the same pages in environments that are made of links (`lean_environment.py`); here the
wheel is built, and everything comes from the registry. Environments lie below `.frameworks/lean` (or `PROCTOR_FRAMEWORKS`).
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.executed_page import PAGES, ROOT, find_requirements, is_executed, page_id, run_page
from tests.foreign import build_wheel, install_from_index, replace_wheel
from tests.lean_environment import PROJECT, list_extras

ENVIRONMENTS = Path(os.environ.get("PROCTOR_FRAMEWORKS") or ROOT / ".frameworks") / "lean"


def list_packages(requirements: Sequence[str]) -> list[str]:
    """The requirements to install: everything that proctor needs with these extras, and the other packages."""
    needed = {*PROJECT["dependencies"], *(need for extra in list_extras(requirements) for need in PROJECT["optional-dependencies"][extra])}
    return sorted(word for word in (*needed, *requirements) if not re.match(r"proctor-evals(?![\w-])", word))


def install(requirements: Sequence[str], wheel: Path) -> Path:
    """Return the Python of an environment with the requirements and this wheel of proctor."""
    name = "-".join(re.findall(r"\w+", " ".join(requirements)))
    python = install_from_index(ENVIRONMENTS / name, *list_packages(requirements)) / "python"
    replace_wheel(python, wheel)
    return python


def main(wanted: Sequence[str]) -> int:
    """Execute every page, or those whose path contains one of the words; return how many failed or could not be tried."""
    groups: dict[tuple[str, ...], list[Path]] = defaultdict(list)
    for page in PAGES:
        if is_executed(page) and (not wanted or any(word in page_id(page) for word in wanted)):
            groups[find_requirements(page.read_text(encoding="utf-8"))].append(page)
    if not groups:
        print(f"no page that is executed has {' or '.join(wanted)} in its path")
        return 1
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        try:
            wheel = build_wheel(ROOT, Path(folder) / "wheel")
        except pytest.skip.Exception as lacking:
            print(f"no page can be tried, since proctor {lacking.msg}")
            return sum(map(len, groups.values()))
        for requirements, pages in groups.items():
            failed += _try_pages(requirements, pages, wheel, Path(folder))
    print(f"{sum(map(len, groups.values()))} pages in {len(groups)} environments, {failed} failed")
    return failed


def _try_pages(requirements: Sequence[str], pages: Sequence[Path], wheel: Path, folder: Path) -> int:
    """Execute pages that name the same requirements; returns how many failed, all of them where those cannot be installed."""
    began = time.monotonic()
    try:
        python = install(requirements, wheel)
    except pytest.skip.Exception as lacking:
        print(f"{' '.join(requirements)}  ({lacking.msg})", *(f"  FAIL  {page_id(page)}" for page in pages), sep="\n", flush=True)
        return len(pages)
    print(f"{' '.join(requirements)}  (installed in {time.monotonic() - began:.1f} s)", flush=True)
    failed = 0
    for page in pages:
        began = time.monotonic()
        done = run_page(python, page, folder / page_id(page) / "here")
        failed += done.returncode != 0
        print(f"  {'ok  ' if done.returncode == 0 else 'FAIL'}  {time.monotonic() - began:4.1f} s  {page_id(page)}", flush=True)
        if done.returncode != 0:
            print(done.stdout + done.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
