"""`x12_response` by table."""

from __future__ import annotations

from tests.checks.state_tables import verify
from tests.tables import rows


@rows("checks/cases/x12.yaml")
def test_x12_response_decides(row):
    verify("x12_response", row)
