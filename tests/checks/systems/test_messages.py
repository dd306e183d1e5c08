"""`message_sent` by table."""

from __future__ import annotations

from tests.checks.state_tables import verify
from tests.tables import rows


@rows("checks/cases/messages.yaml")
def test_message_sent_decides(row):
    verify("message_sent", row)
