"""`records_match` by table."""

from __future__ import annotations

from tests.checks.state_tables import verify
from tests.tables import rows


@rows("checks/cases/records.yaml")
def test_records_match_decides(row):
    verify("records_match", row)
