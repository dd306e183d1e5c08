"""Lines of a log that belong to one run, by the `group` of a mapping."""

from __future__ import annotations

from collections.abc import Iterator

from proctor.errors import EvidenceError
from proctor.evidence.values.json_bytes import decode
from proctor.model.evidence import Evidence, Source
from proctor.model.mapping import EvidenceMap


class GroupedLines:
    """Lines of a file by the run they belong to; runs may be interleaved, so they are held until the file ends."""

    def __init__(self, paths: EvidenceMap) -> None:
        from proctor.evidence.mapping.read import compile_mapping  # most evidence needs no mapping

        self._mapping = compile_mapping(paths)
        self._runs: dict[str, tuple[Source, list[bytes]]] = {}

    def add(self, line: bytes, source: Source) -> None:
        """Add a line. Raises `EvidenceError` for a line that is not JSON or has no value of `group`."""
        value = decode(line)
        name = self._mapping.find_group(value)
        if name is None:
            raise EvidenceError(self._mapping.explain_no_group(value))
        self._runs.setdefault(name, (Source(source.file, source.line, name), []))[1].append(line)

    def read(self) -> Iterator[tuple[Evidence | EvidenceError, Source]]:
        """Yield the runs in the order of their first lines, or why they cannot be read, and forget them."""
        runs, self._runs = self._runs, {}
        for source, lines in runs.values():
            try:
                yield self._mapping.read([decode(line) for line in lines]), source
            except EvidenceError as error:
                yield error, source
