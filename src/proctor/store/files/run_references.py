"""References to runs: one rule for every command and for MCP.

    a path          the folder of a run
    20261115-...    a whole id, or the beginning of one that no other run shares
    latest          the newest run; `previous` the one before it
    baseline, main  the run that `proctor baseline set` chose for the suite; where none is set, `main` is the newest run of that name
    @nightly        the newest run with this tag
    v2              the newest run with this name

Many runs may have one name: the newest is meant, and `Found.note` mentions it.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from proctor.errors import StoreError
from proctor.model.run import RunHeader
from proctor.model.show import nearest
from proctor.store.files.baselines import Baselines

LATEST, PREVIOUS, BASELINE, MAIN = "latest", "previous", "baseline", "main"
RESERVED = (LATEST, PREVIOUS, BASELINE)
"""Words that are no names, as they mean another run every time; `main` may be one."""
SET_ONE = "`proctor baseline set RUN` chooses one"


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a word means."""

    folder: Path
    note: str | None = None
    """Why this one, if the reference does not make it clear."""


class RunReferences:
    """The runs of one folder, found by reference."""

    def __init__(self, runs: Path, list_ids: Callable[[], list[str]], read_header: Callable[[Path], RunHeader]) -> None:
        """`list_ids` gives all ids, newest first; `read_header` raises `StoreError` for a run that is broken."""
        self._runs = runs
        self._list_ids = list_ids
        self._read_header = read_header

    def find(self, word: str, *, suite: str | None = None) -> Found:
        """Return the run of a reference; `suite` decides whose baseline, if there are several. Raises `StoreError`."""
        if word.startswith("@") and len(word) > 1:
            return self._find_newest(word, [run_id for run_id, header in self._headers() if word[1:] in header.tags], "tagged")
        if word in (BASELINE, MAIN):
            return self._find_baseline(word, suite)
        ids = self._list_ids()
        if word in (LATEST, PREVIOUS):
            number = (LATEST, PREVIOUS).index(word)
            if len(ids) > number:
                return Found(folder=self._runs / ids[number], note=f"{word} is {ids[number]}")
            raise StoreError(f"no run {word!r}: {self._list_known(ids)}")
        named = [run_id for run_id, header in self._headers() if header.name == word]
        if named:
            return self._find_newest(word, named, "named")
        return self._find_by_beginning(word, ids)

    def list_meant(self, word: str) -> list[str]:
        """Return the ids of all runs of a reference, newest first: every run with a tag or a name, else the only one."""
        if word.startswith("@"):
            return [run_id for run_id, header in self._headers() if word[1:] in header.tags]
        named = [run_id for run_id, header in self._headers() if header.name == word]
        return named or [self.find(word).folder.name]

    def _headers(self) -> Iterator[tuple[str, RunHeader]]:
        for run_id in self._list_ids():
            try:
                yield run_id, self._read_header(self._runs / run_id)
            except StoreError:
                continue  # an unreadable run has no name; `list` reports it

    def _find_newest(self, word: str, fitting: Sequence[str], how: str) -> Found:
        if not fitting:
            known = sorted({f"@{tag}" for _, header in self._headers() for tag in header.tags})
            close = nearest(word, known)
            there = f"; nearest: {', '.join(close)}" if close else f"; tags there are: {', '.join(known[:5])}" if known else ""
            raise StoreError(f"no run is tagged {word!r}{there}")
        several = f", the newest of {len(fitting)} runs {how} so" if len(fitting) > 1 else ""
        return Found(folder=self._runs / fitting[0], note=f"{word} is {fitting[0]}{several}")

    def _find_baseline(self, word: str, suite: str | None) -> Found:
        known = Baselines(self._runs.parent).read()
        if word == MAIN and (suite not in known if suite is not None else not known):
            named = [run_id for run_id, header in self._headers() if header.name == MAIN and suite in (None, header.suite_name)]
            if named:
                return self._find_newest(word, named, "named")
        if suite is None and len(known) > 1:
            raise StoreError(f"{word!r} could be the baseline of any of the suites {', '.join(map(repr, sorted(known)[:5]))}; name the run")
        run_id = known.get(suite) if suite is not None else next(iter(known.values()), None)
        if run_id is None:
            of = f" of the suite {suite!r}" if suite is not None else ""
            raise StoreError(f"there is no baseline{of} yet; {SET_ONE}")
        if not (self._runs / run_id).is_dir():
            raise StoreError(f"the baseline {run_id!r} was deleted; {SET_ONE}")
        return Found(folder=self._runs / run_id, note=f"the baseline is {run_id}")

    def _find_by_beginning(self, word: str, ids: Sequence[str]) -> Found:
        fitting = [run_id for run_id in ids if word and run_id.startswith(word)]
        if len(fitting) == 1:
            return Found(folder=self._runs / fitting[0])
        if fitting:
            raise StoreError(f"{word!r} could be any of {', '.join(fitting[:5])}")
        names = sorted({header.name for _, header in self._headers() if header.name})
        close = nearest(word, [*names, LATEST, PREVIOUS, BASELINE])
        raise StoreError(f"no run {word!r}; {self._list_known(ids)}" + (f"; nearest: {', '.join(close)}" if close else ""))

    def _list_known(self, ids: Sequence[str]) -> str:
        return f"there are {', '.join(ids[:5])}" if ids else f"there are no runs in {str(self._runs)!r} yet"


def is_path(word: str) -> bool:
    """Return whether a word is the path of a folder, which means itself."""
    return os.sep in word
