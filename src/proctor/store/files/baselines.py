"""Keeps which run every suite is compared with, in `<home>/baseline.json`: `{"runs": {"suite name": "run id"}}`."""

import os
from pathlib import Path

import msgspec

from proctor.errors import StoreError
from proctor.model.json_values import write_document
from proctor.model.typed import decode_json

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
        """Choose the run that a suite is compared with. Raises `StoreError`."""
        self._write({**self.read(), suite: run_id})

    def unset(self, suite: str | None = None) -> list[str]:
        """Forget the baseline of a suite, or all; returns the ids of the runs that were chosen. No run is deleted."""
        if suite is None:
            try:
                known = self.read()
            except StoreError:
                known = {}  # a broken file is forgotten too
            self._path.unlink(missing_ok=True)
            return list(known.values())
        known = self.read()
        gone = known.pop(suite, None)
        self._write(known)
        return [] if gone is None else [gone]

    def _write(self, runs: dict[str, str]) -> None:
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}.part")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(write_document(_BaselineFile(runs)))
            # Atomic: a concurrent reader gets the old file or the new one.
            os.replace(partial, self._path)
        except OSError as error:
            raise StoreError(f"the baseline {str(self._path)!r} cannot be written: {error.strerror}") from error
