"""Counts words that an engineer of this field would not use, per package of `src/`, in docs and tests; `make lint` fails if a count rises.

`python -m docs.plain_words` compares with `docs/plain_words.json`, `--write` stores lower counts, `--where PACKAGE` lists the places.
"""

from __future__ import annotations

import collections
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COUNTS = ROOT / "docs/plain_words.json"
WORDS = frozenset(
    re.findall(
        r"\w+",
        """told tell tells telling says said asked kept stands nobody somebody whoever beside behind doubt doubts doubted strange
        weigh weighs heed heeds room rooms floor floors wing wings doors anew hither mended""",
    )
)
"""Words that were listed by readers of the code; `docs/explanation/words.md` has the ones to use instead."""
_WORD = re.compile(r"[A-Za-z]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def count_words() -> dict[str, int]:
    """Return the number of listed words by package, in names, comments, messages and templates."""
    counts: collections.Counter[str] = collections.Counter()
    for package, _, _ in find_words():
        counts[package] += 1
    return dict(sorted(counts.items()))


def find_words() -> Iterator[tuple[str, str, str]]:
    """Yield package, place and line of every listed word."""
    for path in sorted([*(ROOT / "src/proctor").rglob("*"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.py")]):
        if path.suffix not in (".py", ".html", ".md", ".js") or "rubrics" in path.parts or "vendor" in path.parts:
            continue
        parts = path.relative_to(ROOT).parts
        package = parts[2].removesuffix(".py") if parts[0] == "src" else parts[0]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for word in _WORD.findall(_CAMEL.sub(" ", line)):
                if word.lower() in WORDS:
                    yield package, f"{'/'.join(parts)}:{number}", line.strip()


def main(arguments: list[str]) -> int:
    """Compare, store or list the counts."""
    if arguments[:1] == ["--where"]:
        print("\n".join(f"{place}: {line}" for package, place, line in find_words() if package in arguments[1:]))
        return 0
    now, before = count_words(), json.loads(COUNTS.read_text(encoding="utf-8")) if COUNTS.exists() else {}
    risen = {package: count for package, count in now.items() if count > before.get(package, 0 if before else count)}
    for package, count in risen.items():
        print(f"{package}: {count} words to avoid, {before.get(package, 0)} before; python -m docs.plain_words --where {package}")
    if not risen and (arguments == ["--write"] or not before):
        COUNTS.write_text(json.dumps(now, indent=2) + "\n", encoding="utf-8")
    return 1 if risen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
