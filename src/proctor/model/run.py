"""The stored form of a run: a header, then one entry per finished attempt."""

import msgspec

from proctor.model.evidence import Cost, Evidence, Json, Usage
from proctor.model.verdict import Verdict


class RunHeader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings with which a run was started."""

    run_id: str
    started_at: str
    suite_name: str = ""
    suite_path: str | None = None
    suite_hash: str = ""
    """Of the suite in native form: a run is resumed only with the suite it was started with."""
    dialect: str = "native"
    target: str = ""
    repeat: int = 1
    planned: int | None = None
    """The number of planned attempts; None in runs of older versions."""
    note: str = ""
    name: str = ""
    """A name given to the run; several runs may share one, and the newest is meant."""
    tags: tuple[str, ...] = ()
    settings: dict[str, Json] = {}

    @property
    def title(self) -> str:
        """Name and note, as the web pages show a run; empty for a run without both."""
        return " · ".join(filter(None, (self.name, self.note)))


class RunEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finished attempt: its evidence and its verdicts."""

    case: str
    attempt: int = 0
    outcome: str
    score: float | None = None
    verdict: str | None = None
    code: str | None = None
    reason: str | None = None
    verdicts: tuple[Verdict, ...] = ()
    """In the order of the case's assertions."""
    extracted: dict[str, Json] = {}
    evidence: Evidence | None = None
    started_at: str = ""
    duration_ms: float | None = None
    """The duration of the whole attempt, including our own work."""
    now: str | None = None
    cost: Cost | None = None
    """By the prices at the time of the run."""

    def find_agent_ms(self) -> float | None:
        """Return the agent's duration from the evidence, else the duration of the attempt."""
        recorded = self.evidence.duration_ms if self.evidence is not None else None
        return recorded if recorded is not None else self.duration_ms


class DigestEvidence(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The fields of the evidence in a digest."""

    duration_ms: float | None = None
    usage: Usage | None = None


class EntryDigest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The fields of `RunEntry` that lists and comparisons read. The rest of its JSON is skipped."""

    case: str
    attempt: int = 0
    outcome: str
    score: float | None = None
    verdict: str | None = None
    code: str | None = None
    reason: str | None = None
    verdicts: tuple[Verdict, ...] = ()
    evidence: DigestEvidence | None = None
    started_at: str = ""
    duration_ms: float | None = None
    cost: Cost | None = None

    def find_agent_ms(self) -> float | None:
        """Return the agent's duration, as `RunEntry` does."""
        recorded = self.evidence.duration_ms if self.evidence is not None else None
        return recorded if recorded is not None else self.duration_ms
