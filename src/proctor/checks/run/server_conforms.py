"""What the doctor found for one of its checks, in every revision of the protocol that the server speaks. The findings are in the metadata.
A violation fails, unless it was expected. What could not run is an error, so silence is never a pass. Advice passes, with its reason.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.checks.registry import Reads, check
from proctor.model.evidence import Evidence
from proctor.model.verdict import Verdict, errored, failed, missing, passed, skipped


class ServerConforms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An MCP server was examined and keeps one rule."""

    rule: str
    """The check of the doctor, such as `unknown-tool`."""


@check("server_conforms", shorthand="rule", example="server_conforms: unknown-tool", reads=Reads((), "exact"))
def server_conforms(spec: ServerConforms, evidence: Evidence) -> Verdict:
    """An MCP server was examined and keeps one rule; `proctor doctor` writes this claim."""
    given = evidence.metadata.get("findings")
    if not isinstance(given, list):
        return missing("findings of `proctor doctor`")
    findings: list[dict[str, Any]] = [each for each in given if isinstance(each, dict) and each.get("check") == spec.rule]
    if broken := _select(findings, "fail", expected=False):
        return failed(_join(broken), code=spec.rule)
    if unable := _select(findings, "could_not_run"):
        return errored("could_not_run", _join(unable))
    if known := _select(findings, "fail", expected=True):
        return skipped("expected_failure", f"expected: {_join(known)}")
    if advice := _select(findings, "advice"):
        return Verdict("pass", 1.0, f"advice ({advice[0].get('level')}): {_join(advice)}", "advice")
    if _select(findings, "pass"):
        return passed("no violation was found")
    if findings:
        return skipped("not_applicable", _join(findings))
    return skipped("not_examined", "no examined revision has this check")


def _select(findings: list[dict[str, Any]], verdict: str, *, expected: bool | None = None) -> list[dict[str, Any]]:
    return [each for each in findings if each.get("verdict") == verdict and expected in (None, bool(each.get("expected")))]


def _join(findings: list[dict[str, Any]]) -> str:
    """Return the reasons, each once, with the revisions they were found in."""
    revisions: dict[str, list[str]] = {}
    for each in findings:
        revisions.setdefault(str(each.get("reason", "")), []).append(str(each.get("revision", "")))
    return "; ".join(f"{reason} ({', '.join(filter(None, found))})" if any(found) else reason for reason, found in revisions.items())
