"""References to runs: one rule for every command and for MCP.

    a path          the folder of a run
    20261115-...    a whole id, or the beginning of one that no other run shares
    latest          the newest run; `previous` the one before it
    baseline, main  the run that `proctor baseline set` chose for the suite; where none is set, `main` is the newest run of that name
    @nightly        the newest run with this tag
    v2              the newest run with this name

Many runs may have one name: the newest is meant, and `RunMatch.note` mentions it.

Names of runs have rules, so that a word on the command line is never ambiguous. The baseline run of every suite is stored in
`<home>/baseline.json`: `{"runs": {"suite name": "run id"}}`.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from proctor.errors import InputError, StoreError
from proctor.model.json_values import write_document
from proctor.model.run import RunHeader
from proctor.model.show import is_seen, suggest
from proctor.model.typed import decode_json

LATEST, PREVIOUS, BASELINE, MAIN = "latest", "previous", "baseline", "main"
RESERVED = (LATEST, PREVIOUS, BASELINE)
"""Words that cannot be names, because they refer to changing runs; `main` may be a name."""
SET_ONE = "`proctor baseline set RUN` chooses one"


class RunMatch(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a reference means."""

    folder: Path
    note: str | None = None
    """Which run was chosen and why, if the reference alone does not show it."""


class RunReferences:
    """The runs of one folder, found by reference."""

    def __init__(self, runs: Path, list_ids: Callable[[], list[str]], read_header: Callable[[Path], RunHeader]) -> None:
        """`list_ids` returns all ids, newest first; `read_header` raises `StoreError` for an unreadable run."""
        self._runs = runs
        self._list_ids = list_ids
        self._read_header = read_header

    def find(self, word: str, *, suite: str | None = None) -> RunMatch:
        """Return the run of a reference; `suite` decides whose baseline, if there are several. Raises `StoreError`."""
        if word.startswith("@") and len(word) > 1:
            return self._find_newest(word, [run_id for run_id, header in self._headers() if word[1:] in header.tags], "tagged")
        if word in (BASELINE, MAIN):
            return self._find_baseline(word, suite)
        ids = self._list_ids()
        if word in (LATEST, PREVIOUS):
            number = (LATEST, PREVIOUS).index(word)
            if len(ids) > number:
                return RunMatch(folder=self._runs / ids[number], note=f"{word} is {ids[number]}")
            raise StoreError(f"no run {word!r}: {self._list_known(ids)}")
        named = [run_id for run_id, header in self._headers() if header.name == word]
        if named:
            return self._find_newest(word, named, "named")
        fitting = [run_id for run_id in ids if word and run_id.startswith(word)]
        if len(fitting) == 1:
            return RunMatch(folder=self._runs / fitting[0])
        if fitting:
            raise StoreError(f"{word!r} could be any of {', '.join(fitting[:5])}")
        names = sorted({header.name for _, header in self._headers() if header.name})
        raise StoreError(f"no run {word!r}; {self._list_known(ids)}" + suggest(word, [*names, LATEST, PREVIOUS, BASELINE]))

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

    def _find_newest(self, word: str, fitting: Sequence[str], how: str) -> RunMatch:
        if not fitting:
            known = sorted({f"@{tag}" for _, header in self._headers() for tag in header.tags})
            hint = suggest(word, known) or (f"; tags there are: {', '.join(known[:5])}" if known else "")
            raise StoreError(f"no run is tagged {word!r}{hint}")
        several = f", the newest of {len(fitting)} runs {how} so" if len(fitting) > 1 else ""
        return RunMatch(folder=self._runs / fitting[0], note=f"{word} is {fitting[0]}{several}")

    def _find_baseline(self, word: str, suite: str | None) -> RunMatch:
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
        return RunMatch(folder=self._runs / run_id, note=f"the baseline is {run_id}")

    def _list_known(self, ids: Sequence[str]) -> str:
        return f"there are {', '.join(ids[:5])}" if ids else f"there are no runs in {str(self._runs)!r} yet"


def is_path(word: str) -> bool:
    """Return whether a word is the path of a run's folder."""
    return os.sep in word


LONGEST = 100
_LIKE_AN_ID = re.compile(r"[0-9]{8}-[0-9]{6}-")


def check_name(name: str) -> None:
    """Raise `InputError` for a name that could not be used to find the run again."""
    if not name:
        return
    _check_word("name", name)
    if name in RESERVED:
        raise InputError(f"a run cannot be named {name!r}, which always means another run; names that are taken: {', '.join(RESERVED)}")
    if name.startswith("@"):
        raise InputError(f"a run cannot be named {name!r}: @ marks a tag; --tag {name[1:] or 'TAG'}")
    if _LIKE_AN_ID.match(name):
        raise InputError(f"a run cannot be named {name!r}, which looks like the id of a run")


def check_tag(tag: str) -> None:
    """Raise `InputError` for a tag that could not be used to find the run again."""
    if not tag:
        raise InputError("a tag of a run is empty")
    _check_word("tag", tag)
    if tag.startswith("@") or any(char.isspace() or char == "," for char in tag):
        raise InputError(f"the tag {tag!r} is no single word; for example: --tag nightly")


def read_tags(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the tags from the flags, each once; a flag may hold several, separated by commas."""
    return tuple(dict.fromkeys(tag.strip() for text in texts for tag in text.split(",") if tag.strip()))


def _check_word(kind: str, text: str) -> None:
    if len(text) > LONGEST:
        raise InputError(f"the {kind} of a run has at most {LONGEST} characters, found {len(text)}")
    if "/" in text or "\\" in text or text != text.strip() or not all(is_seen(char) for char in text):
        raise InputError(f"the {kind} {text!r} has a slash, space at an end or a character that cannot be seen; use plain words")


BASELINE_FILE = "baseline.json"


class _BaselineFile(msgspec.Struct, frozen=True):
    runs: dict[str, str] = {}


class Baselines:
    """The baselines of a workspace, one for each suite."""

    def __init__(self, home: Path) -> None:
        self._path = home / BASELINE_FILE

    def read(self) -> dict[str, str]:
        """Return the ids of the runs by the names of their suites. Raises `StoreError`."""
        try:
            return dict(decode_json(self._path.read_bytes(), _BaselineFile).runs)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreError(f"the baseline {str(self._path)!r} cannot be read: {error.strerror}") from error
        except msgspec.MsgspecError as error:
            raise StoreError(f"the baseline {str(self._path)!r} is broken: {error}; `proctor baseline unset` forgets it") from error

    def set(self, suite: str, run_id: str) -> None:
        """Set the baseline run of a suite. Raises `StoreError`."""
        self._write({**self.read(), suite: run_id})

    def unset(self, suite: str | None = None) -> list[str]:
        """Remove the baseline of a suite, or all, and return the run ids. No run is deleted."""
        if suite is None:
            try:
                known = self.read()
            except StoreError:
                known = {}  # an invalid file is removed too
            self._path.unlink(missing_ok=True)
            return list(known.values())
        known = self.read()
        removed = known.pop(suite, None)
        self._write(known)
        return [] if removed is None else [removed]

    def _write(self, runs: dict[str, str]) -> None:
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}.part")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(write_document(_BaselineFile(runs)))
            # Atomic: a concurrent reader gets the old file or the new one.
            os.replace(partial, self._path)
        except OSError as error:
            raise StoreError(f"the baseline {str(self._path)!r} cannot be written: {error.strerror}") from error
