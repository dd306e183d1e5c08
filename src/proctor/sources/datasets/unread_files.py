"""What lies in the folders of a data set and is not read, so that somebody can say so: figures are about less than the folder holds."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator

from proctor.report.words.wording import count_noun

_DATA = re.compile(
    r".*\.(?:(?:json|jsonl|ndjson|parquet|pq|csv|tsv|avro|orc|arrow|feather|log)(?:[-.]\w+)?|gz|zst|zstd|bz2|xz|lz4|snappy|br|zip|tar|tgz)",
    re.IGNORECASE,
)
"""Names of files that may hold traces; what else lies in a folder is of no concern."""
_MOST_ENDINGS = 5


class LeftOut:
    """What was found and is not read."""

    def __init__(self) -> None:
        self._endings: Counter[str] = Counter()
        self._first = ""
        self._links: list[str] = []
        self._twice: list[tuple[str, str]] = []
        self._batches: list[str] = []

    def note_file(self, name: str) -> None:
        """Note a file whose name tells that no reader is there for it."""
        base = name.replace(os.sep, "/").rpartition("/")[2]
        if not base.startswith((".", "_")) and _DATA.fullmatch(base):
            self._endings[f".{base.rpartition('.')[2].lower()}"] += 1
            self._first = self._first or name

    def note_link(self, name: str) -> None:
        """Note a link to a folder."""
        self._links.append(name)

    def note_second_name(self, name: str, first: str) -> None:
        """Note a file that has two names."""
        self._twice.append((name, first))

    def note_batch(self, folder: str) -> None:
        """Note the output of another batch."""
        self._batches.append(folder)

    def describe(self, suffixes: str) -> Iterator[str]:
        """Yield what a summary warns of."""
        if self._endings:
            number = self._endings.total()
            told = ", ".join(f"{ending} ({count:,})" for ending, count in self._endings.most_common(_MOST_ENDINGS))
            verb = "is" if number == 1 else "are"
            yield (
                f"{count_noun(number, 'file')} in the folders {verb} not read: {told}, for example {self._first}; "
                f"a batch reads files ending in {suffixes}"
            )
        if self._twice:
            name, first = self._twice[0]
            what = "1 file has two names and is" if len(self._twice) == 1 else f"{len(self._twice):,} files have two names and are"
            yield f"{what} read once: {name} is {first}"
        if self._links:
            what = "1 link to a folder is" if len(self._links) == 1 else f"{len(self._links):,} links to folders are"
            yield f"{what} not followed: {self._links[0]}; name it as a place of its own"
        if self._batches:
            many = f"{len(self._batches):,} folders hold what came of other batches and are"
            what = "1 folder holds what came of another batch and is" if len(self._batches) == 1 else many
            yield f"{what} not read: {self._batches[0]}"
