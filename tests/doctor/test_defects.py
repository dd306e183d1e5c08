"""Every planted defect is reported by its check, and by no other."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from proctor.doctor.examine import Options, examine
from proctor.targets.mcp.settings import ServerSettings
from tests.doctor.servers import QUICK, SCRIPT, broken, look, unable
from tests.tables import load

DEFECTS: list[dict[str, Any]] = load("doctor/cases/defects.yaml")


@pytest.mark.in_turn
@pytest.mark.parametrize("row", DEFECTS, ids=[row["id"] for row in DEFECTS])
def test_a_planted_defect_is_reported_by_its_check_alone(row: dict[str, Any]) -> None:
    found = look(row["id"], transport=row.get("transport", "stdio"), revision=row["revision"], calls=row.get("calls", False))
    assert set(broken(found)) == {row["id"]}, broken(found)
    assert bool(unable(found)) == row.get("ends", False), unable(found)
    evidence = next(finding.evidence for finding in found.findings if finding.check == row["id"])
    assert all(message.number and message.direction in ("sent", "received") for message in evidence)


def test_at_least_sixty_defects_are_planted_each_for_another_check() -> None:
    assert len({row["id"] for row in DEFECTS}) >= 60


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_correct_server_with_tools_alone_has_no_finding_and_what_it_lacks_does_not_count(transport: str) -> None:
    found = look(transport=transport, arguments=("--tools-only",))
    assert not broken(found) and not unable(found) and found.score == 100
    skipped = {finding.area for finding in found.findings if finding.verdict == "not_applicable"}
    assert {"resources", "prompts", "utilities", "subscriptions"} <= skipped


def test_output_that_is_no_message_is_reported_although_it_is_buffered_until_the_end() -> None:
    program = f"import runpy, sys; print('Listening on stdio'); sys.argv = ['x']; runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    settings = ServerSettings(id="banner", command=sys.executable, args=("-S", "-c", program))
    found = asyncio.run(examine(settings, Options(profiles=("mcp-2025-11-25@1",), **QUICK)))
    assert broken(found) == {"stdio-only-messages": "standard output has 1 other line, such as 'Listening on stdio'"}


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_a_server_of_one_era_is_examined_in_that_era_alone(era: str) -> None:
    found = look(arguments=("--era", era))
    assert not broken(found) and not unable(found)
    assert [part.revision for part in found.examined] == ["2025-11-25" if era == "handshake" else "2026-07-28"]
    assert len(found.notes) == 1 and "is not spoken" in found.notes[0]


@pytest.mark.in_turn
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_correct_server_has_no_finding_in_either_era(transport: str) -> None:
    found = look(transport=transport, calls=True)
    assert not broken(found) and not unable(found)
    assert [part.revision for part in found.examined] == ["2025-11-25", "2026-07-28"]
    assert found.score == 100 and not found.failed and not found.incomplete
