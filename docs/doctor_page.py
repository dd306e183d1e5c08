"""The reference page of the doctor, written from its table of checks."""

from __future__ import annotations

from itertools import groupby

from proctor.doctor.catalogue import CHECKS, find_profile
from proctor.doctor.model import REVISIONS, Check

_BEGIN = """<!-- Generated from the code by `python -m docs.generate`. Do not edit: change the code and run `make docs`. -->

# Checks of the doctor

What `proctor doctor` decides about an MCP server. [Examine your MCP server](../how-to/examine-your-mcp-server.md) shows it at work.

A broken **MUST** fails. A broken **SHOULD** or **MAY** is advice. The levels follow the specification where it has a word for the case;
for what a model reads (areas surface and security) they are our own.

| result | meaning |
|---|---|
| pass | the claim held |
| fail | a MUST is broken |
| advice | a SHOULD or MAY is broken |
| not applicable | the capability is not declared, or there is nothing of the kind; leaves the count |
| could not run | something else was in the way; stays in the count, and the result is incomplete |

The score: 95 points for the share of MUST checks that passed, 5 for advice (a SHOULD costs 2, a MAY 1). A result that failed or
is incomplete has at most 94.
"""


def checks_page() -> str:
    """Return the page: the profiles, and a table of checks for each area."""
    lines = [_BEGIN, "## Profiles", "", "A profile is frozen, so that scores can be compared. A new check belongs to the next version.", ""]
    lines += ["| profile | checks | of these MUST |", "|---|---:|---:|"]
    for revision in REVISIONS:
        profile = find_profile(revision)
        required = sum(check.level == "MUST" for check in profile.checks)
        lines.append(f"| `{profile.name}` | {len(profile.checks)} | {required} |")
    for area, checks in groupby(CHECKS, key=lambda check: check.area):
        lines += ["", f"## {area.capitalize()}", "", "| check | level | claim | revisions | clause |", "|---|---|---|---|---|"]
        lines += [_write_row(check) for check in checks]
    return "\n".join([*lines, ""])


def _write_row(check: Check) -> str:
    revisions = "all" if check.revisions == REVISIONS else f"{check.revisions[0]} on" if check.revisions[-1] == REVISIONS[-1] else ""
    revisions = revisions or (f"up to {check.revisions[-1]}" if len(check.revisions) > 1 else check.revisions[0])
    where = "" if len(check.transports) > 1 else f", {check.transports[0]}"
    claim = check.claim.replace("|", "\\|")
    page = check.find_page(check.revisions[-1])
    place = "/".join(page.rsplit("/")[5:]) if "/specification/" in page else check.clause
    return f"| `{check.id}` | {check.level} | {claim} | {revisions}{where} | [{place}]({page}) |"
