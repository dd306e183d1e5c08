"""`file_present` by table."""

from __future__ import annotations

from tests.checks.state_tables import verify
from tests.tables import rows


@rows("checks/cases/files.yaml")
def test_file_present_decides(row):
    verify("file_present", row)
