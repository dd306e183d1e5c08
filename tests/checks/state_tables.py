"""Decide an end-state check from a table row with `spec`, `state` and the expected verdict.

`expect` may hold `outcome`, `score`, `code`, `reason` (a part of it, or a list of parts), `details` (a part of them), `pointers`,
`fault` (the code of a check that could not be decided) and `spec_error` (the field that cannot be used).
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from proctor.checks.registry import default_registry
from proctor.errors import CheckFault, SpecError
from proctor.model.evidence import Evidence
from proctor.model.verdict import Verdict


def decide(check: str, spec: dict[str, Any], evidence: dict[str, Any]) -> Verdict:
    """The verdict of a check on plain evidence."""
    entry = default_registry().get(check)
    return entry.prepare(msgspec.convert(spec, entry.spec))(msgspec.convert(evidence, Evidence))


def verify(check: str, row: dict[str, Any]) -> None:
    """Decide a row and compare with what it expects."""
    expect = row["expect"]
    evidence = {**row.get("evidence", {}), **({"state": row["state"]} if "state" in row else {})}
    if "spec_error" in expect:
        with pytest.raises(SpecError) as refused:
            decide(check, row["spec"], evidence)
        assert refused.value.field == expect["spec_error"]
        assert expect.get("reason", "") in refused.value.message
        return
    if "fault" in expect:
        with pytest.raises(CheckFault) as fault:
            decide(check, row["spec"], evidence)
        assert fault.value.code == expect["fault"]
        assert expect.get("reason", "") in fault.value.message
        return
    verdict = decide(check, row["spec"], evidence)
    assert verdict.outcome == expect["outcome"], verdict.reason
    assert verdict.score == pytest.approx(expect.get("score", 1.0 if verdict.passed else 0.0))
    assert verdict.code == expect.get("code")
    parts = expect.get("reason", [])
    for part in [parts] if isinstance(parts, str) else parts:
        assert part in verdict.reason
    for key, value in expect.get("details", {}).items():
        assert verdict.details[key] == value
    if "pointers" in expect:
        assert list(verdict.pointers) == expect["pointers"]
    # A verdict repeats exactly.
    assert decide(check, row["spec"], evidence) == verdict
