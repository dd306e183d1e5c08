"""Checks as a batch decides them at first: a claim that needs a judge is put off, and its case is decided by the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from proctor.checks.registry import CheckEntry, Decide, Registry
from proctor.model.evidence import Evidence
from proctor.model.judgement import PendingVerdict
from proctor.model.verdict import Verdict

NOT_SAMPLED = Verdict("skip", 0.0, "not judged: a batch asks about a sample, which is in `judged`", "not_sampled")


class WithoutJudge(Registry):
    """The checks of another registry; what would ask a judge gives `NOT_SAMPLED`."""

    def __init__(self, registry: Registry) -> None:
        super().__init__()
        self._registry = registry

    def get_for(self, name: str, spec: msgspec.Struct) -> CheckEntry:
        """Return the check that a spec belongs to."""
        entry = self._registry.get_for(name, spec)
        return msgspec.structs.replace(entry, prepare=_put_off(entry.prepare)) if entry.judged else entry


def _put_off(prepare: Callable[[Any], Decide]) -> Callable[[Any], Decide]:
    def prepare_without_judge(spec: Any) -> Decide:
        decide = prepare(spec)

        def decide_without_judge(evidence: Evidence) -> Verdict:
            verdict = decide(evidence)
            return NOT_SAMPLED if isinstance(verdict, PendingVerdict) else verdict

        return decide_without_judge

    return prepare_without_judge
