"""Fold the notes under `changes/` into `CHANGELOG.md`: `python -m docs.changelog VERSION DATE`, or `make changelog VERSION=0.2.0`.

A note is a file `changes/TOPIC.KIND.md` with one or two sentences about what users will notice. Notes are files of their own so that two
changes never meet in one line; a release gathers them under its heading and removes them.
"""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TITLES = {"feature": "New", "change": "Changed", "removal": "Removed", "fix": "Fixed"}
"""What each kind of note is gathered under, in this order."""
_HEAD = "# Changes\n\nWhat users notice, release by release; the newest first.\n"


def fold_notes(changelog: str, notes: dict[str, str], version: str, date: str) -> str:
    """Return the changelog with a section for `version` made of `notes`, which are texts by file name. Raises `ValueError`."""
    if f"\n## {version} " in changelog:
        raise ValueError(f"CHANGELOG.md has a section for {version} already")
    gathered: dict[str, list[str]] = {kind: [] for kind in TITLES}
    for name, text in sorted(notes.items()):
        match = re.fullmatch(r"[\w-]+\.(\w+)\.md", name)
        if match is None or match[1] not in TITLES:
            raise ValueError(f"changes/{name}: a note is called TOPIC.KIND.md, where KIND is one of {', '.join(TITLES)}")
        gathered[match[1]].append("* " + " ".join(text.split()))
    parts = [f"## {version} ({date})"]
    for kind, title in TITLES.items():
        if gathered[kind]:
            parts += [f"### {title}", "\n".join(gathered[kind])]
    earlier = changelog.removeprefix(_HEAD).strip()
    return "\n\n".join([_HEAD.strip(), *parts, *([earlier] if earlier else [])]) + "\n"


def fold_changes(root: Path, version: str, date: str) -> int:
    """Write the changelog of a checkout, remove the notes that are in it now, and return their number. Raises `ValueError`."""
    page, files = root / "CHANGELOG.md", [file for file in sorted((root / "changes").glob("*.md")) if file.name != "README.md"]
    if not files:
        raise ValueError("there are no notes under changes/")
    text = fold_notes(
        page.read_text(encoding="utf-8") if page.exists() else _HEAD,
        {file.name: file.read_text(encoding="utf-8") for file in files},
        version,
        date,
    )
    page.write_text(text, encoding="utf-8")
    for file in files:
        file.unlink()
    return len(files)


def find_section(changelog: str, version: str) -> str:
    """Return the text of one version in the changelog, without its heading."""
    _, found, rest = changelog.partition(f"\n## {version} ")
    return rest.partition("\n")[2].partition("\n## ")[0].strip() + "\n" if found else ""


def main(arguments: list[str]) -> int:
    """Write the changelog and remove the notes that are in it now."""
    if not arguments:
        print("which version? make changelog VERSION=0.2.0", file=sys.stderr)
        return 2
    date = arguments[1] if len(arguments) > 1 else datetime.now(UTC).date().isoformat()
    try:
        count = fold_changes(ROOT, arguments[0], date)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"folded {count} notes into CHANGELOG.md under {arguments[0]}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
