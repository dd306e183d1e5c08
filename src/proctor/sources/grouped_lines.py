"""Lines of a log that belong to one run, by the `group` of a mapping."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.values.json_bytes import decode
from proctor.model.account import PARTS, Account, Part
from proctor.model.evidence import Evidence, Source
from proctor.model.mapping import EvidenceMap

_WORD = re.compile(rb"[\w.:-]+")
_SEARCHED_BYTES = 10_000
"""Bytes of a line that is not JSON in which names of runs are looked for."""


class _Run(msgspec.Struct):
    """The lines of one run, and the positions of its first and its last one in the file."""

    source: Source
    lines: list[bytes]
    first: int
    last: int


class GroupedLines:
    """Lines of a file by the run they belong to; runs may be interleaved, so they are held until the file ends."""

    def __init__(self, paths: EvidenceMap) -> None:
        from proctor.evidence.mapping.read import compile_mapping  # most evidence needs no mapping

        self._mapping = compile_mapping(paths)
        self._runs: dict[str, _Run] = {}
        self._broken: list[tuple[int, frozenset[str], str]] = []
        """Lines that are not JSON: the position of each, the words in it, which may name its run, and why it cannot be read."""
        self._count = 0

    def add(self, line: bytes, source: Source) -> None:
        """Add a line. Raises `EvidenceError` for a line that is not JSON or has no value of `group`."""
        self._count += 1
        try:
            value = decode(line)
        except EvidenceError as error:
            words = frozenset(word.decode(errors="replace") for word in _WORD.findall(line[:_SEARCHED_BYTES]))
            self._broken.append((self._count, words, f"line {source.line} cannot be read: {error.message}"))
            raise
        name = self._mapping.find_group(value)
        if name is None:
            raise EvidenceError(self._mapping.explain_no_group(value))
        run = self._runs.setdefault(name, _Run(Source(source.file, source.line, name), [], self._count, self._count))
        run.lines.append(line)
        run.last = self._count

    def read(self) -> Iterator[tuple[Evidence | EvidenceError, Source]]:
        """Yield the runs in the order of their first lines, or why they cannot be read, and forget them."""
        runs, broken, self._runs, self._broken = self._runs, self._broken, {}, []
        named = {name: why for _, words, why in broken for name in words & runs.keys()}
        # A line that names no run may belong to any that goes on after it.
        unnamed = [(place, why) for place, words, why in broken if words.isdisjoint(runs)]
        for name, run in runs.items():
            after = bisect_right(unnamed, (run.first, ""))
            is_inside = after < len(unnamed) and unnamed[after][0] < run.last
            lost = unnamed[after][1] if is_inside else named.get(name)
            try:
                evidence = self._mapping.read([decode(line) for line in run.lines])
                yield evidence if lost is None else _mark_lost(evidence, lost), run.source
            except EvidenceError as error:
                yield error, run.source


def _mark_lost(evidence: Evidence, why: str) -> Evidence:
    """Return the evidence of a run of which a line is lost: it may have held any part."""
    account = evidence.account or Account()
    unknown: dict[Part, str] = {**account.unknown, **dict.fromkeys(PARTS, why)}
    return msgspec.structs.replace(evidence, account=msgspec.structs.replace(account, unknown=unknown, overridable=(), seen_tools=()))
