"""`portal_record` by table."""

from __future__ import annotations

from tests.checks.state_tables import verify
from tests.tables import rows


@rows("checks/cases/portal.yaml")
def test_portal_record_decides(row):
    verify("portal_record", row)
