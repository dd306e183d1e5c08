"""What the readers of a native suite share: who reads one case, and what every case has."""

from __future__ import annotations

from typing import Protocol

import msgspec

from proctor.checks.registry import CheckEntry, Registry
from proctor.formats.text.located import Located, Reading
from proctor.model.case import Assertion, Case, Scoring
from proctor.model.evidence import Json
from proctor.model.name_table import TakenNames
from proctor.model.system import System


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults of every case of a suite."""

    context: dict[str, Json] = {}
    systems: tuple[System, ...] = ()
    timezone: str | None = None
    scoring: Scoring = Scoring()
    tags: dict[str, Json] = {}


class CaseReader(Protocol):
    """Reads one case of the native format."""

    def read_case(self, node: Located, given_id: str | None, taken: TakenNames, shared: Shared) -> Case | None:
        """Return the case; None after a problem."""
        ...

    def read_assertion(self, node: Located, turn: int | None) -> Assertion | None:
        """Return one claim of a case; None after a problem."""
        ...

    @property
    def case_keys(self) -> tuple[str, ...]:
        """The keys of a case."""
        ...

    @property
    def registry(self) -> Registry:
        """The checks there are."""
        ...

    def make_label(self, entry: CheckEntry, spec: msgspec.Struct) -> str:
        """Return what a claim without a label is called."""
        ...

    def with_reading(self, reading: Reading, known: dict[int, Assertion | None]) -> CaseReader:
        """Return a reader that reports to `reading`, and that knows the claims at some nodes already."""
        ...
