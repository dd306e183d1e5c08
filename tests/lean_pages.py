"""Executes the pages of the documentation where proctor is really installed, with what each page names and nothing else.

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

from tests.executed_page import PAGES, ROOT, find_requirements, is_executed, page_id, run_page
from tests.foreign import build_wheel, install_from_index, replace_wheel
from tests.lean_environment import PROJECT, list_extras

ENVIRONMENTS = Path(os.environ.get("PROCTOR_FRAMEWORKS") or ROOT / ".frameworks") / "lean"


def list_packages(requirements: Sequence[str]) -> list[str]:
    """What an installer is asked for: everything that proctor needs with these extras, and the other packages."""
    needed = {*PROJECT["dependencies"], *(need for extra in list_extras(requirements) for need in PROJECT["optional-dependencies"][extra])}
    return sorted(word for word in (*needed, *requirements) if not re.match(r"proctor(?![\w-])", word))


def install(requirements: Sequence[str], wheel: Path) -> Path:
    """Return the Python of an environment that holds what is required, and this wheel of proctor."""
    name = "-".join(re.findall(r"\w+", " ".join(requirements)))
    python = install_from_index(ENVIRONMENTS / name, *list_packages(requirements)) / "python"
    replace_wheel(python, wheel)
    return python


def main(wanted: Sequence[str]) -> int:
    """Execute every page, or those whose path holds one of the words; returns how many failed."""
    groups: dict[tuple[str, ...], list[Path]] = defaultdict(list)
    for page in PAGES:
        if is_executed(page) and (not wanted or any(word in page_id(page) for word in wanted)):
            groups[find_requirements(page.read_text(encoding="utf-8"))].append(page)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(ROOT, Path(folder) / "wheel")
        for requirements, pages in groups.items():
            began = time.monotonic()
            python = install(requirements, wheel)
            print(f"{' '.join(requirements)}  (installed in {time.monotonic() - began:.1f} s)", flush=True)
            for page in pages:
                began = time.monotonic()
                done = run_page(python, page, Path(folder) / page_id(page) / "here")
                failed += done.returncode != 0
                print(f"  {'ok  ' if done.returncode == 0 else 'FAIL'}  {time.monotonic() - began:4.1f} s  {page_id(page)}", flush=True)
                if done.returncode != 0:
                    print(done.stdout + done.stderr)
    print(f"{sum(map(len, groups.values()))} pages in {len(groups)} environments, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
