"""The stored form of a run: a header, then one entry per finished attempt."""

import msgspec

from proctor.model.evidence import Cost, Evidence, Json, Usage
from proctor.model.verdict import Verdict


class RunHeader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run was started with."""

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
    """How many attempts the run is to make; nothing in runs of versions that did not keep it."""
    note: str = ""
    name: str = ""
    """A name given to the run; several runs may share one, and the newest is meant."""
    tags: tuple[str, ...] = ()
    settings: dict[str, Json] = {}


class RunEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finished attempt: the evidence it left and what was decided on it."""

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
    """Of the whole attempt, our own work included."""
    now: str | None = None
    cost: Cost | None = None
    """By the prices at the time of the run."""

    def find_agent_ms(self) -> float | None:
        """Return the agent's duration from the evidence, else the duration of the attempt."""
        recorded = self.evidence.duration_ms if self.evidence is not None else None
        return recorded if recorded is not None else self.duration_ms


class DigestEvidence(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a digest has of the evidence."""

    duration_ms: float | None = None
    usage: Usage | None = None


class EntryDigest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What lists and comparisons read of an attempt: fields of `RunEntry`. Everything else in its JSON is passed over."""

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
        """Return how long the agent took, as `RunEntry` does."""
        recorded = self.evidence.duration_ms if self.evidence is not None else None
        return recorded if recorded is not None else self.duration_ms
