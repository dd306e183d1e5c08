"""`hl7_message` by table."""

from __future__ import annotations

from tests.checks.state_tables import verify
from tests.tables import rows


@rows("checks/cases/hl7.yaml")
def test_hl7_message_decides(row):
    verify("hl7_message", row)
