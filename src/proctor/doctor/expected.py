"""Expected failures: a list of checks that may fail for now. One that does not fail any more is stale, and fails itself.

# why
unknown-tool
stdio-only-messages@2025-11-25     only in this revision
"""

from __future__ import annotations

import msgspec

from proctor.doctor.catalogue import CHECKS
from proctor.doctor.model import BROKEN, REVISIONS, Examination
from proctor.errors import InputError
from proctor.model.show import nearest


def read_expected(text: str, name: str) -> tuple[str, ...]:
    """Return the entries of a file. Raises `InputError` with the line of an unknown check."""
    known = {check.id for check in CHECKS}
    found: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.partition("#")[0].split()
        if not entry:
            continue
        check, _, revision = entry[0].partition("@")
        if check not in known:
            close = nearest(check, known)
            raise InputError(f"{name}:{number}: unknown check {check!r}" + (f"; nearest: {', '.join(close)}" if close else ""))
        if revision and revision not in REVISIONS:
            raise InputError(f"{name}:{number}: unknown revision {revision!r}; known: {', '.join(REVISIONS)}")
        found.append(entry[0])
    return tuple(found)


def apply_expected(found: Examination, entries: tuple[str, ...]) -> Examination:
    """Return the examination with its expected failures marked."""
    occurred: list[str] = []
    stale: list[str] = []
    for entry in entries:
        check, _, revision = entry.partition("@")
        hits = [
            finding
            for part in found.examined
            if not revision or part.revision == revision
            for finding in part.findings
            if finding.check == check
        ]
        if any(finding.verdict in BROKEN for finding in hits):
            occurred.append(entry)
        elif any(finding.verdict == "pass" for finding in hits):
            stale.append(entry)
    return msgspec.structs.replace(found, expected=tuple(dict.fromkeys(occurred)), stale=tuple(stale))
